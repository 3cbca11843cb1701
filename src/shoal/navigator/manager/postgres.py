"""The manager's rows in PostgreSQL: one writing connection, which holds the lock of the only manager, and some readers.

The history is partitioned by the day in which rows ended, so that retention drops whole tables. Every write is
idempotent, since a connection that breaks during a commit does not show whether it happened. Commits are durable: if
the database crashes while the manager runs on, rows must not be missing that the manager has in memory.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar

import asyncpg

from shoal.base.logs import get_logger
from shoal.errors import ApiError, BadRequest, ConfigError, ServiceUnavailable
from shoal.navigator.manager import schema
from shoal.navigator.manager.encoding import (
    CLUSTER_COLUMNS,
    TOKEN_COLUMNS,
    cluster_of,
    cluster_values,
    statuses_text,
    token_of,
    token_values,
)
from shoal.navigator.manager.rows import (
    PIECE_ROWS,
    ClusterClaimed,
    ClusterHeard,
    ClusterRemoved,
    RowKey,
    RowsChanged,
    SessionEnded,
    StoredCluster,
    StoredOption,
    StoredRow,
    StoredSession,
    StoredToken,
    StoredWrite,
    from_signed,
    to_signed,
)
from shoal.navigator.view import Moment

T = TypeVar("T")

_AWAY = (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError)
# Errors of the written data, not of the database.
_REFUSED = (asyncpg.DataError, asyncpg.IntegrityConstraintViolationError, asyncpg.ProgramLimitExceededError)
_LOCK = 0x5A0A10A71  # held by the manager
_MIGRATING = _LOCK + 1  # held during a migration
_READERS = 4
_CONNECT_S = 5.0
_STATEMENT_MS = "30000"
_DAY_MS = 86_400_000
_DAYS_AHEAD = 2

_SAVE_HISTORY = """
INSERT INTO nav_history (cluster, kind, key, fingerprint, since_ms, until_ms, removed, data)
SELECT r.cluster, r.kind, r.key, r.fingerprint, r.changed_ms, $5, $6, r.data
FROM unnest($2::text[], $3::text[], $4::bigint[]) AS j(kind, key, fingerprint)
JOIN nav_rows AS r ON r.cluster = $1 AND r.kind = j.kind AND r.key = j.key
WHERE r.fingerprint IS DISTINCT FROM j.fingerprint
"""
_PUT = """
INSERT INTO nav_rows (cluster, kind, key, fingerprint, changed_ms, data)
SELECT $1, kind, key, fingerprint, $6, data
FROM unnest($2::text[], $3::text[], $4::bigint[], $5::bytea[]) AS j(kind, key, fingerprint, data)
ON CONFLICT (cluster, kind, key) DO UPDATE SET
    fingerprint = excluded.fingerprint, changed_ms = excluded.changed_ms, data = excluded.data
"""
_REMOVE = """
DELETE FROM nav_rows AS r USING unnest($2::text[], $3::text[]) AS j(kind, key)
WHERE r.cluster = $1 AND r.kind = j.kind AND r.key = j.key
"""
_END_OLDER = """
UPDATE nav_sessions SET ended_ms = greatest(connected_ms + 1, coalesce(
    (SELECT heard_ms FROM nav_clusters WHERE name = nav_sessions.cluster), 0))
WHERE ended_ms = 0 AND ($1 = '' OR cluster = $1 AND epoch < $2)
"""
_SAVE_CLUSTER = f"""
INSERT INTO nav_clusters ({CLUSTER_COLUMNS}) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
ON CONFLICT (name) DO UPDATE SET edge = excluded.edge, epoch = excluded.epoch, software = excluded.software,
    metadata = excluded.metadata, interval_s = excluded.interval_s, heard_ms = excluded.heard_ms,
    statuses = excluded.statuses
