"""A fleet in two databases: cursors of two parts, and one database that is away while the other's changes go on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest
from connectrpc.code import Code

from shoal.control.database.engine import Database
from shoal.control.database.failures import DatabaseAway
from shoal.sync.versions import read_cursor
from shoal.testing.fleet import AgentClient, ControlPlane, control_plane, want_deployment
from shoal.testing.watching import EventWatch, full_sync, watching
from shoal.wire.fleet.v1 import cluster_pb as pb


@asynccontextmanager
async def two_databases(folder: Path) -> AsyncIterator[tuple[ControlPlane, Database, AgentClient]]:
    async with control_plane(folder, others=["second"]) as control:
        await control.add_cluster("c1", region="eu")
        second = control.databases.named("second")
        assert second is not None
        async with control.agent("c1", "eu") as agent:
            yield control, second, agent


async def deploy(second: Database, name: str, image: str = "nginx:1") -> str:
    async with second.transaction() as tx:
        return await want_deployment(tx, "c1", name, image=image, template={}, replicas=1, region_id="reg_eu")


@contextmanager
def away(database: Database, patch: pytest.MonkeyPatch) -> Iterator[None]:
    """Every way into the database ends with what a broken connection ends with."""

    @asynccontextmanager
    async def broken(*_: Any, **__: Any) -> AsyncIterator[Any]:
        raise DatabaseAway(database.name, "the connection was refused")
        yield

    with patch.context() as inside:
        for way in ("moment", "reading", "transaction"):
            inside.setattr(database, way, broken)
        yield


async def items(watch: EventWatch, count: int) -> dict[str, pb.Item]:
    found: dict[str, pb.Item] = {}
    while len(found) < count:
        item = await watch.until("item")
        found[item.key] = item
    return found


async def test_a_cursor_has_a_part_of_each_database_and_resumes_in_both(tmp_path: Path) -> None:
    async with asyncio.timeout(60):
        async with two_databases(tmp_path) as (control, second, agent):
            one, two = await control.deploy("c1", "one"), await deploy(second, "two")
            async with watching(agent) as watch:
                begin, found, keys, end = await full_sync(watch)
                assert keys == {one, two} and {each.database for each in begin.versions} == {"main", "second"}
                assert {key: item.version.database for key, item in found.items()} == {one: "main", two: "second"}
                assert set(read_cursor(end.cursor).positions) == {"main", "second"}
            await control.deploy("c1", "one", image="nginx:2")
            await deploy(second, "two", image="nginx:3")
            async with watching(agent, end.cursor) as watch:
                assert (await watch.until("welcome")).resumed
                found = await items(watch, 2)
                assert {key: item.action.value.image for key, item in found.items()} == {one: "nginx:2", two: "nginx:3"}
                cursor = (await watch.until("progress")).cursor
            async with watching(agent, cursor) as watch:
                assert (await watch.until("welcome")).resumed
                await deploy(second, "two", image="nginx:4")
                field, item = await watch.next()
                assert (field, item.key) == ("item", two), "only what is new in one of them"


async def test_while_one_database_is_away_agents_go_on_with_the_other_and_nothing_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with asyncio.timeout(60):
        async with two_databases(tmp_path) as (control, second, agent):
            one, two = await control.deploy("c1", "one"), await deploy(second, "two")
            async with watching(agent) as watch:
                cursor = (await full_sync(watch))[3].cursor
                with away(second, monkeypatch):
                    await control.deploy("c1", "one", image="nginx:2")
                    assert (await items(watch, 1))[one].action.value.image == "nginx:2"
                    async with watching(agent, cursor) as again:
                        assert (await again.until("welcome")).resumed, "a cursor needs no database"
                        assert (await items(again, 1))[one].action.value.image == "nginx:2"
                    async with watching(agent) as anew:
                        assert (await anew.error()).code is Code.UNAVAILABLE, "half a sync would look like deletions"
                await deploy(second, "two", image="nginx:5")
                assert (await items(watch, 1))[two].action.value.image == "nginx:5"
            async with watching(agent) as anew:
                assert (await full_sync(anew))[2] == {one, two}


async def test_one_database_that_went_back_begins_anew_alone(tmp_path: Path) -> None:
    from shoal.sync.versions import Cursor, encode_cursor

    async with asyncio.timeout(60):
        async with two_databases(tmp_path) as (control, second, agent):
            one, two = await control.deploy("c1", "one"), await deploy(second, "two")
            first, other = await control.database.position(), await second.position()
            keys = {database.name: database.signing_key for database in control.databases.all}
            ahead = Cursor({"main": (first.incarnation, first.number), "second": (other.incarnation, 99)})
            async with watching(agent, encode_cursor(ahead, keys)) as watch:
                assert (await watch.until("welcome")).observe_only
                found = (await full_sync(watch))[1]
                assert found[two].version.incarnation == other.incarnation + 1
                assert found[one].version.incarnation == first.incarnation, "the other's history goes on"


async def test_a_report_goes_to_the_database_of_its_object(tmp_path: Path) -> None:
    from sqlalchemy import select

    from shoal.control.database.tables import Desired

    async with asyncio.timeout(60):
        async with two_databases(tmp_path) as (control, second, agent):
            one, two = await control.deploy("c1", "one"), await deploy(second, "two")
            async with watching(agent) as watch:
                found = (await full_sync(watch))[1]
            reports = [pb.DeploymentReport(key=key, applied=found[key].version) for key in (one, two)]
            request = pb.ReportDeploymentStatusRequest(identity=agent.identity, sequence=1, reports=reports)
            assert not (await agent.client.report_deployment_status(request, headers=agent.headers)).unknown
            for database, key in ((control.database, one), (second, two)):
                async with database.reading() as session:
                    rows = (await session.execute(select(Desired.key, Desired.applied_number, Desired.number))).all()
                assert [(row[0], row[1] == row[2]) for row in rows] == [(key, True)]
