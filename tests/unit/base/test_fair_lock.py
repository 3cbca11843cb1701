"""A lock that loses no turn, whatever happens to those who wait for it."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.base.fair_lock import FairLock


class Drivers:
    """Coroutines driven by hand, as the API server drives its handlers."""

    def __init__(self) -> None:
        self.lock = FairLock()
        self.held: list[int] = []  # in the order of their turns
        self.inside: set[int] = set()
        self.running: dict[int, Coroutine[Any, Any, None]] = {}
        self.waits: dict[int, asyncio.Future[None]] = {}
        self.leave: dict[int, asyncio.Future[None]] = {}

    async def _hold(self, number: int) -> None:
        async with self.lock:
            assert not self.inside, "two hold the lock"
            self.inside.add(number)
            self.held.append(number)
            try:
                await self.leave[number]
            finally:
                self.inside.discard(number)

    def start(self, number: int) -> None:
        self.leave[number] = asyncio.get_running_loop().create_future()
        self.running[number] = self._hold(number)
        self.step(number)

    def step(self, number: int) -> None:
        """Go on if what it waits for is there."""
        waits = self.waits.get(number)
        if number not in self.running or (waits is not None and not waits.done()):
            return
        try:
            waits = self.running[number].send(None)
            assert waits is not None
            self.waits[number] = waits
        except StopIteration:
            del self.running[number]

    def close(self, number: int) -> None:
        coroutine = self.running.pop(number, None)
        if coroutine is not None:
            coroutine.close()


ACTIONS = st.lists(st.tuples(st.sampled_from(["start", "step", "finish", "close"]), st.integers(0, 5)), max_size=60)


@given(ACTIONS)
@settings(max_examples=300, deadline=None)
async def test_every_waiter_gets_its_turn_however_others_end(actions: list[tuple[str, int]]) -> None:
    drivers = Drivers()
    for action, number in actions:
        if action == "start":
            if number not in drivers.running:
                drivers.waits.pop(number, None)
                drivers.start(number)
        elif action == "step":
            drivers.step(number)
        elif action == "close":
            drivers.close(number)
        elif number in drivers.inside:
            drivers.leave[number].set_result(None)
            drivers.step(number)
    while drivers.running:  # all that are left can finish, one after the other
        before = len(drivers.running)
        for number in list(drivers.running):
            drivers.step(number)
        for number in list(drivers.inside):
            if not drivers.leave[number].done():
                drivers.leave[number].set_result(None)
            drivers.step(number)
        assert len(drivers.running) < before, "a turn was lost"


async def test_a_waiter_that_is_closed_when_its_turn_has_come_passes_it_on() -> None:
    drivers = Drivers()
    for number in range(3):
        drivers.start(number)
    drivers.leave[0].set_result(None)
    drivers.step(0)  # passes the turn to 1
    drivers.close(1)
    drivers.step(2)
    assert drivers.held == [0, 2]
    drivers.close(2)


async def test_a_cancelled_task_passes_its_turn_on() -> None:
    lock, order = FairLock(), list[int]()

    async def hold(number: int) -> None:
        async with lock:
            order.append(number)

    async with lock:
        tasks = [asyncio.ensure_future(hold(number)) for number in range(3)]
        await asyncio.sleep(0)
        tasks[0].cancel()
    tasks[1].cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert order == [2]
