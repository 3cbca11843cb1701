"""The requests that `shoal up` sends to the demo app."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from shoal.app.demo.trickle import INTERVAL_S, REQUESTS, send_trickle
from shoal.base.clock import FakeClock
from shoal.testing.waiting import eventually


class Clock(FakeClock):
    """Tells whether the next request is waited for; limits of connections are timers, and do not count."""

    def __init__(self) -> None:
        super().__init__()
        self.sleeping = 0

    async def sleep(self, seconds: float) -> None:
        self.sleeping += 1
        try:
            await super().sleep(seconds)
        finally:
            self.sleeping -= 1


class Gateway:
    """Answers requests and keeps their Host."""

    def __init__(self) -> None:
        self.hosts: list[str] = []
        self.address = ""

    async def start(self) -> asyncio.Server:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        return server

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
                self.hosts.append(head.split(b"host: ")[1].split(b"\r\n")[0].decode())
        except asyncio.IncompleteReadError:
            writer.close()


async def test_a_gateway_gets_a_request_each_second_and_one_that_replaces_it_is_found() -> None:
    clock, old, new, gone = Clock(), Gateway(), Gateway(), "127.0.0.1:9"  # nothing listens on the last
    servers = [await old.start(), await new.start()]
    answers: list[Mapping[str, str]] = [{}, {"eu": old.address, "us": gone}, {"eu": new.address}]

    async def addresses() -> Mapping[str, str]:
        return answers.pop(0)

    task = asyncio.create_task(send_trickle(addresses, "welcome.localhost", clock), name="trickle")
    try:
        for gateway, many in ((old, REQUESTS), (new, 1)):
            for sent in range(many):
                while len(gateway.hosts) <= sent:
                    await eventually(lambda: clock.sleeping > 0)
                    await clock.advance(INTERVAL_S)
                assert len(gateway.hosts) == sent + 1, "no faster than the interval"
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        for server in servers:
            server.close()
    assert set(old.hosts) == set(new.hosts) == {"welcome.localhost"}
    assert len(old.hosts) == REQUESTS
