"""The order in which a server shows its own writes and those of others, without a database."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from shoal.store.journal import Loaded, Transaction, decide
from shoal.store.model import (
    Absent,
    Attrs,
    Delete,
    Entry,
    Event,
    EventType,
    Exists,
    Key,
    Put,
    RequirementFailed,
    StoreUnavailable,
)
from shoal.store.postgres import hints
from shoal.store.postgres.feed import Diverged, Feed, HistoryChanged, OwnBatch
from shoal.store.postgres.follow import whole_batches
from shoal.store.postgres.rows import LogRow, StoreHistory, bare
from shoal.store.postgres.sealing import EventKeys

VALUE, HOLE = b'{"v":""}', 6
KEYS = EventKeys()
KEYS.use({1: bytes(32)})


class Shown:
    """What a store would show."""

    def __init__(self) -> None:
        self.entries: dict[Key, Entry] = {}
        self.events: list[Event] = []
        self.revision = 0

    def get(self, key: Key) -> Entry | None:
        return self.entries.get(key)

    def publish(self, events: Sequence[Event]) -> None:
        for event in events:
            self.revision += 1
            assert event.entry.revision == self.revision
            self.events.append(event)
            if event.type is EventType.DELETED:
                del self.entries[event.entry.key]
            else:
                self.entries[event.entry.key] = event.entry

    def reset(self, loaded: Loaded) -> None:
        raise NotImplementedError

    def fail(self, error: BaseException) -> None:
        raise error


def attrs_of(key: Key, value: bytes) -> Attrs:
    return Attrs()


def key(name: str) -> Key:
    return Key("pods", "default", name)


def put(name: str) -> Put:
    return Put(key(name), VALUE, HOLE)


def batches(*names: str) -> list[list[LogRow]]:
    """Batches of other servers, one per argument: each letter puts an object, in upper case deletes it."""
    model: dict[Key, Entry] = {}
    made: list[list[LogRow]] = []
    revision = 0
    for mark, letters in enumerate(names, 1):
        ops = [Delete(key(c.lower())) if c.isupper() else put(c) for c in letters]
        _, events = decide([Transaction(ops, ())], model.get, revision)
        rows = []
        for event in events:
            entry = event.entry
            deleted = event.type is EventType.DELETED
            prior = mark - 1 if not rows else mark
            value = None if deleted else bare(entry.value, entry.hole, entry.revision)
            rows.append(LogRow(entry.revision, mark, prior, entry.created, entry.hole, *entry.key, value))
            if deleted:
                del model[entry.key]
            else:
                model[entry.key] = entry
        revision += len(rows)
        made.append(rows)
    return made


async def with_feed(test: Callable[[Feed, Shown], None]) -> None:
    shown = Shown()
    test(Feed(shown, attrs_of, lambda batch, prior, events: None), shown)


def own(feed: Feed, mark: int, *transactions: Transaction) -> OwnBatch:
    batch = OwnBatch(transactions, mark)
    feed.sent(batch)
    return batch


async def test_rows_become_the_events_that_their_writer_has_shown() -> None:
    def test(feed: Feed, shown: Shown) -> None:
        first, second = batches("ab", "aB")
        feed.read(first)
        feed.read([*first, *second])
        kinds = [(event.type, event.entry.key.name, event.entry.value) for event in shown.events]
        assert kinds == [
            ("ADDED", "a", b'{"v":"1"}'),
            ("ADDED", "b", b'{"v":"2"}'),
            ("MODIFIED", "a", b'{"v":"3"}'),
            ("DELETED", "b", b'{"v":"4"}'),
        ]
        assert [event.entry.created for event in shown.events] == [1, 2, 1, 2]
        assert (feed.revision, feed.mark) == (4, 2)

    await with_feed(test)


async def test_hints_wait_for_what_comes_before_them() -> None:
    def test(feed: Feed, shown: Shown) -> None:
        first, second, third = batches("a", "b", "c")
        feed.hint(third)
        feed.hint(second)
        assert feed.revision == 0
        feed.hint(first)
        assert feed.revision == 3
        feed.hint(second)
        assert len(shown.events) == 3

    await with_feed(test)


async def test_more_than_64_hints_do_not_wait() -> None:
    def test(feed: Feed, shown: Shown) -> None:
        first, *rest = batches(*(["a"] * 100))
        for batch in rest:
            feed.hint(batch)
        feed.read(first)
        assert feed.revision == 65 and len(shown.events) == 65
        for batch in rest:
            feed.hint(batch)
        assert feed.revision == 100

    await with_feed(test)


async def test_hints_that_do_not_fit_are_dropped_and_the_log_is_authoritative() -> None:
    def test(feed: Feed, shown: Shown) -> None:
        first, second = batches("a", "bc")
        feed.hint([first[0]._replace(prior=99)])
        feed.hint([first[0]._replace(value=None)])
        feed.hint([first[0], first[0]._replace(revision=7)])
        assert feed.revision == 0
        feed.read(first)
        feed.read(second)
        assert feed.revision == 3 and [event.entry.key.name for event in shown.events] == ["a", "b", "c"]

    await with_feed(test)


async def test_a_log_that_does_not_go_on_from_here_is_another_history() -> None:
    def test(feed: Feed, shown: Shown) -> None:
        first, second, third = batches("a", "b", "c")
        feed.read(first)
        with pytest.raises(HistoryChanged) as hole:
            feed.read(third)
        assert not hole.value.rewound
        with pytest.raises(HistoryChanged) as other:
            feed.read([second[0]._replace(prior=77)])
        assert other.value.rewound
        with pytest.raises(HistoryChanged):
            feed.read([second[0]._replace(name="unknown", value=None)])
        assert feed.revision == 1 == len(shown.events)

    await with_feed(test)


async def test_an_own_batch_is_answered_when_everything_before_it_is_shown() -> None:
    def test(feed: Feed, shown: Shown) -> None:
        first, second = batches("a", "b")
        batch = own(feed, 50, Transaction([put("x")], [Exists(key("b"))]), Transaction([put("y")], [Absent(key("a"))]))
        feed.committed(batch, 2, 3)
        assert not batch.answer.done()
        feed.read(first)
        assert not batch.answer.done() and feed.revision == 1
        feed.hint(second)
        done, refused = batch.answer.result()
        assert isinstance(done, list) and done[0].revision == 3
        assert isinstance(refused, RequirementFailed) and refused.current == shown.entries[key("a")]
        assert (feed.revision, feed.mark) == (3, 50)

    await with_feed(test)


async def test_an_own_batch_that_is_found_in_the_log_is_answered_from_it() -> None:
    def test(feed: Feed, shown: Shown) -> None:
        (first,) = batches("a")
        batch = own(feed, 50, Transaction([put("x"), put("y")], ()))
        mine = [
            LogRow(2, 50, 1, 2, HOLE, *key("x"), VALUE),
            LogRow(3, 50, 50, 3, HOLE, *key("y"), VALUE),
            LogRow(4, 51, 50, 4, HOLE, *key("z"), VALUE),
        ]
        feed.read([*first, *mine])
        assert [entry.revision for entry in batch.answer.result()[0]] == [2, 3]  # type: ignore[union-attr]
        assert feed.revision == 4
        feed.committed(batch, 1, 3)
        assert feed.revision == 4 == len(shown.events)

    await with_feed(test)


async def test_a_refusal_that_comes_late_is_judged_by_the_state_at_its_time() -> None:
    def test(feed: Feed, shown: Shown) -> None:
        first, second = batches("a", "A")
        feed.read(first)
        found = shown.entries[key("a")]
        batch = own(feed, 50, Transaction([put("a")], [Absent(key("a"))]))
        feed.read(second)
        feed.committed(batch, 1, 1)
        (refused,) = batch.answer.result()
        assert isinstance(refused, RequirementFailed) and refused.current == found

    await with_feed(test)


async def test_a_refusal_is_judged_when_what_it_waits_for_is_passed_over_at_once() -> None:
    def test(feed: Feed, shown: Shown) -> None:
        first, second = batches("a", "A")
        batch = own(feed, 50, Transaction([put("a")], [Absent(key("a"))]))
        feed.committed(batch, 1, 1)
        assert not batch.answer.done()
        feed.read([*first, *second])
        (refused,) = batch.answer.result()
        assert isinstance(refused, RequirementFailed) and refused.current == shown.events[0].entry

    await with_feed(test)


async def test_a_refusal_older_than_what_is_remembered_is_not_judged_by_the_present() -> None:
    def test(feed: Feed, shown: Shown) -> None:
        first, *rest = batches("a", "A", *["b"] * 5000)
        feed.read(first)
        batch = own(feed, 50_000, Transaction([put("a")], [Absent(key("a"))]))
        feed.read([row for rows in rest for row in rows])
        feed.committed(batch, 1, 1)
        assert [type(result) for result in batch.answer.result()] == [StoreUnavailable]

    await with_feed(test)


async def test_a_disagreement_with_the_database_is_an_error() -> None:
    def test(feed: Feed, shown: Shown) -> None:
        with pytest.raises(Diverged):
            feed.committed(own(feed, 50, Transaction([put("a")], ())), 0, 0)
        with pytest.raises(Diverged):
            feed.committed(own(feed, 51, Transaction([put("a")], ())), 0, 2)

    await with_feed(test)


async def test_a_new_history_refuses_batches_in_flight() -> None:
    def test(feed: Feed, shown: Shown) -> None:
        batch = own(feed, 50, Transaction([put("a")], ()))
        feed.begin(1_000_000, 9)
        assert [type(result) for result in batch.answer.result()] == [StoreUnavailable]
        assert (feed.revision, feed.mark) == (1_000_000, 9)

    await with_feed(test)


def test_only_whole_batches_are_shown() -> None:
    first, second = batches("ab", "cd")
    assert whole_batches([*first, *second], 4) == [*first, *second]
    assert whole_batches([*first, second[0]], 4) == first
    assert whole_batches(first[:1], 4) == [] == whole_batches([], 4)


async def test_a_hint_carries_a_batch_unchanged() -> None:
    def test(feed: Feed, shown: Shown) -> None:
        for rows in batches("ab", "aBc", "ä"):
            prior = feed.mark
            before = len(shown.events)
            feed.read(rows)
            fields = hints.encode(KEYS, "here", prior, rows[0].mark, shown.events[before:])
            decoded = [row._replace(hole=0) if row.value is None else row for row in hints.decode(KEYS, fields)]
            assert decoded == [row._replace(hole=0) if row.value is None else row for row in rows]

    await with_feed(test)


def test_a_batch_too_large_for_a_hint_is_only_announced() -> None:
    value = b'{"v":"","x":"' + b"x" * (2 << 20) + b'"}'
    _, events = decide([Transaction([Put(key("a"), value, HOLE)], ())], lambda key: None, 0)
    fields = hints.encode(KEYS, "here", 0, 1, events)
    assert hints.decode(KEYS, fields) == [] and sum(map(len, fields.values())) < 1000


def test_a_batch_with_a_secret_is_only_announced() -> None:
    ops = [Put(key("a"), VALUE, HOLE), Put(Key("secrets", "default", "s"), VALUE, HOLE)]
    _, events = decide([Transaction(ops, ())], lambda key: None, 0)
    fields = hints.encode(KEYS, "here", 0, 1, events)
    assert set(fields) == {b"incarnation", b"prior", b"mark", b"revision", b"seal"}
    assert fields[b"revision"] == b"[1,2]" and hints.decode(KEYS, fields) == []


def test_an_entry_that_anybody_has_touched_is_refused() -> None:
    def entry(name: str, prior: int) -> dict[bytes, bytes]:
        _, events = decide([Transaction([put(name)], ())], lambda key: None, prior)
        return hints.encode(KEYS, "here", prior, prior + 1, events)

    good, other = entry("a", 0), entry("b", 1)
    assert len(hints.decode(KEYS, good)) == 1
    for name, value in good.items():
        for bad in (
            b"",
            b"\xff",
            b"[]",
            value[:-1],
            value + b" ",
            bytes([value[0] ^ 1]) + value[1:],
            other[name],
            None,
        ):
            if bad == value:
                continue
            fields: dict[bytes, Any] = {**good, name: bad}
            if bad is None:
                del fields[name]
            with pytest.raises((ValueError, KeyError)):
                hints.decode(KEYS, fields)
    announced = {
        name: value for name, value in good.items() if name not in (b"type", b"key", b"created", b"hole", b"object")
    }
    with pytest.raises(ValueError, match="seal"):
        hints.decode(KEYS, announced)


def test_a_log_that_lacks_superseded_rows_loads_to_the_same_objects() -> None:
    first, second, third = batches("ab", "aB", "ac")
    whole = StoreHistory({}, attrs_of)
    for row in [*first, *second, *third]:
        whole.add(row)
    assert [event.entry.revision for event in whole.events] == [1, 2, 3, 4, 5, 6] and not whole.superseded
    partly = StoreHistory({"pods": 4}, attrs_of)
    for row in [*second, *third]:
        partly.add(row)
    assert partly.entries == whole.entries
    assert partly.events == whole.events[4:]
    assert partly.superseded == [4]
    left = StoreHistory({"pods": 6}, attrs_of)
    for row in [*first, *second, *third]:
        left.add(row)
    assert left.events == [] and sorted(left.superseded) == [1, 2, 3, 4] and left.entries == whole.entries
