"""Snapshots of a store that is written meanwhile, and stores that are restored from them, for every pair of backends."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from shoal.errors import ConfigError, ShoalError
from shoal.store import Attrs, Compacted, Delete, Entry, Fence, Key, LogStore, Put, RequirementFailed, open_store
from shoal.store.snapshot import JUMP, read_snapshot, restore_store, snapshot_store
from shoal.testing.databases import shared_postgres

HEAD = b'{"metadata":{"resourceVersion":"'
LEASE = Key("leases", "default", "leader")
KINDS = ("sqlite", "postgres")
Place = Callable[[str, str], str]


def attrs_of(_key: Key, value: bytes) -> Attrs:
    return Attrs(fence=json.loads(value)["fence"])


def put(name: str, text: str = "", resource: str = "pods", fence: str = "") -> Put:
    value = HEAD + b'"},' + json.dumps({"text": text, "fence": fence}).encode()[1:]
    return Put(Key(resource, "default", name), value, len(HEAD), Attrs(fence=fence))


def text_of(entry: Entry | None) -> str:
    assert entry is not None
    found: str = json.loads(entry.value)["text"]
    return found


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """A URL for a new store of a kind."""

    def new(kind: str, name: str) -> str:
        return shared_postgres().create_database() if kind == "postgres" else f"sqlite:///{tmp_path}/{name}.db"

    return new


@asynccontextmanager
async def running(url: str) -> AsyncIterator[LogStore]:
    store = open_store(url, attrs_of=attrs_of)
    await store.start()
    try:
        yield store
    finally:
        await store.stop()


async def restore(path: Path, url: str, *, force: bool = False) -> None:
    await restore_store(path, url, fence_of=lambda key, value: attrs_of(key, value).fence, force=force)


def content(store: LogStore) -> list[Entry]:
    return [entry for resource in ("pods", "leases") for entry in store.range(resource).entries]


async def write_pairs(store: LogStore, stop: asyncio.Event) -> int:
    """Change two objects in each transaction, so that any consistent copy has both in the same state."""
    count = 0
    while not stop.is_set():
        count += 1
        text = f"{count} " + "x" * 20_000
        await store.commit([put("left", text), put(f"more{count % 50}", text), put("right", text)])
    return count


@pytest.mark.parametrize("kind", KINDS)
async def test_a_snapshot_is_of_one_moment_while_the_store_is_written(place: Place, tmp_path: Path, kind: str) -> None:
    async with asyncio.timeout(60):
        url, path = place(kind, "a"), tmp_path / "snapshot.db"
        async with running(url) as store:
            await store.commit([put(f"p{i}", "y" * 5000) for i in range(2000)])
            before = store.revision
            stop = asyncio.Event()
            writing = asyncio.create_task(write_pairs(store, stop), name="writer")
            taken = await snapshot_store(url, path)
            stop.set()
            assert await writing > 1, "the store was written meanwhile"
            after = store.revision
        assert before <= taken.revision <= after
        assert await read_snapshot(path) == taken
        async with running(f"sqlite:///{path}") as copy:
            assert len(copy.range("pods").entries) == taken.objects >= 2000
            if taken.revision > before:
                assert text_of(copy.get(Key("pods", "default", "left"))) == text_of(
                    copy.get(Key("pods", "default", "right"))
                )


@pytest.mark.parametrize("from_", KINDS)
@pytest.mark.parametrize("to", KINDS)
async def test_a_restored_store_has_the_objects_of_the_snapshot_and_a_new_history(
    place: Place, tmp_path: Path, from_: str, to: str
) -> None:
    async with asyncio.timeout(60):
        source, path, target = place(from_, "a"), tmp_path / "snapshot.db", place(to, "b")
        async with running(source) as store:
            await store.commit([put(f"p{i}", "x" * i) for i in range(50)])
            await store.commit([Delete(Key("pods", "default", "p2")), put("leader", resource="leases", fence="me/7")])
            kept, revision, incarnation = content(store), store.revision, store.incarnation
            await snapshot_store(source, path)
        await restore(path, target)
        async with running(target) as store:
            assert content(store) == kept
            assert store.revision == revision + JUMP and store.incarnation != incarnation
            for seen in (revision, revision + 500):  # by clients, before and after the snapshot
                with pytest.raises(Compacted):
                    store.watch("pods", seen)
            with pytest.raises(RequirementFailed):
                await store.commit([put("p1")], [Fence(LEASE, "you/7")])
            (entry,) = await store.commit([put("p1", "more")], [Fence(LEASE, "me/7")])
            assert entry.revision == revision + JUMP + 1


@pytest.mark.parametrize("kind", KINDS)
async def test_a_store_is_replaced_only_by_force_and_never_goes_back_to_a_revision_it_had(
    place: Place, tmp_path: Path, kind: str
) -> None:
    async with asyncio.timeout(60):
        url, path = place(kind, "a"), tmp_path / "snapshot.db"
        async with running(url) as store:
            await store.commit([put("old")])
            await snapshot_store(url, path)
            await store.commit([put("new")])
        with pytest.raises(ConfigError, match="is not empty"):
            await restore(path, url)
        async with running(url) as store:
            assert store.get(Key("pods", "default", "new")) is not None
        for _ in range(2):
            seen = store.revision
            await restore(path, url, force=True)
            async with running(url) as store:
                assert [entry.key.name for entry in store.range("pods").entries] == ["old"]
                assert store.revision > seen
                await store.commit([put("new")])


async def test_a_snapshot_of_a_server_that_stops_is_an_error_and_the_store_is_fine(
    place: Place, tmp_path: Path
) -> None:
    async with asyncio.timeout(60):
        url = place("sqlite", "a")
        async with running(url) as store:
            await store.commit([put(f"p{i}", "y" * 5000) for i in range(4000)])
            taking = asyncio.create_task(snapshot_store(url, tmp_path / "snapshot.db"), name="snapshot")
            await asyncio.sleep(0)
        with pytest.raises(ShoalError):
            await taking
        async with running(url) as store:
            assert len(store.range("pods").entries) == 4000


async def test_a_path_that_cannot_be_written_is_an_error_and_the_store_goes_on(place: Place, tmp_path: Path) -> None:
    async with asyncio.timeout(60):
        url = place("sqlite", "a")
        async with running(url) as store:
            await store.commit([put("a")])
            with pytest.raises(ShoalError, match="cannot be written"):
                await snapshot_store(url, tmp_path / "missing" / "snapshot.db")
            await store.commit([put("b")])


async def test_a_damaged_snapshot_is_found(place: Place, tmp_path: Path) -> None:
    url, path = place("sqlite", "a"), tmp_path / "snapshot.db"
    async with running(url) as store:
        await store.commit([put(f"p{i}", "y" * 5000) for i in range(100)])
    await snapshot_store(url, path)
    content = bytearray(path.read_bytes())
    for at in range(8192, len(content), 4096):
        content[at : at + 64] = bytes(64)
    path.write_bytes(content)
    with pytest.raises(ShoalError):
        await read_snapshot(path)