"""
_FIND = """
SELECT r.data FROM unnest($1::text[], $2::text[], $3::text[]) WITH ORDINALITY AS j(cluster, kind, key, place)
LEFT JOIN nav_rows AS r ON r.cluster = j.cluster AND r.kind = j.kind AND r.key = j.key ORDER BY j.place
"""
_FIND_VERSION = """
SELECT coalesce(
    (SELECT data FROM nav_rows AS r WHERE r.cluster = j.cluster AND r.kind = j.kind AND r.key = j.key
        AND r.changed_ms = j.since_ms),
    (SELECT data FROM nav_history AS h WHERE h.cluster = j.cluster AND h.kind = j.kind AND h.key = j.key
        AND h.since_ms = j.since_ms ORDER BY h.until_ms DESC LIMIT 1)) AS data
FROM unnest($1::text[], $2::text[], $3::text[], $4::bigint[]) WITH ORDINALITY
    AS j(cluster, kind, key, since_ms, place) ORDER BY j.place
"""
_FIND_REPLACED = """
SELECT (SELECT data FROM nav_history AS h WHERE h.cluster = j.cluster AND h.kind = j.kind AND h.key = j.key
    AND h.until_ms = j.until_ms AND h.since_ms < h.until_ms AND NOT h.removed ORDER BY h.since_ms LIMIT 1) AS data
FROM unnest($1::text[], $2::text[], $3::text[], $4::bigint[]) WITH ORDINALITY
    AS j(cluster, kind, key, until_ms, place) ORDER BY j.place
