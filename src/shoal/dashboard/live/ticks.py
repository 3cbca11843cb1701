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

REST_S = 0.1  # however many writes there are
_QUIET_S = {"sqlite": 5.0, "postgresql": 2.0}  # without any write, for what time alone changes
_REST_LOOKS = 1.5  # a look that takes long is made less often: at most for two fifths of the time
_REST_SHARED = 1.0  # what all pages share, for half of it
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
    ticks: Ticks,
    clock: Clock,
    look: Callable[[], Awaitable[Look]],
    also: asyncio.Event | None = None,
    *,
    has_pace: bool = False,
) -> AsyncGenerator[Look, None]:
    """The results of looks, the first at once, later ones after a tick or when ``also`` is set. While the database is
    away there are none. ``has_pace``: what the look reads is ``Remembered``, which rests by itself."""
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
        if not has_pace:
            await clock.sleep(min(_MOST_REST_S, _REST_LOOKS * (clock.monotonic() - begun_s)))
        if also is None:
            await ticks.after(number)
        else:
            await wait_first(ticks.after(number), also.wait())


class Remembered(Generic[T]):
    """What several topics need of one moment is read once: again for whoever asks after the last reading began, if
    there was a tick since. A reading that takes long is made less often, and all who wait for it share it."""

    def __init__(self, ticks: Ticks, clock: Clock, read: Callable[[], Awaitable[T]]) -> None:
        self._ticks = ticks
        self._clock = clock
        self._read = read
        self._lock = asyncio.Lock()
        self._known: tuple[int, T] | None = None
        self._begun_s = self._next_s = 0.0

    async def get(self, *, old_s: float = 0.0) -> T:
        """``old_s``: what was read so long ago will do."""
        wanted = self._ticks.number
        if self._known is not None and self._clock.monotonic() - self._begun_s < old_s:
            return self._known[1]
        async with self._lock:
            if self._known is None or self._known[0] < wanted:
                await self._clock.sleep(max(0.0, self._next_s - self._clock.monotonic()))
                number, begun_s = self._ticks.number, self._clock.monotonic()
                self._known = number, await self._read()
                self._begun_s, ended_s = begun_s, self._clock.monotonic()
                self._next_s = ended_s + min(_MOST_REST_S, _REST_SHARED * (ended_s - begun_s))
            return self._known[1]
