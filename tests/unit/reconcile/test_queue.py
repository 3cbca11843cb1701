"""The work queue: one worker per key, no lost keys, delays on the clock, shutdown."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from shoal.base.bounded import Closed
from shoal.base.clock import FakeClock
from shoal.base.metrics import Distribution
from shoal.reconcile.queue import RateLimit, TokenBucket, WorkQueue


def queue(clock: FakeClock, **limit: float) -> WorkQueue[str]:
    return WorkQueue(clock=clock, limit=RateLimit(**limit))  # type: ignore[arg-type]


async def test_a_key_added_twice_runs_once(clock: FakeClock) -> None:
    q = queue(clock)
    q.add("a")
    q.add("a")
    assert await q.get() == "a"
    assert len(q) == 0


async def test_a_key_added_while_it_runs_is_not_handed_out_until_done_and_then_once(clock: FakeClock) -> None:
    q = queue(clock)
    q.add("a")
    await q.get()
    q.add("a")
    q.add("a")
    assert len(q) == 0
    q.done("a")
    assert await q.get() == "a"
    q.done("a")
    assert len(q) == 0
    await q.idle()


async def test_of_several_delays_the_shortest_counts(clock: FakeClock) -> None:
    q = queue(clock)
    q.add_after("a", 10)
    q.add_after("a", 5)
    q.add_after("a", 20)
    await clock.advance(4.9)
    assert len(q) == 0
    await clock.advance(0.1)
    assert len(q) == 1
    assert await q.get() == "a"
    q.done("a")
    await clock.advance(100)
    assert len(q) == 0


async def test_failures_back_off_exponentially_until_they_are_forgotten(clock: FakeClock) -> None:
    q = queue(clock, base_s=1, cap_s=8, rate=0)
    assert [q.add_rate_limited("a") for _ in range(6)] == [1, 2, 4, 8, 8, 8]
    assert q.failures("a") == 6
    q.forget("a")
    assert q.add_rate_limited("a") == 1
    assert q.failures("b") == 0


async def test_all_failures_together_are_held_to_the_common_rate(clock: FakeClock) -> None:
    q = queue(clock, base_s=0.001, cap_s=1, rate=2, burst=3)
    delays = [q.add_rate_limited(str(number)) for number in range(6)]
    assert delays[:3] == [0.001, 0.001, 0.001]
    assert delays[3:] == [0.5, 1.0, 1.5]


async def test_a_bucket_refills_with_time_and_not_above_its_burst(clock: FakeClock) -> None:
    bucket = TokenBucket(2, 3, clock=clock)
    assert [bucket.take() for _ in range(4)] == [True, True, True, False]
    await clock.advance(0.5)
    assert [bucket.take(), bucket.take()] == [True, False]
    await clock.advance(60)
    assert bucket.full
    assert [bucket.take() for _ in range(4)] == [True, True, True, False]


async def test_shutting_down_wakes_parked_workers(clock: FakeClock) -> None:
    q = queue(clock)
    workers = [asyncio.create_task(q.get(), name=str(n)) for n in range(3)]
    await clock.settle()
    q.shut_down()
    for worker in workers:
        with pytest.raises(Closed):
            await worker
    q.add("a")
    q.add_after("a", 1)
    await clock.advance(1)
    assert len(q) == 0


async def test_draining_hands_out_what_is_queued_and_waits_for_what_runs(clock: FakeClock) -> None:
    q = queue(clock)
    q.add("a")
    q.add("b")
    q.add_after("c", 1)
    assert await q.get() == "a"
    q.add("a")
    q.shut_down(drain=True)
    assert q.waiting == 0
    idle = asyncio.create_task(q.idle(), name="idle")
    assert await q.get() == "b"
    q.done("a")
    assert await q.get() == "a"  # it was added before the end
    q.done("b")
    await clock.settle()
    assert not idle.done()
    q.done("a")
    await idle
    with pytest.raises(Closed):
        await q.get()


async def test_without_draining_queued_keys_are_dropped(clock: FakeClock) -> None:
    q = queue(clock)
    q.add("a")
    q.add("b")
    await q.get()
    q.add("a")
    q.shut_down()
    with pytest.raises(Closed):
        await q.get()
    q.done("a")
    with pytest.raises(Closed):
        await q.get()
    await q.idle()


async def test_a_worker_cancelled_while_waiting_takes_nothing_with_it(clock: FakeClock) -> None:
    q = queue(clock)
    first = asyncio.create_task(q.get(), name="first")
    second = asyncio.create_task(q.get(), name="second")
    await clock.settle()
    q.add("a")
    first.cancel()
    assert await second == "a"
    with pytest.raises(asyncio.CancelledError):
        await first


KEYS = st.sampled_from("abcde")


class QueueMachine(RuleBasedStateMachine):
    """Any sequence of calls: the invariants hold, and a key that was added is handed out after its last add."""

    @initialize()
    def start(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.clock = FakeClock()
        self.queue: WorkQueue[str] = WorkQueue(clock=self.clock, limit=RateLimit(base_s=1, cap_s=4, rate=0))
        self.working: set[str] = set()
        self.owed: set[str] = set()  # added, and not handed out since
        self.due: dict[str, float] = {}

    def teardown(self) -> None:
        """Let all delays end and hand out everything that is left: each key that was added, once."""
        if not hasattr(self, "loop"):
            return
        try:
            self.pass_time(10)
            for key in self.working:
                self.queue.done(key)
            left = [self.loop.run_until_complete(self.queue.get()) for _ in range(len(self.queue))]
            assert sorted(left) == sorted(self.owed)
            for key in left:
                self.queue.done(key)
            self.loop.run_until_complete(asyncio.wait_for(self.queue.idle(), 1))
        finally:
            self.loop.close()

    @rule(key=KEYS)
    def add(self, key: str) -> None:
        self.queue.add(key)
        self.owed.add(key)

    @rule(key=KEYS, delay_s=st.integers(1, 5))
    def add_after(self, key: str, delay_s: int) -> None:
        self.queue.add_after(key, delay_s)
        due = self.clock.monotonic() + delay_s
        self.due[key] = min(due, self.due.get(key, due))

    @rule(key=KEYS)
    def fail(self, key: str) -> None:
        due = self.clock.monotonic() + self.queue.add_rate_limited(key)
        self.due[key] = min(due, self.due.get(key, due))

    @rule(seconds=st.integers(1, 6))
    def pass_time(self, seconds: int) -> None:
        self.loop.run_until_complete(self.clock.advance(seconds))
        for key in [key for key, due in self.due.items() if due <= self.clock.monotonic()]:
            del self.due[key]
            self.owed.add(key)

    @precondition(lambda self: len(self.queue) > 0)
    @rule()
    def get(self) -> None:
        key = self.loop.run_until_complete(self.queue.get())
        assert key not in self.working, "handed out to two workers"
        assert key in self.owed, "handed out though nobody asked"
        self.working.add(key)
        self.owed.discard(key)

    @precondition(lambda self: self.working)
    @rule(data=st.data())
    def done(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from(sorted(self.working)))
        self.working.discard(key)
        self.queue.done(key)

    @invariant()
    def the_queue_counts_the_keys_that_are_ready_and_those_that_wait(self) -> None:
        if hasattr(self, "queue"):
            assert len(self.queue) == len(self.owed - self.working)
            assert self.queue.waiting == len(self.due)


QueueMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestQueueMachine = QueueMachine.TestCase


async def test_the_wait_of_a_key_ends_when_a_worker_takes_it() -> None:
    clock, waits = FakeClock(), Distribution((1.0, 10.0))
    queue: WorkQueue[str] = WorkQueue(clock=clock, waits=waits)
    queue.add("a")
    await clock.advance(5)
    queue.add("a")  # it is there already: its time counts from the first
    assert await queue.get() == "a"
    assert (waits.counts, waits.total) == ([0, 1, 0], 5.0)
    queue.add("a")  # while it is processed
    await clock.advance(20)
    queue.done("a")
    assert queue.take(lambda _: True) == "a"
    assert (waits.counts, waits.total) == ([0, 1, 1], 25.0)
    queue.done("a")
    queue.add("b")
    queue.shut_down()
    queue.add("b")
    assert sum(waits.counts) == 2
