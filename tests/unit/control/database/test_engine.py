"""Several databases: which one a workspace is in, and that they belong together."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from sqlalchemy import func, select

from shoal.base.clock import FakeClock
from shoal.base.ids import Ids
from shoal.control.database.engine import Database, Databases
from shoal.control.database.retention import Retention, run_retention
from shoal.control.database.tables import Event
from shoal.errors import ConfigError


async def test_a_workspace_is_in_the_database_it_was_given_to(tmp_path: Path) -> None:
    async with asyncio.timeout(30):
        urls = {name: f"sqlite:///{tmp_path}/{name}.db" for name in ("main", "eu-1", "eu-2")}
        opened = await Databases.open(urls, clock=FakeClock(), ids=Ids(), workspaces={"ws_a": "eu-1", "ws_b": "eu-2"})
        try:
            assert opened.fleet.name == "main"
            assert [database.name for database in opened.all] == ["main", "eu-1", "eu-2"]
            assert [opened.of(ws).name for ws in ("ws_a", "ws_b", "ws_c", "fleet")] == ["eu-1", "eu-2", "main", "main"]
            assert {database.fleet for database in opened.all} == {opened.fleet.fleet}
            assert len({database.signing_key for database in opened.all}) == 3
            named = opened.named("eu-2")
            assert named is not None and named.name == "eu-2"
            assert opened.named("nowhere") is None
        finally:
            await opened.close()


async def test_a_database_of_another_fleet_is_not_taken_in(tmp_path: Path) -> None:
    async with asyncio.timeout(30):
        other = await Database.open(f"sqlite:///{tmp_path}/b.db", name="b", clock=FakeClock(), ids=Ids())
        await other.close()
        with pytest.raises(ConfigError, match="belongs to the fleet"):
            await Databases.open(
                {"a": f"sqlite:///{tmp_path}/a.db", "b": f"sqlite:///{tmp_path}/b.db"}, clock=FakeClock(), ids=Ids()
            )


@pytest.mark.parametrize("name", ["", "A", "a.b", "a,b", "a:b", "-a", "a" * 33, "ü"])
async def test_a_name_that_a_cursor_cannot_hold_is_refused(tmp_path: Path, name: str) -> None:
    async with asyncio.timeout(30):
        with pytest.raises(ConfigError, match="is not a valid database name"):
            await Database.open(f"sqlite:///{tmp_path}/a.db", name=name, clock=FakeClock(), ids=Ids())


async def test_a_workspace_in_an_unknown_database_and_no_database_are_refused(tmp_path: Path) -> None:
    async with asyncio.timeout(30):
        with pytest.raises(ConfigError, match="at least one"):
            Databases([])
        with pytest.raises(ConfigError, match="'nowhere': use one of main"):
            await Databases.open(
                {"main": f"sqlite:///{tmp_path}/a.db"}, clock=FakeClock(), ids=Ids(), workspaces={"ws_a": "nowhere"}
            )


def test_retention_that_makes_no_sense_is_refused() -> None:
    with pytest.raises(ConfigError, match="changes_s"):
        Retention(changes_s=0)
    with pytest.raises(ConfigError, match="tombstones_s"):
        Retention(changes_s=10, tombstones_s=5)


class SleepyClock(FakeClock):
    """Says when somebody goes to sleep."""

    def __init__(self) -> None:
        super().__init__()
        self.asleep = asyncio.Event()

    async def sleep(self, seconds: float) -> None:
        self.asleep.set()
        await super().sleep(seconds)


async def test_retention_runs_again_and_again(tmp_path: Path) -> None:
    async with asyncio.timeout(30):
        clock = SleepyClock()
        opened = await Databases.open({"main": f"sqlite:///{tmp_path}/a.db"}, clock=clock, ids=Ids())

        async def add_event() -> int:
            """How many there are then."""
            async with opened.fleet.transaction() as tx:
                tx.event(workspace_id="w", kind="App", object_id="a", name="a", reason="R", message="m")
            async with opened.fleet.reading() as session:
                return int((await session.execute(select(func.count()).select_from(Event))).scalar_one())

        sweeping = asyncio.create_task(run_retention(opened, Retention(events_s=60, every_s=100), clock))
        try:
            for _ in range(3):
                await clock.asleep.wait()
                clock.asleep.clear()
                assert await add_event() == 1
                await clock.advance(101)
        finally:
            sweeping.cancel()
            await asyncio.wait([sweeping])
            await opened.close()
