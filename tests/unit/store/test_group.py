"""A store whose journal reports another history, and commits whose caller has gone."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from shoal.store import Compacted, Delete, Entry, Event, Key, LogStore, Put
from shoal.store.journal import Loaded, deleted_entry
from shoal.store.memory import MemoryJournal
from shoal.store.model import NO_ATTRS, Absent

HEAD = b'{"v":"'
JUMPED = 1_000_000


def put(name: str, resource: str = "pods") -> Put:
    return Put(Key(resource, "default", name), HEAD + b'"}', len(HEAD))


def entry(name: str, revision: int, resource: str = "pods") -> Entry:
    value = HEAD + b'%d"}' % revision
    return Entry(Key(resource, "default", name), revision, revision, value, len(HEAD), NO_ATTRS)


def loaded(*entries: Entry) -> Loaded:
    found = {each.key: each for each in entries}
    return Loaded(entries=found, events=(), floors={}, revision=JUMPED, incarnation="another")


@asynccontextmanager
async def a_store() -> AsyncIterator[LogStore]:
    store = LogStore(MemoryJournal())
    await store.start()
    try:
        yield store
    finally:
        await store.stop()


async def test_a_reset_shows_the_new_objects_and_nothing_of_the_old_history() -> None:
    async with a_store() as store:
        await store.commit([put("same"), put("changed"), put("gone")])
        assert len(store.range("pods").entries) == 3
        store.reset(loaded(entry("same", 1), entry("changed", 9), entry("new", 10), entry("n", 11, "nodes")))
        assert (store.revision, store.incarnation) == (JUMPED, "another")
        assert [(e.key.name, e.revision) for e in store.range("pods").entries] == [
            ("changed", 9),
            ("new", 10),
            ("same", 1),
        ]
        assert store.get(Key("pods", "default", "gone")) is None and store.count("nodes") == 1
        assert store.history_bytes == 0
        for resource in ("pods", "nodes", "never-seen"):
            for old in (1, 3, JUMPED - 1):
                with pytest.raises(Compacted):
                    store.watch(resource, old)
                with pytest.raises(Compacted):
                    store.range(resource, revision=old)
            assert store.watch(resource, JUMPED).take() == []
        (after,) = await store.commit([put("after")])
        assert after.revision == JUMPED + 1 and len(store.watch("pods", JUMPED).take()) == 1


async def test_a_reset_ends_every_watch_whether_it_waits_or_not() -> None:
    async with a_store() as store:
        await store.commit([put("a"), put("b")])
        behind, at_end, of_nothing = store.watch("pods", 0), store.watch("pods", 2), store.watch("services", 2)
        waiting = [asyncio.ensure_future(watch.wait()) for watch in (at_end, of_nothing)]
        await asyncio.sleep(0)
        store.reset(loaded(entry("a", 1)))
        await asyncio.wait_for(asyncio.gather(*waiting, behind.wait()), 1)
        for watch, seen in ((behind, 0), (at_end, 2), (of_nothing, 2)):
            for _ in range(2):
                with pytest.raises(Compacted) as compacted:
                    watch.take()
            assert (compacted.value.revision, compacted.value.oldest) == (seen, JUMPED)
            assert watch.revision == seen


async def test_subscribers_get_the_difference_or_a_reset() -> None:
    async with a_store() as store:
        old = {e.key.name: e for e in await store.commit([put("same"), put("changed"), put("gone")])}
        heard: list[Event] = []
        others: list[Any] = []
        resets: list[str] = []
        store.subscribe("pods", heard.extend)
        store.subscribe("pods", others.append, lambda: resets.append("pods"))
        store.subscribe("services", others.append, lambda: resets.append("services"))
        store.subscribe("services", others.append)
        changed, new = entry("changed", 9), entry("new", 10)
        store.reset(loaded(old["same"], changed, new))
        by_name = {event.entry.key.name: event for event in heard}
        assert by_name == {
            "changed": Event(by_name["changed"].type, changed, old["changed"]),
            "gone": Event(by_name["gone"].type, deleted_entry(old["gone"], JUMPED), old["gone"]),
            "new": Event(by_name["new"].type, new, None),
        }
        assert {name: str(event.type) for name, event in by_name.items()} == {
            "changed": "MODIFIED",
            "gone": "DELETED",
            "new": "ADDED",
        }
        assert resets == ["pods", "services"] and others == []
        await store.commit([Delete(new.key)])
        assert len(others) == 1 and len(heard) == 4


async def test_a_wait_for_a_revision_that_the_reset_has_passed_ends() -> None:
    async with a_store() as store:
        waiting = asyncio.ensure_future(store.reached(50, 5))
        await asyncio.sleep(0)
        store.reset(loaded())
        await asyncio.wait_for(waiting, 1)


async def test_a_refused_commit_whose_caller_has_gone_is_not_logged_as_an_error() -> None:
    """A request is dropped when its client disconnects. If its commit is refused later, no caller is left to get the
    error."""
    errors: list[dict[str, Any]] = []

    async with a_store() as store:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context))
        await store.commit([put("a")])
        left = store.commit([put("a")], [Absent(put("a").key)])
        left.send(None)  # type: ignore[attr-defined]
        left.close()  # type: ignore[attr-defined]
        await store.commit([put("b")])
        del left
        gc.collect()
        await asyncio.sleep(0)
    assert errors == []
