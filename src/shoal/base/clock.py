"""The clock that components receive as a parameter: real in processes, fake in tests.

Owns the only calls to ``time`` and ``datetime.now`` outside ``shoal.app``. Wall time is for stamps that people and
clients read; ``monotonic`` is for every deadline and duration. ``FakeClock`` moves only on request and wakes
sleepers one deadline at a time, in order, so that a test over hours of timers runs in milliseconds and always the
same way.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Protocol


class Timer(Protocol):
    """A scheduled callback."""

    def cancel(self) -> None:
        """Cancel the callback; does nothing when it has already run."""


class Clock(Protocol):
    """The source of time for components."""

    def now(self) -> datetime:
        """The wall time, in UTC."""

    def wall_s(self) -> float:
        """The wall time as seconds since 1970."""

    def monotonic(self) -> float:
        """Seconds that never go back; only differences mean anything."""

    async def sleep(self, seconds: float) -> None:
        """Return after ``seconds`` of monotonic time; at least one iteration of the event loop."""

    def call_later(self, delay_s: float, callback: Callable[[], object]) -> Timer:
        """Run ``callback`` on the event loop after ``delay_s`` of monotonic time."""


class RealClock:
    """The machine's clocks."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    def wall_s(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        import asyncio  # what asks for the time only, such as a command, does without a loop

        await asyncio.sleep(seconds)

    def call_later(self, delay_s: float, callback: Callable[[], object]) -> Timer:
        import asyncio

        return asyncio.get_running_loop().call_later(delay_s, callback)


class _FakeTimer:
    __slots__ = ("callback",)

    def __init__(self, callback: Callable[[], object]) -> None:
        self.callback: Callable[[], object] | None = callback

    def cancel(self) -> None:
        self.callback = None


_SETTLE_ROUNDS = 20  # loop iterations without a new timer after which all tasks count as waiting

_START = datetime(2024, 1, 1, tzinfo=UTC)


class FakeClock:
    """A clock that moves only with ``advance``. Wall and monotonic time move together."""

    def __init__(self, start: datetime = _START) -> None:
        self._start = start
        self._elapsed_s = 0.0
        self._timers: list[tuple[float, int, _FakeTimer]] = []  # heap; the number keeps equal deadlines in order
        self._count = 0

    def now(self) -> datetime:
        return self._start + timedelta(seconds=self._elapsed_s)

    def wall_s(self) -> float:
        return self._start.timestamp() + self._elapsed_s

    def monotonic(self) -> float:
        return self._elapsed_s

    async def sleep(self, seconds: float) -> None:
        import asyncio

        if seconds <= 0:
            await asyncio.sleep(0)
            return
        woken = asyncio.Event()
        timer = self.call_later(seconds, woken.set)
        try:
            await woken.wait()
        finally:
            timer.cancel()

    def call_later(self, delay_s: float, callback: Callable[[], object]) -> Timer:
        timer = _FakeTimer(callback)
        self._count += 1
        heapq.heappush(self._timers, (self._elapsed_s + max(0.0, delay_s), self._count, timer))
        return timer

    @property
    def pending(self) -> int:
        """How many timers and sleepers have not fired and were not cancelled."""
        return sum(timer.callback is not None for _, _, timer in self._timers)

    async def advance(self, seconds: float) -> None:
        """Let ``seconds`` pass. Every timer that falls due fires at its own instant, the earliest first, and the
        tasks it wakes run until they wait again before the next one fires; timers they add in between count too."""
        if seconds < 0:
            raise ValueError("time cannot go back")
        end_s = self._elapsed_s + seconds
        await self.settle()
        while self._timers and self._timers[0][0] <= end_s:
            due_s, _, timer = heapq.heappop(self._timers)
            callback, timer.callback = timer.callback, None
            if callback is None:
                continue
            self._elapsed_s = max(self._elapsed_s, due_s)
            callback()
            await self.settle()
        self._elapsed_s = end_s

    async def settle(self) -> None:
        """Let every task that can run do so, without moving time."""
        import asyncio

        quiet = 0
        while quiet < _SETTLE_ROUNDS:
            before = self._count
            await asyncio.sleep(0)
            quiet = quiet + 1 if self._count == before else 0
