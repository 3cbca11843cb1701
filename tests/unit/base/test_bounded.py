"""Guarantees of the bounded queue."""

from __future__ import annotations

import asyncio

import pytest

from shoal.base.bounded import Closed, DroppingQueue
from shoal.base.clock import FakeClock


async def test_a_cancelled_get_loses_no_item(clock: FakeClock) -> None:
    queue: DroppingQueue[str] = DroppingQueue(1)
    first, second = (asyncio.create_task(queue.get()) for _ in range(2))
    await clock.settle()
    queue.put("x")
    first.cancel()
    await asyncio.wait([first])
    got = await second if first.cancelled() else first.result()
    second.cancel()
    await asyncio.wait([second])
    assert got == "x"


async def test_closing_wakes_waiting_consumers_and_refuses_producers(clock: FakeClock) -> None:
    queue: DroppingQueue[str] = DroppingQueue(1)
    waiting = [asyncio.create_task(queue.get()) for _ in range(3)]
    await clock.settle()
    queue.close()
    for task in waiting:
        with pytest.raises(Closed):
            await task
    with pytest.raises(Closed):
        queue.put("k")


async def test_items_from_before_closing_are_still_returned() -> None:
    queue: DroppingQueue[str] = DroppingQueue(2)
    queue.put("a")
    queue.close()
    assert await queue.get() == "a"
    with pytest.raises(Closed):
        await queue.get()


async def test_a_full_queue_drops_the_oldest_and_counts_it() -> None:
    queue: DroppingQueue[int] = DroppingQueue(2)
    for n in range(5):
        queue.put(n)
    assert (await queue.get(), await queue.get()) == (3, 4)
    assert queue.dropped == 3


def test_a_queue_without_room_is_refused() -> None:
    with pytest.raises(ValueError, match="must be 1 or more"):
        DroppingQueue(0)
