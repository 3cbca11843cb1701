"""Guarantees of the bounded queues."""

from __future__ import annotations

import asyncio

import pytest

from shoal.base.bounded import Closed, DroppingQueue, LatestByKey, WaitingQueue
from shoal.base.clock import FakeClock


async def test_a_full_waiting_queue_holds_the_producer_until_there_is_room(clock: FakeClock) -> None:
    queue: WaitingQueue[int] = WaitingQueue(2)
    producer = asyncio.create_task(_put_all(queue, 4))
    await clock.settle()
    assert len(queue) == 2
    assert [await queue.get() for _ in range(4)] == [0, 1, 2, 3]
    await producer


async def _put_all(queue: WaitingQueue[int], count: int) -> None:
    for n in range(count):
        await queue.put(n)


async def test_a_cancelled_get_loses_no_item(clock: FakeClock) -> None:
    queue: WaitingQueue[str] = WaitingQueue(1)
    first, second = (asyncio.create_task(queue.get()) for _ in range(2))
    await clock.settle()
    await queue.put("x")
    first.cancel()
    await asyncio.wait([first])
    got = await second if first.cancelled() else first.result()
    second.cancel()
    await asyncio.wait([second])
    assert got == "x"


@pytest.mark.parametrize("make", [WaitingQueue, DroppingQueue, LatestByKey])
async def test_closing_wakes_parked_consumers_and_refuses_producers(make: type, clock: FakeClock) -> None:
    queue = make(1)
    parked = [asyncio.create_task(queue.get()) for _ in range(3)]
    await clock.settle()
    queue.close()
    for task in parked:
        with pytest.raises(Closed):
            await task
    with pytest.raises(Closed):
        await _put(queue, "k")


async def _put(queue: object, item: str) -> None:
    match queue:
        case WaitingQueue():
            await queue.put(item)
        case DroppingQueue():
            queue.put(item)
        case LatestByKey():
            await queue.put(item, item)


@pytest.mark.parametrize("make", [WaitingQueue, DroppingQueue, LatestByKey])
async def test_what_was_queued_before_closing_is_still_handed_out(make: type) -> None:
    queue = make(2)
    await _put(queue, "a")
    queue.close()
    assert await queue.get() in ("a", ("a", "a"))
    with pytest.raises(Closed):
        await queue.get()


async def test_closing_releases_a_producer_that_waits_for_room(clock: FakeClock) -> None:
    queue: WaitingQueue[int] = WaitingQueue(1)
    producer = asyncio.create_task(_put_all(queue, 2))
    await clock.settle()
    queue.close()
    with pytest.raises(Closed):
        await producer
    assert await queue.get() == 0


async def test_a_full_dropping_queue_loses_the_oldest_and_counts_it() -> None:
    queue: DroppingQueue[int] = DroppingQueue(2)
    for n in range(5):
        queue.put(n)
    assert (await queue.get(), await queue.get()) == (3, 4)
    assert queue.dropped == 3


async def test_latest_by_key_keeps_the_newest_of_each_key_in_the_order_of_their_first_coming(clock: FakeClock) -> None:
    queue: LatestByKey[str, int] = LatestByKey(2)
    await queue.put("a", 1)
    await queue.put("b", 1)
    await queue.put("a", 2)  # full, but the key is there
    waiting = asyncio.create_task(queue.put("c", 1))
    await clock.settle()
    assert not waiting.done()
    assert await queue.get() == ("a", 2)
    await waiting
    assert [await queue.get(), await queue.get()] == [("b", 1), ("c", 1)]


def test_a_queue_without_room_is_refused() -> None:
    with pytest.raises(ValueError, match="must be 1 or more"):
        WaitingQueue(0)
