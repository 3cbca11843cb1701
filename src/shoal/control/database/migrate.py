"""Migrates a database to the newest revision of the tables, once, even if several processes start at the same time.

The revisions are in ``migrations``. An empty database gets the tables of the models at once, which are the same: with
Alembic, which is imported for tables of an earlier version only, each control plane would take 12 MB more. SQLite is
guarded by a lock on a file beside it, PostgreSQL by an advisory lock; all steps to the newest revision are one
transaction.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, delete, insert, inspect, select, text

from shoal.base.logs import get_logger
from shoal.control.database import migrations
from shoal.control.database.connections import DatabaseTimeouts, Engines, create_file, make_engines
from shoal.control.database.failures import DatabaseAway
from shoal.control.database.table_base import Base
from shoal.control.database.tables import Compatibility
from shoal.errors import ConfigError

_POSTGRES_LOCK = 0x53484F414C  # "SHOAL"
_LIMIT_S = 300.0  # of one step, and of the wait for another process's migration
_LOCK_POLL_S = 0.02

# As Alembic makes it
_VERSION_TABLE = (
    "CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL, "
    "CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num))"
)

_log = get_logger("control.database")


async def migrate(name: str, url: str, patience: DatabaseTimeouts, *, accept_newer: bool = True) -> None:
    """Returns when the database has the newest revision, or a later one that works with this version of Shoal.

    Who copies whole tables says ``accept_newer=False``: it would leave out the columns that it does not know.
    """
    # Its own connection: making an index of a large table takes longer than anything else may.
    engines = make_engines(name, url, replace(patience, statement_s=_LIMIT_S, idle_s=_LIMIT_S))
    try:
        if engines.path is None:
            await _upgrade(name, engines, accept_newer)
            return
        create_file(engines.path)
        async with _file_lock(name, engines.path):
            await _use_wal(engines)
            await _upgrade(name, engines, accept_newer)
    finally:
        await engines.close()


async def refuse_newer(name: str, engines: Engines) -> None:
    """Raises ConfigError if a later version of Shoal has changed the tables."""
    async with engines.read.connect() as connection:
        found = await connection.run_sync(_revision)
        if _is_newer(found):
            raise _unknown(name, found)


async def _upgrade(name: str, engines: Engines, accept_newer: bool) -> None:
    async with engines.write.connect() as connection:
        if engines.dialect == "postgresql":
            await connection.execute(text(f"SELECT pg_advisory_xact_lock({_POSTGRES_LOCK})"))
        found = await connection.run_sync(_revision)
        if found == migrations.HEAD:
            return
        if _is_newer(found):
            if not accept_newer or await connection.run_sync(_oldest) not in migrations.REVISIONS:
                raise _unknown(name, found)
            _log.warning(
                "a later version of Shoal has changed the tables; this version works with them",
                database=name,
                tables=found,
                known=migrations.HEAD,
            )
            return
        await connection.run_sync(make_tables if found is None else upgrade)
        await connection.execute(delete(Compatibility))
        await connection.execute(insert(Compatibility).values(oldest=migrations.OLDEST))
        await connection.commit()


def _is_newer(found: str | None) -> bool:
    return found is not None and found not in migrations.REVISIONS


def _unknown(name: str, found: str | None) -> ConfigError:
    return ConfigError(
        f"database {name!r} has tables of revision {found!r}, which this version of Shoal does not"
        f" know (its newest is {migrations.HEAD!r}): start the version that wrote it, or a later one"
    )


def _revision(connection: Connection) -> str | None:
    if not inspect(connection).has_table("alembic_version"):
        return None
    found: str | None = connection.execute(text("SELECT version_num FROM alembic_version")).scalar()
    return found


def _oldest(connection: Connection) -> str | None:
    """The oldest revision whose programs work with the tables, according to whoever changed them last."""
    if not inspect(connection).has_table(Compatibility.__tablename__):
        return None
    return connection.execute(select(Compatibility.oldest)).scalar()


def make_tables(connection: Connection) -> None:
    """All tables of the newest revision, in the transaction of the connection, which has none of them."""
    Base.metadata.create_all(connection, checkfirst=False)
    connection.execute(text(_VERSION_TABLE))
    connection.execute(text("INSERT INTO alembic_version (version_num) VALUES (:head)"), {"head": migrations.HEAD})


def upgrade(connection: Connection, to: str = "head") -> None:
    """Run the revisions that are missing, in the transaction of the connection."""
    from alembic.config import Config
    from alembic.runtime.environment import EnvironmentContext
    from alembic.script import ScriptDirectory

    with as_file(files(migrations)) as folder:
        script = ScriptDirectory(str(folder))

        def steps(revision: Any, _context: Any) -> Any:
            return script._upgrade_revs(to, revision)

        with EnvironmentContext(Config(), script, fn=steps, destination_rev=to) as environment:
            environment.configure(connection=connection, transactional_ddl=False)
            environment.run_migrations()


async def _use_wal(engines: Engines) -> None:
    """Let readers continue during writes (WAL). Set once: it is a property of the file."""
    async with engines.write.connect() as connection:
        raw: Any = (await connection.get_raw_connection()).driver_connection
        cursor = await raw.cursor().execute("PRAGMA journal_mode = WAL")
        (mode,) = await cursor.fetchone()
    if mode != "wal":
        raise ConfigError(f"{engines.path} is on a file system that SQLite cannot share (no WAL): use another folder")


@asynccontextmanager
async def _file_lock(name: str, path: Path) -> AsyncIterator[None]:
    lock = os.open(f"{path}.lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        for _ in range(round(_LIMIT_S / _LOCK_POLL_S)):
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                await asyncio.sleep(_LOCK_POLL_S)
        else:
            raise DatabaseAway(name, f"another process has held {path}.lock for {_LIMIT_S:.0f} s")
        yield
    finally:
        os.close(lock)
