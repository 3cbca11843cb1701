"""Clocks that are wrong, for tests of what compares times of different machines.

clock = SkewedClock(FakeClock(), skew_s=-7200)      # two hours behind
clock.jump(3600)                                    # set forward while the component runs

Only wall time is wrong. Monotonic time, and with it every timer and sleep, stays right, as where an
administrator sets the clock.
The clock of a whole process: ``shoal.testing.faulty_process``.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta

from shoal.base.clock import Clock, Timer
from shoal.testing.tally import TALLY


class SkewedClock:
    """Another clock whose wall time differs by ``skew_s``."""

    def __init__(self, inner: Clock, *, skew_s: float = 0.0) -> None:
        self._inner = inner
        self.skew_s = skew_s

    def jump(self, by_s: float) -> None:
        """Set the wall time forward, or back if ``by_s`` is negative."""
        TALLY.faults += 1
        self.skew_s += by_s

    def now(self) -> datetime:
        return self._inner.now() + timedelta(seconds=self.skew_s)

    def wall_s(self) -> float:
        return self._inner.wall_s() + self.skew_s

    def monotonic(self) -> float:
        return self._inner.monotonic()

    async def sleep(self, seconds: float) -> None:
        await self._inner.sleep(seconds)

    def call_later(self, delay_s: float, callback: Callable[[], object]) -> Timer:
        return self._inner.call_later(delay_s, callback)
