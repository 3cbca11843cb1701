"""``shoal-load URL...``: sends requests at a steady rate, and prints what came of them.

It is for trying rollouts: gateways count its requests as those of users. The rate does not depend on the answers; the
requests go to the URLs in turn.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
from collections import Counter
from collections.abc import Sequence
from urllib.parse import urlsplit

from shoal.base.clock import Clock, RealClock
from shoal.base.http1.connection import ClientConnection
from shoal.base.http1.dial import HttpAddress, dial
from shoal.base.http1.limits import Deadlines
from shoal.base.http1.messages import request_bytes
from shoal.errors import ShoalError

SHOW_S = 5.0
NO_ANSWER = "no answer"
_TICK_S = 0.01
_CONNECT_S = 5.0
_ANSWER_S = 30.0
_MOST_UNDER_WAY = 1000  # requests; more are not sent while the app answers none


class LoadTarget:
    """Requests to one URL, over connections that are used again."""

    def __init__(self, url: str, host: str, clock: Clock) -> None:
        """``host`` is sent with the requests; that of the URL if it is empty. Raises ValueError for another URL."""
        parts = urlsplit(url if "//" in url else f"http://{url}")
        if parts.scheme != "http" or not parts.hostname:
            raise ValueError(f"{url!r} is not a URL of the form http://HOST:PORT/PATH")
        self._address = HttpAddress(parts.hostname, parts.port or 80)
        self._data = request_bytes("GET", parts.path or "/", [("host", host or parts.netloc)])
        self._clock = clock
        self._idle: list[ClientConnection] = []

    async def ask(self) -> str:
        """The status of one answer, or that there was none."""
        try:
            while self._idle and not self._idle[-1].reusable:
                self._idle.pop()
            connection = (
                self._idle.pop() if self._idle else await dial(self._address, clock=self._clock, connect_s=_CONNECT_S)
            )
            reply = await connection.request(self._data, Deadlines(total_s=_ANSWER_S))
        except ShoalError:
            return NO_ANSWER
        self._idle.append(connection)
        return str(reply.status)

    async def close(self) -> None:
        for connection in self._idle:
            await connection.close()


async def send(
    targets: Sequence[LoadTarget], *, rate: float, clock: Clock, until: asyncio.Event, for_s: float, tally: Counter[str]
) -> None:
    """Send ``rate`` requests a second until the event, or for so long; then wait for the answers."""
    began, sent, under_way = clock.monotonic(), 0, 0

    async def one(target: LoadTarget) -> None:
        nonlocal under_way
        under_way += 1
        tally[await target.ask()] += 1
        under_way -= 1

    async with asyncio.TaskGroup() as group:
        while not until.is_set() and (lasts_s := clock.monotonic() - began) < for_s:
            while sent < lasts_s * rate:
                if under_way < _MOST_UNDER_WAY:
                    group.create_task(one(targets[sent % len(targets)]), name=f"request/{sent}")
                sent += 1
            await clock.sleep(_TICK_S)
    for target in targets:
        await target.close()


def text_of(tally: Counter[str]) -> str:
    shown = ", ".join(f"{status}: {count}" for status, count in sorted(tally.items()))
    return f"{sum(tally.values())} requests" + (f" ({shown})" if shown else "")


async def run(targets: Sequence[LoadTarget], *, rate: float, for_s: float, clock: Clock) -> None:
    """Until SIGTERM, SIGINT or the time is over; prints the counts now and then and at the end."""
    ended, tally = asyncio.Event(), Counter[str]()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)

    async def show() -> None:
        while True:
            await clock.sleep(SHOW_S)
            print(text_of(tally), flush=True)

    async with asyncio.TaskGroup() as group:
        shown = group.create_task(show(), name="show")
        await send(targets, rate=rate, clock=clock, until=ended, for_s=for_s, tally=tally)
        shown.cancel()
    print(text_of(tally), flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="shoal-load", description="Send requests at a steady rate.")
    parser.add_argument("url", nargs="+", help="http://HOST:PORT/PATH, or HOST:PORT; requests go to them in turn")
    parser.add_argument("--host", default="", help="the Host of the requests; default: the URL's")
    parser.add_argument("--rate", type=float, default=50.0, help="requests a second in all (50)")
    parser.add_argument("--for", type=float, default=600.0, dest="for_s", metavar="SECONDS", help="(600)")
    given, clock = parser.parse_args(arguments), RealClock()
    if not 0 < given.rate <= 10_000:
        parser.error("--rate must be more than 0, and 10000 at most")
    try:
        targets = [LoadTarget(url, given.host, clock) for url in given.url]
    except ValueError as error:
        parser.error(str(error))
    asyncio.run(run(targets, rate=given.rate, for_s=given.for_s, clock=clock))
    return 0


if __name__ == "__main__":
    sys.exit(main())
