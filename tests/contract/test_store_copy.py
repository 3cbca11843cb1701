"""Moving a store to another place, for every pair of backends: only the place changes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

import pytest

from shoal.errors import ConfigError, ShoalError
from shoal.store import (
    Attrs,
    Compacted,
    Delete,
    Entry,
    Fence,
    Key,
    LogStore,
    Put,
    RequirementFailed,
    StoreReadOnly,
    open_store,
)
from shoal.store import copy as module
from shoal.store.copy import Copied, thaw_store
from shoal.store.copy_model import CopyHead, CopyTarget
from shoal.store.copy_postgres import PostgresSource
from shoal.store.urls import shown
from shoal.testing.databases import shared_postgres
from shoal.testing.waiting import eventually

T = TypeVar("T")

HEAD = b'{"metadata":{"resourceVersion":"'
LEASE = Key("leases", "default", "leader")


def attrs_of(key: Key, value: bytes) -> Attrs:
    return Attrs(fence=json.loads(value)["fence"])


async def copy_store(source: str, target: str, *, force: bool = False) -> Copied:
    return await module.copy_store(source, target, fence_of=lambda key, value: attrs_of(key, value).fence, force=force)


def put(name: str, text: str = "", resource: str = "pods", namespace: str = "default", fence: str = "") -> Put:
    value = HEAD + b'"},' + json.dumps({"text": text, "fence": fence}).encode()[1:]
    return Put(Key(resource, namespace, name), value, len(HEAD), Attrs(fence=fence))


@asynccontextmanager
async def running(url: str) -> AsyncIterator[LogStore]:
    store = open_store(url, attrs_of=attrs_of)
    await store.start()
    try:
        yield store
    finally:
        await store.stop()


async def fill(store: LogStore) -> None:
    await store.commit([put(f"p{i}", "x" * i) for i in range(50)])
    await store.commit([put("p1", "changed"), put("ü-\"'\\", "ü", namespace=""), put("gone", resource="nodes")])
    await store.commit([put("leader", resource="leases", fence="me/7")])
    await store.commit([Delete(Key("pods", "default", "p2")), Delete(Key("nodes", "default", "gone"))])


def content(store: LogStore) -> list[Entry]:
    return [entry for resource in ("pods", "nodes", "leases") for entry in store.range(resource).entries]


@pytest.fixture
def place(tmp_path: Path) -> Callable[[str, str], str]:
    """A URL for a new store of a kind."""

    def new(kind: str, name: str) -> str:
        if kind == "postgres":
            return shared_postgres().create_database()
        return f"sqlite:///{tmp_path}/{name}.db"

    return new


Place = Callable[[str, str], str]
PAIRS = [("sqlite", "sqlite"), ("sqlite", "postgres"), ("postgres", "sqlite"), ("postgres", "postgres")]
pairs = pytest.mark.parametrize(("from_", "to"), PAIRS)


@pairs
async def test_objects_revisions_counter_and_fences_are_the_same(place: Place, from_: str, to: str) -> None:
    async with asyncio.timeout(60):
        source, target = place(from_, "a"), place(to, "b")
        async with running(source) as store:
            await fill(store)
            before, revision, incarnation = content(store), store.revision, store.incarnation
        copied = await copy_store(source, target)
        assert (copied.objects, copied.revision) == (len(before), revision)
        async with running(target) as store:
            assert content(store) == before
            assert store.revision == revision and store.incarnation != incarnation
            for resource in ("pods", "nodes"):  # one had an object that is gone: its deletion must not be missed
                with pytest.raises(Compacted):
                    store.watch(resource, revision - 1)
            with pytest.raises(RequirementFailed):
                await store.commit([put("p1")], [Fence(LEASE, "you/7")])
            (entry,) = await store.commit([put("p1", "more")], [Fence(LEASE, "me/7")])
            assert (entry.revision, entry.created) == (revision + 1, 2)
            assert [event.entry for event in store.watch("pods", revision).take()] == [entry]
        async with running(target) as store:
            assert store.get(entry.key) == entry and len(content(store)) == len(before)


@pairs
async def test_servers_of_the_source_continue_to_read_and_refuse_writes(place: Place, from_: str, to: str) -> None:
    async with asyncio.timeout(60):
        source, target = place(from_, "a"), place(to, "b")
        async with running(source) as store:
            await fill(store)
            before = content(store)
            writing = asyncio.create_task(write_until_refused(store), name="writer")
            await copy_store(source, target)
            written = await writing
            assert written.refused.startswith("it is being copied to") or written.refused.startswith("it was moved to")
            with pytest.raises(StoreReadOnly) as refused:
                await store.commit([put("later")])
            assert refused.value.reason == f"it was moved to {shown(target)}"
            assert await store.fresh() == store.revision and len(content(store)) == len(before) + written.count
            last = content(store)
        async with running(target) as store:
            assert content(store) == last, "every acknowledged write has been copied, and no other"
        assert await thaw_store(source) == f"it was moved to {shown(target)}"
        async with running(source) as store:
            await store.commit([put("again")])


class Written:
    count = 0
    refused = ""


async def write_until_refused(store: LogStore) -> Written:
    written = Written()
    while True:
        try:
            await store.commit([put(f"w{written.count}")])
            written.count += 1
        except StoreReadOnly as refused:
            written.refused = refused.reason
            return written


def spoil(monkeypatch: pytest.MonkeyPatch, how: str, reached: asyncio.Event) -> None:
    """Let every copy fail when all is written."""
    make = module.target_at

    def spoiled(*arguments: object) -> CopyTarget:
        target = make(*arguments)  # type: ignore[arg-type]
        finish = target.finish

        async def failing(head: CopyHead) -> None:
            if how == "error":
                raise ShoalError("the disk is full")
            if how == "cancelled":
                reached.set()
                await asyncio.Event().wait()
            value = HEAD + b'1000000"},"fence":""}'
            await target.write([(1_000_000, "pods", "default", "extra", 1, len(HEAD), value)])
            await finish(head)

        target.finish = failing  # type: ignore[method-assign]
        return target

    monkeypatch.setattr(module, "target_at", spoiled)


@pairs
@pytest.mark.parametrize("how", ["error", "cancelled", "wrong"])
async def test_a_copy_that_fails_changes_nothing(
    place: Place, from_: str, to: str, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with asyncio.timeout(60):
        source, target = place(from_, "a"), place(to, "b")
        async with running(target) as store:
            await store.commit([put("old")])
            old = content(store)
        reached = asyncio.Event()
        spoil(monkeypatch, how, reached)
        async with running(source) as store:
            await fill(store)
            copying = asyncio.create_task(copy_store(source, target, force=True), name="copy")
            if how == "cancelled":
                await reached.wait()
                copying.cancel()
            with pytest.raises((ShoalError, asyncio.CancelledError)):
                await copying
            await eventually(lambda: writable(store), timeout_s=10)  # a server notices it a moment later
        async with running(target) as store:
            assert content(store) == old
            await store.commit([put("new")])


async def writable(store: LogStore) -> bool:
    return await write_once(store) is None


async def write_once(store: LogStore) -> str | None:
    try:
        await store.commit([put("writable")])
        return None
    except StoreReadOnly as refused:
        return refused.reason


@pairs
async def test_existing_content_is_replaced_only_by_force(place: Place, from_: str, to: str) -> None:
    async with asyncio.timeout(60):
        source, target = place(from_, "a"), place(to, "b")
        async with running(target) as store:
            await store.commit([put(f"old-{i}") for i in range(200)])
        async with running(source) as store:
            await fill(store)
            before = content(store)
        with pytest.raises(ConfigError, match="is not empty; .* --force"):
            await copy_store(source, target)
        await copy_store(source, target, force=True)
        async with running(target) as store:
            assert content(store) == before
            await store.commit([put("p1")])


_KILL_COPY = """
SELECT pg_terminate_backend(pid) FROM pg_stat_activity
WHERE application_name = 'shoal store copy' AND datname = current_database()
"""


@pytest.mark.parametrize("how", ["taken over", "thawed"])
async def test_a_freeze_that_a_killed_copy_has_left_in_postgres_is_taken_over_or_thawed(place: Place, how: str) -> None:
    async with asyncio.timeout(60):
        source, target = place("postgres", "a"), place("sqlite", "b")
        async with running(source) as store:
            await fill(store)
            killed = PostgresSource(source, source)
            await killed.freeze("it is being copied to somewhere")
            with pytest.raises(ShoalError, match="being copied by another process"):
                await copy_store(source, target)
            database = source.split("@/")[1].split("?")[0]
            shared_postgres().sql(_KILL_COPY, database)
            assert await write_once(store) == "it is being copied to somewhere"
            if how == "thawed":
                assert await once_unlocked(lambda: thaw_store(source)) == "it is being copied to somewhere"
                assert await write_once(store) is None
            else:
                await once_unlocked(lambda: copy_store(source, target))
                assert await write_once(store) == f"it was moved to {target}"


async def once_unlocked(work: Callable[[], Awaitable[T]]) -> T:
    """The result of ``work``, repeated until the database has noticed that the client is gone and unlocks the store."""

    async def unlocked() -> T | None:
        try:
            return await work()
        except ShoalError as error:
            if "another process" not in str(error):
                raise
            return None

    found: T = await eventually(unlocked, timeout_s=10)
    return found


async def test_a_database_cannot_be_copied_onto_itself_by_another_name(place: Place) -> None:
    async with asyncio.timeout(60):
        source = place("postgres", "a")
        async with running(source) as store:
            await fill(store)
            before = content(store)
        with pytest.raises(ShoalError, match="being copied by another process|the same store"):
            await copy_store(source, source.replace("postgresql://", "postgres://"), force=True)
        async with running(source) as store:
            assert content(store) == before
            await store.commit([put("p1")])


async def test_the_error_names_a_database_without_a_store_or_that_cannot_be_reached(
    place: Place, tmp_path: Path
) -> None:
    empty = place("postgres", "a")
    with pytest.raises(ConfigError, match="this database contains no store"):
        await copy_store(empty, f"sqlite:///{tmp_path}/b.db")
    away = f"postgresql://me:secret@/shoal?host={tmp_path}"
    with pytest.raises(ShoalError) as error:
        await copy_store(away, f"sqlite:///{tmp_path}/b.db")
    assert "me:***@" in str(error.value) and "secret" not in str(error.value)
    assert not (tmp_path / "b.db").exists()
