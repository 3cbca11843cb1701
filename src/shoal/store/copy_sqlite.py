"""SQLite as the source and the target of a copy.

A source that no server uses is locked and read. One that a server holds is frozen through its control socket; the copy
then reads the file directly, because the server has written everything into it and does not change it until the copy
ends. A target is written to a temporary file without crash safety, synced, read back, and only then renamed.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

from shoal.base.files import close_to_others, sync_dir
from shoal.errors import ConfigError, ShoalError
from shoal.store.control import Control
from shoal.store.copy_model import UNFINISHED, CopyHead, ExistingStore, Row, pieces
from shoal.store.sqlite import (
    FILE_PRAGMAS,
    FORMAT,
    SCHEMA,
    connect,
    control_path,
    holder,
    lock,
    lock_if_free,
    set_frozen,
)

# The newest row of every key, unless it is a deletion; in table order, so nothing is sorted.
_CURRENT = """
FROM log WHERE length(value) > 0 AND revision IN (SELECT max(revision) FROM log GROUP BY resource, namespace, name)
"""
_ROWS = f"SELECT revision, resource, namespace, name, created, hole, value {_CURRENT} ORDER BY revision"
_RESOURCES = "SELECT resource FROM floor UNION SELECT DISTINCT resource FROM log"
_INSERT = "INSERT INTO log VALUES (?, ?, ?, ?, ?, ?, ?)"


class SqliteSource:
    def __init__(self, path: Path, shown_url: str) -> None:
        self._path = path
        self._url = shown_url
        self._lock_fd: int | None = None
        self._control: Control | None = None
        self._connection: sqlite3.Connection | None = None

    async def freeze(self, reason: str) -> CopyHead:
        check_exists(self._path, self._url)
        with explained(self._url):
            self._lock_fd = lock_if_free(self._path)
            if self._lock_fd is not None:
                self._connection = connect(self._path)
            else:
                self._control = await control_of(self._path, self._url)
                await self._ask("freeze", reason)
                self._connection = _open_immutable(self._path)
            return _head(self._connection, self._url)

    async def rows(self) -> AsyncIterator[list[Row]]:
        assert self._connection is not None
        with explained(self._url):
            for piece in pieces(self._connection.execute(_ROWS)):
                yield piece
                await asyncio.sleep(0)  # so that an interrupt is handled

    async def keep(self, reason: str) -> None:
        assert self._connection is not None
        with explained(self._url):
            if self._control is None:
                set_frozen(self._connection, reason)
            else:
                self._connection.close()
                await self._ask("keep", reason)

    async def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
        if self._control is not None:
            await self._control.close()  # ends the freeze, unless it is kept
        if self._lock_fd is not None:
            os.close(self._lock_fd)

    async def _ask(self, what: str, reason: str = "") -> None:
        assert self._control is not None
        await _ask(self._control, self._path, self._url, what, reason)


class SqliteTarget:
    def __init__(self, path: Path, shown_url: str) -> None:
        self._path = path
        self._url = shown_url
        self._work = Path(f"{path}.copy")  # renamed to the store
        self._old_log = Path(f"{path}-wal")  # lock of the replaced store
        self._lock_fd: int | None = None
        self._connection: sqlite3.Connection | None = None
        self._handed_over = False

    async def open(self, *, force: bool) -> ExistingStore:
        with explained(self._url):
            self._lock_fd = lock(self._path)
            if not self._path.exists() or not self._path.stat().st_size:
                return ExistingStore()
            connection = connect(self._path)
            try:
                meta = _meta(connection)
                (newest,) = connection.execute("SELECT coalesce(max(revision), 0) FROM log").fetchone()
                revision = max(newest, int(str(meta.get("revision") or 0)))
                unfinished = str(meta.get("frozen") or "").startswith(UNFINISHED)
            finally:
                connection.close()
            if revision and not unfinished and not force:
                raise ConfigError(f"store {self._url} is not empty; choose another target, or replace it with --force")
            return ExistingStore(str(meta.get("incarnation", "")), revision)

    async def begin(self, unfinished: str) -> None:
        with explained(self._url):
            self._remove_work()
            close_to_others(self._work)
            connection = self._connection = sqlite3.connect(self._work, isolation_level=None)
            for pragma in (*FILE_PRAGMAS, "journal_mode=OFF", "synchronous=OFF", "cache_size=-65536"):
                connection.execute(f"PRAGMA {pragma}").fetchall()
            connection.executescript(SCHEMA)
            set_frozen(connection, unfinished)

    async def write(self, rows: Sequence[Row]) -> None:
        assert self._connection is not None
        with explained(self._url):
            self._connection.execute("BEGIN")
            self._connection.executemany(_INSERT, rows)
            self._connection.execute("COMMIT")

    async def finish(self, head: CopyHead) -> None:
        assert self._connection is not None
        with explained(self._url):
            run = self._connection.executemany
            meta = (("format", FORMAT), ("incarnation", head.incarnation), ("revision", head.revision))
            run("INSERT INTO meta VALUES (?, ?)", meta)
            run("INSERT INTO floor VALUES (?, ?)", ((resource, head.revision) for resource in head.resources))
            self._connection.close()
            _sync(self._work)
            self._connection = _open_immutable(self._work)

    async def rows(self) -> AsyncIterator[list[Row]]:
        assert self._connection is not None
        with explained(self._url):
            for piece in pieces(self._connection.execute(_ROWS)):
                yield piece
                await asyncio.sleep(0)

    async def hand_over(self) -> None:
        """Rename the file to its final name; it is still marked as unfinished."""
        assert self._connection is not None
        with explained(self._url):
            self._connection.close()
            self._old_log.unlink(missing_ok=True)
            os.replace(self._work, self._path)
            self._handed_over = True
            sync_dir(self._path.parent)

    async def activate(self) -> None:
        with explained(self._url):
            connection = connect(self._path)
            try:
                set_frozen(connection, "")
            finally:
                connection.close()

    async def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
        if self._lock_fd is not None:
            if not self._handed_over:
                self._remove_work()
            os.close(self._lock_fd)

    def _remove_work(self) -> None:
        self._work.unlink(missing_ok=True)


class SnapshotFile:
    """A file that holds a store and that no process uses; it is only read."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._connection: sqlite3.Connection | None = None

    async def open(self) -> CopyHead:
        with explained(str(self._path)):
            self._connection = _open_immutable(self._path)
            return _head(self._connection, str(self._path))

    async def check(self) -> None:
        """Raises ``ShoalError`` if a page is damaged."""
        assert self._connection is not None
        with explained(str(self._path)):
            ((found,), *_) = self._connection.execute("PRAGMA integrity_check(1)").fetchall()
        if found != "ok":
            raise ShoalError(f"{self._path} is damaged: {found}")

    async def rows(self) -> AsyncIterator[list[Row]]:
        assert self._connection is not None
        with explained(str(self._path)):
            for piece in pieces(self._connection.execute(_ROWS)):
                yield piece
                await asyncio.sleep(0)  # so that an interrupt is handled

    async def close(self) -> None:
        if self._connection is not None:
            self._connection.close()


