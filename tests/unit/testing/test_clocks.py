"""Wrong clocks: only the wall time is wrong."""

from __future__ import annotations

from shoal.base.clock import FakeClock
from shoal.testing.clocks import SkewedClock


async def test_wall_time_is_skewed_and_jumps_and_timers_stay_right() -> None:
    right = FakeClock()
    wrong = SkewedClock(right, skew_s=-7200)
    assert wrong.wall_s() == right.wall_s() - 7200 and (right.now() - wrong.now()).total_seconds() == 7200
    fired: list[float] = []
    wrong.call_later(10, lambda: fired.append(wrong.monotonic()))
    wrong.jump(9000)
    await right.advance(9)
    assert fired == [] and wrong.wall_s() == right.wall_s() + 1800
    await right.advance(1)
    assert fired == [10]