"""
_BETWEEN = """
SELECT cluster, kind, key, at_ms, data FROM (
    SELECT cluster, kind, key, changed_ms AS at_ms, data, 2 AS rank FROM nav_rows
        WHERE changed_ms BETWEEN $1 AND $2 {where}
    UNION ALL SELECT cluster, kind, key, since_ms, data, 0 FROM nav_history
        WHERE since_ms BETWEEN $1 AND $2 {where}
    UNION ALL SELECT cluster, kind, key, until_ms, NULL, 1 FROM nav_history
        WHERE removed AND until_ms BETWEEN $1 AND $2 {where}
) AS found ORDER BY at_ms, cluster, kind, key, rank LIMIT $3
"""

_log = get_logger("navigator.postgres")


class PostgresRows:
    """Implements ``Rows``."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._manager = True
        self._writer: asyncpg.Connection | None = None
        self._pool: asyncpg.Pool | None = None
        self._writing = asyncio.Lock()

    async def open(self, *, manager: bool = True) -> None:
        self._manager = manager
        settings = {"application_name": "shoal navigator", "jit": "off", "statement_timeout": _STATEMENT_MS}
        try:
            await self._write(self._migrate)
            if manager:
                await self._write(_end_sessions)
            self._pool = await asyncpg.create_pool(
                self._url, min_size=1, max_size=_READERS, timeout=_CONNECT_S, server_settings=settings
            )
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        pool, self._pool = self._pool, None
        if pool is not None:
            await pool.close()
        writer, self._writer = self._writer, None
        if writer is not None and not writer.is_closed():
            try:
                await writer.close(timeout=_CONNECT_S)
            except _AWAY:
                writer.terminate()

    async def clusters(self) -> list[StoredCluster]:
        return [
            cluster_of(values)
            for values in await self._select(f"SELECT {CLUSTER_COLUMNS} FROM nav_clusters ORDER BY name")
        ]

    async def load(self) -> AsyncIterator[list[StoredRow]]:
        last = ("", "", "")
        while True:
            found = await self._select(
                "SELECT cluster, kind, key, fingerprint, changed_ms, data FROM nav_rows "
                "WHERE (cluster, kind, key) > ($1, $2, $3) ORDER BY cluster, kind, key LIMIT $4",
                *last,
                PIECE_ROWS,
            )
            if not found:
                return
            last = tuple(found[-1][:3])
            yield [_row(values) for values in found]

    async def commit(self, writes: Sequence[StoredWrite]) -> None:
        async def work(connection: asyncpg.Connection) -> None:
            for write in writes:
                await _apply(connection, write)

        await self._write(work)

    async def objects(self, wanted: Sequence[RowKey]) -> list[bytes | None]:
        return [data for (data,) in await self._select(_FIND, *_columns(wanted, 3))]

    async def versions(self, wanted: Sequence[tuple[RowKey, int]]) -> list[bytes | None]:
        asked = [(*key, since_ms) for key, since_ms in wanted]
        return [data for (data,) in await self._select(_FIND_VERSION, *_columns(asked, 4))]

    async def replaced(self, wanted: Sequence[tuple[RowKey, int]]) -> list[bytes | None]:
        asked = [(*key, until_ms) for key, until_ms in wanted]
        return [data for (data,) in await self._select(_FIND_REPLACED, *_columns(asked, 4))]

    async def past(self, at_ms: int, cluster: str = "") -> AsyncIterator[list[StoredRow]]:
        last: tuple[Any, ...] = (at_ms + 1, "", "", "")
        while True:
            found = await self._select(
                "SELECT cluster, kind, key, fingerprint, since_ms, data, until_ms FROM nav_history "
                "WHERE (until_ms, cluster, kind, key) > ($1, $2, $3, $4) AND until_ms > $5 AND since_ms <= $5 "
                "AND ($6 = '' OR cluster = $6) ORDER BY until_ms, cluster, kind, key LIMIT $7",
                *last,
                at_ms,
                cluster,
                PIECE_ROWS,
            )
            if not found:
                return
            final = found[-1]
            last = (final["until_ms"], *final[:3])
            yield [_row(values) for values in found]

    async def sessions(self, at_ms: int) -> list[StoredSession]:
        found = await self._select(
            "SELECT DISTINCT ON (cluster) cluster, edge, epoch, connected_ms, ended_ms FROM nav_sessions "
            "WHERE connected_ms <= $1 ORDER BY cluster, connected_ms DESC, epoch DESC",
            at_ms,
        )
        return [StoredSession(*values) for values in found]

    async def first_session_ms(self) -> int:
        ((first_ms,),) = await self._select("SELECT coalesce(min(connected_ms), 0) FROM nav_sessions")
        return int(first_ms)

    async def between(
        self, from_ms: int, to_ms: int, *, cluster: str = "", kind: str = "", key: str = "", limit: int = 1000
    ) -> list[Moment]:
        given = [(name, value) for name, value in (("cluster", cluster), ("kind", kind), ("key", key)) if value]
        where = "".join(f" AND {name} = ${number}" for number, (name, _) in enumerate(given, 4))
        found = await self._select(_BETWEEN.format(where=where), from_ms, to_ms, limit, *(value for _, value in given))
        return [
            Moment(cluster=cluster, kind=kind, key=key, at_s=at_ms / 1000, data=data)
            for cluster, kind, key, at_ms, data in found
        ]

    async def expire(self, before_ms: int, *, transient: bool = False) -> int:
        async def work(connection: asyncpg.Connection) -> int:
            if transient:
                delete = f"DELETE FROM nav_history WHERE until_ms < $1 AND {schema.IS_TRANSIENT}"
                return _count(await connection.execute(delete, before_ms))
            ended = 0
            for name, first_ms in await _partitions(connection):
                if first_ms + _DAY_MS <= before_ms:
                    ended += await connection.fetchval(f"SELECT count(*) FROM {name}")
                    await connection.execute(f"DROP TABLE {name}")
            ended += _count(await connection.execute("DELETE FROM nav_history WHERE until_ms < $1", before_ms))
            ended += _count(
                await connection.execute("DELETE FROM nav_sessions WHERE ended_ms > 0 AND ended_ms < $1", before_ms)
            )
            return ended

        return await self._write(work)

    async def prepare(self, now_ms: int) -> None:
        """The partitions of today and the next days."""

        async def work(connection: asyncpg.Connection) -> None:
            there = {first_ms for _, first_ms in await _partitions(connection)}
            today = now_ms // _DAY_MS
            for day in range(today, today + _DAYS_AHEAD + 1):
                first_ms = day * _DAY_MS
                others = await connection.fetchval(
                    "SELECT count(*) FROM nav_history_other WHERE until_ms >= $1 AND until_ms < $2",
                    first_ms,
                    first_ms + _DAY_MS,
                )
                if first_ms not in there and not others:
                    await connection.execute(
                        f"CREATE TABLE nav_history_{first_ms} PARTITION OF nav_history "
                        f"FOR VALUES FROM ({first_ms}) TO ({first_ms + _DAY_MS})"
                    )

        await self._write(work)

    async def tokens(self) -> list[StoredToken]:
        return [
            token_of(values) for values in await self._select(f"SELECT {TOKEN_COLUMNS} FROM nav_tokens ORDER BY id")
        ]

    async def save_token(self, token: StoredToken) -> None:
        async def work(connection: asyncpg.Connection) -> None:
            await connection.execute(
                f"INSERT INTO nav_tokens ({TOKEN_COLUMNS}) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10) "
                "ON CONFLICT (id) DO UPDATE SET digest = excluded.digest, expires_ms = excluded.expires_ms, "
                "revoked_ms = excluded.revoked_ms, previous_digest = excluded.previous_digest, "
                "previous_until_ms = excluded.previous_until_ms",
                *token_values(token),
            )

        await self._write(work)

    async def options(self) -> list[StoredOption]:
        found = await self._select("SELECT cluster, name, value FROM nav_options ORDER BY cluster, name")
        return [StoredOption(*values) for values in found]

    async def replace_options(self, cluster: str, options: Mapping[str, str]) -> None:
        async def work(connection: asyncpg.Connection) -> None:
            await connection.execute("DELETE FROM nav_options WHERE cluster = $1", cluster)
            values = [(cluster, name, value) for name, value in options.items()]
            await connection.executemany("INSERT INTO nav_options (cluster, name, value) VALUES ($1, $2, $3)", values)

        await self._write(work)

    # connections

    async def _select(self, statement: str, *parameters: Any) -> list[Any]:
        if self._pool is None:
            raise ServiceUnavailable("the navigator's database is not open")
        try:
            return list(await self._pool.fetch(statement, *parameters))
        except _AWAY as error:
            raise _translated(error) from error

    async def _write(self, work: Callable[[asyncpg.Connection], Awaitable[T]]) -> T:
        async with self._writing:
            try:
                connection = await self._connected()
                async with connection.transaction():
                    return await work(connection)
            except _AWAY as error:
                raise _translated(error) from error

    async def _connected(self) -> asyncpg.Connection:
        if self._writer is not None and not self._writer.is_closed():
            return self._writer
        settings = {
            "application_name": "shoal navigator manager" if self._manager else "shoal navigator",
            "jit": "off",
            "statement_timeout": _STATEMENT_MS,
        }
        connection = await asyncpg.connect(self._url, timeout=_CONNECT_S, server_settings=settings)
        if self._manager and not await connection.fetchval("SELECT pg_try_advisory_lock($1)", _LOCK):
            connection.terminate()
            raise ConfigError("database: another navigator manager uses it; stop that one or choose another database")
        self._writer = connection
        return connection

    async def _migrate(self, connection: asyncpg.Connection) -> None:
        await connection.execute("SELECT pg_advisory_xact_lock($1)", _MIGRATING)
        await connection.execute(schema.VERSION_TABLE)
        version = await connection.fetchval("SELECT coalesce(max(version), 0) FROM nav_schema")
        if version > len(schema.POSTGRES):
            raise ConfigError(f"the database has navigator tables of version {version}: use a newer Shoal")
        for number, statements in schema.missing_steps(schema.POSTGRES, version):
            for statement in statements:
                await connection.execute(statement)
            await connection.execute("INSERT INTO nav_schema VALUES ($1)", number)
            _log.info("navigator tables migrated", version=number)


