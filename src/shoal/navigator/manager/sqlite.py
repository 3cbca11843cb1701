"""The manager's rows in SQLite: one writing thread, a few readers, one transaction per group of writes.

The last commits may be missing after a power cut, each as a whole: rows are copies of the clusters' objects, and
digests find the difference. Tokens have no other copy and are synced to the disk. A statement gets all data as one blob
and the other values as one JSON array, so that it takes the interpreter lock once and not once per row, which would
wait for a busy event loop each time. Rows are read in the same way.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import orjson

from shoal.base.files import close_to_others, make_private_dirs
from shoal.errors import BadRequest, ConfigError, ServiceUnavailable
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

# Errors of the written data, not of the database.
_REFUSED = (sqlite3.DataError, sqlite3.IntegrityError, sqlite3.InterfaceError, sqlite3.ProgrammingError)
_READERS = 3
_BUSY_MS = 10_000
_EXPIRED_ROWS = 2000  # at a time, so that writers wait no longer than that

_SAVE_HISTORY = """
INSERT INTO nav_history (cluster, kind, key, fingerprint, since_ms, until_ms, removed, data)
SELECT r.cluster, r.kind, r.key, r.fingerprint, r.changed_ms, ?3, ?4, r.data
FROM json_each(?1) AS j CROSS JOIN nav_rows AS r
WHERE r.cluster = ?2 AND r.kind = j.value ->> 0 AND r.key = j.value ->> 1
    AND r.fingerprint IS NOT (j.value ->> 2)
"""
_PUT = """
INSERT INTO nav_rows (cluster, kind, key, fingerprint, changed_ms, data)
SELECT ?3, value ->> 0, value ->> 1, value ->> 2, ?4, coalesce(substr(?2, value ->> 3, value ->> 4), x'')
FROM json_each(?1) WHERE true
ON CONFLICT (cluster, kind, key) DO UPDATE SET
    fingerprint = excluded.fingerprint, changed_ms = excluded.changed_ms, data = excluded.data
"""
_REMOVE = """
DELETE FROM nav_rows WHERE id IN (
    SELECT r.id FROM json_each(?1) AS j CROSS JOIN nav_rows AS r
    WHERE r.cluster = ?2 AND r.kind = j.value ->> 0 AND r.key = j.value ->> 1)
"""
_END_OLDER = """
UPDATE nav_sessions SET ended_ms = max(connected_ms + 1, coalesce(
    (SELECT heard_ms FROM nav_clusters WHERE name = nav_sessions.cluster), 0))
