"""Leader election: never two leaders at once, whatever fails; deadlines count from sending; no foreign clock is trusted."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from random import Random

import pytest

from shoal.base.clock import FakeClock
from shoal.client import LostLease
from shoal.client.errors import Disconnected
from shoal.errors import AlreadyExists, ConfigError, Conflict
from shoal.reconcile import ElectionConfig, Elector, LockRecord


class MemoryLock:
    """A lock record shared by candidates, with faults for one of them."""

    namespace, name = "ns", "lock"

    def __init__(self, shared: list[LockRecord], clock: FakeClock) -> None:
        self.shared = shared  # at most one
        self.clock = clock
        self.down = False  # requests fail
        self.silent = False  # requests are carried out and the answer is lost
        self.slow_s = 0.0
        self.writes = 0

    async def _reach(self) -> None:
        if self.slow_s:
            await self.clock.sleep(self.slow_s)
        if self.down:
            raise Disconnected("down")

    def _answer(self, record: LockRecord) -> LockRecord:
        if self.silent:
            raise Disconnected("the answer was lost")
        return record

    async def get(self) -> LockRecord | None:
        await self._reach()
        return self._answer(self.shared[0]) if self.shared else None

    async def create(self, record: LockRecord) -> LockRecord:
        await self._reach()
        if self.shared:
            raise AlreadyExists("there")
        self.shared.append(replace(record, version="1"))
        return self._answer(self.shared[0])

    async def update(self, record: LockRecord) -> LockRecord:
        await self._reach()
        if not self.shared or self.shared[0].version != record.version:
            raise Conflict("changed")
        self.writes += 1
        self.shared[0] = replace(record, version=str(int(record.version) + 1))
        return self._answer(self.shared[0])


class Candidate:
    def __init__(self, identity: str, shared: list[LockRecord], clock: FakeClock, random: float = 0.0) -> None:
        self.lock = MemoryLock(shared, clock)
        self.elector = Elector(self.lock, identity, clock=clock, random=lambda: random)
        self.task: asyncio.Task[None] | None = None
        self.stop = asyncio.Event()

    def start(self) -> Candidate:
        self.task = asyncio.create_task(self.elector.run(self.lead), name="candidate")
        return self

    async def lead(self) -> None:
        await self.stop.wait()

    @property
    def leads(self) -> bool:
        return self.elector.fence.held

    async def end(self) -> None:
        assert self.task is not None
        self.task.cancel()
        await asyncio.wait([self.task])
        if not self.task.cancelled():
            self.task.exception()


async def test_one_leads_and_the_other_takes_over_a_lease_after_it_went_silent(clock: FakeClock) -> None:
    shared: list[LockRecord] = []
    one, two = Candidate("one", shared, clock).start(), Candidate("two", shared, clock)
    await clock.settle()
    two.start()
    await clock.advance(60)
    assert (one.leads, two.leads) == (True, False)
    assert two.elector.leader == "one"
    one.lock.down = True
    await clock.advance(10.1)
    assert (one.leads, two.leads) == (False, False)  # the first has stopped before the second may start
    with pytest.raises(LostLease):
        assert one.task is not None
        await one.task
    assert one.elector.lost.is_set()
    await clock.advance(15)
    assert two.leads
    assert shared[0].transitions == 1
    await two.end()


async def test_the_deadline_counts_from_sending_the_renewal(clock: FakeClock) -> None:
    one = Candidate("one", [], clock).start()
    await clock.settle()
    assert one.elector.fence.remaining_s == 10
    one.lock.slow_s = 3.0
    await clock.advance(8)  # sent at 5, answered at 8
    assert one.elector.fence.remaining_s == 7
    one.lock.slow_s = 0.0
    await one.end()


async def test_an_acquisition_that_is_answered_too_late_does_not_count(clock: FakeClock) -> None:
    one = Candidate("one", [LockRecord(version="1")], clock)
    one.lock.slow_s = 6.0  # get takes 6 s, update 6 s more: the attempt is given up after 10 s
    one.start()
    await clock.advance(12)
    assert not one.leads
    one.lock.slow_s = 0.0
    await clock.advance(10)
    assert one.leads
    await one.end()


async def test_stopping_gives_the_lease_back_at_once(clock: FakeClock) -> None:
    shared: list[LockRecord] = []
    one, two = Candidate("one", shared, clock).start(), Candidate("two", shared, clock)
    await clock.settle()
    two.start()
    await clock.advance(1)
    one.stop.set()
    await clock.settle()
    assert one.task is not None
    await one.task
    assert shared[0].holder == ""
    assert not one.leads and not one.elector.lost.is_set()
    await clock.advance(6)  # at its next look, not after a lease
    assert two.leads
    await two.end()
    assert shared[0].holder == ""  # cancelling gives it back as well


async def test_one_failed_renewal_does_not_cost_the_lease(clock: FakeClock) -> None:
    one = Candidate("one", [], clock).start()
    await clock.advance(4)
    one.lock.down = True
    await clock.advance(4)
    one.lock.down = False
    await clock.advance(30)
    assert one.leads
    await one.end()


async def test_a_renewal_whose_answer_was_lost_is_recognised(clock: FakeClock) -> None:
    shared: list[LockRecord] = []
    one = Candidate("one", shared, clock).start()
    await clock.advance(4)
    one.lock.silent = True
    await clock.advance(2)
    one.lock.silent = False
    await clock.advance(30)
    assert one.leads and shared[0].transitions == 0
    await one.end()


async def test_a_lease_taken_by_another_ends_the_term_at_the_next_renewal(clock: FakeClock) -> None:
    shared: list[LockRecord] = []
    one = Candidate("one", shared, clock).start()
    await clock.advance(1)
    shared[0] = replace(shared[0], holder="thief", transitions=9, version="99")
    await clock.advance(5)
    assert not one.leads
    assert one.elector.leader == "thief"
    assert one.task is not None
    with pytest.raises(LostLease):
        await one.task
    assert shared[0].holder == "thief"  # only its holder releases it


async def test_writes_of_others_beside_the_record_are_neither_loss_nor_renewal(clock: FakeClock) -> None:
    shared: list[LockRecord] = []
    one = Candidate("one", shared, clock).start()
    await clock.advance(1)
    shared[0] = replace(shared[0], version="50")  # someone put a label on it
    await clock.advance(30)
    assert one.leads
    await one.end()

    dead = LockRecord(holder="dead", lease_s=15, renewed_at="x", version="1")
    shared[:] = [dead]
    two = Candidate("two", shared, clock).start()
    for version in range(2, 24):
        shared[0] = replace(shared[0], version=str(version)) if shared[0].holder == "dead" else shared[0]
        await clock.advance(1)
    assert two.leads
    await two.end()


async def test_times_in_the_record_are_not_trusted(clock: FakeClock) -> None:
    ancient = LockRecord(holder="old", lease_s=15, renewed_at="1999-01-01T00:00:00.000000Z", version="1")
    two = Candidate("two", [ancient], clock).start()
    await clock.advance(14.9)
    assert not two.leads  # it may be alive with a wrong clock: wait a whole lease from when we saw it
    await clock.advance(5.1)
    assert two.leads
    await two.end()


async def test_each_term_has_a_higher_number_also_for_the_same_holder(clock: FakeClock) -> None:
    shared: list[LockRecord] = []
    one = Candidate("one", shared, clock).start()
    await clock.advance(1)
    assert one.elector.fence.header() == "ns/lock;one;0"
    await one.end()
    again = Candidate("one", shared, clock).start()
    await clock.advance(6)
    assert again.elector.fence.header() == "ns/lock;one;1"
    await again.end()


@pytest.mark.parametrize("seed", range(8))
async def test_there_are_never_two_leaders(clock: FakeClock, seed: int) -> None:
    """Random faults on three candidates: holders of a fence never overlap, and a candidate leads once the faults end."""

    random = Random(seed)
    shared: list[LockRecord] = []
    candidates = [Candidate(name, shared, clock, random.random()).start() for name in ("one", "two", "three")]
    terms: list[int] = []
    for _ in range(150):
        for each in candidates:
            each.lock.down = random.random() < 0.4
            each.lock.silent = random.random() < 0.15
            each.lock.slow_s = random.choice([0.0, 0.0, 0.5, 4.0])
            if each.task is not None and each.task.done():
                each.task.exception()
                each.start()
        for _ in range(6):
            await clock.advance(random.random())
            leaders = [each for each in candidates if each.leads]
            assert len(leaders) <= 1
            if leaders:
                term = int(leaders[0].elector.fence.header().rsplit(";")[-1])
                assert not terms or term >= terms[-1]
                terms.append(term)
    for each in candidates:
        each.lock.down = each.lock.silent = False
        each.lock.slow_s = 0.0
    await clock.advance(1)
    for each in candidates:
        if each.task is not None and each.task.done():
            each.task.exception()
            each.start()
    await clock.advance(40)
    assert sum(each.leads for each in candidates) == 1
    assert len(set(terms)) > 1
    for each in candidates:
        await each.end()


def test_times_that_cannot_be_safe_are_refused(clock: FakeClock) -> None:
    for wrong in ({"lease_s": 10}, {"renew_deadline_s": 5.0}, {"retry_s": 0.0}):
        with pytest.raises(ConfigError, match="leader election"):
            ElectionConfig(**wrong)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="identity"):
        Elector(MemoryLock([], clock), "a;b", clock=clock, random=lambda: 0.0)
