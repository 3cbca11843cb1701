"""The load that a worker reports: the share of its handlers that are running."""

from __future__ import annotations

from shoal.base.clock import FakeClock
from shoal.sharding.worker.gauges import Gauges


def gauges(clock: FakeClock) -> Gauges:
    return Gauges(clock, handlers=4, cpus=1.0, memory_limit_bytes=1 << 30)


async def test_busy_is_the_part_of_the_handlers_that_ran_since_the_last_look() -> None:
    clock = FakeClock()
    found = gauges(clock)
    start_s = clock.monotonic()
    found.began(start_s)
    found.began(start_s)
    await clock.advance(2.0)
    assert found.busy() == 0.5
    await clock.advance(0.5)
    assert found.busy() == 0.5  # too soon to say anything new
    found.ended(clock.monotonic(), 2.5)
    found.ended(clock.monotonic(), 2.5)
    await clock.advance(0.5)
    assert found.busy() == 0.25
    await clock.advance(1.0)
    assert found.busy() == 0.0
    assert found.latency_s == 2.5
