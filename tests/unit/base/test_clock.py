"""Guarantees of the clocks."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from shoal.base.clock import Clock, FakeClock, RealClock


async def test_time_stands_still_until_it_is_advanced(clock: FakeClock) -> None:
    before = clock.now(), clock.wall_s(), clock.monotonic()
    assert (clock.now(), clock.wall_s(), clock.monotonic()) == before
    await clock.advance(90)
    assert clock.now() == before[0] + timedelta(seconds=90)
    assert clock.wall_s() == before[1] + 90
    assert clock.monotonic() == before[2] + 90


async def test_sleepers_wake_in_order_of_their_deadlines_each_at_its_own_instant(clock: FakeClock) -> None:
    woken: list[tuple[str, float]] = []

    async def sleeper(name: str, seconds: float) -> None:
        await clock.sleep(seconds)
        woken.append((name, clock.monotonic()))

    async with asyncio.TaskGroup() as group:
        for name, seconds in (("c", 30), ("a", 10), ("b", 20), ("late", 31)):
            group.create_task(sleeper(name, seconds))
        await clock.advance(30)
        assert woken == [("a", 10), ("b", 20), ("c", 30)]
        await clock.advance(1)
    assert woken[-1] == ("late", 31)


async def test_a_loop_of_sleeps_runs_every_turn_within_one_advance(clock: FakeClock) -> None:
    turns: list[float] = []

    async def loop() -> None:
        while True:
            await clock.sleep(5)
            turns.append(clock.monotonic())

    task = asyncio.create_task(loop())
    await clock.advance(22)
    task.cancel()
    await asyncio.wait([task])
    assert turns == [5, 10, 15, 20]


async def test_equal_deadlines_fire_in_the_order_in_which_they_were_set(clock: FakeClock) -> None:
    fired: list[int] = []

    for n in range(5):
        clock.call_later(1, lambda n=n: fired.append(n))
    await clock.advance(1)
    assert fired == [0, 1, 2, 3, 4]


async def test_a_cancelled_timer_does_not_fire_and_a_cancelled_sleeper_leaves_none(clock: FakeClock) -> None:
    fired: list[int] = []

    clock.call_later(1, lambda: fired.append(1)).cancel()
    task = asyncio.create_task(clock.sleep(10))
    await clock.settle()
    assert clock.pending == 1
    task.cancel()
    await asyncio.wait([task])
    assert clock.pending == 0
    await clock.advance(20)
    assert fired == []


async def test_time_cannot_go_back(clock: FakeClock) -> None:
    with pytest.raises(ValueError, match="cannot go back"):
        await clock.advance(-1)


async def test_the_real_clock_tells_utc_and_runs_timers() -> None:
    clock: Clock = RealClock()
    assert abs(clock.now() - datetime.now(UTC)) < timedelta(seconds=5)
    assert clock.now().utcoffset() == timedelta(0)
    assert abs(clock.wall_s() - clock.now().timestamp()) < 5

    fired = asyncio.Event()
    before = clock.monotonic()
    clock.call_later(0.01, fired.set)
    await fired.wait()
    await clock.sleep(0)
    assert clock.monotonic() - before >= 0.009
