"""Moves, confirmations and restored backups: what must neither get stuck nor pass unseen."""

from __future__ import annotations

from pathlib import Path

from fleet_world import ADMIN, a_fleet, a_route, an_app, doc, ref

from shoal.control.database import tables
from shoal.sync.versions import Version, read_cursor

TWO_IN_EU = {"eu1": ("eu", {}), "eu2": ("eu", {})}


async def test_what_a_gateway_that_moved_leaves_behind_is_removed_without_a_person(tmp_path: Path) -> None:
    async with a_fleet(tmp_path, clusters=TWO_IN_EU) as world:
        await world.apply(an_app())
        for n in range(7):  # more than agents delete unasked
            await world.apply(doc("Route", f"r{n}", {"host": f"r{n}.example", "app": "web"}))
        await world.report_app()
        names = {row.id: row.name for row in await world.rows(tables.Cluster)}
        start = names[(await world.rows(tables.Sentinel))[0].cluster_id]
        await world.fleet.move(ADMIN, ref("App", "web"), "eu", "eu2" if start == "eu1" else "eu1")
        await world.report_app()
        sentinel = (await world.rows(tables.Sentinel))[0]
        await world.report_sentinel(sentinel.id, available=1, health="healthy", image="gateway:1")
        gone = await world.rows(tables.Desired, tables.Desired.action == "delete")
        assert {names[row.cluster_id] for row in gone} == {start} and len(gone) == 10
        assert all(row.by_user for row in gone), "the user has moved the app, and everything else follows"


async def test_a_move_to_another_shard_of_the_same_cluster_leaves_the_gateway_where_it_is(tmp_path: Path) -> None:
    async with a_fleet(tmp_path, clusters={"eu1": ("eu", {"shards": ["a", "b"]})}) as world:
        await world.apply(an_app())
        await world.apply(a_route())
        await world.report_app()
        (row,) = await world.topology()
        before = (await world.rows(tables.Sentinel))[0]
        other = "b" if row.shard == "a" else "a"
        await world.fleet.move(ADMIN, ref("App", "web"), "eu", "eu1", other)
        await world.report_app()
        assert [(each.shard, each.desired_status) for each in await world.topology()] == [(other, "running")]
        after = (await world.rows(tables.Sentinel))[0]
        assert (after.id, after.cluster_id, after.shard) == (before.id, before.cluster_id, before.shard)
        gone = await world.rows(tables.Desired, tables.Desired.action == "delete")
        assert [each.kind for each in gone] == ["deployment"]


async def test_a_confirmation_covers_what_is_held_now_and_nothing_that_comes_later(tmp_path: Path) -> None:
    async with a_fleet(tmp_path) as world:
        await world.join("eu1")
        held_at = await world.databases.fleet.position()
        await world.fleet.confirm_deletes(ADMIN, "eu1")
        confirmed = read_cursor((await world.rows(tables.Agent))[0].confirmed_deletes)
        assert confirmed.covers(Version("main", held_at.incarnation, held_at.number))
        later = await world.databases.fleet.position()  # a sync from now on is of this moment
        assert not confirmed.covers(Version("main", later.incarnation, later.number))


async def test_what_was_applied_of_a_history_that_is_over_is_not_applied_of_the_new_one(tmp_path: Path) -> None:
    async with a_fleet(tmp_path) as world:
        await world.apply(an_app())
        await world.report_app()
        assert all(row.applied_number for row in await world.rows(tables.Desired, tables.Desired.kind == "deployment"))
        await world.databases.fleet.new_incarnation("restored")
        assert not any(row.applied_number for row in await world.rows(tables.Desired))


async def test_a_revision_becomes_ready_when_the_region_it_waited_for_is_given_up(tmp_path: Path) -> None:
    """The agent of a region that is given up may be gone: no report follows that could let the revision pass."""

    async with a_fleet(tmp_path) as world:
        await world.apply(an_app(regions=("eu", "us"), readiness={"regions": "all"}))
        await world.apply(a_route())
        await world.report_app(only="eu1")
        assert (await world.deployment()).status == "deploying"
        await world.apply(an_app(regions=("eu",), readiness={"regions": "all"}))
        await world.fleet.sweep()
        assert (await world.deployment()).status == "ready"
        assert (await world.app()).live_deployment_id == (await world.deployment()).id
        assert await world.rows(tables.Sentinel), "its environment is served in the region"


async def test_a_failed_revision_too(tmp_path: Path) -> None:
    async with a_fleet(tmp_path) as world:
        both = an_app(regions=("eu", "us"), readiness={"regions": "all", "deadline": 60})
        await world.apply(both)
        await world.report_app(only="eu1")
        await world.clock.advance(120)
        await world.fleet.sweep()
        assert (await world.deployment()).status == "failed"
        await world.apply(an_app(regions=("eu",), readiness={"regions": "all", "deadline": 60}))
        await world.fleet.sweep()
        assert (await world.deployment()).status == "ready"
