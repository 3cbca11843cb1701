"""A connection to SQLite that uses its thread once per statement, or not at all.

The driver's own cursor calls the thread of its connection four times for one statement: to create the cursor, execute,
fetch and close. Each call waits twice for a scheduler that may be busy. This cursor does all of it in one call. In a
transaction of short statements (``direct``) only what may block runs in the thread: begin, commit and rollback.
"""

from __future__ import annotations

import sqlite3
from collections import deque
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Self

import aiosqlite

_FETCHED = 2000  # rows at a time
_SHORT = 32 << 10  # characters of parameters: a statement about many rows takes its time


class SqliteCursor:
    """The part of a cursor that SQLAlchemy uses. The first rows of a statement are fetched with it, which are all of
    them unless a whole table is read."""

    def __init__(self, connection: SqliteConnection) -> None:
        self._connection = connection
        self._rows: deque[Any] = deque()
        self._open: sqlite3.Cursor | None = None  # has more rows
        self.description: Any = None
        self.rowcount = -1
        self.lastrowid: int | None = None
        self.arraysize = 1

    async def __aenter__(self) -> Self:
        return self

    async def execute(self, sql: str, parameters: Any = ()) -> Self:
        if self._connection.takes(sql, parameters):
            self._do(sqlite3.Cursor.execute, sql, parameters)
        else:
            await self._connection.in_thread(self._do, sqlite3.Cursor.execute, sql, parameters)
        return self

    async def executemany(self, sql: str, parameters: Iterable[Any]) -> Self:
        await self._connection.in_thread(self._do, sqlite3.Cursor.executemany, sql, parameters)
        return self

    async def fetchall(self) -> list[Any]:
        while self._open is not None:
            await self._connection.in_thread(self._fetch, self._open)
        rows = list(self._rows)
        self._rows.clear()
        return rows

    async def fetchmany(self, size: int | None = None) -> list[Any]:
        size = size or self.arraysize
        while len(self._rows) < size and self._open is not None:
            await self._connection.in_thread(self._fetch, self._open)
        return [self._rows.popleft() for _ in range(min(size, len(self._rows)))]

    async def fetchone(self) -> Any:
        rows = await self.fetchmany(1)
        return rows[0] if rows else None

    async def close(self) -> None:
        self._rows.clear()
        if self._open is not None:
            cursor, self._open = self._open, None
            await self._connection.in_thread(cursor.close)

    def _do(self, how: Any, sql: str, parameters: Any) -> None:
        cursor = self._connection.raw.cursor()
        try:
            how(cursor, sql, parameters)
            self.description = cursor.description
            self.rowcount, self.lastrowid = cursor.rowcount, cursor.lastrowid
            if cursor.description:
                self._fetch(cursor)
                self.rowcount = cursor.rowcount  # known once the rows of RETURNING were fetched
        finally:
            if self._open is None:
                cursor.close()

    def _fetch(self, cursor: sqlite3.Cursor) -> None:
        rows = cursor.fetchmany(_FETCHED)
        self._rows += rows
        self._open = cursor if len(rows) == _FETCHED else None
        if self._open is None:
            cursor.close()


class SqliteConnection(aiosqlite.Connection):
    """As the driver's, with the cursor above. ``direct``: its current user promises short statements."""

    direct = False
    _asked = 0  # of the thread; counted by the loop
    _done = 0  # counted by the thread

    @property
    def raw(self) -> sqlite3.Connection:
        return self._conn

    def takes(self, sql: str, parameters: Any) -> bool:
        """Whether to execute a statement here and now, in the event loop."""
        if not self.direct or self._asked != self._done or sql.startswith("BEGIN"):
            return False
        values = parameters.values() if isinstance(parameters, dict) else parameters
        return sum(len(value) for value in values if isinstance(value, str | bytes)) <= _SHORT

    async def in_thread(self, function: Any, *arguments: Any) -> Any:
        return await self._execute(function, *arguments)

    async def _execute(self, fn: Any, *args: Any, **kwargs: Any) -> Any:
        def job() -> Any:
            try:
                return fn(*args, **kwargs)
            finally:
                self._done += 1

        self._asked += 1
        return await super()._execute(job)  # type: ignore[no-untyped-call]

    def cursor(self) -> SqliteCursor:  # type: ignore[override]
        return SqliteCursor(self)

    async def rollback(self) -> None:
        if self.raw.in_transaction:  # connections that were committed are rolled back again, to be sure
            await super().rollback()


async def connect(path: Path, pragmas: Sequence[str]) -> SqliteConnection:
    """Without transactions of the driver's own: they would begin late and without taking the lock."""

    def make() -> sqlite3.Connection:
        # used by the thread and the loop, never at the same time
        made = sqlite3.connect(path, isolation_level=None, cached_statements=256, check_same_thread=False)
        try:
            for pragma in pragmas:
                made.execute(f"PRAGMA {pragma}")
        except BaseException:
            made.close()
            raise
        return made

    connection = SqliteConnection(make, iter_chunk_size=64)
    connection._thread.daemon = True  # a process ends even if it was not closed
    return await connection  # type: ignore[return-value]
