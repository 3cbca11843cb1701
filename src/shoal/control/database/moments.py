"""Short reads of one moment, without a session and, with SQLite, without a thread.

The cluster service reads a few rows by their keys many times a second. A thread would answer such a statement in some
microseconds and then wait milliseconds for a busy event loop, so these statements run in the event loop itself.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import TextClause
from sqlalchemy.ext.asyncio import AsyncSession

from shoal.control.database.failures import translate
from shoal.control.database.rows import Ask, RowQuery
from shoal.control.database.sqlite import SqliteConnection

_BUSY_MS = 50  # readers do not wait for writers; only for a repair of the file


class SqliteReaders:
    """Connections for reading that belong to the event loop's thread."""

    def __init__(self, name: str, path: Path, *, keep: int = 4) -> None:
        self._name = name
        self._path = path
        self._keep = keep  # unused connections
        self._free: list[sqlite3.Connection] = []

    def close(self) -> None:
        while self._free:
            self._free.pop().close()

    @contextmanager
    def open(self) -> Iterator[Ask]:
        """Everything read in the block is of one moment."""
        try:
            connection = self._free.pop() if self._free else self._connect()
            try:
                connection.execute("BEGIN")
                yield _rows(connection)
                connection.execute("ROLLBACK")
            except BaseException:
                connection.close()
                raise
        except sqlite3.Error as error:
            raise translate(self._name, error) or error from error
        if len(self._free) < self._keep:
            self._free.append(connection)
        else:
            connection.close()

    def _connect(self) -> sqlite3.Connection:
        made = sqlite3.connect(self._path, isolation_level=None, cached_statements=64)
        try:
            made.execute(f"PRAGMA busy_timeout = {_BUSY_MS}")
            made.execute("PRAGMA query_only = ON")
        except BaseException:
            made.close()
            raise
        return made


def rows_of(session: AsyncSession) -> Ask:
    async def rows(statement: RowQuery[Any] | TextClause, parameters: Mapping[str, Any]) -> list[Any]:
        if isinstance(statement, RowQuery):
            return [*map(statement.make, await session.execute(statement.clause, parameters))]
        await session.execute(statement, parameters)
        return []

    return rows


def rows_of_sqlite(name: str, connection: SqliteConnection) -> Ask:
    """In the transaction of a connection."""

    async def rows(statement: RowQuery[Any] | TextClause, parameters: Mapping[str, Any]) -> list[Any]:
        sql = statement.sql if isinstance(statement, RowQuery) else statement.text
        try:
            if connection.takes(sql, parameters):
                found = connection.raw.execute(sql, parameters).fetchall()
            else:
                found = await connection.in_thread(_fetch, connection.raw, sql, parameters)
        except sqlite3.Error as error:
            raise translate(name, error) or error from error
        return [*map(statement.make, found)] if isinstance(statement, RowQuery) else found

    return rows


def _fetch(connection: sqlite3.Connection, sql: str, parameters: Mapping[str, Any]) -> list[Any]:
    return connection.execute(sql, parameters).fetchall()


def _rows(connection: sqlite3.Connection) -> Ask:
    async def rows(statement: RowQuery[Any] | TextClause, parameters: Mapping[str, Any]) -> list[Any]:
        if isinstance(statement, RowQuery):
            return [*map(statement.make, connection.execute(statement.sql, parameters))]
        return connection.execute(statement.text, parameters).fetchall()

    return rows
