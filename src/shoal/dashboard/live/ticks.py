"""When to look at a database again: after a write, and now and then in any case.

The control plane's own commits are known at once, and so are the numbered changes of other control planes. What these
write without a number, such as reports of agents, gives no hint: with PostgreSQL a look is due every two seconds.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Generic, TypeVar

from shoal.base.clock import Clock
from shoal.base.tasks import wait_first
from shoal.control.database.engine import Database
from shoal.dashboard.live.feed import Look
from shoal.errors import ServiceUnavailable

REST_S = 0.15  # however many writes there are
_QUIET_S = {"sqlite": 5.0, "postgresql": 2.0}  # without any write, for what time alone changes
_REST_LOOKS = 3.0  # a look that takes long is made less often: at most for a quarter of the time
_MOST_REST_S = 3.0

T = TypeVar("T")


class Ticks:
    """``number`` rises whenever there may be something new in one of some databases. ``run`` watches one of them."""

    def __init__(self, clock: Clock) -> None:
        self.number = 0
        self._clock = clock
        self._next = asyncio.Event()

    async def run(self, database: Database) -> None:
        seen = database.writes
        while True:
            await database.wait_for_write(seen, _QUIET_S[database.dialect])
            seen = database.writes
            self.number += 1
            before, self._next = self._next, asyncio.Event()
            before.set()
            await self._clock.sleep(REST_S)

    async def after(self, number: int) -> None:
        """Return when there may be something newer."""
        while self.number <= number:
            await self._next.wait()


async def looked(
    ticks: Ticks, clock: Clock, look: Callable[[], Awaitable[Look]], also: asyncio.Event | None = None
) -> AsyncGenerator[Look, None]:
    """The results of looks, the first at once, later ones after a tick or when ``also`` is set. While the database is
    away there are none."""
    while True:
        if also is not None:
            also.clear()
        number, begun_s = ticks.number, clock.monotonic()
        try:
            found: Look | None = await look()
        except ServiceUnavailable:
            found = None
        if found is not None:
            yield found
        await clock.sleep(min(_MOST_REST_S, _REST_LOOKS * (clock.monotonic() - begun_s)))
        if also is None:
            await ticks.after(number)
        else:
            await wait_first(ticks.after(number), also.wait())


class Remembered(Generic[T]):
    """What several topics need of one moment is read once: again when the last answer is older than the newest tick."""

    def __init__(self, ticks: Ticks, read: Callable[[], Awaitable[T]]) -> None:
        self._ticks = ticks
        self._read = read
        self._lock = asyncio.Lock()
        self._known: tuple[int, T] | None = None

    async def get(self) -> T:
        async with self._lock:
            if self._known is None or self._known[0] != self._ticks.number:
                number = self._ticks.number
                self._known = number, await self._read()
            return self._known[1]
