"""The SQLite journal: one file, one process, one writing thread, one fsync per batch.

There is one table, ``log``, keyed by revision. A row is a state of an object, or with an empty value its deletion. The
current objects are simply the newest rows of their keys, so a value is written once, always at the end of the tree, and
an older row is deleted when neither the present nor any kept event needs it. A batch is a single INSERT, committed by
itself: the interpreter lock is given up and waited for once per batch instead of once per row or statement.

Checkpoints, deletions and the shrinking of the file are done here between batches, each in bounded pieces.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import orjson

from shoal.base.ids import Ids
from shoal.errors import ConfigError
from shoal.store.journal import Loaded, LoneWriter, Replica, deleted_entry
from shoal.store.model import Attrs, Entry, Event, EventType, Key
from shoal.store.thread import SerialThread

AttrsOf = Callable[[Key, bytes], Attrs]

_FORMAT = 1
_PAGE_BYTES = 4096
_WAL_BYTES = 8 << 20  # a checkpoint follows; the file stays about this large and is written over
_FORGET_ROWS = 512  # superseded rows are deleted together with a batch once there are this many
_FORGET_MOST = 2048  # and at most so many at a time
_VACUUM_PAGES = 256  # given back to the file system per step
_SLACK_PAGES = 2048  # free pages that are kept for the rows to come

_PRAGMAS = (
    f"page_size={_PAGE_BYTES}",
    "auto_vacuum=INCREMENTAL",  # only works before the first table
    "locking_mode=EXCLUSIVE",  # no other connection: no lock calls and no shared-memory file
    "journal_mode=WAL",
    "synchronous=FULL",
    "wal_autocheckpoint=0",
    f"journal_size_limit={2 * _WAL_BYTES}",
)

_SCHEMA = """
CREATE TABLE IF NOT EXISTS log (
    revision INTEGER PRIMARY KEY,
    resource TEXT NOT NULL,
    namespace TEXT NOT NULL,
    name TEXT NOT NULL,
    created INTEGER NOT NULL,
    hole INTEGER NOT NULL,
    value BLOB NOT NULL
) STRICT;
CREATE TABLE IF NOT EXISTS floor (resource TEXT PRIMARY KEY, revision INTEGER NOT NULL) STRICT, WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS meta (name TEXT PRIMARY KEY, value ANY) STRICT, WITHOUT ROWID;
"""

# All values of a batch travel as one blob and everything else as one JSON array, so the statement is the same for any
# number of rows: it is prepared once and has no limit of variables.
_INSERT = """
INSERT INTO log SELECT value ->> 0, value ->> 1, value ->> 2, value ->> 3, value ->> 4, value ->> 5,
    coalesce(substr(?2, value ->> 6, value ->> 7), x'') FROM json_each(?1)
"""
_DELETE = "DELETE FROM log WHERE revision IN (SELECT value FROM json_each(?))"
_SET_FLOORS = """
INSERT INTO floor SELECT key, value FROM json_each(?) WHERE true
    ON CONFLICT (resource) DO UPDATE SET revision = excluded.revision
