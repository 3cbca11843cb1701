"""Backs up the manager's database to a SQLite file, and restores it.

After a restore the edges compare digests with what was restored and send what differs, as after any restart. The
history has a gap from the backup to the restore.
"""

from __future__ import annotations

from pathlib import Path

from shoal.base.table_copies import copy_file, dump_postgres, is_database, load_postgres, replace_file
from shoal.errors import ConfigError
from shoal.navigator.manager.postgres import PostgresRows
from shoal.navigator.manager.sqlite import SqliteRows

_SQLITE = "sqlite:///"
TABLES = ("nav_clusters", "nav_rows", "nav_history", "nav_sessions", "nav_tokens", "nav_options")


async def dump_rows(url: str, path: Path) -> None:
    """Write the database to the new file ``path`` while the manager goes on with it."""
    if url.startswith(_SQLITE):
        await copy_file(Path(url.removeprefix(_SQLITE)), path)
        return
    await _migrate(SqliteRows(path))
    await dump_postgres(url, path, TABLES)


async def load_rows(path: Path, url: str, *, force: bool = False) -> None:
    """Replace the database by the one in the file ``path``. The manager must be stopped."""
    await _migrate(SqliteRows(path))  # a backup of an older version gets the newest tables
    if url.startswith(_SQLITE):
        target = Path(url.removeprefix(_SQLITE))
        if is_database(target) and not force:
            raise ConfigError(f"the navigator's database {target} exists; choose another, or replace it with --force")
        await replace_file(path, target)
        return
    rows = PostgresRows(url)
    await rows.open(manager=True)  # fails while a manager runs
    try:
        if (await rows.clusters() or await rows.tokens()) and not force:
            raise ConfigError("the navigator's database is not empty; choose another, or replace it with --force")
        await load_postgres(path, url, TABLES)
    finally:
        await rows.close()


async def _migrate(rows: SqliteRows) -> None:
    await rows.open(manager=False)
    await rows.close()
