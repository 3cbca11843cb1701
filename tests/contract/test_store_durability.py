"""Durability after restarts, kill -9 and failing disks, and the size of the files."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

import shoal
from shoal.errors import ConfigError
from shoal.store import (
    Attrs,
    Compacted,
    Delete,
    Event,
    Key,
    LogStore,
    Put,
    RingLimits,
    StoreClosed,
    StoreFull,
    open_store,
    sqlite,
)
from shoal.store.memory import MemoryJournal
from shoal.store.sqlite import SqliteJournal, SqliteLimits, connect

LEASES = "leases.coordination.k8s.io"


def path_of(backend: Any) -> Path:
    return Path(backend.url.removeprefix("sqlite:///"))


def disk_bytes(backend: Any) -> int:
    return sum(file.stat().st_size for file in path_of(backend).parent.iterdir())


async def test_everything_acknowledged_is_there_after_a_restart(durable: Any) -> None:
    kept: dict[str, Any] = {}

    async with durable.opened() as store:
        await store.commit(
            [durable.put(f"p{i}", labels={"n": str(i)}, indexed=[f"i{i % 2}"], fence="f") for i in range(20)]
        )
        await store.commit([durable.put("p1", spec="changed"), Delete(Key("pods", "default", "p2"))])
        await store.commit([durable.put('ü-"quoted"-\'', namespace="")])
        kept.update(page=store.range("pods"), events=store.watch("pods", 5).take(), incarnation=store.incarnation)
    async with durable.opened() as store:
        assert store.revision == kept["page"].revision == 23
        assert list(store.range("pods").entries) == list(kept["page"].entries)
        assert len(store.range("pods", index="i1").entries) == 9
        assert store.watch("pods", 5).take() == kept["events"], "a watch resumes across the restart"
        assert store.range("pods", revision=20).entries[2].key.name == "p10"
        assert store.incarnation == kept["incarnation"]
        (entry,) = await store.commit([durable.put("p3")])
        assert (entry.revision, entry.created) == (24, 4)


async def test_forgotten_history_stays_forgotten_after_a_restart(durable: Any) -> None:
    limits = RingLimits(max_events=50, short_events=10)

    async with durable.opened(limits=limits) as store:
        await store.commit([durable.put("n", resource="nodes")])
        for i in range(300):
            await store.commit([durable.put("a", spec=str(i)), durable.put("l", resource=LEASES, spec=str(i))])
    async with durable.opened(limits=limits) as store:
        for resource, oldest in ("pods", 400), (LEASES, 500):
            with pytest.raises(Compacted) as compacted:
                store.watch(resource, 100)
            assert compacted.value.oldest > oldest
            first = store.watch(resource, compacted.value.oldest).take()[0]
            assert first.previous is not None and first.previous.revision == compacted.value.oldest
        assert len(store.watch("nodes", 0).take()) == 1
    assert durable.rows() < 100


async def test_the_counter_never_goes_back_even_when_nothing_is_left(durable: Any) -> None:
    async with durable.opened() as store:
        await store.commit([durable.put("a")])
        await store.commit([Delete(Key("pods", "default", "a"))])
        await store.compact(2)
    assert durable.rows() == 0
    async with durable.opened() as store:
        assert store.revision == 2 and store.count("pods") == 0
        await store.compact(2)
        (entry,) = await store.commit([durable.put("a")])
        assert entry.revision == entry.created == 3


async def test_a_smaller_history_takes_effect_at_the_next_start(durable: Any) -> None:
    async with durable.opened() as store:
        for i in range(500):
            await store.commit([durable.put("a", spec=str(i))])
    assert durable.rows() == 500
    async with durable.opened(limits=RingLimits(max_events=100)) as store:
        assert len(store.watch("pods", 450).take()) == 50
        with pytest.raises(Compacted):
            store.watch("pods", 300)
    assert durable.rows() == 101, "a hundred events and the state before the first"


_WRITER = """
import asyncio, json, sys
from shoal.store import Attrs, Delete, Key, Put, RingLimits, open_store

HEAD = b'{"metadata":{"resourceVersion":"'

async def main(url, after):
    store = open_store(url, attrs_of=lambda key, value: Attrs(), limits=RingLimits(max_events=200))
    await store.start()

    async def writer(n):
        i = 0
        while True:
            name = f"w{n}-{i % 5}"
            key = Key("pods", "default", name)
            op = Delete(key) if i % 7 == 6 and store.get(key) else Put(key, HEAD + b'"},"n":%d}' % i, len(HEAD))
            (entry,) = await store.commit([op])
            kind = "D" if isinstance(op, Delete) else "P"
            print(entry.revision, kind, name, entry.value.decode(), flush=True)
            i += 1

    await asyncio.gather(*(writer(n) for n in range(8)))

