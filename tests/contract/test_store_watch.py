"""Guarantees of watches, subscriptions and compaction, on every backend."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shoal.store import (
    Compacted,
    Delete,
    Entry,
    Event,
    EventType,
    Key,
    LogStore,
    RequirementFailed,
    RingLimits,
    StoreClosed,
)

LEASES = "leases.coordination.k8s.io"


def pod(name: str) -> Key:
    return Key("pods", "default", name)


async def test_a_watch_sees_every_later_event_of_its_resource_in_order(backend: Any) -> None:
    async with backend.opened() as store:
        (a,) = await store.commit([backend.put("a")])
        await store.commit([backend.put("n", resource="nodes")])
        watch = store.watch("pods", 0)
        assert watch.take() == [Event(EventType.ADDED, a, None)]
        assert watch.take() == [] and watch.revision == 2, "the cursor moves past events of others"
        (b,) = await store.commit([backend.put("a", spec="2")])
        (c,) = await store.commit([Delete(pod("a"))])
        assert watch.take(1) == [Event(EventType.MODIFIED, b, a)] and watch.revision == 3
        assert watch.take(1) == [Event(EventType.DELETED, c, b)] and watch.revision == 4
        assert [e.entry.revision for e in store.watch("pods", 1).take()] == [3, 4]


async def test_a_watch_from_a_revision_to_come_starts_there(backend: Any) -> None:
    async with backend.opened() as store:
        watch = store.watch("pods", 2)
        for name in "abcd":
            await store.commit([backend.put(name)])
        assert [e.entry.revision for e in watch.take()] == [3, 4]


async def test_wait_returns_for_its_resource_only_and_survives_cancellation(backend: Any) -> None:
    async with backend.opened() as store:
        watch = store.watch("pods", 0)
        for _ in range(3):
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(watch.wait(), 0.005)
        waiting = asyncio.ensure_future(watch.wait())
        await store.commit([backend.put("n", resource="nodes")])
        for _ in range(5):
            await asyncio.sleep(0)
        assert not waiting.done()
        waiting.cancel()
        await store.commit([backend.put("a")])
        await watch.wait()
        await watch.wait()
        assert len(watch.take()) == 1


async def test_no_wake_up_is_lost_between_take_and_wait(backend: Any) -> None:
    async with backend.opened() as store:

        async def reader() -> list[int]:
            watch = store.watch("pods", 0)
            seen: list[int] = []
            while len(seen) < 300:
                await asyncio.wait_for(watch.wait(), 20)
                seen += [e.entry.revision for e in watch.take(7)]
            return seen

        readers = [asyncio.ensure_future(reader()) for _ in range(20)]
        for i in range(100):
            await asyncio.gather(*(store.commit([backend.put(f"p{i}-{j}")]) for j in range(3)))
        assert all(seen == list(range(1, 301)) for seen in await asyncio.gather(*readers))


async def test_closing_a_watch_or_the_store_ends_a_wait(backend: Any) -> None:
    store = backend.open()
    await store.start()
    closed, left = store.watch("pods", 0), store.watch("pods", 0)
    waits = [asyncio.ensure_future(watch.wait()) for watch in (closed, left)]
    await asyncio.sleep(0)
    closed.close()
    with pytest.raises(StoreClosed):
        await waits[0]
    assert not waits[1].done() and closed.take() == ()
    await store.stop()
    for wait in (waits[1], left.wait(), closed.wait()):
        with pytest.raises(StoreClosed):
            await wait


async def test_a_watcher_that_falls_behind_gets_an_error_and_delays_no_write(backend: Any) -> None:
    async with backend.opened(limits=RingLimits(max_events=100)) as store:
        slow, quick = store.watch("pods", 0), store.watch("pods", 0)
        seen = 0
        for i in range(50):
            await store.commit([backend.put(f"p{i}-{j}") for j in range(10)])
            seen += len(quick.take())
        assert seen == 500
        await asyncio.wait_for(slow.wait(), 1)
        for _ in range(2):
            with pytest.raises(Compacted) as fallen:
                slow.take()
        assert fallen.value.revision == 0 and 380 <= fallen.value.oldest <= 400
        assert len(store.watch("pods", fallen.value.oldest).take()) == 500 - fallen.value.oldest
        with pytest.raises(Compacted):
            store.watch("pods", fallen.value.oldest - 1)


async def test_a_quiet_resource_can_be_watched_from_far_back(backend: Any) -> None:
    async with backend.opened(limits=RingLimits(max_events=100)) as store:
        await store.commit([backend.put("n", resource="nodes")])
        for i in range(100):
            await store.commit([backend.put(f"p{i}-{j}") for j in range(10)])
        assert [e.entry.revision for e in store.watch("nodes", 0).take()] == [1]
        assert store.watch("services", 0).take() == []
        with pytest.raises(Compacted):
            store.watch("pods", 0)


async def test_history_keeps_to_its_bytes_and_the_busy_resource_pays(backend: Any) -> None:
    budget = 1 << 20

    async with backend.opened(limits=RingLimits(max_bytes=budget)) as store:
        quiet = [await store.commit([backend.put("n", resource="nodes", spec=str(i))]) for i in range(20)]
        for i in range(100):
            await store.commit([backend.put(f"p{j}", spec=f"{i}" * 1000) for j in range(20)])
            assert store.history_bytes <= budget
        assert store.history_bytes > budget // 2
        assert [e.entry for e in store.watch("nodes", 0).take()] == [entry for (entry,) in quiet]
        with pytest.raises(Compacted):
            store.watch("pods", 20)
        await store.compact(store.revision)
        assert store.history_bytes == 0


async def test_history_of_leases_is_short(backend: Any) -> None:
    async with backend.opened(limits=RingLimits(short_events=10)) as store:
        for i in range(30):
            await store.commit([backend.put("l", resource=LEASES, spec=str(i)), backend.put("a", spec=str(i))])
        assert len(store.watch("pods", 0).take()) == 30
        with pytest.raises(Compacted):
            store.watch(LEASES, 0)
        assert len(store.watch(LEASES, 40).take()) == 10


async def test_history_ages(backend: Any) -> None:
    now = 0.0

    async with backend.opened(limits=RingLimits(max_age_s=100), clock=lambda: now) as store:
        await store.commit([backend.put("old"), backend.put("n", resource="nodes")])
        now = 2.0
        await store.commit([backend.put("old")])
        now = 50.0
        await store.commit([backend.put("middle")])
        now = 101.0
        await store.commit([backend.put("new")])
        assert len(store.watch("pods", 0).take()) == 4, "nothing is dropped before its time"
        now = 103.0
        await store.commit([backend.put("newer")])
        assert [e.entry.revision for e in store.watch("pods", 3).take()] == [4, 5, 6]
        for resource in ("pods", "nodes"):
            with pytest.raises(Compacted):
                store.watch(resource, 0)


async def test_compaction_forgets_up_to_its_revision_and_not_beyond(backend: Any) -> None:
    async with backend.opened() as store:
        for i in range(10):
            await store.commit([backend.put("a", spec=str(i))])
        behind, at = store.watch("pods", 4), store.watch("pods", 5)
        await store.compact(5)
        with pytest.raises(Compacted):
            behind.take()
        assert [e.entry.revision for e in at.take()] == [6, 7, 8, 9, 10]
        first = store.watch("pods", 5).take(1)[0]
        assert first.previous is not None and first.previous.revision == 5
        with pytest.raises(Compacted) as compacted:
            store.watch("pods", 4)
        assert compacted.value.oldest == 5
        await store.compact(3)
        await store.compact(10)
        assert store.watch("pods", 10).take() == [] and store.count("pods") == 1


async def test_subscribers_get_every_batch_once_and_a_broken_one_affects_no_other(backend: Any) -> None:
    async with backend.opened() as store:
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: reported.append(context["exception"]))
        reported: list[Any] = []
        heard: list[list[int]] = []

        def broken(events: Any) -> None:
            raise ValueError("bug")

        def good(events: Any) -> None:
            assert store.revision >= events[-1].entry.revision
            heard.append([e.entry.revision for e in events])

        stop_broken, stop_good = store.subscribe("pods", broken), store.subscribe("pods", good)
        await asyncio.gather(*(store.commit([backend.put(f"p{i}")]) for i in range(10)))
        assert len(heard) < 10 and [r for batch in heard for r in batch] == list(range(1, 11))
        assert len(reported) == len(heard)
        await store.commit([backend.put("n", resource="nodes")])
        stop_broken()
        stop_good()
        stop_good()
        count = len(heard)
        await store.commit([backend.put("late")])
        assert len(heard) == count == len(reported)
        resets: list[int] = []
        store.subscribe("pods", broken, lambda: resets.append(store.revision))
        await store.commit([backend.put("later")])
        assert resets == [store.revision], "it reads everything again, since it may have taken in a part"


_STEPS = st.lists(
    st.lists(
        st.tuples(st.sampled_from(["put", "delete"]), st.sampled_from(["pods", "nodes"]), st.sampled_from("abcd")),
        min_size=1,
        max_size=3,
    ),
    min_size=1,
    max_size=40,
)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=_STEPS, group=st.integers(1, 7), most=st.integers(3, 40), after_seed=st.integers(0, 10_000))
async def test_watches_and_lists_agree_with_a_model_of_all_revisions(
    lonely: Any, steps: list[Any], group: int, most: int, after_seed: int
) -> None:
    """Random transactions, committed in groups; ``states[r]`` is what the world looked like at revision r."""
    states: list[dict[Key, Entry]] = []
    events: list[Event] = []

    def record(entries: Any, ops: Any) -> None:
        for entry, op in zip(entries, ops, strict=True):
            world = dict(states[-1])
            previous = world.get(entry.key)
            if isinstance(op, Delete):
                events.append(Event(EventType.DELETED, entry, world.pop(entry.key)))
            else:
                events.append(Event(EventType.MODIFIED if previous else EventType.ADDED, entry, previous))
                world[entry.key] = entry
            states.append(world)

    def check(store: LogStore, resource: str, after: int) -> None:
        expected = [e for e in events if e.entry.revision > after and e.entry.key.resource == resource]
        try:
            watch = store.watch(resource, after)
        except Compacted as compacted:
            assert compacted.oldest > after
            assert any(after < e.entry.revision <= compacted.oldest for e in expected), "something was really dropped"
            with pytest.raises(Compacted):
                store.range(resource, revision=after or -1)
            return
        assert watch.take(5000) == expected
        if after:
            page = store.range(resource, revision=after)
            world = [entry for key, entry in sorted(states[after].items()) if key.resource == resource]
            assert list(page.entries) == world

    store = lonely.open(limits=RingLimits(max_events=most, short_events=most))
    await store.start()
    base = store.revision
    if not states:  # a durable backend keeps its file between examples: begin from what it has
        world = {e.key: e for resource in ("pods", "nodes") for e in store.range(resource).entries}
        states.extend([world] * (base + 1))
    live = {resource: store.watch(resource, base) for resource in ("pods", "nodes")}
    followed: list[Event] = []
    for start in range(0, len(steps), group):
        chunk = [
            [
                lonely.put(name, resource=resource, spec=str(base))
                if verb == "put"
                else Delete(Key(resource, "default", name))
                for verb, resource, name in step
            ]
            for step in steps[start : start + group]
        ]
        results = await asyncio.gather(*(store.commit(ops) for ops in chunk), return_exceptions=True)
        for ops, result in zip(chunk, results, strict=True):
            if not isinstance(result, RequirementFailed):
                assert not isinstance(result, BaseException)
                record(result, ops)
        for watch in live.values():
            try:
                followed += watch.take()
            except Compacted:
                followed = []  # a batch larger than the ring; fresh cursors are checked below
                live = {}
                break
    assert store.revision == len(states) - 1
    if live:
        assert sorted(followed, key=lambda e: e.entry.revision) == events
    for resource in ("pods", "nodes"):
        for after in {base, store.revision, base + after_seed % (store.revision - base + 1)}:
            check(store, resource, after)
    await store.stop()
    if lonely.durable:
        store = lonely.open(limits=RingLimits(max_events=most, short_events=most))
        await store.start()
        assert {e.key: e for r in ("pods", "nodes") for e in store.range(r).entries} == states[-1]
        for resource in ("pods", "nodes"):
            check(store, resource, base + after_seed % (store.revision - base + 1))
        await store.stop()
