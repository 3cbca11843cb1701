from __future__ import annotations

import asyncio
import os
import sqlite3
import stat
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from shoal.errors import ConfigError, ShoalError
from shoal.store import NO_ATTRS, Attrs, Compacted, Delete, Entry, Key, LogStore, Put, StoreReadOnly, open_store
from shoal.store import copy as module
from shoal.store.control import Control
from shoal.store.copy import Copied, Tally, thaw_store
from shoal.store.copy_model import CHUNK_BYTES, CHUNK_ROWS, CopyHead, Row, pieces
from shoal.store.copy_sqlite import SqliteTarget
from shoal.store.sqlite import control_path
from shoal.store.urls import shown
from shoal.testing.waiting import eventually

HEAD = b'{"metadata":{"resourceVersion":"'


def no_attrs(key: Key, value: bytes) -> Attrs:
    return NO_ATTRS


def put(name: str, text: str = "", resource: str = "pods", namespace: str = "default") -> Put:
    return Put(Key(resource, namespace, name), HEAD + b'"},"text":"' + text.encode() + b'"}', len(HEAD))


def no_fence(key: Key, value: bytes) -> str:
    return ""


async def copy_store(source: str, target: str, *, force: bool = False) -> Copied:
    return await module.copy_store(source, target, fence_of=no_fence, force=force)


def url_of(path: Path) -> str:
    return f"sqlite:///{path}"


@asynccontextmanager
async def running(path: Path) -> AsyncIterator[LogStore]:
    store = open_store(url_of(path), attrs_of=no_attrs)
    await store.start()
    try:
        yield store
    finally:
        await store.stop()


async def fill(store: LogStore, count: int = 50) -> None:
    await store.commit([put(f"p{i}", "x" * i) for i in range(count)])
    await store.commit([put("p1", "changed"), put("ü-\"'\\", "ü", namespace=""), put("gone", resource="nodes")])
    await store.commit([Delete(Key("pods", "default", "p2")), Delete(Key("nodes", "default", "gone"))])


def content(store: LogStore) -> list[Entry]:
    return [entry for resource in ("pods", "nodes") for entry in store.range(resource).entries]


async def test_a_copy_has_the_same_objects_revisions_and_counter_and_an_incarnation_of_its_own(tmp_path: Path) -> None:
    source, target = tmp_path / "a.db", tmp_path / "b.db"

    async with asyncio.timeout(60):
        async with running(source) as store:
            await fill(store)
            before, revision, incarnation = content(store), store.revision, store.incarnation
        copied = await copy_store(url_of(source), url_of(target))
        assert (copied.objects, copied.revision) == (len(before), revision)
        async with running(target) as store:
            assert content(store) == before
            assert store.revision == revision and store.incarnation != incarnation
            (entry,) = await store.commit([put("p1", "more")])
            assert (entry.revision, entry.created) == (revision + 1, 2)
            assert [event.entry for event in store.watch("pods", revision).take()] == [entry]
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.db", "a.db.lock", "b.db", "b.db.lock"]


async def test_history_is_not_copied_and_watches_from_before_are_refused(tmp_path: Path) -> None:
    source, target = tmp_path / "a.db", tmp_path / "b.db"

    async with asyncio.timeout(60):
        async with running(source) as store:
            await fill(store)
        await copy_store(url_of(source), url_of(target))
        async with running(target) as store:
            for resource in ("pods", "nodes"):  # nodes has had an object that is gone: its deletion must not be missed
                with pytest.raises(Compacted):
                    store.watch(resource, store.revision - 1)
                assert not store.watch(resource, store.revision).take()


async def test_a_running_store_answers_reads_and_refuses_writes_while_it_is_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = tmp_path / "a.db", tmp_path / "b.db"
    seen: list[str] = []

    async with asyncio.timeout(60):
        async with running(source) as store:
            await fill(store)
            watch = store.watch("pods", store.revision)

            class Looking(SqliteTarget):
                async def write(self, rows: Sequence[Row]) -> None:
                    with pytest.raises(StoreReadOnly) as refused:
                        await store.commit([put("late")])
                    seen.append(str(refused.value))
                    assert store.count("pods") == 50 and not watch.take()
                    await super().write(rows)

            monkeypatch.setattr(module, "target_at", lambda url, shown, *_: Looking(target, shown))
            before = content(store)
            await copy_store(url_of(source), url_of(target))
            with pytest.raises(StoreReadOnly, match=f"the store is read-only: it was moved to {url_of(target)}"):
                await store.commit([put("later")])
            assert content(store) == before
        async with running(source) as store:  # also after a restart
            with pytest.raises(StoreReadOnly, match="moved to"):
                await store.commit([put("later")])
            assert content(store) == before
        async with running(target) as store:
            assert content(store) == before
            await store.commit([put("later")])
    assert seen == [f"the store is read-only: it is being copied to {url_of(target)}"]


