"""Backups of the fleet's and the navigator's databases while they are written, restored to either kind of database."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from sqlalchemy import func, select, text

from shoal.base.clock import RealClock
from shoal.base.ids import Ids
from shoal.base.table_copies import check_file
from shoal.control.database.backup import dump_database, load_database
from shoal.control.database.engine import Database
from shoal.control.database.tables import Audit, Workspace
from shoal.errors import ConfigError
from shoal.navigator.manager.backup import TABLES, dump_rows, load_rows
from shoal.navigator.manager.postgres import PostgresRows
from shoal.navigator.manager.protocol import Put
from shoal.navigator.manager.rows import Rows, RowsChanged, StoredToken
from shoal.navigator.manager.schema import POSTGRES, SQLITE
from shoal.navigator.manager.sqlite import SqliteRows
from shoal.testing.databases import shared_postgres

KINDS = ("sqlite", "postgres")
Place = Callable[[str, str], str]


@pytest.fixture
def place(tmp_path: Path) -> Place:
    def new(kind: str, name: str) -> str:
        return shared_postgres().create_database() if kind == "postgres" else f"sqlite:///{tmp_path}/{name}.db"

    return new


@asynccontextmanager
async def fleet_database(url: str) -> AsyncIterator[Database]:
    database = await Database.open(url, clock=RealClock(), ids=Ids())
    try:
        yield database
    finally:
        await database.close()


async def add_workspace(database: Database, name: str) -> None:
    """In one transaction with its audit line, so that a consistent copy has as many of one as of the other."""
    async with database.transaction() as tx:
        tx.session.add(Workspace(id=f"wsp_{name}", name=name, created_at=1))
        tx.audit(workspace_id=name, action="create", kind="Workspace", object_id=name, name=name, diff=[])
        await tx.number()


async def counts(database: Database) -> tuple[int, int]:
    async with database.reading() as session:
        workspaces = await session.scalar(select(func.count()).select_from(Workspace))
        audits = await session.scalar(select(func.count()).select_from(Audit).where(Audit.action == "create"))
    return workspaces or 0, audits or 0


@pytest.mark.parametrize("from_", KINDS)
@pytest.mark.parametrize("to", KINDS)
async def test_a_fleets_database_is_of_one_moment_and_starts_a_new_history_when_it_is_restored(
    place: Place, tmp_path: Path, from_: str, to: str
) -> None:
    async with asyncio.timeout(60):
        source, target, path = place(from_, "a"), place(to, "b"), tmp_path / "backup.db"
        async with fleet_database(source) as database:
            for number in range(5):
                await add_workspace(database, f"before{number}")
            stop = asyncio.Event()

            async def write() -> int:
                count = 0
                while not stop.is_set():
                    count += 1
                    await add_workspace(database, f"during{count}")
                return count

            writing = asyncio.create_task(write(), name="writer")
            await dump_database("main", source, path)
            stop.set()
            assert await writing
            before = await database.position()
            key, fleet = database.signing_key, database.fleet
        await load_database("main", path, target, clock=RealClock(), ids=Ids())
        async with fleet_database(target) as database:
            workspaces, audits = await counts(database)
            assert workspaces == audits >= 5
            after = await database.position()
            assert after.incarnation > before.incarnation and after.oldest == after.number
            assert (database.signing_key, database.fleet) == (key, fleet)
            await add_workspace(database, "later")
            assert await counts(database) == (workspaces + 1, audits + 1), "numbers of new rows are free"


@pytest.mark.parametrize("kind", KINDS)
async def test_a_database_in_use_is_replaced_only_by_force_and_its_incarnation_rises_each_time(
    place: Place, tmp_path: Path, kind: str
) -> None:
    async with asyncio.timeout(60):
        url, path = place(kind, "a"), tmp_path / "backup.db"
        async with fleet_database(url) as database:
            await add_workspace(database, "old")
            await dump_database("main", url, path)
            await add_workspace(database, "new")
        with pytest.raises(ConfigError, match="is not empty"):
            await load_database("main", path, url, clock=RealClock(), ids=Ids())
        known = 0
        for _ in range(2):
            await load_database("main", path, url, clock=RealClock(), ids=Ids(), force=True)
            async with fleet_database(url) as database:
                assert await counts(database) == (1, 1)
                assert (await database.position()).incarnation > known
                known = (await database.position()).incarnation


def rows_at(url: str) -> Rows:
    return PostgresRows(url) if url.startswith("postgresql") else SqliteRows(Path(url.removeprefix("sqlite:///")))


@pytest.mark.parametrize("from_", KINDS)
@pytest.mark.parametrize("to", KINDS)
async def test_the_navigators_rows_history_and_tokens_are_restored(
    place: Place, tmp_path: Path, from_: str, to: str
) -> None:
    async with asyncio.timeout(60):
        source, target, path = place(from_, "a"), place(to, "b"), tmp_path / "backup.db"
        rows = rows_at(source)
        await rows.open()
        await rows.commit([RowsChanged("eu", 1000, [Put("pods", "a/b", b'{"v":1}', 7)], [])])
        await rows.commit([RowsChanged("eu", 2000, [Put("pods", "a/b", b'{"v":2}', 1 << 63)], [])])
        await rows.save_token(StoredToken(id="t", kind="user", cluster="", digest="d", created_ms=1))
        await dump_rows(source, path)
        await rows.close()
        await load_rows(path, target)
        with pytest.raises(ConfigError, match="--force"):
            await load_rows(path, target)
        await load_rows(path, target, force=True)
        restored = rows_at(target)
        await restored.open()
        try:
            found = [row async for piece in restored.load() for row in piece]
            assert [(row.key, row.fingerprint, row.data) for row in found] == [("a/b", 1 << 63, b'{"v":2}')]
            past = [row async for piece in restored.past(1500) for row in piece]
            assert [row.data for row in past] == [b'{"v":1}']
            assert [token.digest for token in await restored.tokens()] == ["d"]
        finally:
            await restored.close()


async def test_every_table_of_the_navigator_is_backed_up(tmp_path: Path) -> None:
    rows = SqliteRows(tmp_path / "rows.db")
    await rows.open()
    await rows.close()
    assert {*TABLES, "nav_schema"} == set(await check_file(tmp_path / "rows.db"))
    assert len(SQLITE) == len(POSTGRES)


async def make_newer(url: str) -> None:
    async with fleet_database(url) as database, database.transaction() as tx:
        await tx.session.execute(text("UPDATE alembic_version SET version_num = '9999'"))


async def test_a_copy_of_tables_by_columns_is_refused_where_a_later_version_has_added_some(
    place: Place, tmp_path: Path
) -> None:
    source, path = place("postgres", "a"), tmp_path / "backup.db"
    async with fleet_database(source):
        pass
    await dump_database("main", source, path)
    await make_newer(source)
    with pytest.raises(ConfigError, match="does not know"):
        await dump_database("main", source, tmp_path / "other.db")
    with pytest.raises(ConfigError, match="does not know"):
        await load_database("main", path, source, clock=RealClock(), ids=Ids(), force=True)
    await make_newer(f"sqlite:///{path}")
    with pytest.raises(ConfigError, match="does not know"):
        await load_database("main", path, place("postgres", "b"), clock=RealClock(), ids=Ids())
