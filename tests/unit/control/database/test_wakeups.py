"""Waiting for changes: nobody sleeps through one, nobody waits for ever, a database that went back is believed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from shoal.base.clock import FakeClock
from shoal.control.database.wakeups import Wakeups


@asynccontextmanager
async def wakeups_on_a_fake_clock() -> AsyncIterator[tuple[FakeClock, Wakeups]]:
    async with asyncio.timeout(10):
        clock = FakeClock()
        yield (clock, Wakeups(clock))


async def waiting(clock: FakeClock, wakeups: Wakeups, after: int, timeout_s: float = 10.0) -> asyncio.Task[None]:
    task = asyncio.create_task(wakeups.wait(after, timeout_s))
    await clock.settle()
    return task


async def test_a_change_wakes_everybody_who_waits() -> None:
    async with wakeups_on_a_fake_clock() as (clock, wakeups):
        tasks = [await waiting(clock, wakeups, 0) for _ in range(3)]
        assert not any(task.done() for task in tasks)
        wakeups.hear(1)
        await clock.settle()
        assert all(task.done() for task in tasks)
        assert clock.pending == 0


async def test_a_change_that_came_before_the_wait_is_not_waited_for() -> None:
    async with wakeups_on_a_fake_clock() as (clock, wakeups):
        wakeups.hear(5)
        assert (await waiting(clock, wakeups, 4)).done()
        assert not (task := await waiting(clock, wakeups, 5)).done()
        task.cancel()
        await clock.settle()
        assert clock.pending == 0


async def test_what_is_told_twice_wakes_once() -> None:
    async with wakeups_on_a_fake_clock() as (clock, wakeups):
        wakeups.hear(5)
        task = await waiting(clock, wakeups, 5)
        wakeups.hear(5)
        wakeups.hear(3)
        await clock.settle()
        assert not task.done()
        wakeups.hear(0)  # nobody knows what happened: look
        await clock.settle()
        assert task.done()


async def test_waiting_ends_when_its_time_has_come() -> None:
    async with wakeups_on_a_fake_clock() as (clock, wakeups):
        task = await waiting(clock, wakeups, 0, 2.0)
        await clock.advance(1.9)
        assert not task.done()
        await clock.advance(0.2)
        assert task.done()
        assert (await waiting(clock, wakeups, 0, 0.0)).done()


async def test_a_database_that_went_back_is_believed_unless_there_is_later_news() -> None:
    async with wakeups_on_a_fake_clock() as (clock, wakeups):
        wakeups.hear(500)
        wakeups.correct(300, wakeups.heard)
        assert wakeups.known == 300
        asked = wakeups.heard
        wakeups.hear(301)
        wakeups.correct(300, asked)
        assert wakeups.known == 301