@pytest.mark.parametrize("served", [True, False])
async def test_thawing_removes_the_mark_of_the_move(tmp_path: Path, served: bool) -> None:
    source, target = tmp_path / "a.db", tmp_path / "b.db"

    async with asyncio.timeout(60):
        async with running(source) as store:
            await fill(store)
            await copy_store(url_of(source), url_of(target))
            if served:
                assert await thaw_store(url_of(source)) == f"it was moved to {url_of(target)}"
                await store.commit([put("again")])
        if not served:
            assert await thaw_store(url_of(source)) == f"it was moved to {url_of(target)}"
        assert await thaw_store(url_of(source)) == ""
        async with running(source) as store:
            await store.commit([put("again")])


@pytest.mark.parametrize("how", ["error", "cancelled", "wrong"])
async def test_a_copy_that_fails_leaves_the_source_writable_and_no_target(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    source, target = tmp_path / "a.db", tmp_path / "b.db"

    finishing = asyncio.Event()

    class Broken(SqliteTarget):
        async def write(self, rows: Sequence[Row]) -> None:
            if how == "wrong":
                assert any(row[0] == 7 for row in rows)
                rows = [(*row[:4], row[4] + 1, *row[5:]) if row[0] == 7 else row for row in rows]
            await super().write(rows)

        async def finish(self, head: CopyHead) -> None:
            if how == "error":
                raise ShoalError("the disk is full")
            if how == "cancelled":
                finishing.set()
                await asyncio.Event().wait()
            await super().finish(head)

    monkeypatch.setattr(module, "target_at", lambda url, shown, *_: Broken(target, shown))

    async with asyncio.timeout(60):
        async with running(source) as store:
            await fill(store)
            copying = asyncio.create_task(copy_store(url_of(source), url_of(target)), name="copy")
            if how == "cancelled":
                async with asyncio.timeout(10):
                    await finishing.wait()
                copying.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await copying
            else:
                with pytest.raises(ShoalError, match="disk is full" if how == "error" else "differs from the source"):
                    await copying
            await until_writable(store)
    assert not target.exists() and not (tmp_path / "b.db.copy").exists()


async def writable(store: LogStore) -> bool:
    try:
        await store.commit([put("writable")])
    except StoreReadOnly:
        return False
    return True


async def until_writable(store: LogStore) -> None:
    """The freeze ends when the server notices that the connection is closed."""
    await eventually(lambda: writable(store), timeout_s=10)


async def test_a_freeze_ends_with_the_connection_that_requested_it(tmp_path: Path) -> None:
    source = tmp_path / "a.db"

    async with asyncio.timeout(60):
        async with running(source) as store:
            await fill(store)
            control = await Control.connect(control_path(source))
            await control.ask("freeze", "why not")
            with pytest.raises(StoreReadOnly, match="why not"):
                await store.commit([put("a")])
            other = await Control.connect(control_path(source))
            for what in ("freeze", "thaw"):
                with pytest.raises(ShoalError, match="why not"):
                    await other.ask(what, "me too")
            with pytest.raises(ShoalError, match="nothing to keep"):
                await other.ask("keep", "me too")
            with pytest.raises(ShoalError, match="unknown command 'dance'"):
                await other.ask("dance")
            await other.close()
            with pytest.raises(StoreReadOnly, match="why not"):
                await store.commit([put("a")])
            await control.close()
            await until_writable(store)
            assert stat.S_IMODE(os.stat(control_path(source)).st_mode) == 0o600
        assert not control_path(source).exists()


async def test_the_file_does_not_change_while_it_is_frozen(tmp_path: Path) -> None:
    source = tmp_path / "a.db"

    async with asyncio.timeout(60):
        async with running(source) as store:
            await fill(store, 1000)
            for i in range(3):
                await store.commit([put(f"p{n}", str(i)) for n in range(1000)])
            control = await Control.connect(control_path(source))
            await control.ask("freeze", "reading")
            before = source.read_bytes()
            assert os.stat(f"{source}-wal").st_size == 0
            await store.compact(store.revision)
            assert source.read_bytes() == before and os.stat(f"{source}-wal").st_size == 0
            await control.close()
            await until_writable(store)
            await store.compact(store.revision)
        connection = sqlite3.connect(source)
        assert connection.execute("SELECT count(*) FROM log").fetchone() == (1002,)
        connection.close()


async def test_a_target_with_something_in_it_is_refused_unless_forced(tmp_path: Path) -> None:
    source, target = tmp_path / "a.db", tmp_path / "b.db"

    async with asyncio.timeout(60):
        async with running(source) as store:
            await fill(store)
            before = content(store)
        async with running(target) as store:
            with pytest.raises(ConfigError, match=r"b\.db is in use by process"):
                await copy_store(url_of(source), url_of(target))
            await store.commit([put("old")])
        with pytest.raises(ConfigError, match=r"b\.db is not empty; .* --force"):
            await copy_store(url_of(source), url_of(target))
        async with running(source) as store:  # nothing was frozen for that
            await store.commit([put("p3"), put("p3")])
            before = content(store)
        await copy_store(url_of(source), url_of(target), force=True)
        async with running(target) as store:
            assert content(store) == before


async def test_a_store_that_was_only_started_counts_as_empty(tmp_path: Path) -> None:
    source, target = tmp_path / "a.db", tmp_path / "b.db"

    async with asyncio.timeout(60):
        async with running(source) as store:
            await fill(store)
        async with running(target):
            pass
        await copy_store(url_of(source), url_of(target))
        async with running(target) as store:
            assert store.count("pods") == 50


async def test_a_copy_of_a_copy_is_the_same_store(tmp_path: Path) -> None:
    a, b = tmp_path / "a.db", tmp_path / "b.db"

    async with asyncio.timeout(60):
        async with running(a) as store:
            await fill(store)
        await copy_store(url_of(a), url_of(b))
        async with running(b) as store:
            await store.commit([put("in-b")])
            before = content(store)
        await copy_store(url_of(b), url_of(a), force=True)
        async with running(a) as store:
            assert content(store) == before
            await store.commit([put("in-a")])


@pytest.mark.parametrize(
    ("source", "target", "said"),
    [
        ("memory://", "sqlite:///x", "is in memory"),
        ("redis://x", "sqlite:///x", "is not supported"),
        ("sqlite:///{dir}/none.db", "sqlite:///{dir}/b.db", "none.db does not exist"),
        ("sqlite:///{dir}/none.db", "sqlite:///{dir}/none.db", "to itself"),
        ("sqlite:///{dir}/none.db", "sqlite:///{dir}/no/b.db", "folder .*/no does not exist"),
        ("sqlite:///{dir}/text.db", "sqlite:///{dir}/b.db", "text.db: file is not a database"),
    ],
)
async def test_the_error_names_a_store_that_cannot_be_copied(
    tmp_path: Path, source: str, target: str, said: str
) -> None:
    (tmp_path / "text.db").write_text("this is not a database, and long enough to be read as one" * 100)
    with pytest.raises(ShoalError, match=said):
        await copy_store(source.format(dir=tmp_path), target.format(dir=tmp_path))
    assert not (tmp_path / "b.db").exists() and not (tmp_path / "none.db").exists()


def test_passwords_are_not_shown() -> None:
    assert shown("postgresql://me:secret@db:5432/shoal?sslmode=require&password=secret") == (
        "postgresql://me:***@db:5432/shoal?sslmode=require&password=***"
    )
    assert shown("postgresql:///shoal?host=/tmp/x") == "postgresql:///shoal?host=/tmp/x"
    assert shown("sqlite:////var/a@b:c.db") == "sqlite:////var/a@b:c.db"


def a_row(**changes: Any) -> Row:
    known = {"revision": 5, "resource": "pods", "namespace": "a", "name": "b", "created": 2, "hole": 3, "value": b"v"}
    return tuple((known | changes).values())  # type: ignore[return-value]


def tally(*rows: Row) -> tuple[int, str]:
    found = Tally()
    found.add(rows)
    return found.count, found.digest


def test_the_digest_sees_every_column_and_not_the_order() -> None:
    one, two = a_row(), a_row(revision=6, name="c")
    assert tally(one, two) == tally(two, one)
    changed = [
        a_row(revision=7), a_row(resource="podsa", namespace=""), a_row(namespace="x"), a_row(name="x"),
        a_row(created=4), a_row(hole=4), a_row(value=b"w"), a_row(name="bv", value=b""),
    ]  # fmt: skip
    assert len({tally(row) for row in (one, *changed)}) == len(changed) + 1
    assert tally(one, one) != tally(one) != tally()


def test_pieces_are_bounded_in_rows_and_bytes() -> None:
    small = [a_row() for _ in range(CHUNK_ROWS * 2 + 1)]
    assert [len(piece) for piece in pieces(small)] == [CHUNK_ROWS, CHUNK_ROWS, 1]
    large = [a_row(value=bytes(CHUNK_BYTES // 2)) for _ in range(5)]
    assert [len(piece) for piece in pieces(large)] == [2, 2, 1]
