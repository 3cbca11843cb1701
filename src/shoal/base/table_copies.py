"""Copies the tables of a database that is in use to a SQLite file, and back, each as of one moment.

Programs that keep tables in SQLite or PostgreSQL back them up with it: the file has the same tables in either case, so
what was backed up from one kind of database can be restored to the other. Values are those of the drivers; JSON is
text in SQLite, booleans are 0 and 1.
"""

from __future__ import annotations

import asyncio
import os
import re
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from shoal.base.files import PRIVATE_FILE, make_private_dirs, sync_dir
from shoal.base.ids import new_token
from shoal.errors import ConfigError, ShoalError

if TYPE_CHECKING:
    import asyncpg

_BUSY_MS = 30_000
_ROWS = 1000  # at a time
_CONNECT_S = 10.0
_SETTINGS = {"application_name": "shoal backup", "jit": "off", "lock_timeout": "30s", "statement_timeout": "0"}
_NAME = re.compile(r"[a-z_][a-z0-9_]*")
_COLUMNS = """
SELECT column_name, data_type, pg_get_serial_sequence(quote_ident(table_name), column_name)
FROM information_schema.columns WHERE table_schema = current_schema() AND table_name = $1 ORDER BY ordinal_position
"""


def is_database(path: Path) -> bool:
    """Whether there is a SQLite database with content."""
    return path.is_file() and path.stat().st_size > 0


async def copy_file(source: Path, target: Path) -> None:
    """Write the SQLite database ``source``, which others may be writing, to the new file ``target``."""

    def copy() -> None:
        if not is_database(source):
            raise ConfigError(
                f"database {source} does not exist; start the process that uses it first, or name another"
            )
        with explained(source), closing(_read_only(source)) as read, closing(sqlite3.connect(target)) as written:
            read.backup(written)  # in one step: writers continue in the write-ahead log

    await asyncio.to_thread(copy)


async def replace_file(source: Path, target: Path) -> None:
    """Put a copy of the SQLite database ``source`` in the place of ``target``, which no process uses. If this fails,
    ``target`` is as it was."""
    work = target.with_name(f".{target.name}.{new_token(8)}")

    def replace() -> None:
        with explained(target):
            if target.exists():  # what is in its write-ahead log must not be taken for a part of the new file
                with closing(sqlite3.connect(target)) as old:
                    old.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            for stale in (Path(f"{target}-wal"), Path(f"{target}-shm")):
                stale.unlink(missing_ok=True)
        os.replace(work, target)
        sync_dir(target.parent)

    make_private_dirs(target.parent)
    os.close(os.open(work, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, PRIVATE_FILE))
    try:
        await copy_file(source, work)
        await asyncio.to_thread(replace)
    finally:
        work.unlink(missing_ok=True)


async def check_file(path: Path) -> dict[str, int]:
    """The number of rows of each table; raises ``ShoalError`` if a page is damaged."""

    def check() -> dict[str, int]:
        with explained(path), closing(_read_only(path, immutable=True)) as connection:
            ((found,), *_) = connection.execute("PRAGMA integrity_check(1)").fetchall()
            if found != "ok":
                raise ShoalError(f"{path} is damaged: {found}")
            tables = connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name").fetchall()
            return {name: _count(connection, name) for (name,) in tables if not name.startswith("sqlite_")}

    return await asyncio.to_thread(check)


async def dump_postgres(url: str, target: Path, tables: Sequence[str]) -> None:
    """Write ``tables`` to the file ``target``, which has these tables and no rows, as they are at one moment."""
    connection = await _connect(url)
    try:
        with explained(target), closing(sqlite3.connect(target, isolation_level=None)) as written:
            await connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            written.execute("BEGIN")
            for table in tables:
                columns = await _shared_columns(connection, written, table)
                names = ", ".join(columns)
                insert = f"INSERT INTO {table} ({names}) VALUES ({', '.join('?' * len(columns))})"
                cursor = await connection.cursor(f"SELECT {names} FROM {table}")
                while rows := await cursor.fetch(_ROWS):
                    written.executemany(insert, [tuple(row) for row in rows])
            written.execute("COMMIT")
    finally:
        connection.terminate()


async def load_postgres(source: Path, url: str, tables: Sequence[str]) -> None:
    """Replace the rows of ``tables``, which exist, by those in the file ``source``, in one transaction. A table comes
    after those that it refers to."""
    connection = await _connect(url)
    try:
        with explained(source), closing(_read_only(source, immutable=True)) as read:
            await connection.execute("BEGIN")
            await connection.execute(f"TRUNCATE {', '.join(map(_checked, tables))}")
            for table in tables:
                await _load(connection, read, table)
            await connection.execute("COMMIT")
    finally:
        connection.terminate()


async def _load(connection: asyncpg.Connection, read: sqlite3.Connection, table: str) -> None:
    columns = await _shared_columns(connection, read, table)
    rows = read.execute(f"SELECT {', '.join(columns)} FROM {table}")
    while piece := rows.fetchmany(_ROWS):
        records = [tuple(of(value) for of, value in zip(columns.values(), row, strict=True)) for row in piece]
        await connection.copy_records_to_table(table, columns=list(columns), records=records)
    for name, _, sequence in await connection.fetch(_COLUMNS, table):
        if sequence is not None:
            newest = f"SELECT setval($1::text::regclass, coalesce(max({name}), 0) + 1, false) FROM {table}"
            await connection.execute(newest, sequence)


async def _shared_columns(
    connection: asyncpg.Connection, file: sqlite3.Connection, table: str
) -> Mapping[str, Callable[[Any], Any]]:
    """The columns of a table that both sides have, with what makes a value of PostgreSQL from one of SQLite."""
    here = {name for _, name, *_ in file.execute(f"PRAGMA table_info({_checked(table)})")}
    there = await connection.fetch(_COLUMNS, table)
    if not here or not there:
        raise ConfigError(
            f"table {table!r} is missing in the backup or in the database: they are of different versions"
        )
    return {_checked(name): (bool if kind == "boolean" else _same) for name, kind, _ in there if name in here}


def _same(value: Any) -> Any:
    return value


def _checked(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise ConfigError(f"{name!r} is not a name of a table or column")
    return name


def _count(connection: sqlite3.Connection, table: str) -> int:
    (count,) = connection.execute(f"SELECT count(*) FROM {_checked(table)}").fetchone()
    return int(count)


def _read_only(path: Path, *, immutable: bool = False) -> sqlite3.Connection:
    mode = "mode=ro&immutable=1" if immutable else "mode=ro"
    connection = sqlite3.connect(f"file:{quote(str(path))}?{mode}", uri=True, isolation_level=None)
    connection.execute(f"PRAGMA busy_timeout = {_BUSY_MS}")
    return connection


async def _connect(url: str) -> asyncpg.Connection:
    import asyncpg

    try:
        return await asyncpg.connect(url, timeout=_CONNECT_S, server_settings=_SETTINGS)
    except (OSError, TimeoutError, asyncpg.PostgresError) as error:
        raise ShoalError(f"the database cannot be reached: {error or type(error).__name__}") from error


@contextmanager
def explained(path: Path) -> Iterator[None]:
    """Turn errors of SQLite into ShoalErrors that name the file."""
    try:
        yield
    except sqlite3.Error as error:
        raise ShoalError(f"database {path}: {error}") from error
