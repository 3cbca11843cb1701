"""Guarantees of commits, on every backend."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import pytest

from shoal.store import (
    Absent,
    At,
    Delete,
    Event,
    EventType,
    Exists,
    Fence,
    FutureRevision,
    Key,
    LogStore,
    Require,
    RequirementFailed,
    StoreClosed,
)
from shoal.store.memory import MemoryJournal
from shoal.testing.waiting import eventually


def pod(name: str) -> Key:
    return Key("pods", "default", name)


async def test_revisions_start_at_one_and_count_operations(backend: Any) -> None:
    async with backend.opened() as store:
        assert store.revision == 0
        (first,) = await store.commit([backend.put("a")])
        second, third = await store.commit([backend.put("b"), backend.put("c")])
        assert [first.revision, second.revision, third.revision] == [1, 2, 3]
        assert store.revision == 3


async def test_the_revision_stands_in_the_value_at_the_hole(backend: Any) -> None:
    async with backend.opened() as store:
        for _ in range(12):  # so that the number gets a second digit
            (entry,) = await store.commit([backend.put("a", spec="x")])
            assert json.loads(entry.value)["metadata"]["resourceVersion"] == str(entry.revision)
            assert entry.value[entry.hole :].startswith(str(entry.revision).encode())
            assert store.get(pod("a")) == entry
        assert entry.created == 1 and entry.revision == 12


async def test_a_deletion_carries_its_own_revision_and_the_last_state(backend: Any) -> None:
    async with backend.opened() as store:
        for _ in range(9):
            await store.commit([backend.put("a", spec="last", indexed=["i"])])
        before = store.get(pod("a"))
        (gone,) = await store.commit([Delete(pod("a"))])
        assert gone.revision == 10 and gone.created == 1 and before is not None
        assert json.loads(gone.value) == {**json.loads(before.value), "metadata": {"resourceVersion": "10"}}
        assert store.get(pod("a")) is None
        (event,) = store.watch("pods", 9).take()
        assert event == Event(EventType.DELETED, gone, before)
        (again,) = await store.commit([backend.put("a")])
        assert again.created == again.revision == 11


async def test_deleting_a_missing_key_fails_as_unmet_exists(backend: Any) -> None:
    async with backend.opened() as store:
        with pytest.raises(RequirementFailed) as failed:
            await store.commit([backend.put("a"), Delete(pod("missing"))])
        assert failed.value.require == Exists(pod("missing")) and failed.value.current is None
        assert store.revision == 0 and store.get(pod("a")) is None


async def test_every_kind_of_requirement_is_enforced(backend: Any) -> None:
    async with backend.opened() as store:
        (entry,) = await store.commit([backend.put("a", fence="me/3")])
        met: list[Require] = [At(pod("a"), entry.revision), Exists(pod("a")), Absent(pod("b")), Fence(pod("a"), "me/3")]
        await store.commit([backend.put("c")], met)
        unmet: list[Require] = [
            At(pod("a"), entry.revision + 1),
            At(pod("b"), 1),
            Exists(pod("b")),
            Absent(pod("a")),
            Fence(pod("a"), "me/4"),
            Fence(pod("b"), ""),
        ]
        for require in unmet:
            with pytest.raises(RequirementFailed) as failed:
                await store.commit([backend.put("d")], [*met, require])
            assert failed.value.require == require
            assert failed.value.current == store.get(require.key)
        assert store.get(pod("d")) is None and store.revision == 2


async def test_requirements_see_earlier_transactions_of_the_same_batch(backend: Any) -> None:
    async with backend.opened() as store:
        results = await asyncio.gather(
            store.commit([backend.put("a")], [Absent(pod("a"))]),
            store.commit([backend.put("a")], [Absent(pod("a"))]),
            store.commit([backend.put("a")], [At(pod("a"), 1)]),
            store.commit([Delete(pod("a"))], [At(pod("a"), 2)]),
            store.commit([Delete(pod("a"))]),
            store.commit([backend.put("a")], [Absent(pod("a"))]),
            return_exceptions=True,
        )
        assert all(isinstance(r, RequirementFailed | list) for r in results)
        revisions = [None if isinstance(r, BaseException) else r[0].revision for r in results]
        assert revisions == [1, None, 2, 3, None, 4]
        assert store.revision == 4


async def test_a_transaction_sees_its_own_earlier_operations(backend: Any) -> None:
    async with backend.opened() as store:
        entries = await store.commit([backend.put("a"), backend.put("a"), Delete(pod("a")), backend.put("a")])
        assert [e.created for e in entries] == [1, 1, 1, 4]
        types = [event.type for event in store.watch("pods", 0).take()]
        assert types == ["ADDED", "MODIFIED", "DELETED", "ADDED"]
        with pytest.raises(RequirementFailed):
            await store.commit([Delete(pod("a")), Delete(pod("a"))])
        assert store.get(pod("a")) == entries[-1]


async def test_a_refused_transaction_leaves_nothing_and_burns_no_revision(backend: Any) -> None:
    async with backend.opened() as store:
        good = [store.commit([backend.put(f"good-{i}")]) for i in range(20)]
        bad = [store.commit([backend.put(f"bad-{i}")], [Exists(pod("never"))]) for i in range(20)]
        mixed = [commit for pair in zip(good, bad, strict=True) for commit in pair]
        results = await asyncio.gather(*mixed, return_exceptions=True)
        assert sum(isinstance(r, RequirementFailed) for r in results) == 20
        assert store.revision == 20
        assert [e.entry.revision for e in store.watch("pods", 0).take()] == list(range(1, 21))
        assert all(e.key.name.startswith("good") for e in store.range("pods").entries)


async def test_a_malformed_operation_fails_alone(backend: Any) -> None:
    async with backend.opened() as store:
        results = await asyncio.gather(
            store.commit([backend.put("a")]),
            store.commit([backend.put("b"), backend.put("half-\ud800")]),
            store.commit([backend.put("zero-\0")]),
            store.commit([backend.put("ünïcode-\u2028-\"'")]),
            return_exceptions=True,
        )
        assert [isinstance(r, Exception) for r in results] == [False, True, True, False]
        assert store.revision == 2


async def test_checking_requirements_without_operations_burns_no_revision(backend: Any) -> None:
    async with backend.opened() as store:
        assert list(await store.commit([], [Absent(pod("a"))])) == []
        with pytest.raises(RequirementFailed):
            await store.commit([], [Exists(pod("a"))])
        assert store.revision == 0


async def test_fifty_writers_get_gapless_revisions_in_commit_order(backend: Any) -> None:
    async with backend.opened() as store:
        acknowledged: list[int] = []

        async def writer(n: int) -> None:
            for i in range(20):
                entries = await store.commit([backend.put(f"w{n}"), backend.put(f"w{n}-{i}")])
                assert entries[1].revision == entries[0].revision + 1, "a transaction is not interleaved"
                assert store.revision >= entries[1].revision, "acknowledged means visible"
                acknowledged.extend(e.revision for e in entries)

        await asyncio.gather(*(writer(n) for n in range(50)))
        assert sorted(acknowledged) == list(range(1, 2001))
        events = store.watch("pods", 0).take(5000)
        assert [e.entry.revision for e in events] == list(range(1, 2001))


async def test_one_counter_increment_survives_per_acknowledged_compare_and_swap(backend: Any) -> None:
    async with backend.opened() as store:
        await store.commit([backend.put("n", spec="0")])

        async def writer() -> int:
            conflicts = 0
            for _ in range(10):
                while True:
                    entry = store.get(pod("n"))
                    assert entry is not None
                    count = int(json.loads(entry.value)["spec"]) + 1
                    try:
                        await store.commit([backend.put("n", spec=str(count))], [At(pod("n"), entry.revision)])
                        break
                    except RequirementFailed:
                        conflicts += 1
            return conflicts

        conflicts = await asyncio.gather(*(writer() for _ in range(10)))
        final = store.get(pod("n"))
        assert final is not None and json.loads(final.value)["spec"] == "100"
        assert sum(conflicts) > 0 and store.revision == 101


async def test_cancelled_commits_do_not_affect_others(backend: Any) -> None:
    async with backend.opened() as store:
        tasks = [asyncio.ensure_future(store.commit([backend.put(f"p{i}")])) for i in range(100)]
        for i, task in enumerate(tasks):
            if i % 3 == 0:
                task.cancel()
            if i % 10 == 0:
                await asyncio.sleep(0)
        results = await asyncio.gather(*tasks, return_exceptions=True)
        for i, result in enumerate(results):
            stored = store.get(pod(f"p{i}"))
            if isinstance(result, asyncio.CancelledError):
                assert i % 3 == 0
            else:
                assert not isinstance(result, BaseException) and stored == result[0]
        present = store.range("pods").entries
        assert sorted(e.revision for e in present) == list(range(1, store.revision + 1))


async def test_stop_finishes_what_is_queued_and_refuses_the_rest(backend: Any) -> None:
    store = backend.open()
    await store.start()
    queued = [asyncio.ensure_future(store.commit([backend.put(f"p{i}")])) for i in range(300)]
    await asyncio.sleep(0)
    await store.stop()
    assert [len(entries) for entries in await asyncio.gather(*queued)] == [1] * 300
    with pytest.raises(StoreClosed):
        await store.commit([backend.put("late")])


async def test_fresh_and_reached(backend: Any) -> None:
    async with backend.opened() as store:
        await store.commit([backend.put("a")])
        assert await store.fresh() == 1
        await store.reached(1, 0)
        with pytest.raises(FutureRevision) as early:
            await store.reached(2, 0.01)
        assert (early.value.revision, early.value.current) == (2, 1)
        waiting = asyncio.ensure_future(store.reached(3, 30))
        cancelled = asyncio.ensure_future(store.reached(3, 30))
        await store.commit([backend.put("b")])
        cancelled.cancel()
        await asyncio.sleep(0)
        assert not waiting.done()
        await store.commit([backend.put("c")])
        await waiting


class _GatedJournal(MemoryJournal):
    """Takes as long to write as the test wants."""

    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.writing = asyncio.Event()
        self.batches: list[int] = []

    async def append(self, events: Sequence[Event]) -> None:
        self.batches.append(len(events))
        self.writing.set()
        await self.gate.wait()


async def test_nothing_is_visible_before_it_is_durable(backend: Any) -> None:
    journal = _GatedJournal()
    store = LogStore(journal)
    await store.start()
    heard: list[int] = []
    store.subscribe("pods", lambda events: heard.append(len(events)))
    watch = store.watch("pods", 0)
    waiting = asyncio.ensure_future(watch.wait())
    first = asyncio.ensure_future(store.commit([backend.put("a")]))
    await journal.writing.wait()
    rest = [asyncio.ensure_future(store.commit([backend.put(f"b{i}")])) for i in range(1000)]
    for _ in range(5):
        await asyncio.sleep(0)
    assert journal.batches == [1]
    assert store.get(pod("a")) is None and store.revision == 0 and not first.done() and not waiting.done()
    assert not store.range("pods").entries and not watch.take() and store.count("pods") == 0 and not heard
    journal.gate.set()
    await asyncio.gather(first, waiting, *rest)
    assert journal.batches == [1, 256, 256, 256, 232], "what gathered meanwhile is written together, bounded"
    assert heard == journal.batches, "one call per batch"
    await store.stop()


async def test_commits_are_counted_by_operation_and_batch_and_the_size_on_disk_is_known(lonely: Any) -> None:
    async with lonely.opened() as store:
        await store.commit([lonely.put("a")], [Absent(pod("a"))])
        await asyncio.gather(*(store.commit([lonely.put(name)]) for name in "bcd"))
        await store.commit([Delete(pod("a"))])
        with pytest.raises(RequirementFailed):
            await store.commit([lonely.put("b")], [Absent(pod("b"))])
        counted = {key: sum(durations.counts) for key, durations in store.figures.requests.items()}
        assert counted == {("create", "pods"): 1, ("update", "pods"): 3, ("delete", "pods"): 1}
        sizes = store.figures.batch_sizes
        assert sizes.total == 6 and sum(sizes.counts) == sum(store.figures.batch_s.counts) <= 6
        if lonely.durable:
            await eventually(lambda: store.size_bytes > 4096)
        else:
            assert store.size_bytes == 0