WHERE ended_ms = 0 AND (?1 = '' OR cluster = ?1 AND epoch < ?2)
"""
_SAVE_CLUSTER = f"""
INSERT INTO nav_clusters ({CLUSTER_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (name) DO UPDATE SET edge = excluded.edge, epoch = excluded.epoch, software = excluded.software,
    metadata = excluded.metadata, interval_s = excluded.interval_s, heard_ms = excluded.heard_ms,
    statuses = excluded.statuses
"""
# Of an inner query with the column ``data``: everything else, and all data, as one row.
_GATHER = """
SELECT json_group_array(json_array({columns}, length(data))), group_concat(CAST(data AS TEXT), '') FROM ({inner})
"""
_LOAD = """
SELECT cluster, kind, key, fingerprint, changed_ms, id, data FROM nav_rows WHERE id > :last ORDER BY id LIMIT :limit
"""
_PAST = """
SELECT cluster, kind, key, fingerprint, since_ms, until_ms, id, data FROM nav_history
WHERE (until_ms, id) > (:until, :id) AND since_ms <= :at {where} ORDER BY until_ms, id LIMIT :limit
"""
_FIND = """
SELECT j.key AS place, r.data AS data FROM json_each(:wanted) AS j LEFT JOIN nav_rows AS r
    ON r.cluster = j.value ->> 0 AND r.kind = j.value ->> 1 AND r.key = j.value ->> 2
"""
_FIND_VERSION = """
SELECT j.key AS place, coalesce(
    (SELECT data FROM nav_rows AS r WHERE r.cluster = j.value ->> 0 AND r.kind = j.value ->> 1
        AND r.key = j.value ->> 2 AND r.changed_ms = j.value ->> 3),
    (SELECT data FROM nav_history AS h WHERE h.cluster = j.value ->> 0 AND h.kind = j.value ->> 1
        AND h.key = j.value ->> 2 AND h.since_ms = j.value ->> 3 ORDER BY h.until_ms DESC LIMIT 1)) AS data
FROM json_each(:wanted) AS j
"""
_FIND_REPLACED = """
SELECT j.key AS place, (SELECT data FROM nav_history AS h WHERE h.cluster = j.value ->> 0 AND h.kind = j.value ->> 1
    AND h.key = j.value ->> 2 AND h.until_ms = j.value ->> 3 AND h.since_ms < h.until_ms AND NOT h.removed
    ORDER BY h.since_ms LIMIT 1) AS data
FROM json_each(:wanted) AS j
"""
_BETWEEN = """
SELECT cluster, kind, key, at_ms, data FROM (
    SELECT cluster, kind, key, changed_ms AS at_ms, data, 2 AS rank FROM nav_rows
        WHERE changed_ms BETWEEN :from_ms AND :to_ms {where}
    UNION ALL SELECT cluster, kind, key, since_ms, data, 0 FROM nav_history
        WHERE since_ms BETWEEN :from_ms AND :to_ms {where}
    UNION ALL SELECT cluster, kind, key, until_ms, NULL, 1 FROM nav_history
        WHERE removed AND until_ms BETWEEN :from_ms AND :to_ms {where}
) ORDER BY at_ms, cluster, kind, key, rank LIMIT :limit
"""


class SqliteRows:
    """Implements ``Rows``."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._writer: sqlite3.Connection | None = None
        self._readers: deque[sqlite3.Connection] = deque()
        self._writing = ThreadPoolExecutor(1, thread_name_prefix="navigator-sqlite-write")
        self._reading = ThreadPoolExecutor(_READERS, thread_name_prefix="navigator-sqlite-read")

    async def open(self, *, manager: bool = True) -> None:
        await self._write(_nothing, opening=manager)

    async def close(self) -> None:
        def end() -> None:
            self._reading.shutdown()
            self._writing.shutdown()
            while self._readers:
                self._readers.pop().close()
            if self._writer is not None:
                self._writer.close()

        await asyncio.to_thread(end)

    async def clusters(self) -> list[StoredCluster]:
        found = await self._select(f"SELECT {CLUSTER_COLUMNS} FROM nav_clusters ORDER BY name")
        return [cluster_of(values) for values in found]

    async def load(self) -> AsyncIterator[list[StoredRow]]:
        columns, last = "cluster, kind, key, fingerprint, changed_ms, id", 0
        while found := await self._gather(columns, _LOAD, last=last, limit=PIECE_ROWS):
            last = found[-1][5]
            yield [_row(values) for values in found]

    async def commit(self, writes: Sequence[StoredWrite]) -> None:
        def work(connection: sqlite3.Connection) -> None:
            for write in writes:
                _apply(connection, write)

        await self._write(work)

    async def objects(self, wanted: Sequence[RowKey]) -> list[bytes | None]:
        return await self._found(_FIND, [tuple(key) for key in wanted])

    async def versions(self, wanted: Sequence[tuple[RowKey, int]]) -> list[bytes | None]:
        return await self._found(_FIND_VERSION, [(*key, since_ms) for key, since_ms in wanted])

    async def replaced(self, wanted: Sequence[tuple[RowKey, int]]) -> list[bytes | None]:
        return await self._found(_FIND_REPLACED, [(*key, until_ms) for key, until_ms in wanted])

    async def past(self, at_ms: int, cluster: str = "") -> AsyncIterator[list[StoredRow]]:
        columns = "cluster, kind, key, fingerprint, since_ms, until_ms, id"
        inner = _PAST.format(where="AND cluster = :cluster" if cluster else "")
        until, number = at_ms, 1 << 62  # of the last row so far
        while found := await self._gather(
            columns, inner, until=until, id=number, at=at_ms, cluster=cluster, limit=PIECE_ROWS
        ):
            until, number = found[-1][5:7]
            yield [_row(values) for values in found]

    async def sessions(self, at_ms: int) -> list[StoredSession]:
        found = await self._select(
            "SELECT cluster, edge, epoch, max(connected_ms), ended_ms FROM nav_sessions WHERE connected_ms <= ? "
            "GROUP BY cluster ORDER BY cluster",
            (at_ms,),
        )
        return [StoredSession(*values) for values in found]

    async def first_session_ms(self) -> int:
        ((first_ms,),) = await self._select("SELECT coalesce(min(connected_ms), 0) FROM nav_sessions")
        return int(first_ms)

    async def between(
        self, from_ms: int, to_ms: int, *, cluster: str = "", kind: str = "", key: str = "", limit: int = 1000
    ) -> list[Moment]:
        named = {"cluster": cluster, "kind": kind, "key": key}
        where = "".join(f" AND {name} = :{name}" for name, value in named.items() if value)
        asked = {"from_ms": from_ms, "to_ms": to_ms, "limit": limit, **named}
        found = await self._select(_BETWEEN.format(where=where), asked)
        return [
            Moment(cluster=cluster, kind=kind, key=key, at_s=at_ms / 1000, data=data)
            for cluster, kind, key, at_ms, data in found
        ]

    async def expire(self, before_ms: int, *, transient: bool = False) -> int:
        def work(connection: sqlite3.Connection) -> int:
            chosen = f"until_ms < ? AND {schema.IS_TRANSIENT}" if transient else "until_ms < ?"
            ended = connection.execute(
                f"DELETE FROM nav_history WHERE id IN (SELECT id FROM nav_history WHERE {chosen} LIMIT ?)",
                (before_ms, _EXPIRED_ROWS),
            ).rowcount
            if transient:
                return ended
            ended += connection.execute(
                "DELETE FROM nav_sessions WHERE ended_ms > 0 AND ended_ms < ?", (before_ms,)
            ).rowcount
            return ended

        return await self._write(work)

    async def prepare(self, now_ms: int) -> None:
        """Nothing has to be made."""

    async def tokens(self) -> list[StoredToken]:
        return [
            token_of(values) for values in await self._select(f"SELECT {TOKEN_COLUMNS} FROM nav_tokens ORDER BY id")
        ]

    async def save_token(self, token: StoredToken) -> None:
        def work(connection: sqlite3.Connection) -> None:
            connection.execute(
                f"INSERT OR REPLACE INTO nav_tokens ({TOKEN_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                token_values(token),
            )

        await self._write(work, durable=True)

    async def options(self) -> list[StoredOption]:
        found = await self._select("SELECT cluster, name, value FROM nav_options ORDER BY cluster, name")
        return [StoredOption(*values) for values in found]

    async def replace_options(self, cluster: str, options: Mapping[str, str]) -> None:
        def work(connection: sqlite3.Connection) -> None:
            connection.execute("DELETE FROM nav_options WHERE cluster = ?", (cluster,))
            values = [(cluster, name, value) for name, value in options.items()]
            connection.executemany("INSERT INTO nav_options (cluster, name, value) VALUES (?, ?, ?)", values)

        await self._write(work, durable=True)

    # threads

    async def _found(self, inner: str, wanted: Sequence[Sequence[Any]]) -> list[bytes | None]:
        found = {place: data for place, _, data in await self._gather("place", inner, wanted=_json(wanted))}
        return [found.get(place) for place in range(len(wanted))]

    async def _gather(self, columns: str, inner: str, **parameters: Any) -> list[tuple[Any, ...]]:
        """The rows of ``inner``: its columns, the length of its data, the data or None."""
        statement = _GATHER.format(columns=columns, inner=inner)
        ((rows, together),) = await self._select(statement, parameters, text=bytes)
        found, offset = [], 0
        for values in orjson.loads(rows):
            size = values[-1]
            found.append((*values, None if size is None else together[offset : offset + size]))
            offset += size or 0
        return found

    async def _select(self, statement: str, parameters: Any = (), *, text: type = str) -> list[Any]:
        def work() -> list[Any]:
            try:
                connection = self._readers.pop()
            except IndexError:
                connection = _connect(self._path, "query_only = ON")
            try:
                connection.text_factory = text
                return connection.execute(statement, parameters).fetchall()
            finally:
                self._readers.append(connection)

        return await self._in(self._reading, work)

    async def _write(
        self, work: Callable[[sqlite3.Connection], T], *, durable: bool = False, opening: bool = False
    ) -> T:
        def transaction() -> T:
            if self._writer is None:
                self._writer = _open(self._path)
            connection = self._writer
            if durable:
                connection.execute("PRAGMA synchronous = FULL")
            connection.execute("BEGIN IMMEDIATE")
            try:
                if opening:
                    connection.execute(_END_OLDER, ("", 0))
                result = work(connection)
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise
            finally:
                if durable:
                    connection.execute("PRAGMA synchronous = NORMAL")
            return result

        return await self._in(self._writing, transaction)

    async def _in(self, threads: ThreadPoolExecutor, work: Callable[[], T]) -> T:
        try:
            return await asyncio.get_running_loop().run_in_executor(threads, work)
        except _REFUSED as error:
            raise BadRequest(f"the navigator's database {self._path.name}: {error}") from error
        except sqlite3.Error as error:
            raise ServiceUnavailable(f"the navigator's database {self._path.name}: {error}") from error


def _nothing(_connection: sqlite3.Connection) -> None:
    return


def _apply(connection: sqlite3.Connection, write: StoredWrite) -> None:
    match write:
        case RowsChanged(cluster, at_ms, puts, removals):
            _change(connection, cluster, at_ms, puts, removals)
        case ClusterClaimed(cluster):
            connection.execute(_END_OLDER, (cluster.name, cluster.epoch))
            connection.execute(_SAVE_CLUSTER, cluster_values(cluster))
            connection.execute(
                "INSERT OR IGNORE INTO nav_sessions (cluster, epoch, edge, connected_ms, ended_ms) "
                "VALUES (?, ?, ?, ?, 0)",
                (cluster.name, cluster.epoch, cluster.edge, cluster.heard_ms),
            )
        case ClusterHeard(cluster, heard_ms, statuses):
            connection.execute(
                "UPDATE nav_clusters SET heard_ms = ?, statuses = ? WHERE name = ?",
                (heard_ms, statuses_text(statuses), cluster),
            )
        case SessionEnded(cluster, epoch, at_ms):
            connection.execute(
                "UPDATE nav_sessions SET ended_ms = max(?, connected_ms + 1) "
                "WHERE cluster = ? AND epoch = ? AND ended_ms = 0",
                (at_ms, cluster, epoch),
            )
        case ClusterRemoved(cluster, at_ms):
            connection.execute(
                "INSERT INTO nav_history (cluster, kind, key, fingerprint, since_ms, until_ms, removed, data) SELECT "
                "cluster, kind, key, fingerprint, changed_ms, ?, 1, data FROM nav_rows WHERE cluster = ?",
                (at_ms, cluster),
            )
            connection.execute("DELETE FROM nav_rows WHERE cluster = ?", (cluster,))
            connection.execute("DELETE FROM nav_clusters WHERE name = ?", (cluster,))


def _change(connection: sqlite3.Connection, cluster: str, at_ms: int, puts: Any, removals: Any) -> None:
    if removals:
        gone = _json(removals)
        connection.execute(_SAVE_HISTORY, (gone, cluster, at_ms, 1))
        connection.execute(_REMOVE, (gone, cluster))
    if puts:
        rows, offset = [], 1
        for put in puts:
            rows.append((put.kind, put.key, to_signed(put.fingerprint), offset, len(put.data)))
            offset += len(put.data)
        placed = _json(rows)
        connection.execute(_SAVE_HISTORY, (placed, cluster, at_ms, 0))
        connection.execute(_PUT, (placed, b"".join(put.data for put in puts), cluster, at_ms))


def _row(values: Sequence[Any]) -> StoredRow:
    return StoredRow(values[0], values[1], values[2], from_signed(values[3]), values[4], values[-1])


def _json(value: Any) -> str:
    return orjson.dumps(value).decode()


def _open(path: Path) -> sqlite3.Connection:
    make_private_dirs(path.parent)
    close_to_others(path)
    connection = _connect(path, "journal_mode = WAL", "synchronous = NORMAL")
    try:
        _migrate(connection, path)
    except BaseException:
        connection.close()
        raise
    return connection


def _connect(path: Path, *pragmas: str) -> sqlite3.Connection:
    if sqlite3.sqlite_version_info < (3, 38):
        raise ConfigError(f"SQLite {sqlite3.sqlite_version} is too old for {path}; 3.38 or newer is needed")
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    try:
        for pragma in (f"busy_timeout = {_BUSY_MS}", "temp_store = MEMORY", *pragmas):
            connection.execute(f"PRAGMA {pragma}").fetchall()
    except BaseException:
        connection.close()
        raise
    return connection


def _migrate(connection: sqlite3.Connection, path: Path) -> None:
    connection.execute("BEGIN IMMEDIATE")
    try:
        connection.execute(schema.VERSION_TABLE)
        (version,) = connection.execute("SELECT coalesce(max(version), 0) FROM nav_schema").fetchone()
        if version > len(schema.SQLITE):
            raise ConfigError(f"database {path} has navigator tables of version {version}: use a newer Shoal")
        for number, statements in schema.missing_steps(schema.SQLITE, version):
            for statement in statements:
                connection.execute(statement)
            connection.execute("INSERT INTO nav_schema VALUES (?)", (number,))
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
