"""Guarantees of gets and lists, on every backend."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import pytest

from shoal.store import Compacted, Delete, Entry, FutureRevision, Key, LogStore, RingLimits, StorePage


def names(page: StorePage) -> list[str]:
    return [f"{e.key.namespace}/{e.key.name}" for e in page.entries]


def pages(store: LogStore, limit: int, **options: Any) -> list[Entry]:
    """Everything, page by page, checking the counts on the way."""
    entries: list[Entry] = []
    after = None
    while True:
        page = store.range("pods", after=after, limit=limit, **options)
        entries += page.entries
        assert page.more == (page.remaining > 0) and len(page.entries) <= limit
        if not page.more:
            return entries
        after = (entries[-1].key.namespace, entries[-1].key.name)


async def test_lists_are_in_bytewise_order_of_namespace_and_name(backend: Any) -> None:
    async with backend.opened() as store:
        for namespace, name in [("b", "x"), ("a-b", "y"), ("a", "z"), ("a", "b.c"), ("a", "b-c"), ("", "cluster")]:
            await store.commit([backend.put(name, namespace=namespace)])
        await store.commit([backend.put("other", resource="nodes")])
        assert names(store.range("pods")) == ["/cluster", "a/b-c", "a/b.c", "a/z", "a-b/y", "b/x"]
        assert names(store.range("pods", "a")) == ["a/b-c", "a/b.c", "a/z"]
        assert names(store.range("pods", "")) == ["/cluster"]
        assert names(store.range("pods", "none")) == [] and names(store.range("none")) == []
        assert (store.count("pods"), store.count("pods", "a"), store.count("none"), store.count("pods", "x")) == (
            6,
            3,
            0,
            0,
        )
        assert store.range("pods").revision == store.revision


async def test_a_list_does_not_change_after_it_was_returned(backend: Any) -> None:
    async with backend.opened() as store:
        await store.commit([backend.put("a"), backend.put("b")])
        before = store.range("pods")
        again = store.range("pods")
        assert again.entries is before.entries, "an unchanged list is not built again"
        await store.commit([Delete(Key("pods", "default", "a"))])
        assert names(before) == ["default/a", "default/b"]
        assert names(store.range("pods")) == ["default/b"]


async def test_pages_add_up_to_the_list_and_count_what_remains(backend: Any) -> None:
    async with backend.opened() as store:
        await store.commit([backend.put(f"p{i:03}", namespace=f"ns{i % 3}") for i in range(100)])
        assert pages(store, 7) == list(store.range("pods").entries)
        assert pages(store, 7, namespace="ns1") == list(store.range("pods", "ns1").entries)
        first = store.range("pods", limit=30)
        assert (len(first.entries), first.more, first.remaining) == (30, True, 70)
        last = store.range("pods", limit=34, after=("ns1", "p097"))
        assert (len(last.entries), last.more, last.remaining) == (33, False, 0)
        assert names(store.range("pods", "ns0", after=("ns1", "p001"))) == []
        assert len(store.range("pods", "ns1", after=("ns0", "p000")).entries) == 33
        gone = store.range("pods", limit=2, after=("ns0", "p0015"))
        assert names(gone) == ["ns0/p003", "ns0/p006"], "the last entry of a page may have been deleted since"


async def test_the_index_follows_every_change(backend: Any) -> None:
    async with backend.opened() as store:
        key = Key("pods", "default", "a")
        await store.commit(
            [backend.put("a", indexed=["app=web", "@node=n1", "app=web"]), backend.put("b", indexed=["app=web"])]
        )
        assert names(store.range("pods", index="app=web")) == ["default/a", "default/b"]
        assert names(store.range("pods", index="@node=n1")) == ["default/a"]
        await store.commit([backend.put("a", indexed=["app=web", "@node=n2"])])
        assert names(store.range("pods", index="@node=n1")) == []
        assert names(store.range("pods", index="@node=n2")) == ["default/a"]
        assert names(store.range("pods", "other", index="app=web")) == []
        await store.commit([Delete(key)])
        assert names(store.range("pods", index="app=web")) == ["default/b"]
        assert names(store.range("pods", index="@node=n2")) == []
        page = store.range("pods", index="app=web", revision=2, limit=1)
        assert names(page) == ["default/a"] and page.remaining == 1
        assert names(store.range("pods", index="@node=n1", revision=2)) == ["default/a"]
        assert names(store.range("pods", index="@node=n1", revision=3)) == []


async def test_a_filter_is_applied_before_limit_and_remaining(backend: Any) -> None:
    async with backend.opened() as store:
        await store.commit(
            [backend.put(f"p{i:03}", labels={"odd": str(i % 2)}, indexed=[f"third={i % 3}"]) for i in range(60)]
        )

        def odd(attrs: Any) -> bool:
            return bool(attrs.labels["odd"] == "1")

        page = store.range("pods", where=odd, limit=10)
        assert (len(page.entries), page.more, page.remaining) == (10, True, 20)
        assert all(e.attrs.labels["odd"] == "1" for e in pages(store, 7, where=odd))
        assert len(pages(store, 7, where=odd)) == 30
        both = store.range("pods", where=odd, index="third=0", limit=4)
        assert (len(both.entries), both.remaining) == (4, 6)
        exact = store.range("pods", where=odd, index="third=0", limit=10)
        assert (len(exact.entries), exact.more) == (10, False)
        await store.commit([Delete(e.key) for e in page.entries])
        assert len(pages(store, 7, where=odd, revision=60)) == 30
        assert len(pages(store, 7, where=odd)) == 20


async def test_pages_at_a_revision_are_one_snapshot_while_writes_go_on(backend: Any) -> None:
    async with backend.opened() as store:
        await store.commit([backend.put(f"p{i:03}", namespace=f"ns{i % 4}", spec="0") for i in range(80)])
        await store.commit([Delete(Key("pods", "ns0", "p000"))])
        snapshot = store.range("pods")
        one = store.range("pods", "ns2")

        stop = False

        async def churn() -> None:
            for i in itertools.count():
                if stop and i >= 200:
                    return
                n = i % 90
                put = backend.put(f"p{n:03}", namespace=f"ns{n % 4}", spec=str(i + 1))
                await store.commit([put] if i % 3 else [put, Delete(put.key)])

        writing = asyncio.ensure_future(churn())
        for namespace, expected in (None, snapshot), ("ns2", one):
            after, found = None, list[Entry]()
            while True:
                page = store.range("pods", namespace, after=after, limit=9, revision=snapshot.revision)
                assert page.revision == snapshot.revision
                assert page.remaining == len(expected.entries) - len(found) - len(page.entries)
                found += page.entries
                if not page.more:
                    break
                after = (found[-1].key.namespace, found[-1].key.name)
                await store.reached(store.revision + 1, 10)
            assert found == list(expected.entries)
        stop = True
        await writing
        assert store.revision > snapshot.revision + 200
        assert list(store.range("pods", revision=snapshot.revision).entries) == list(snapshot.entries)


async def test_a_page_at_a_revision_is_full_even_when_later_objects_would_fill_it(backend: Any) -> None:
    async with backend.opened() as store:
        await store.commit([backend.put(f"m{i}") for i in range(10)])
        await store.commit([backend.put(f"a{i}") for i in range(20)])
        page = store.range("pods", limit=4, revision=10)
        assert [e.key.name for e in page.entries] == ["m0", "m1", "m2", "m3"] and page.remaining == 6


async def test_a_revision_outside_of_history_is_refused(backend: Any) -> None:
    async with backend.opened() as store:
        for i in range(10):
            await store.commit([backend.put(f"p{i}")])
        with pytest.raises(FutureRevision):
            store.range("pods", revision=11)
        await store.compact(5)
        assert len(store.range("pods", revision=5).entries) == 5
        with pytest.raises(Compacted) as compacted:
            store.range("pods", revision=4)
        assert (compacted.value.revision, compacted.value.oldest) == (4, 5)
        assert len(store.range("pods").entries) == 10, "compaction never touches current objects"
        with pytest.raises(Compacted):
            store.range("nodes", revision=1)  # snapshots end with time for every resource, not with its next write


async def test_large_and_small_lists_agree_whatever_the_order_of_writes(backend: Any) -> None:
    async with backend.opened(limits=RingLimits(max_events=100)) as store:
        numbers = [i * 7919 % 3000 for i in range(3000)]
        for start in range(0, 3000, 300):
            await store.commit([backend.put(f"p{n:05}", indexed=["all"]) for n in numbers[start : start + 300]])
        assert [e.key.name for e in store.range("pods", index="all").entries] == [f"p{n:05}" for n in range(3000)]
        assert pages(store, 700) == pages(store, 700, index="all") == list(store.range("pods").entries)
        await store.commit([Delete(Key("pods", "default", f"p{n:05}")) for n in numbers[:2995]])
        left = [f"p{n:05}" for n in sorted(numbers[2995:])]
        assert [e.key.name for e in store.range("pods").entries] == left
        assert [e.key.name for e in store.range("pods", index="all", limit=9).entries] == left
        assert store.count("pods") == 5