asyncio.run(main(sys.argv[1], 0))
"""


async def test_kill_minus_nine_loses_no_acknowledged_write(durable: Any) -> None:
    acknowledged: dict[int, tuple[str, str, bytes]] = {}
    environment = {**os.environ, "PYTHONPATH": str(Path(shoal.__file__).parent.parent)}
    for _ in range(3):
        process = subprocess.Popen(
            [sys.executable, "-c", _WRITER, durable.url], stdout=subprocess.PIPE, env=environment, text=True
        )
        assert process.stdout is not None
        lines: list[str] = []
        for line in process.stdout:
            lines.append(line)
            if len(lines) == 1500:
                process.send_signal(signal.SIGKILL)
        process.stdout.close()
        process.wait()
        for line in lines:
            if line.endswith("\n"):
                revision, kind, name, value = line.rstrip("\n").split(" ", 3)
                assert int(revision) not in acknowledged, "a revision was given twice"
                acknowledged[int(revision)] = (kind, name, value.encode())

        async def check(store: LogStore) -> None:
            assert store.revision >= max(acknowledged)
            for event in store.watch("pods", store.revision - 100).take():
                entry = event.entry
                if entry.revision in acknowledged:
                    kind, name, value = acknowledged[entry.revision]
                    assert (entry.key.name, entry.value) == (name, value)
                    assert (event.type == "DELETED") == (kind == "D")
            newest: dict[str, int] = {name: revision for revision, (_, name, _) in sorted(acknowledged.items())}
            for name, revision in newest.items():
                current = store.get(Key("pods", "default", name))
                if acknowledged[revision][0] == "D":
                    assert current is None or current.revision > revision
                elif current is not None:
                    assert current.revision >= revision
                    if current.revision == revision:
                        assert current.value == acknowledged[revision][2]
                else:
                    later = [e for e in store.watch("pods", revision).take() if e.entry.key.name == name]
                    assert later and later[-1].type == "DELETED", f"{name} at {revision} was lost"

        store = open_store(durable.url, attrs_of=lambda key, value: Attrs())
        await store.start()
        await check(store)
        await store.stop()
    assert len(acknowledged) >= 4500


async def test_a_second_process_is_refused_with_a_clear_error(filed: Any) -> None:
    async with filed.opened() as store:
        code = (
            "import asyncio, sys\n"
            "from shoal.store import Attrs, open_store\n"
            "asyncio.run(open_store(sys.argv[1], attrs_of=lambda k, v: Attrs()).start())\n"
        )
        environment = {**os.environ, "PYTHONPATH": str(Path(shoal.__file__).parent.parent)}
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", code, filed.url, env=environment, stderr=asyncio.subprocess.PIPE
        )
        _, error = await process.communicate()
        assert process.returncode == 1
        assert f"ConfigError: store {filed.url} is in use by process {os.getpid()}" in error.decode()
        with pytest.raises(ConfigError, match="is in use"):
            await filed.open().start()
        await store.commit([filed.put("still-works")])
    async with filed.opened():
        pass  # the lock is free again


async def test_the_error_names_a_file_or_url_that_cannot_be_used(tmp_path: Path) -> None:
    def opened(url: str) -> LogStore:
        return open_store(url, attrs_of=lambda key, value: Attrs())

    for url in "sqlite://x", "sqlite:///", "redis://", "":
        with pytest.raises(ConfigError, match="is not supported"):
            opened(url)
    with pytest.raises(ConfigError, match="does not exist"):
        await opened(f"sqlite:///{tmp_path}/none/store.db").start()
    (tmp_path / "text.db").write_text("this is not a database, and long enough to be read as one" * 100)
    for _ in range(2):  # and the lock is given back
        with pytest.raises(sqlite3.DatabaseError):
            await opened(f"sqlite:///{tmp_path}/text.db").start()


class _Broken(Exception):
    pass


class _BreakableMemory(MemoryJournal):
    broken = False

    async def append(self, events: Sequence[Event]) -> None:
        await asyncio.sleep(0)
        if self.broken:
            raise _Broken


class _BreakableSqlite(SqliteJournal):
    """Writes and then reports that the disk did not take it, like a failing fsync."""

    broken = False

    async def append(self, events: Sequence[Event]) -> None:
        await super().append(events)
        if self.broken:
            raise _Broken


def breakable(backend: Any) -> _BreakableMemory | _BreakableSqlite:
    if not backend.durable:
        return _BreakableMemory()
    return _BreakableSqlite(path_of(backend), lambda key, value: Attrs())


async def test_after_a_failed_fsync_nothing_is_acknowledged_or_shown(lone: Any) -> None:
    async with asyncio.timeout(30):
        journal = breakable(lone)
        fatal: list[BaseException] = []
        store = LogStore(journal, on_fatal=fatal.append)
        await store.start()
        await store.commit([lone.put("good")])
        heard: list[Any] = []
        store.subscribe("pods", heard.append)
        watch = store.watch("pods", 1)
        waiting = asyncio.ensure_future(watch.wait())
        reaching = asyncio.ensure_future(store.reached(2, 30))
        journal.broken = True
        first = asyncio.ensure_future(store.commit([lone.put("bad")]))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        later = [asyncio.ensure_future(store.commit([lone.put(f"later-{i}")])) for i in range(5)]
        results = await asyncio.gather(first, *later, waiting, reaching, return_exceptions=True)
        assert [type(result) for result in results] == [StoreClosed] * 8
        assert [type(error) for error in fatal] == [_Broken], "reported once"
        assert store.revision == 1 and store.count("pods") == 1 and not heard and not watch.take()
        journal.broken = False
        with pytest.raises(StoreClosed):
            await store.commit([lone.put("after")])
        await store.stop()


class _Disk:
    """Limits the size of the store's file: SQLite then finds no room, as on a full disk."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.connection: sqlite3.Connection | None = None
        monkeypatch.setattr(sqlite, "connect", self._connect)

    def _connect(self, path: Path) -> sqlite3.Connection:
        self.connection = connect(path)
        return self.connection

    def limit(self, pages: int) -> None:
        assert self.connection is not None
        self.connection.execute(f"PRAGMA max_page_count = {pages}").fetchall()


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> _Disk:
    return _Disk(monkeypatch)


