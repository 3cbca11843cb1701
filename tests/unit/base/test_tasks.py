"""Guarantees of the task helpers."""

from __future__ import annotations

import asyncio
import io

import pytest

from shoal.base import logs
from shoal.base.clock import FakeClock
from shoal.base.tasks import OwnedTasks, beside, cancel_all, run_all, wait_first


async def test_run_all_names_its_tasks_and_returns_when_all_have_ended(clock: FakeClock) -> None:
    names: list[str] = []

    async def part(seconds: float) -> None:
        await clock.sleep(seconds)
        task = asyncio.current_task()
        names.append(task.get_name() if task else "")

    running = asyncio.create_task(run_all({"watch": part(2), "compact": part(1)}))
    await clock.advance(1)
    assert not running.done()
    await clock.advance(1)
    await running
    assert names == ["compact", "watch"]


async def test_one_failure_stops_the_others_and_is_raised_as_itself() -> None:
    stopped: list[str] = []

    async def endless() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            stopped.append("endless")

    async def failing() -> None:
        raise OSError("disk")

    with pytest.raises(OSError, match="disk"):
        await run_all({"a": endless(), "b": failing()})
    assert stopped == ["endless"]


async def test_cancelling_run_all_ends_every_part() -> None:
    ended: list[int] = []

    async def part(n: int) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(n)

    task = asyncio.create_task(run_all({"0": part(0), "1": part(1)}))
    await asyncio.sleep(0)
    await asyncio.sleep(0)  # the parts have begun
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert sorted(ended) == [0, 1]


async def test_wait_first_gives_the_first_result_and_ends_the_rest(clock: FakeClock) -> None:
    ended: list[str] = []

    async def part(name: str, seconds: float) -> str:
        try:
            await clock.sleep(seconds)
        finally:
            ended.append(name)
        return name

    async def main() -> str:
        waiting = asyncio.create_task(wait_first(part("slow", 9), part("quick", 1)))
        await clock.advance(1)
        result = await waiting
        assert ended == ["quick", "slow"]  # before the loop's own end, which would cancel it too
        return str(result)

    assert await main() == "quick"


async def test_wait_first_raises_what_the_first_raised() -> None:
    async def failing() -> None:
        raise OSError("gone")

    with pytest.raises(OSError, match="gone"):
        await wait_first(failing(), asyncio.Event().wait())


async def test_cancel_all_waits_until_the_tasks_have_ended() -> None:
    ended: list[int] = []

    async def slow_to_stop() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            ended.append(1)

    task = asyncio.create_task(slow_to_stop())
    await asyncio.sleep(0)
    await cancel_all(task)
    assert ended == [1]


async def test_a_task_beside_a_block_ends_with_it_also_when_the_block_fails() -> None:
    ended: list[str] = []

    async def endless(name: str) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(name)

    async with beside(endless("a"), name="a") as task:
        await asyncio.sleep(0)
        assert task.get_name() == "a"
    with pytest.raises(OSError, match="block"):
        async with beside(endless("b"), name="b"):
            await asyncio.sleep(0)
            raise OSError("block")
    assert ended == ["a", "b"]


async def test_the_error_of_a_task_beside_a_block_is_logged_and_the_block_goes_on() -> None:
    said = io.StringIO()
    logs.configure(stream=said)

    async def failing() -> None:
        raise OSError("disk")

    async with beside(failing(), name="reader") as task:
        await asyncio.wait([task])
    (line,) = said.getvalue().splitlines()
    assert "reader" in line and "disk" in line


async def test_owned_tasks_end_with_their_owner_and_no_error_is_lost() -> None:
    said = io.StringIO()
    logs.configure(stream=said)
    ended: list[str] = []

    async def endless() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("endless")

    async def failing() -> None:
        raise OSError("disk")

    tasks = OwnedTasks()
    tasks.start(endless(), name="endless")
    failed = tasks.start(failing(), name="request/1")
    await asyncio.wait([failed])
    await asyncio.sleep(0)
    assert len(tasks) == 1
    await tasks.close()
    assert ended == ["endless"] and len(tasks) == 0
    (line,) = said.getvalue().splitlines()
    assert "request/1" in line and "disk" in line
