"""The steps of everything that one request led to."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from fleet_world import ADMIN, World, a_fleet, an_app
from sqlalchemy import update

from shoal.control.database import tables

TWO = ("eu", "us")


async def steps(world: World, correlation: str = "c-1") -> list[tuple[str, str, str]]:
    found = await world.fleet.timeline(ADMIN, correlation)
    assert [each["at"] for each in found] == sorted(each["at"] for each in found)
    return [(each["reason"], each["cluster"], each["message"]) for each in found]


async def reached(world: World, cluster: str, **times: int) -> int:
    """An agent has come so far; returns the number of the change."""
    async with world.databases.of("default").transaction() as tx:
        of = tables.Change.cluster_id.in_(
            [row.id for row in await world.rows(tables.Cluster, tables.Cluster.name == cluster)]
        )
        if times:
            await tx.session.execute(update(tables.Change).where(of).values(**times))
    (change,) = [row for row in await world.rows(tables.Change, of) if row.correlation == "c-1"]
    return int(change.number)


async def test_each_cluster_s_way_is_shown_with_what_it_waits_for(tmp_path: Path) -> None:
    async with a_fleet(tmp_path) as world:
        now = round(world.clock.wall_s() * 1000)
        who = replace(ADMIN, correlation="c-1", accepted_at=now - 5)
        await world.apply(an_app(regions=TWO), who=who)
        eu = await reached(
            world, "eu1", received_at=now + 10, applied_at=now + 20, reported_at=now + 30, ready_at=now + 40
        )
        us = await reached(world, "us1")
        await world.clock.advance(1)
        assert await steps(world) == [
            ("Accepted", "", f"{ADMIN.actor}: create"),
            ("Committed", "", "the change is in the database"),
            ("NewRevision", "", "revision 1: shop/web:1 in 2 regions"),
            ("Received", "eu1", f"v{eu}"),
            ("Applied", "eu1", f"v{eu}"),
            ("Reported", "eu1", f"v{eu}"),
            ("Ready", "eu1", f"v{eu}"),
            ("Waiting", "us1", f"v{us} is not reported as applied yet"),
        ]
        assert await steps(world, "c-2") == []
        stranger = replace(ADMIN, workspace_id="other")
        assert await world.fleet.timeline(stranger, "c-1") == []


async def test_a_change_that_another_one_replaced_says_so(tmp_path: Path) -> None:
    async with a_fleet(tmp_path) as world:
        await world.apply(an_app(), who=replace(ADMIN, correlation="c-1"))
        number = await reached(world, "eu1")
        await world.apply(an_app(replicas=3), who=replace(ADMIN, correlation="c-2"))
        newest = max(row.number for row in await world.rows(tables.Desired))
        assert ("Overtaken", "eu1", f"v{number} was replaced by v{newest}") in await steps(world)
        assert ("Waiting", "eu1", f"v{newest} is not reported as applied yet") in await steps(world, "c-2")


async def test_an_error_of_the_agent_is_what_is_waited_for(tmp_path: Path) -> None:
    async with a_fleet(tmp_path) as world:
        await world.apply(an_app(), who=replace(ADMIN, correlation="c-1"))
        error: dict[str, Any] = {"number": 1, "reason": "Forbidden", "message": "no right to create Services"}
        async with world.databases.of("default").transaction() as tx:
            await tx.session.execute(update(tables.Desired).values(error=error))
        found = (await world.fleet.timeline(ADMIN, "c-1"))[-1]
        assert (found["reason"], found["type"]) == ("Waiting", "Warning")
        assert found["message"].endswith("not reported as applied yet: Forbidden: no right to create Services")
