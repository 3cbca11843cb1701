"""The SQLite journal: one file, one process, one writing thread, one fsync per batch.

There is one table, ``log``, keyed by revision. A row is a state of an object, or with an empty value its deletion. The
current objects are the newest rows of their keys, so a value is written once, always at the end of the tree, and an
older row is deleted when neither the current state nor a kept event needs it. A batch is a single INSERT with its own
commit: the interpreter lock is released and acquired once per batch instead of once per row or statement.

Checkpoints, deletions and the shrinking of the file happen between batches in bounded steps: together with a batch
while there are many batches, else in a task that takes at most a tenth of the thread's time from writers
(docs/decisions/0013-compaction-and-size.md).

A full disk is not a failure: SQLite has then undone the statement, which is checked, so the batch is refused
(``StoreFull``), reads go on, and the next batch is tried again. All other errors of SQLite leave the outcome unknown
and end the store.

A store can be *frozen*: it then refuses writes and does not change its file, so that it can be copied. It can also
write a *snapshot* of itself to another file while it goes on. Other processes request both through
``shoal.store.control``; ``shoal.store.copy`` and ``shoal.store.snapshot`` do.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import sqlite3
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, TypeVar

import orjson

from shoal.base.clock import RealClock
from shoal.base.files import close_to_others
from shoal.base.ids import Ids
from shoal.base.logs import get_logger
from shoal.base.supervision import SupervisedLoops
from shoal.errors import ConfigError, ShoalError
from shoal.store.control import ControlSocket
from shoal.store.journal import Loaded, LoneWriter, Replica, Result, Transaction, deleted_entry
from shoal.store.model import Attrs, Entry, Event, EventType, Key, StoreFull, StoreReadOnly
from shoal.store.thread import SerialThread

T = TypeVar("T")
AttrsOf = Callable[[Key, bytes], Attrs]

_log = get_logger("store")

FORMAT = 1
_PAGE_BYTES = 4096
_WAL_BYTES = 8 << 20
_SNAPSHOT_PAGES = 256  # copied at a time: a batch waits for about a millisecond
_SAY_FULL_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SqliteLimits:
    """How the file is kept small."""

    wal_bytes: int = _WAL_BYTES  # triggers a checkpoint; the log file keeps about this size and is overwritten
    forget_rows: int = 512  # superseded rows are deleted together with a batch once there are this many
    forget_most: int = 2048  # at most this many at a time
    forget_bytes: int = 4 << 20  # and at most this size of values: pages of large values are freed one by one
    vacuum_pages: int = 256  # returned to the file system per step
    slack_pages: int = 2048  # free pages kept for new rows
    tidy_after_s: float = 5.0  # if too few for a batch, superseded rows are deleted after this delay
    tidy_pause: int = 9  # pause after a step during writes, as a multiple of its duration: writers keep nine tenths


FILE_PRAGMAS = (
    f"page_size={_PAGE_BYTES}",
    "auto_vacuum=INCREMENTAL",  # only works before the first table
    "locking_mode=EXCLUSIVE",  # no other connection: no lock calls and no shared-memory file
)
_PRAGMAS = (
    *FILE_PRAGMAS,
    "journal_mode=WAL",
    "synchronous=FULL",
    "secure_delete=FAST",  # some builds write zeros over every freed page, through the log: more writes
    "wal_autocheckpoint=0",
    f"journal_size_limit={2 * _WAL_BYTES}",
)

SCHEMA = """
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

# All values of a batch are one blob and everything else one JSON array, so the statement is the same for any number of
# rows: it is prepared once and has no variable limit.
_INSERT = """
INSERT INTO log SELECT value ->> 0, value ->> 1, value ->> 2, value ->> 3, value ->> 4, value ->> 5,
    coalesce(substr(?2, value ->> 6, value ->> 7), x'') FROM json_each(?1)
"""
# How many of these rows, from the first, fit into a number of bytes; one statement, not one per row.
_FITTING = """
SELECT count(*) FROM (
    SELECT sum(coalesce(length(log.value), 0)) OVER (ORDER BY asked.key) AS bytes
    FROM json_each(?1) AS asked LEFT JOIN log ON log.revision = asked.value
) WHERE bytes <= ?2
"""
_DELETE = "DELETE FROM log WHERE revision IN (SELECT value FROM json_each(?))"
_SET_FLOORS = """
INSERT INTO floor SELECT key, value FROM json_each(?) WHERE true
    ON CONFLICT (resource) DO UPDATE SET revision = excluded.revision
"""
_SELECT = "SELECT revision, resource, namespace, name, created, hole, value FROM log ORDER BY revision"

