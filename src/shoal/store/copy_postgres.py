"""PostgreSQL as the source and the target of a copy.

A source is frozen in its counter row. Every batch of every server locks this row first, so none commits after that, and
the copy reads one snapshot. A target is filled, read back and compared in one transaction: until it is committed, the
database is unchanged, however the copy ends.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager

import asyncpg

from shoal.base.ids import Ids
from shoal.errors import ConfigError, ShoalError
from shoal.store.copy_model import BEING_COPIED, CHUNK_BYTES, CHUNK_ROWS, UNFINISHED, CopyHead, ExistingStore, Row
from shoal.store.model import Key
from shoal.store.postgres.follow import new_mark
from shoal.store.postgres.link import AWAY
from shoal.store.postgres.rows import bare, filled
from shoal.store.postgres.schema import FORMAT, LOCK_SETUP, install
from shoal.store.postgres.sealing import rotate

FenceOf = Callable[[Key, bytes], str]

LOCK_COPY = LOCK_SETUP + 16  # one copy of a database at a time

_CONNECT_S = 10.0
_SETTINGS = {"application_name": "shoal store copy", "jit": "off", "lock_timeout": "10s", "statement_timeout": "0"}
_PREFETCH = 200

_EXISTS = "SELECT to_regclass('shoal.counter') IS NOT NULL"
_COUNTER = "SELECT revision, incarnation, frozen, format FROM shoal.counter"
_OBJECTS = "SELECT count(*) FROM shoal.current"
_RESOURCES = """
SELECT resource FROM shoal.floor UNION SELECT resource FROM shoal.log UNION SELECT resource FROM shoal.current
"""
# Roughly in log order: the log is scanned, and joined to the small table.
_ROWS = """
SELECT l.revision, l.resource, l.namespace, l.name, l.created, l.hole, l.value
FROM shoal.log l JOIN shoal.current c USING (resource, namespace, name) WHERE l.revision = c.revision
"""
_LOG = ("revision", "mark", "prior", "created", "hole", "resource", "namespace", "name", "value")
_CURRENT = ("resource", "namespace", "name", "revision", "created", "fence")


class PostgresSource:
    def __init__(self, url: str, shown_url: str) -> None:
        self._url = url
        self._shown = shown_url
        self._connection: asyncpg.Connection | None = None
        self._before: str | None = None  # why it refused writes before the copy
        self._frozen = False

    async def freeze(self, reason: str) -> CopyHead:
        with _explained(self._shown):
            connection = self._connection = await _connect(self._url)
            await _check_store(connection, self._shown)
            await _lock(connection, self._shown)
            before = await connection.fetchval("SELECT frozen FROM shoal.counter")
            # We hold the lock, so an earlier copy that did not finish is dead.
            self._before = None if before is None or before.startswith(BEING_COPIED) else before
            self._frozen = True
            await connection.execute("UPDATE shoal.counter SET frozen = $1", reason)
            return await _head(connection)

    async def rows(self) -> AsyncIterator[list[Row]]:
        assert self._connection is not None
        with _explained(self._shown):
            async with self._connection.transaction(isolation="repeatable_read", readonly=True):
                async for piece in _read(self._connection):
                    yield piece

    async def keep(self, reason: str) -> None:
        assert self._connection is not None
        with _explained(self._shown):
            await self._connection.execute("UPDATE shoal.counter SET frozen = $1", reason)
        self._frozen = False

    async def close(self) -> None:
        connection = self._connection
        if connection is None:
            return
        try:
            if self._frozen:
                if connection.is_closed():
                    connection = await _connect(self._url)
                await connection.execute("UPDATE shoal.counter SET frozen = $1", self._before)
        except (*AWAY, asyncpg.PostgresError) as error:
            raise ShoalError(
                f"store {self._shown} still refuses writes: {_reason_of(error)}; run `shoal store thaw {self._shown}`"
            ) from error
        finally:
            await _close(connection)


class PostgresSnapshot:
    """Reads a store as it is at one moment, while its servers go on writing."""

    def __init__(self, url: str, shown_url: str) -> None:
        self._url = url
        self._shown = shown_url
        self._connection: asyncpg.Connection | None = None

    async def open(self) -> CopyHead:
        with _explained(self._shown):
            connection = self._connection = await _connect(self._url)
            await _check_store(connection, self._shown)
            await connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            return await _head(connection)

    async def rows(self) -> AsyncIterator[list[Row]]:
        assert self._connection is not None
        with _explained(self._shown):
            async for piece in _read(self._connection):
                yield piece

    async def close(self) -> None:
        if self._connection is not None:
            await _close(self._connection)


class PostgresTarget:
    def __init__(self, url: str, shown_url: str, fence_of: FenceOf, ids: Ids) -> None:
        self._url = url
        self._shown = shown_url
        self._fence_of = fence_of
        self._ids = ids
        self._mark = new_mark(ids)
        self._connection: asyncpg.Connection | None = None
        self._unfinished = ""

    async def open(self, *, force: bool) -> ExistingStore:
        with _explained(self._shown):
            connection = self._connection = await _connect(self._url)
            await install(connection, self._ids.new_uid())
            await _lock(connection, self._shown)
            revision, incarnation, frozen, _ = await connection.fetchrow(_COUNTER)
            if revision and not force and not (frozen or "").startswith(UNFINISHED):
                raise ConfigError(
                    f"store {self._shown} is not empty; choose another target, or replace it with --force"
                )
        return ExistingStore(str(incarnation), revision)

    async def begin(self, unfinished: str) -> None:
        assert self._connection is not None
        self._unfinished = unfinished
        with _explained(self._shown):
            await self._connection.execute("BEGIN")
            await self._connection.fetch(
                "SELECT 1 FROM shoal.counter FOR UPDATE"
            )  # orders this against the servers' batches
            await self._connection.execute("TRUNCATE shoal.log, shoal.current, shoal.floor")

    async def write(self, rows: Sequence[Row]) -> None:
        assert self._connection is not None
        mark, fence_of = self._mark, self._fence_of
        log = [
            (revision, mark, mark, created, hole, resource, namespace, name, bare(value, hole, revision))
            for revision, resource, namespace, name, created, hole, value in rows
        ]
        current = [
            (resource, namespace, name, revision, created,
             fence_of(Key(resource, namespace, name), value).encode("utf-8", "surrogatepass"))
            for revision, resource, namespace, name, created, _, value in rows
        ]  # fmt: skip
        with _explained(self._shown):
            copy = self._connection.copy_records_to_table
            await copy("log", schema_name="shoal", columns=_LOG, records=log)
            await copy("current", schema_name="shoal", columns=_CURRENT, records=current)

    async def finish(self, head: CopyHead) -> None:
        assert self._connection is not None
        with _explained(self._shown):
            await self._connection.executemany(
                "INSERT INTO shoal.floor (resource, revision) VALUES ($1, $2)",
                [(resource, head.revision) for resource in head.resources],
            )
            await self._connection.execute(
                "UPDATE shoal.counter SET revision = $1, mark = $2, incarnation = $3, frozen = $4",
                head.revision, self._mark, head.incarnation, self._unfinished,
            )  # fmt: skip
            await self._connection.execute("ANALYZE shoal.log, shoal.current")

    async def rows(self) -> AsyncIterator[list[Row]]:
        assert self._connection is not None
        with _explained(self._shown):
            async for piece in _read(self._connection):
                yield piece

    async def hand_over(self) -> None:
        assert self._connection is not None
        with _explained(self._shown):
            await self._connection.execute("COMMIT")

    async def activate(self) -> None:
        assert self._connection is not None
        with _explained(self._shown):
            await self._connection.execute("UPDATE shoal.counter SET frozen = NULL")

    async def close(self) -> None:
        """Closing the connection rolls back an open transaction."""
        if self._connection is not None:
            await _close(self._connection)


async def thaw(url: str, shown_url: str) -> str:
    """Let the store accept writes again; return why it refused them, empty if it did not."""
    with _explained(shown_url):
        connection = await _connect(url)
        try:
            await _check_store(connection, shown_url)
            await _lock(connection, shown_url)
            reason = await connection.fetchval("SELECT frozen FROM shoal.counter")
            await connection.execute("UPDATE shoal.counter SET frozen = NULL")
        finally:
            await _close(connection)
    return reason or ""


async def rotate_event_key(url: str, shown_url: str) -> None:
    """Replace the key that seals what servers tell each other through Redis."""
    with _explained(shown_url):
        connection = await _connect(url)
        try:
            await _check_store(connection, shown_url)
            await install(connection, Ids().new_uid())  # a store of an earlier version has no such table
            await rotate(connection)
        finally:
            await _close(connection)


async def _connect(url: str) -> asyncpg.Connection:
    return await asyncpg.connect(url, timeout=_CONNECT_S, server_settings=_SETTINGS)


async def _close(connection: asyncpg.Connection) -> None:
    try:
        await connection.close(timeout=_CONNECT_S)
    except AWAY:
        connection.terminate()


async def _head(connection: asyncpg.Connection) -> CopyHead:
    revision, incarnation, *_ = await connection.fetchrow(_COUNTER)
    resources = [resource for (resource,) in await connection.fetch(_RESOURCES)]
    objects = await connection.fetchval(_OBJECTS)
    return CopyHead(revision=revision, incarnation=incarnation, resources=resources, objects=objects)


async def _check_store(connection: asyncpg.Connection, shown_url: str) -> None:
    if not await connection.fetchval(_EXISTS):
        raise ConfigError(f"store {shown_url}: this database contains no store; choose another")
    *_, found = await connection.fetchrow(_COUNTER)
    if found != FORMAT:
        raise ConfigError(f"store {shown_url} has format {found}, this version supports only {FORMAT}")


async def _lock(connection: asyncpg.Connection, shown_url: str) -> None:
    """Hold the lock until the connection closes."""
    if not await connection.fetchval("SELECT pg_try_advisory_lock($1, 0)", LOCK_COPY):
        raise ShoalError(f"store {shown_url} is being copied by another process; wait until it ends")


async def _read(connection: asyncpg.Connection) -> AsyncIterator[list[Row]]:
    """The current objects with complete values, in chunks."""
    piece: list[Row] = []
    size = 0
    async for revision, resource, namespace, name, created, hole, value in connection.cursor(_ROWS, prefetch=_PREFETCH):
        whole = filled(value, hole, revision)
        piece.append((revision, resource, namespace, name, created, hole, whole))
        size += len(whole)
        if len(piece) >= CHUNK_ROWS or size >= CHUNK_BYTES:
            yield piece
            piece, size = [], 0
    if piece:
        yield piece


@contextmanager
def _explained(shown_url: str) -> Iterator[None]:
    """Turn database and network errors into ShoalErrors that name the store."""
    try:
        yield
    except (*AWAY, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
        raise ShoalError(
            f"store {shown_url}: {_reason_of(error)}; check the address, the user and the server"
        ) from error


def _reason_of(error: BaseException) -> str:
    return str(error) or type(error).__name__
