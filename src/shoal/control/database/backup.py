"""Backs up one of the fleet's databases to a SQLite file, and restores it.

A restored database starts a new incarnation: agents that know a later history see that this is another one, sync
anew, and delete nothing that it does not know until an operator confirms it.
"""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import inspect, text

from shoal.base.clock import Clock
from shoal.base.ids import Ids
from shoal.base.table_copies import copy_file, dump_postgres, is_database, load_postgres, replace_file
from shoal.control.database.connections import DatabaseTimeouts, make_engines
from shoal.control.database.engine import Database
from shoal.control.database.migrate import migrate, refuse_newer
from shoal.control.database.tables import Base, Compatibility
from shoal.errors import ConfigError

_SQLITE = "sqlite:///"
_PATIENCE = DatabaseTimeouts()


async def dump_database(name: str, url: str, path: Path) -> None:
    """Write the database to the new file ``path`` while control planes go on with it."""
    if url.startswith(_SQLITE):
        await copy_file(Path(url.removeprefix(_SQLITE)), path)
        return
    engines = make_engines(name, url, _PATIENCE)
    try:
        await refuse_newer(name, engines)
    finally:
        await engines.close()
    await migrate(name, f"{_SQLITE}{path}", _PATIENCE)
    await dump_postgres(url, path, _tables())


async def load_database(name: str, path: Path, url: str, *, clock: Clock, ids: Ids, force: bool = False) -> None:
    """Replace the database by the one in the file ``path``, which this changes. Control planes must be stopped."""
    held = await _held_incarnation(name, url)
    if held is not None and not force:
        raise ConfigError(f"database {name!r} is not empty; choose another, or replace it with --force")
    await migrate(name, f"{_SQLITE}{path}", _PATIENCE, accept_newer=False)
    # The time is later than any incarnation that agents may have seen of a history that was lost.
    backup = await Database.open(f"{_SQLITE}{path}", name=name, clock=clock, ids=ids)
    try:
        await backup.new_incarnation("restored from a backup", above=max(held or 0, round(clock.wall_s())))
    finally:
        await backup.close()
    if url.startswith(_SQLITE):
        await replace_file(path, Path(url.removeprefix(_SQLITE)))
        return
    await migrate(name, url, _PATIENCE, accept_newer=False)
    await load_postgres(path, url, _tables())


async def _held_incarnation(name: str, url: str) -> int | None:
    """The incarnation of an existing database; None where there is none."""
    engines = make_engines(name, url, _PATIENCE)
    if engines.path is not None and not is_database(engines.path):
        return None
    try:
        async with engines.read.connect() as connection:
            if not await connection.run_sync(lambda sync: inspect(sync).has_table("counters")):
                return None
            found = (await connection.execute(text("SELECT max(incarnation) FROM counters"))).scalar()
        return None if found is None else int(found)
    finally:
        await engines.close()


def _tables() -> list[str]:
    """Those that hold what a fleet stored: what is written about the tables themselves belongs to each database."""
    return [table.name for table in Base.metadata.sorted_tables if table is not Compatibility.__table__]