Row = tuple[int, str, str, str, int, int, bytes]  # of the log, in the order of its columns
_Batch = tuple[str, bytes]


class _Forget(NamedTuple):
    revisions: Sequence[int]
    floors: str
    newest: int


class SqliteJournal(LoneWriter):
    def __init__(self, path: Path, attrs_of: AttrsOf, *, limits: SqliteLimits | None = None) -> None:
        self._path = path
        self._attrs_of = attrs_of
        self._limits = limits or SqliteLimits()
        self._superseded: list[int] = []
        self._floors: Mapping[str, int] = {}
        self._forgetting = False  # one at a time: rows must be deleted in order
        self._wal_bytes = 0
        self._batches = 0  # written so far
        self._vacuum_wanted = False  # set on the writing thread when many pages are free
        self._untidy = asyncio.Event()
        self._loops = SupervisedLoops(RealClock())
        self._lock_fd = -1
        self._moved = ""  # why writes are refused permanently; stored in the file
        self._frozen = ""  # why writes are refused now; empty if accepted
        self._durable = 0  # the newest revision in the file; used on the writing thread
        self._full_said_s = -_SAY_FULL_S  # when it was last logged that there is no room
        self._control: ControlSocket | None = None
        self._snapshotting = False

    async def open(self, replica: Replica) -> Loaded:
        self._replica = replica
        self._lock_fd = lock(self._path)
        self._thread = SerialThread("store-sqlite", replica.fail)
        try:
            loaded = await self._thread.run(self._load)
        except BaseException:
            await self._thread.close()
            os.close(self._lock_fd)
            raise
        self._loops.start("store-sqlite/tidy", self._tidy, ends=(sqlite3.Error,))
        control = ControlSocket(control_path(self._path), self)
        with suppress(OSError):  # not every file system supports sockets; a copy then requires the server to be stopped
            await control.open()
            self._control = control
        if self._superseded or self._vacuum_wanted:
            self._untidy.set()
        return loaded

    @property
    def size_bytes(self) -> int:
        """The file and its write-ahead log."""
        size = 0
        for path in (self._path, f"{self._path}-wal"):
            with suppress(FileNotFoundError):
                size += os.stat(path).st_size
        return size

    async def commit(self, batch: Sequence[Transaction]) -> Sequence[Result]:
        if self._frozen:
            return [StoreReadOnly(self._frozen) for _ in batch]
        return await super().commit(batch)

    async def append(self, events: Sequence[Event]) -> None:
        self._batches += 1
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
        newest = events[-1].entry.revision
        if len(self._superseded) < self._limits.forget_rows or self._forgetting:
            await self._run(lambda: self._insert(insert, newest))
        else:
            await self._forget_some(insert, newest)
        self._written(offset + _PAGE_BYTES * (4 + len(rows) // 8))

    def forget(self, revisions: Sequence[int], floors: Mapping[str, int]) -> None:
        self._superseded += revisions
        self._floors = floors
        self._untidy.set()

    async def settle(self) -> None:
        while await self.tidy_step(checkpoint=True):
            pass

    async def close(self) -> None:
        await self._loops.stop()
        if self._control is not None:
            await self._control.close()
        try:
            with suppress(StoreFull):  # the next start deletes them
                while self._superseded and not self._frozen:
                    await self._forget_some(None, self._replica.revision)
            await self._thread.run(self._connection.close)
        finally:
            await self._thread.close()
            self._connection.close()  # if the thread refused: it runs nothing after a failure
            os.close(self._lock_fd)

    # Freezing for a copy (see ``shoal.store.control``).

    @property
    def frozen(self) -> str:
        return self._frozen

    async def freeze(self, reason: str) -> None:
        if self._frozen != self._moved:
            raise ShoalError(f"the store is already read-only: {self._frozen}")
        self._frozen = reason
        try:
            # All accepted writes are in the thread's queue by now, and later ones find the store frozen.
            await self._run(self._checkpoint_all)
        except StoreFull as full:
            self.release()
            raise ShoalError(f"the store cannot be written: {full.reason}") from full
        except sqlite3.Error as error:
            self._replica.fail(error)
            raise ShoalError(f"the store cannot be written: {error}") from error
        except BaseException:
            self.release()
            raise

    def release(self) -> None:
        self._frozen = self._moved
        self._untidy.set()

    async def keep(self, reason: str) -> None:
        await self._set_moved(reason)

    async def thaw(self) -> None:
        if self._frozen != self._moved:
            raise ShoalError(f"the store must stay frozen: {self._frozen}")
        await self._set_moved("")
        self._untidy.set()

    async def _set_moved(self, reason: str) -> None:
        try:
            await self._run(lambda: set_frozen(self._connection, reason))
        except StoreFull as full:
            raise ShoalError(f"the store cannot be written: {full.reason}") from full
        except sqlite3.Error as error:
            self._replica.fail(error)
            raise ShoalError(f"the store cannot be written: {error}") from error
        self._moved = self._frozen = reason

    async def snapshot(self, path: Path) -> None:
        if self._snapshotting:
            raise ShoalError("another snapshot is being written; wait until it is done")
        self._snapshotting = True
        try:
            error = await self._thread.run(lambda: self._copy_pages(path))
        finally:
            self._snapshotting = False
        if error:
            raise ShoalError(error)

    # Keeping the file small.

    async def _forget_some(self, insert: _Batch | None, newest: int) -> None:
        revisions = self._superseded[: self._limits.forget_most]
        forget = _Forget(revisions, orjson.dumps(self._floors).decode(), newest)
        self._forgetting = True
        try:
            done = await self._run(lambda: self._insert_and_forget(insert, forget))
        finally:
            self._forgetting = False
        del self._superseded[:done]
        self._written(_PAGE_BYTES * done)

    def _written(self, estimate_bytes: int) -> None:
        """Estimate the growth of the write-ahead log; the exact size needs a query on the writing thread."""
        self._wal_bytes += estimate_bytes
        if self._wal_bytes > self._limits.wal_bytes:
            self._wal_bytes = 0
            self._thread.post(lambda: self._unless_full(self._checkpoint))
            self._untidy.set()

    async def _tidy(self) -> None:
        """Delete remaining superseded rows and return free space, in steps that leave writers most of the time."""
        loop = asyncio.get_running_loop()
        while True:
            await self._untidy.wait()
            await asyncio.sleep(self._limits.tidy_after_s)
            self._untidy.clear()
            try:
                await self._tidy_up(loop)
            except StoreFull:
                self._untidy.set()
            except sqlite3.Error as error:
                self._replica.fail(error)
                raise

    async def _tidy_up(self, loop: asyncio.AbstractEventLoop) -> None:
        vacuumed = False
        while True:
            begun_s, batches, vacuuming = loop.time(), self._batches, self._vacuum_wanted
            if not await self.tidy_step(checkpoint=vacuumed):
                return
            vacuumed = vacuumed or vacuuming
            if self._batches != batches:
                await asyncio.sleep(self._limits.tidy_pause * (loop.time() - begun_s))

    async def tidy_step(self, *, checkpoint: bool) -> bool:
        """Do one bounded step; return False if nothing was left. ``checkpoint`` adds a final checkpoint, which shortens
        the file."""
        if self._frozen:
            return False
        if self._superseded:
            if self._forgetting:
                await self._thread.run(_nothing)  # a batch is deleting: wait for it
            else:
                await self._forget_some(None, self._replica.revision)
            return True
        if self._vacuum_wanted:
            await self._run(self._vacuum)
            self._written(2 * _PAGE_BYTES * self._limits.vacuum_pages)
            return True
        if not checkpoint:
            return False
        await self._run(self._checkpoint)
        return self._vacuum_wanted

    async def _run(self, job: Callable[[], T]) -> T:
        """Run a job that writes, on the writing thread. Raise StoreFull if there was no room, and nothing written."""
        done = await self._thread.run(lambda: self._unless_full(job))
        if not isinstance(done, StoreFull):
            return done
        now = asyncio.get_running_loop().time()
        if now >= self._full_said_s + _SAY_FULL_S:
            self._full_said_s = now
            _log.error("the disk of the store is full: writes are refused until there is room", path=str(self._path))
        raise done

    # From here on: called on the writing thread only.

    def _load(self) -> Loaded:
        self._connection = connect(self._path)
        try:
            self._look_for_free_pages()
            return self._read()
        except BaseException:
            self._connection.close()
            raise

    def _read(self) -> Loaded:
        run = self._connection.execute
        meta = dict(run("SELECT name, value FROM meta").fetchall())
        if "incarnation" not in meta:
            meta = {"format": FORMAT, "incarnation": Ids().new_uid(), "revision": 0}
            run("INSERT INTO meta SELECT key, value FROM json_each(?)", (orjson.dumps(meta).decode(),))
        elif meta["format"] != FORMAT:
            raise ConfigError(f"store {self._path} has format {meta['format']}, this version supports only {FORMAT}")
        floors = dict(run("SELECT resource, revision FROM floor").fetchall())
        history = _History(floors, self._attrs_of)
        newest = int(meta["revision"])
        for row in run(_SELECT):
            history.add(row)
            newest = row[0]
        self._superseded += history.superseded
        self._floors = floors
        self._durable = newest
        self._moved = self._frozen = str(meta.get("frozen") or "")
        return Loaded(
            entries=history.entries,
            events=history.events,
            floors=floors,
            revision=max(newest, int(meta["revision"])),
            incarnation=str(meta["incarnation"]),
        )

    def _unless_full(self, job: Callable[[], T]) -> T | StoreFull:
        """Run a job; one that found no room is tried once more after a checkpoint, which lets the write-ahead log be
        overwritten from its beginning instead of growing."""
        try:
            return job()
        except sqlite3.OperationalError as error:
            self._check_undone(error)
        try:
            self._connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
            return job()
        except sqlite3.OperationalError as error:
            self._check_undone(error)
        return StoreFull()

    def _check_undone(self, error: sqlite3.OperationalError) -> None:
        """Raise the error unless the disk was full and nothing of the transaction is in the file."""
        if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_FULL:
            raise error
        if self._connection.in_transaction:
            self._connection.execute("ROLLBACK")
        (newest,) = self._connection.execute("SELECT coalesce(max(revision), 0) FROM log").fetchone()
        if newest > self._durable:
            raise error

    def _insert(self, batch: _Batch, newest: int) -> None:
        self._connection.execute(_INSERT, batch)
        self._durable = newest

    def _insert_and_forget(self, batch: _Batch | None, forget: _Forget) -> int:
        """Write a batch, if there is one, and delete old rows; return how many were deleted."""
        run = self._connection.execute
        revisions = orjson.dumps(forget.revisions).decode()
        run("BEGIN IMMEDIATE")
        if batch is not None:
            run(_INSERT, batch)
        (fitting,) = run(_FITTING, (revisions, self._limits.forget_bytes)).fetchone()
        done = max(1, int(fitting))
        if done < len(forget.revisions):
            revisions = orjson.dumps(forget.revisions[:done]).decode()
        run(_DELETE, (revisions,))
        run(_SET_FLOORS, (forget.floors,))
        # The newest row may be a deletion that is now removed: keep its revision.
        run("UPDATE meta SET value = max(value, ?) WHERE name = 'revision'", (forget.newest,))
        run("COMMIT")
        self._durable = max(self._durable, forget.newest)
        self._look_for_free_pages()
        return done

    def _checkpoint(self) -> None:
        """Checkpoint the write-ahead log, and check whether much of the file is free."""
        if self._frozen:
            return
        # Passive is complete here, since there is no other connection, and lets the log be overwritten.
        self._connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
        self._look_for_free_pages()

    def _checkpoint_all(self) -> None:
        """Empty the write-ahead log, so that the file alone is the store."""
        busy, left, _ = self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        if busy or left > 0:
            raise sqlite3.OperationalError("the write-ahead log could not be checkpointed")

    def _copy_pages(self, path: Path) -> str:
        """Write the database to a new file, letting batches pass between the pages: SQLite adds what they change to the
        copy. Returns why it failed, since an error would end the thread; the store itself is fine."""
        try:
            target = sqlite3.connect(path, isolation_level=None)
        except sqlite3.Error as error:
            return f"{path} cannot be written: {error}"
        try:
            self._connection.backup(target, pages=_SNAPSHOT_PAGES, progress=self._between_pages, sleep=0.01)
        except _SnapshotEnded:
            return "the server is stopping"
        except sqlite3.Error as error:
            return f"{path} cannot be written: {error}"
        finally:
            target.close()
        return ""

    def _between_pages(self, _status: int, _remaining: int, _total: int) -> None:
        if not self._thread.make_way():
            raise _SnapshotEnded

    def _vacuum(self) -> None:
        # As a script: a plain execute() would stop after the first page.
        self._connection.executescript(f"PRAGMA incremental_vacuum({self._limits.vacuum_pages})")
        self._look_for_free_pages()

    def _look_for_free_pages(self) -> None:
        (free,) = self._connection.execute("PRAGMA freelist_count").fetchone()
        (pages,) = self._connection.execute("PRAGMA page_count").fetchone()
        self._vacuum_wanted = free > max(self._limits.slack_pages, pages // 4)


class _SnapshotEnded(Exception):
    """The writing thread ends or has failed while a snapshot is written."""


class _History:
    """Turns rows, in order, into the current entries and the events above the floors."""

    def __init__(self, floors: Mapping[str, int], attrs_of: AttrsOf) -> None:
        self._floors = floors
        self._attrs_of = attrs_of
        self.entries: dict[Key, Entry] = {}
        self.events: list[Event] = []
        self.superseded: list[int] = []  # left by a process that ended between dropping events and deleting rows

    def add(self, row: Row) -> None:
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


def _nothing() -> None:
    pass


def control_path(path: Path) -> Path:
    """The path of the control socket of the store at ``path``."""
    return Path(f"{path}.sock")


def lock(path: Path) -> int:
    """Lock the store for this process until the descriptor is closed. SQLite's own locks would report ``database is
    locked`` only later."""
    fd = lock_if_free(path)
    if fd is None:
        raise ConfigError(f"store sqlite:///{path} is in use by process {holder(path)}; stop it or use another file")
    return fd


def lock_if_free(path: Path) -> int | None:
    """Like ``lock``, but None if another process holds the store."""
    if not path.parent.is_dir():
        raise ConfigError(f"store sqlite:///{path}: the folder {path.parent} does not exist; create it")
    fd = os.open(_lock_path(path), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        return None
    with suppress(OSError):  # only a note for people; a store on a full disk can still be read
        os.ftruncate(fd, 0)
        os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
    return fd


def holder(path: Path) -> str:
    """The id of the process that has locked the store at ``path``."""
    return _lock_path(path).read_text().strip() or "unknown"


def _lock_path(path: Path) -> Path:
    return Path(f"{path}.lock")


def set_frozen(connection: sqlite3.Connection, reason: str) -> None:
    """Store durably why the store refuses writes; with an empty reason it accepts them again."""
    if reason:
        connection.execute("INSERT OR REPLACE INTO meta VALUES ('frozen', ?)", (reason,))
    else:
        connection.execute("DELETE FROM meta WHERE name = 'frozen'")


def connect(path: Path) -> sqlite3.Connection:
    if sqlite3.sqlite_version_info < (3, 38):
        raise ConfigError(f"SQLite {sqlite3.sqlite_version} is too old for store {path}; 3.38 or newer is needed")
    close_to_others(path)
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    try:
        for pragma in _PRAGMAS:
            connection.execute(f"PRAGMA {pragma}").fetchall()
        connection.executescript(SCHEMA)
    except BaseException:
        connection.close()
        raise
    return connection
