"""Guarantees of supervised loops: they come back with back-off, say so, and what stays down is named."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest

from shoal.base import logs
from shoal.base.clock import FakeClock
from shoal.base.metrics import PROCESS
from shoal.base.supervision import Run, SupervisedLoops, stalled_loops, supervise
from shoal.base.tasks import cancel_all


class Loop:
    """Fails as often as it is told, then runs until cancelled."""

    def __init__(self, failures: int, error: BaseException | None = None) -> None:
        self.left = failures
        self.starts = 0
        self.error = error or OSError("disk")

    async def run(self) -> None:
        self.starts += 1
        if self.left:
            self.left -= 1
            raise self.error
        await asyncio.Event().wait()


@asynccontextmanager
async def running(name: str, run: Run, clock: FakeClock, **options: Any) -> AsyncIterator[asyncio.Task[None]]:
    task = asyncio.get_running_loop().create_task(supervise(name, run, clock=clock, **options), name=name)
    try:
        await clock.settle()
        yield task
    finally:
        await cancel_all(task)


def restarts(name: str) -> float:
    return dict(PROCESS.counter("shoal_loop_restarts_total", RESTARTS, ("loop",)).values()).get((name,), 0.0)


RESTARTS = "Restarts of long-lived loops of this process after a failure."


async def test_a_loop_that_fails_starts_again_later_each_time_and_is_counted_and_logged(clock: FakeClock) -> None:
    loop, said = Loop(3), io.StringIO()
    logs.configure(stream=said)
    async with running("a/loop", loop.run, clock, detail="of a test"):
        assert loop.starts == 1
        await clock.advance(0.5)
        assert loop.starts == 2
        await clock.advance(0.9)
        assert loop.starts == 2
        await clock.advance(0.1)
        assert loop.starts == 3
        await clock.advance(2)
        assert loop.starts == 4 and not stalled_loops()
    lines = [json.loads(line) for line in said.getvalue().splitlines()]
    assert [(line["loop"], line["detail"], line["failures"], line["delay_s"]) for line in lines] == [
        ("a/loop", "of a test", 1, 0.5), ("a/loop", "of a test", 2, 1.0), ("a/loop", "of a test", 3, 2.0)
    ]  # fmt: skip
    assert "disk" in str(lines[0]) and restarts("a/loop") == 3


async def test_a_loop_that_ends_without_an_error_starts_again(clock: FakeClock) -> None:
    starts: list[float] = []

    async def run() -> None:
        starts.append(clock.monotonic())

    async with running("ends", run, clock):
        await clock.advance(2)
    assert starts == [0.0, 0.5, 1.5]


async def test_a_loop_that_stays_down_is_stalled_and_no_longer_once_it_runs(clock: FakeClock) -> None:
    loop = Loop(8)
    async with running("stays", loop.run, clock):
        await clock.advance(59)
        assert stalled_loops() == {}
        await clock.advance(1)
        assert stalled_loops() == {"stays": "down for 60 s, 7 failures in a row: see the log"}
        await clock.advance(35)  # started again for the last time
        assert loop.left == 0 and "stays" in stalled_loops()
        await clock.advance(30)
        assert stalled_loops() == {}
    assert stalled_loops() == {}


async def test_a_loop_that_keeps_failing_soon_after_its_start_is_stalled(clock: FakeClock) -> None:
    """It is not enough to be started: it must run for a while."""

    async def run() -> None:
        await clock.sleep(20)
        raise OSError("again")

    async with running("soon", run, clock):
        await clock.advance(79)
        assert stalled_loops() == {}
        await clock.advance(1)
        assert list(stalled_loops()) == ["soon"]


async def test_a_loop_that_runs_long_between_failures_is_not_stalled_and_starts_again_soon(clock: FakeClock) -> None:
    starts: list[float] = []

    async def run() -> None:
        starts.append(clock.monotonic())
        await clock.sleep(40)
        raise OSError("rarely")

    async with running("rarely", run, clock):
        await clock.advance(200)
        assert stalled_loops() == {}
    assert starts == [0.0, 40.5, 81.0, 121.5, 162.0]


async def test_ready_says_when_a_loop_is_up_again(clock: FakeClock) -> None:
    loop, ready = Loop(1), False
    async with running("informer", loop.run, clock, ready=lambda: ready):
        await clock.advance(61)
        assert list(stalled_loops()) == ["informer"], "it runs, but has not done its work"
        ready = True
        assert stalled_loops() == {}


async def test_cancelling_ends_it_while_it_runs_and_while_it_waits(clock: FakeClock) -> None:
    for loop in (Loop(0), Loop(1)):
        task = asyncio.get_running_loop().create_task(supervise("cancelled", loop.run, clock=clock))
        await clock.settle()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert clock.pending == 0


async def test_a_cancelled_task_that_the_loop_waits_for_does_not_end_the_loop(clock: FakeClock) -> None:
    loop = Loop(1, asyncio.CancelledError())
    async with running("stray", loop.run, clock) as task:
        await clock.advance(1)
        assert loop.starts == 2 and not task.done()


async def test_the_planned_end_of_a_loop_is_raised(clock: FakeClock) -> None:
    loop = Loop(1, LookupError("the store is closed"))
    async with running("planned", loop.run, clock, ends=(LookupError,)) as task:
        assert task.done() and isinstance(task.exception(), LookupError)


async def test_a_loop_may_have_an_end_and_is_started_again_before_it(clock: FakeClock) -> None:
    starts: list[float] = []

    async def run() -> None:
        starts.append(clock.monotonic())
        if len(starts) < 2:
            raise OSError("once")

    async with running("finite", run, clock, may_return=True) as task:
        await clock.advance(100)
        assert task.done() and task.exception() is None
    assert starts == [0.0, 0.5]


async def test_the_failure_of_a_part_starts_all_parts_of_a_loop_again(clock: FakeClock) -> None:
    began: list[str] = []

    async def part(name: str, lasts_s: float) -> None:
        began.append(name)
        await clock.sleep(lasts_s)
        raise OSError(name)

    async def run() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(part("a", 5))
            group.create_task(part("b", 1))

    async with running("parts", run, clock):
        await clock.advance(2)
    assert began == ["a", "b", "a", "b"]


async def test_an_owner_starts_loops_and_stops_them_all(clock: FakeClock) -> None:
    one, two = Loop(1), Loop(0)
    loops = SupervisedLoops(clock)
    loops.start("one", one.run)
    loops.start("two", two.run)
    await clock.advance(1)
    assert (one.starts, two.starts) == (2, 1)
    await loops.stop()
    await clock.advance(100)
    assert (one.starts, two.starts) == (2, 1)


async def test_a_loop_that_swallows_its_cancellation_ends_all_the_same(clock: FakeClock) -> None:
    async def returns() -> None:
        with suppress(asyncio.CancelledError):
            await asyncio.Event().wait()

    async def raises() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise OSError("connection lost") from None

    for run in (returns, raises):
        task = asyncio.get_running_loop().create_task(supervise("swallows", run, clock=clock))
        await clock.settle()
        async with asyncio.timeout(5):
            await cancel_all(task)
        assert task.cancelled()


async def test_a_loop_that_was_asked_to_stop_is_not_started_again(clock: FakeClock) -> None:
    stop, loop = asyncio.Event(), Loop(9)
    async with running("stops", loop.run, clock, until=stop) as task:
        await clock.advance(1)
        assert loop.starts == 2
        stop.set()
        await clock.settle()
        assert task.done() and task.exception() is None, "it does not wait for the delay to pass"
    assert loop.starts == 2


async def test_a_loop_that_returns_because_it_was_asked_to_stop_is_over(clock: FakeClock) -> None:
    stop, starts = asyncio.Event(), 0

    async def run() -> None:
        nonlocal starts
        starts += 1
        await stop.wait()

    async with running("returns", run, clock, until=stop) as task:
        stop.set()
        await clock.advance(100)
        assert task.done() and starts == 1