"""
_SELECT = "SELECT revision, resource, namespace, name, created, hole, value FROM log ORDER BY revision"

_Row = tuple[int, str, str, str, int, int, bytes]
_Batch = tuple[str, bytes]


class _Forget(NamedTuple):
    revisions: str
    floors: str
    newest: int


class SqliteJournal(LoneWriter):
    def __init__(self, path: Path, attrs_of: AttrsOf) -> None:
        self._path = path
        self._attrs_of = attrs_of
        self._superseded: list[int] = []
        self._floors: Mapping[str, int] = {}
        self._wal_bytes = 0
        self._lock_fd = -1

    async def open(self, replica: Replica) -> Loaded:
        self._replica = replica
        self._lock_fd = _lock(self._path)
        self._thread = SerialThread("store-sqlite", replica.fail)
        try:
            return await self._thread.run(self._load)
        except BaseException:
            await self._thread.close()
            os.close(self._lock_fd)
            raise

    async def _append(self, events: Sequence[Event]) -> None:
        rows, values, offset = [], [], 1
        for event in events:
            entry = event.entry
            key = entry.key
            size = 0
            if event.type is not EventType.DELETED:
                values.append(entry.value)
                size = len(entry.value)
            rows.append((entry.revision, key[0], key[1], key[2], entry.created, entry.hole, offset, size))
            offset += size
        insert = orjson.dumps(rows).decode(), b"".join(values)
        if len(self._superseded) < _FORGET_ROWS:
            await self._thread.run(lambda: self._insert(insert))
        else:
            await self._forget_some(insert, events[-1].entry.revision)
        self._written(offset + _PAGE_BYTES * (4 + len(rows) // 8))

    def forget(self, revisions: Sequence[int], floors: Mapping[str, int]) -> None:
        self._superseded += revisions
        self._floors = floors

    async def settle(self) -> None:
        while self._superseded:
            await self._forget_some(None, self._replica.revision)
        while await self._thread.run(self._checkpoint):
            pass

    async def close(self) -> None:
        try:
            while self._superseded:
                await self._forget_some(None, self._replica.revision)
            await self._thread.run(self._connection.close)
        finally:
            await self._thread.close()
            self._connection.close()  # when the thread has refused to: it runs nothing after a failure
            os.close(self._lock_fd)

    async def _forget_some(self, insert: _Batch | None, newest: int) -> None:
        revisions = self._superseded[:_FORGET_MOST]
        del self._superseded[:_FORGET_MOST]
        forget = _Forget(orjson.dumps(revisions).decode(), orjson.dumps(self._floors).decode(), newest)
        await self._thread.run(lambda: self._insert_and_forget(insert, forget))
        self._written(_PAGE_BYTES * len(revisions))

    def _written(self, estimate_bytes: int) -> None:
        """Count what the write-ahead log has grown by, about; SQLite tells no one without being asked on its thread."""
        self._wal_bytes += estimate_bytes
        if self._wal_bytes > _WAL_BYTES:
            self._wal_bytes = 0
            self._thread.post(self._checkpoint)

    # From here on: called on the writing thread only.

    def _load(self) -> Loaded:
        self._connection = _connect(self._path)
        try:
            return self._read()
        except BaseException:
            self._connection.close()
            raise

    def _read(self) -> Loaded:
        run = self._connection.execute
        meta = dict(run("SELECT name, value FROM meta").fetchall())
        if "incarnation" not in meta:
            meta = {"format": _FORMAT, "incarnation": Ids().new_uid(), "revision": 0}
            run("INSERT INTO meta SELECT key, value FROM json_each(?)", (orjson.dumps(meta).decode(),))
        elif meta["format"] != _FORMAT:
            raise ConfigError(f"store {self._path} has format {meta['format']}, this version reads {_FORMAT} only")
        floors = dict(run("SELECT resource, revision FROM floor").fetchall())
        history = _History(floors, self._attrs_of)
        newest = int(meta["revision"])
        for row in run(_SELECT):
            history.add(row)
            newest = row[0]
        self._superseded += history.superseded
        self._floors = floors
        return Loaded(
            entries=history.entries,
            events=history.events,
            floors=floors,
            revision=max(newest, int(meta["revision"])),
            incarnation=str(meta["incarnation"]),
        )

    def _insert(self, batch: _Batch) -> None:
        self._connection.execute(_INSERT, batch)

    def _insert_and_forget(self, batch: _Batch | None, forget: _Forget) -> None:
        run = self._connection.execute
        run("BEGIN IMMEDIATE")
        if batch is not None:
            run(_INSERT, batch)
        run(_DELETE, (forget.revisions,))
        run(_SET_FLOORS, (forget.floors,))
        # The newest row of all may be the mark of a deletion and gone now: keep its number.
        run("UPDATE meta SET value = max(value, ?) WHERE name = 'revision'", (forget.newest,))
        run("COMMIT")

    def _checkpoint(self) -> bool:
        """Bring the write-ahead log into the file, and give free pages back to the file system when there are many.
        True when that is worth doing again."""
        run = self._connection.execute
        # Passive is complete here, since there is no other connection, and leaves the log to be written over.
        run("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
        (free,) = run("PRAGMA freelist_count").fetchone()
        (pages,) = run("PRAGMA page_count").fetchone()
        if free <= max(_SLACK_PAGES, pages // 4):
            return False
        # As a script: a plain execute() would stop after the first page.
        self._connection.executescript(f"PRAGMA incremental_vacuum({_VACUUM_PAGES})")
        return True


class _History:
    """Turns rows, in order, into the current entries and the events above the floors."""

    def __init__(self, floors: Mapping[str, int], attrs_of: AttrsOf) -> None:
        self._floors = floors
        self._attrs_of = attrs_of
        self.entries: dict[Key, Entry] = {}
        self.events: list[Event] = []
        self.superseded: list[int] = []  # left by a process that ended between dropping events and deleting rows

    def add(self, row: _Row) -> None:
        revision, resource, namespace, name, created, hole, value = row
        key = Key(sys.intern(resource), sys.intern(namespace), name)
        previous = self.entries.get(key)
        kept = revision > self._floors.get(resource, 0)
        if not value:
            self._delete(key, revision, previous, kept)
            return
        entry = Entry(key, revision, created, value, hole, self._attrs_of(key, value))
        self.entries[key] = entry
        if kept:
            kind = EventType.ADDED if previous is None else EventType.MODIFIED
            self.events.append(Event(kind, entry, previous))
        elif previous is not None:
            self.superseded.append(previous.revision)

    def _delete(self, key: Key, revision: int, previous: Entry | None, kept: bool) -> None:
        if previous is not None:
            del self.entries[key]
        if kept and previous is not None:
            self.events.append(Event(EventType.DELETED, deleted_entry(previous, revision), previous))
            return
        if previous is not None:
            self.superseded.append(previous.revision)
        self.superseded.append(revision)


def _lock(path: Path) -> int:
    """Hold the store for this process. SQLite's own locks would only say ``database is locked``, and late."""
    if not path.parent.is_dir():
        raise ConfigError(f"store sqlite:///{path}: the folder {path.parent} does not exist; create it")
    fd = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.pread(fd, 32, 0).decode().strip() or "unknown"
        os.close(fd)
        raise ConfigError(
            f"store sqlite:///{path} is in use by process {holder}; stop it or use another file"
        ) from None
    os.ftruncate(fd, 0)
    os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
    return fd


def _connect(path: Path) -> sqlite3.Connection:
    if sqlite3.sqlite_version_info < (3, 38):
        raise ConfigError(f"SQLite {sqlite3.sqlite_version} is too old for store {path}; 3.38 or newer is needed")
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    try:
        for pragma in _PRAGMAS:
            connection.execute(f"PRAGMA {pragma}").fetchall()
        connection.executescript(_SCHEMA)
    except BaseException:
        connection.close()
        raise
    return connection
