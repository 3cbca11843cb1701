"""Time limits by the injected clock."""

from __future__ import annotations

import asyncio

import pytest

from shoal.base.clock import FakeClock
from shoal.base.deadline import run_within, while_left, within


async def test_a_block_is_cancelled_when_its_time_is_over(clock: FakeClock) -> None:
    async def work() -> None:
        async with within(clock, 5):
            await asyncio.Event().wait()

    working = asyncio.create_task(work(), name="work")
    await clock.advance(4.9)
    assert not working.done()
    await clock.advance(0.1)
    with pytest.raises(TimeoutError):
        await working


async def test_a_limit_can_be_started_again(clock: FakeClock) -> None:
    async def work() -> str:
        async with within(clock, 5) as limit:
            await clock.sleep(4)
            limit.restart(5)
            await clock.sleep(4)
            return "done"

    working = asyncio.create_task(work(), name="work")
    await clock.advance(8)
    assert await working == "done"
    assert clock.pending == 0


async def test_a_limit_that_moves_is_asked_again(clock: FakeClock) -> None:
    ends_at_s = 5.0

    async def work() -> None:
        async with while_left(clock, lambda: ends_at_s - clock.monotonic()):
            await asyncio.Event().wait()

    working = asyncio.create_task(work(), name="work")
    await clock.advance(4)
    ends_at_s = 8.0
    await clock.advance(3.9)
    assert not working.done()
    await clock.advance(0.1)
    with pytest.raises(TimeoutError):
        await working


async def test_work_of_its_own_task_is_cancelled_in_time_and_its_result_is_passed_on(clock: FakeClock) -> None:
    async def named() -> str:
        task = asyncio.current_task()
        assert task is not None
        return task.get_name()

    assert await run_within(clock, 5, named(), name="some/work") == "some/work"
    ended = asyncio.Event()

    async def endless() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    working = asyncio.create_task(run_within(clock, 5, endless(), name="endless"), name="caller")
    await clock.advance(5)
    with pytest.raises(TimeoutError):
        await working
    assert ended.is_set()
    assert clock.pending == 0


async def test_work_ends_with_the_caller_that_is_given_up(clock: FakeClock) -> None:
    ended = asyncio.Event()

    async def endless() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    working = asyncio.create_task(run_within(clock, 5, endless(), name="endless"), name="caller")
    await clock.settle()
    working.cancel()
    with pytest.raises(asyncio.CancelledError):
        await working
    assert ended.is_set()