async def thaw(path: Path, shown_url: str) -> str:
    """Let the store accept writes again; return why it refused them, empty if it did not."""
    check_exists(path, shown_url)
    with explained(shown_url):
        fd = lock_if_free(path)
        if fd is not None:
            try:
                connection = connect(path)
                try:
                    reason = str(_meta(connection).get("frozen") or "")
                    set_frozen(connection, "")
                finally:
                    connection.close()
            finally:
                os.close(fd)
            return reason
        control = await control_of(path, shown_url)
        try:
            return await _ask(control, path, shown_url, "thaw")
        finally:
            await control.close()


def check_exists(path: Path, shown_url: str) -> None:
    if not path.is_file():
        raise ConfigError(f"store {shown_url} does not exist; give the file, or the directory of a cluster")


def _head(connection: sqlite3.Connection, shown_url: str) -> CopyHead:
    meta = _meta(connection)
    if meta.get("format") != FORMAT:
        raise ConfigError(f"store {shown_url} has format {meta.get('format')}, this version supports only {FORMAT}")
    (newest,) = connection.execute("SELECT coalesce(max(revision), 0) FROM log").fetchone()
    (objects,) = connection.execute(f"SELECT count(*) {_CURRENT}").fetchone()
    return CopyHead(
        revision=max(newest, int(str(meta["revision"]))),
        incarnation=str(meta["incarnation"]),
        resources=[resource for (resource,) in connection.execute(_RESOURCES)],
        objects=objects,
    )


def _meta(connection: sqlite3.Connection) -> dict[str, object]:
    return dict(connection.execute("SELECT name, value FROM meta").fetchall())


def _open_immutable(path: Path) -> sqlite3.Connection:
    """Open a file that does not change, without locks and without its write-ahead log."""
    return sqlite3.connect(f"file:{quote(str(path))}?mode=ro&immutable=1", uri=True, isolation_level=None)


async def control_of(path: Path, shown_url: str) -> Control:
    try:
        return await Control.connect(control_path(path))
    except OSError as error:
        raise ShoalError(
            f"store {shown_url} is in use by process {holder(path)}, which does not respond ({error}); stop it first"
        ) from error


async def _ask(control: Control, path: Path, shown_url: str, what: str, reason: str = "") -> str:
    try:
        return await control.ask(what, reason)
    except ShoalError as error:
        raise ShoalError(f"store {shown_url}: process {holder(path)} refused: {error}") from error
    except (OSError, TimeoutError) as error:
        raise ShoalError(f"the server on {shown_url} stopped during the copy; try again") from error


def _sync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


@contextmanager
def explained(shown_url: str) -> Iterator[None]:
    """Turn errors of SQLite and the file system into ShoalErrors that name the store."""
    try:
        yield
    except sqlite3.Error as error:
        raise ShoalError(
            f"store {shown_url}: {error}; check that it is a store and that the disk has no errors"
        ) from error
    except OSError as error:
        raise ShoalError(
            f"store {shown_url}: {error.strerror or error}; check the folder's permissions and free space"
        ) from error