async def _end_sessions(connection: asyncpg.Connection) -> None:
    await connection.execute(_END_OLDER, "", 0)


async def _apply(connection: asyncpg.Connection, write: StoredWrite) -> None:
    match write:
        case RowsChanged(cluster, at_ms, puts, removals):
            if removals:
                kinds, keys = _columns(removals, 2)
                await connection.execute(_SAVE_HISTORY, cluster, kinds, keys, [None] * len(keys), at_ms, True)
                await connection.execute(_REMOVE, cluster, kinds, keys)
            if puts:
                rows = [(put.kind, put.key, to_signed(put.fingerprint), put.data) for put in puts]
                kinds, keys, prints, data = _columns(rows, 4)
                await connection.execute(_SAVE_HISTORY, cluster, kinds, keys, prints, at_ms, False)
                await connection.execute(_PUT, cluster, kinds, keys, prints, data, at_ms)
        case ClusterClaimed(cluster):
            await connection.execute(_END_OLDER, cluster.name, cluster.epoch)
            await connection.execute(_SAVE_CLUSTER, *cluster_values(cluster))
            await connection.execute(
                "INSERT INTO nav_sessions (cluster, epoch, edge, connected_ms, ended_ms) VALUES ($1, $2, $3, $4, 0) "
                "ON CONFLICT DO NOTHING",
                cluster.name,
                cluster.epoch,
                cluster.edge,
                cluster.heard_ms,
            )
        case ClusterHeard(cluster, heard_ms, statuses):
            await connection.execute(
                "UPDATE nav_clusters SET heard_ms = $1, statuses = $2 WHERE name = $3",
                heard_ms,
                statuses_text(statuses),
                cluster,
            )
        case SessionEnded(cluster, epoch, at_ms):
            await connection.execute(
                "UPDATE nav_sessions SET ended_ms = greatest($1, connected_ms + 1) "
                "WHERE cluster = $2 AND epoch = $3 AND ended_ms = 0",
                at_ms,
                cluster,
                epoch,
            )
        case ClusterRemoved(cluster, at_ms):
            await connection.execute(
                "INSERT INTO nav_history (cluster, kind, key, fingerprint, since_ms, until_ms, removed, data) SELECT "
                "cluster, kind, key, fingerprint, changed_ms, $1, true, data FROM nav_rows WHERE cluster = $2",
                at_ms,
                cluster,
            )
            await connection.execute("DELETE FROM nav_rows WHERE cluster = $1", cluster)
            await connection.execute("DELETE FROM nav_clusters WHERE name = $1", cluster)


async def _partitions(connection: asyncpg.Connection) -> list[tuple[str, int]]:
    """Name and first millisecond of every day's partition."""
    found = await connection.fetch(
        "SELECT c.relname FROM pg_inherits AS i JOIN pg_class AS c ON c.oid = i.inhrelid "
        "WHERE i.inhparent = 'nav_history'::regclass ORDER BY c.relname"
    )
    names = [values[0] for values in found]
    days = [(name, name.removeprefix("nav_history_")) for name in names]
    return [(name, int(first)) for name, first in days if first.isdigit()]


def _columns(rows: Sequence[Sequence[Any]], width: int) -> list[list[Any]]:
    return [[row[place] for row in rows] for place in range(width)]


def _row(values: Any) -> StoredRow:
    return StoredRow(values[0], values[1], values[2], from_signed(values[3]), values[4], values[5])


def _count(tag: str) -> int:
    """How many rows a statement touched, from its tag ("DELETE 3")."""
    return int(tag.rpartition(" ")[2])


def _translated(error: BaseException) -> ApiError:
    if isinstance(error, _REFUSED):
        return BadRequest(f"the navigator's database: {error}")
    return ServiceUnavailable(f"the navigator's database: {error or type(error).__name__}")
