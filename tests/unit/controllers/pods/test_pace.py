"""A key runs once per window however often it is queued, and once more after the last time."""

from __future__ import annotations

import pytest

from shoal.base.clock import FakeClock
from shoal.controllers.pods.pace import Pace
from shoal.reconcile import ObjectKey, WorkQueue

KEY = ObjectKey("default", "web")


async def runs_of(clock: FakeClock, step_s: float, steps: int) -> tuple[int, float]:
    """How often the key ran, and when it last did, when it is asked for at every step and worked off at once."""
    queue: WorkQueue[ObjectKey] = WorkQueue(clock=clock)
    pace = Pace(queue, clock, window_s=1.0)
    runs, last_s = 0, -1.0

    async def work() -> None:
        nonlocal runs, last_s
        while len(queue):
            queue.done(await queue.get())
            runs, last_s = runs + 1, clock.monotonic()

    for _ in range(steps):
        pace.soon(KEY)
        await work()
        await clock.advance(step_s)
        await work()
    for _ in range(20):
        await clock.advance(0.1)
        await work()
    return runs, last_s


@pytest.mark.parametrize("step_s", [0.05, 0.1, 0.3])
async def test_a_stream_of_changes_runs_once_per_window(clock: FakeClock, step_s: float) -> None:
    steps = round(10 / step_s)
    runs, last_s = await runs_of(clock, step_s, steps)
    assert 10 <= runs <= 12
    assert last_s >= (steps - 1) * step_s


async def test_changes_further_apart_than_the_window_are_not_delayed(clock: FakeClock) -> None:
    runs, last_s = await runs_of(clock, 1.5, 4)
    assert (runs, last_s) == (4, 4.5)


async def test_a_change_is_not_lost_when_a_retry_took_the_place_of_its_delay(clock: FakeClock) -> None:
    queue: WorkQueue[ObjectKey] = WorkQueue(clock=clock)
    pace = Pace(queue, clock, window_s=1.0)
    pace.soon(KEY)
    queue.done(await queue.get())
    pace.soon(KEY)
    queue.add_after(KEY, 0.1)
    await clock.advance(0.2)
    queue.done(await queue.get())
    pace.soon(KEY)
    await clock.advance(1.0)
    assert len(queue) == 1


async def test_what_cannot_wait_does_not(clock: FakeClock) -> None:
    queue: WorkQueue[ObjectKey] = WorkQueue(clock=clock)
    pace = Pace(queue, clock, window_s=1.0)
    pace.soon(KEY)
    assert await queue.get() == KEY
    queue.done(KEY)
    pace.now(KEY)
    assert len(queue) == 1
