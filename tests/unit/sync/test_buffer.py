"""The buffer of an agent: nothing is lost, the newest wins, one at a time per key, a failing key blocks nobody."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from shoal.sync.buffer import KeyedBuffer
from shoal.sync.versions import Version

LIMIT = 3


def at(number: int) -> Version:
    return Version("main", 1, number)


class Buffered(RuleBasedStateMachine):
    """Against a model: per key the newest version offered, and the newest one applied."""

    def __init__(self) -> None:
        super().__init__()
        self.buffer: KeyedBuffer[int] = KeyedBuffer(LIMIT)
        self.now = 0.0
        self.number = 0
        self.wanted: dict[str, int] = {}
        self.applied: dict[str, int] = {}
        self.working: dict[str, int] = {}

    @rule(key=st.sampled_from("abcdef"), urgent=st.booleans())
    def offer(self, key: str, urgent: bool) -> None:
        self.number += 1
        room = self.buffer.depth < LIMIT or self.buffer.pending(key) is not None
        taken = self.buffer.offer(key, at(self.number), self.number, self.now, urgent=urgent)
        assert taken == room
        if taken:
            self.wanted[key] = self.number

    @rule(key=st.sampled_from("abcdef"))
    def offer_old_news(self, key: str) -> None:
        if self.buffer.pending(key) is not None:
            assert self.buffer.offer(key, at(0), 0, self.now)

    @rule()
    def take(self) -> None:
        entry = self.buffer.take(self.now)
        if entry is not None:
            assert entry.key not in self.working
            assert entry.value > self.applied.get(entry.key, 0)
            self.working[entry.key] = entry.value

    @precondition(lambda self: self.working)
    @rule(data=st.data())
    def done(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from(sorted(self.working)))
        self.applied[key] = self.working.pop(key)
        self.buffer.done(key)

    @precondition(lambda self: self.working)
    @rule(data=st.data(), delay=st.floats(0, 10))
    def failed(self, data: st.DataObject, delay: float) -> None:
        key = data.draw(st.sampled_from(sorted(self.working)))
        del self.working[key]
        self.buffer.failed(key, self.now + delay)

    @rule(seconds=st.floats(0, 10))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @invariant()
    def what_is_not_applied_is_pending_with_its_newest_value(self) -> None:
        for key, number in self.wanted.items():
            pending = self.buffer.pending(key)
            if self.applied.get(key, 0) < number:
                assert pending is not None
                assert pending.value == number

    @invariant()
    def it_keeps_to_its_limit(self) -> None:
        assert self.buffer.depth <= LIMIT + 6  # a key that was failing may come back over the limit, none other

    def teardown(self) -> None:
        for key in list(self.working):
            self.buffer.failed(key, self.now)
        self.working.clear()
        while (entry := self.buffer.take(self.now + 100)) is not None:
            self.applied[entry.key] = entry.value
            self.buffer.done(entry.key)
        assert {key: self.applied.get(key) for key in self.wanted} == self.wanted
        assert len(self.buffer) == 0
        assert self.buffer.oldest() is None


TestBuffered = Buffered.TestCase
TestBuffered.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


def test_failing_keys_leave_room_for_others() -> None:
    buffer: KeyedBuffer[str] = KeyedBuffer(1)
    assert buffer.offer("a", at(1), "a", 0.0)
    assert not buffer.offer("b", at(2), "b", 0.0)
    assert buffer.take(0.0)
    buffer.failed("a", 5.0)
    assert buffer.offer("b", at(2), "b", 1.0)
    assert (buffer.next_due(), buffer.oldest()) == (5.0, 0.0)
    assert [entry.attempts for _, entry in buffer.retrying()] == [1]


def test_urgent_keys_go_first_and_due_retries_last() -> None:
    buffer: KeyedBuffer[str] = KeyedBuffer(10)
    for number, key in enumerate("abc", 1):
        buffer.offer(key, at(number), key, 0.0, urgent=key == "c")
    order = []
    for _ in range(3):
        entry = buffer.take(0.0)
        assert entry
        order.append(entry.key)
    assert order == ["c", "a", "b"]


def test_newer_state_ends_the_wait_of_a_failing_key() -> None:
    buffer: KeyedBuffer[str] = KeyedBuffer(10)
    buffer.offer("a", at(1), "bad", 0.0)
    buffer.take(0.0)
    buffer.failed("a", 300.0)
    assert buffer.take(1.0) is None
    buffer.offer("a", at(2), "good", 1.0)
    entry = buffer.take(1.0)
    assert entry is not None
    assert (entry.value, entry.since, entry.attempts) == ("good", 0.0, 0)