async def test_a_full_disk_refuses_writes_keeps_reads_and_accepts_writes_again(filed: Any, disk: _Disk) -> None:
    async with asyncio.timeout(30):
        journal = SqliteJournal(path_of(filed), lambda key, value: Attrs())
        fatal: list[BaseException] = []
        store = LogStore(journal, on_fatal=fatal.append)
        await store.start()
        disk.limit(100)
        watch = store.watch("pods", 0)
        acknowledged = 0
        with pytest.raises(StoreFull, match="the disk is full"):
            while True:
                (entry,) = await store.commit([filed.put(f"p{acknowledged}", spec="x" * 1000)])
                acknowledged = entry.revision
        assert store.revision == store.count("pods") == acknowledged > 100
        assert len(watch.take()) == acknowledged and not fatal and not store.problem
        with pytest.raises(StoreFull):
            await store.commit([filed.put("more", spec="x" * 1000)])
        disk.limit(1000)
        (entry,) = await store.commit([filed.put("again", spec="x" * 1000)])
        assert entry.revision == acknowledged + 1, "refused writes have used no revision"
        await store.stop()
        assert not fatal

    async with filed.opened() as store:
        assert store.revision == store.count("pods") == acknowledged + 1


async def test_a_write_that_only_lacks_room_in_the_log_is_tried_again_after_a_checkpoint(
    filed: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Cramped:
        """The write-ahead log has room for two batches; a checkpoint lets it be overwritten."""

        def __init__(self, connection: sqlite3.Connection) -> None:
            self._connection = connection
            self._in_log = 0

        def __getattr__(self, name: str) -> Any:
            return getattr(self._connection, name)

        def execute(self, statement: str, *values: Any) -> Any:
            if "wal_checkpoint" in statement:
                self._in_log = 0
            elif "INSERT INTO log" in statement:
                self._in_log += 1
                if self._in_log > 2:
                    error = sqlite3.OperationalError("database or disk is full")
                    error.sqlite_errorcode = sqlite3.SQLITE_FULL
                    raise error
            return self._connection.execute(statement, *values)

    async with asyncio.timeout(30):
        connected = sqlite.connect
        monkeypatch.setattr(sqlite, "connect", lambda path: Cramped(connected(path)))
        store = LogStore(SqliteJournal(path_of(filed), lambda key, value: Attrs()))
        await store.start()
        for number in range(9):
            await store.commit([filed.put(f"p{number}")])
        assert store.revision == store.count("pods") == 9
        await store.stop()


async def test_on_a_full_disk_each_write_of_a_batch_is_tried_alone(filed: Any, disk: _Disk) -> None:
    async with asyncio.timeout(30):
        store = LogStore(SqliteJournal(path_of(filed), lambda key, value: Attrs()))
        await store.start()
        await store.commit([filed.put("a", spec="x" * 20_000)])
        disk.limit(40)
        small = [store.commit([filed.put(f"s{n}")]) for n in range(3)]
        large = store.commit([filed.put("large", spec="x" * 200_000)])
        results = await asyncio.gather(*small[:1], large, *small[1:], return_exceptions=True)
        assert [type(result) for result in results] == [list, StoreFull, list, list]
        assert [entry.key.name for entry in store.range("pods").entries] == ["a", "s0", "s1", "s2"]
        await store.stop()


async def test_superseded_rows_are_deleted_on_a_full_disk_once_there_is_room(filed: Any, disk: _Disk) -> None:
    async with asyncio.timeout(30):
        fatal: list[BaseException] = []
        limits = SqliteLimits(tidy_after_s=0.01, forget_rows=4)
        store = LogStore(
            SqliteJournal(path_of(filed), lambda key, value: Attrs(), limits=limits),
            limits=RingLimits(max_events=2), on_fatal=fatal.append,
        )  # fmt: skip
        await store.start()
        disk.limit(30)
        refused = 0
        for number in range(200):
            try:
                await store.commit([filed.put(f"p{number % 5}", spec="x" * 3000)])
            except StoreFull:
                refused += 1
        assert refused < 50 and not fatal, "rows that are no longer needed make room"
        await store.stop()


async def test_an_error_after_which_something_was_written_all_the_same_is_fatal(
    filed: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLite's word alone is not enough: that nothing was written is looked up."""

    class Lying:
        """Commits, and says that there was no room."""

        def __init__(self, connection: sqlite3.Connection) -> None:
            self._connection = connection

        def __getattr__(self, name: str) -> Any:
            return getattr(self._connection, name)

        def execute(self, statement: str, *values: Any) -> Any:
            done = self._connection.execute(statement, *values)
            if "INSERT INTO log" in statement:
                error = sqlite3.OperationalError("database or disk is full")
                error.sqlite_errorcode = sqlite3.SQLITE_FULL
                raise error
            return done

    async with asyncio.timeout(30):
        connected = sqlite.connect
        monkeypatch.setattr(sqlite, "connect", lambda path: Lying(connected(path)))
        fatal: list[BaseException] = []
        store = LogStore(SqliteJournal(path_of(filed), lambda key, value: Attrs()), on_fatal=fatal.append)
        await store.start()
        with pytest.raises(StoreClosed):
            await store.commit([filed.put("a")])
        assert [type(error) for error in fatal] == [sqlite3.OperationalError] and store.count("pods") == 0
        await store.stop()


def test_by_default_a_broken_journal_ends_the_process(tmp_path: Path) -> None:
    code = (
        "import asyncio\n"
        "from shoal.store import Key, LogStore, Put\n"
        "from shoal.store.memory import MemoryJournal\n"
        "class Broken(MemoryJournal):\n"
        "    async def append(self, events):\n"
        "        raise OSError('no space left')\n"
        "async def main():\n"
        "    store = LogStore(Broken())\n"
        "    await store.start()\n"
        "    await store.commit([Put(Key('pods', '', 'a'), b'', 0)])\n"
        "    print('acknowledged')\n"
        "asyncio.run(main())\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(shoal.__file__).parent.parent)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert done.returncode == 70 and "no space left" in done.stderr and not done.stdout


async def _in_parallel(store: LogStore, count: int, op: Callable[[int], Put | Delete]) -> None:
    numbers = iter(range(count))

    async def writer() -> None:
        for i in numbers:
            await store.commit([op(i)])

    await asyncio.gather(*(writer() for _ in range(32)))


async def test_lease_churn_leaves_small_files_and_little_memory(filed: Any) -> None:
    put = filed.put("node-1", resource=LEASES, spec="x" * 300)
    largest = 0

    async with filed.opened() as store:
        for _ in range(8):
            await _in_parallel(store, 2500, lambda i: put)
            largest = max(largest, disk_bytes(filed))
        assert store.revision == 20_000 and store.count(LEASES) == 1
        assert store.history_bytes < 2 << 20
    assert largest < 12e6, "the log before a checkpoint is most of it"
    assert disk_bytes(filed) < 3e6


async def test_the_file_shrinks_after_a_compaction_while_writes_go_on(filed: Any) -> None:
    async with filed.opened() as store:
        await _in_parallel(store, 4000, lambda i: filed.put(f"p{i}", spec="x" * 4000))
        await _in_parallel(store, 4000, lambda i: Delete(Key("pods", "default", f"p{i}")))
        assert path_of(filed).stat().st_size > 15e6
        compacting = asyncio.ensure_future(store.compact(store.revision))
        written = 0
        while not compacting.done():
            await store.commit([filed.put("meanwhile")])
            written += 1
        assert written > 2, "commits went through between the steps"
        await store.compact(store.revision)
    assert disk_bytes(filed) < 9.5e6
