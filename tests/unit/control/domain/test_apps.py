"""Applying, changing, moving and deleting apps, on a database."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from fleet_world import ADMIN, EDITOR, World, a_fleet, an_app, doc, ref
from sqlalchemy import select

from shoal.control.database import tables
from shoal.errors import AlreadyExists, BadRequest, Conflict, Invalid, NotFound
from shoal.sync.keys import key_of

TWO_IN_EU = {"eu1": ("eu", {}), "eu2": ("eu", {}), "us1": ("us", {})}


async def test_an_app_is_wanted_on_a_cluster_of_each_of_its_regions(tmp_path: Path) -> None:
    async with a_fleet(tmp_path) as world:
        applied = await world.apply(an_app(regions=("eu", "us"), replicas=3))
        assert applied.created
        key = key_of("deployment", (await world.app()).deployment_id)
        assert await world.wanted() == {("eu1", key), ("us1", key)}
        assert [(each.region, each.cluster, each.action) for each in applied.effects] == [
            ("eu", "eu1", "apply"),
            ("us", "us1", "apply"),
        ]
        deployment = await world.deployment()
        assert (deployment.revision, deployment.status) == (1, "deploying")
        rows = await world.rows(tables.Desired)
        assert {(row.namespace, row.name, row.by_user) for row in rows} == {
            (deployment.namespace, deployment.k8s_name, True)
        }
        assert {row.replicas for row in await world.topology()} == {3}
        assert all(row.reason["because"] for row in await world.topology())


async def test_applying_the_same_again_changes_nothing(tmp_path: Path) -> None:
    async with a_fleet(tmp_path) as world:
        first = await world.apply(an_app(resources={"cpu": "1"}))
        before, numbers = await world.databases.fleet.position(), await world.numbers()
        again = await world.apply(an_app(resources={"cpu": "1"}))
        assert (again.created, again.changed, again.effects) == (False, [], [])
        assert again.object["metadata"]["version"] == first.object["metadata"]["version"]
        assert await world.numbers() == numbers
        assert await world.databases.fleet.position() == before


@pytest.mark.parametrize(
    "change",
    [
        {"topology": [{"region": "eu", "replicas": 5}]},
        {"topology": [{"region": "eu"}, {"region": "us"}]},
        {"topology": [{"region": "eu", "surge": 2}, {"region": "us", "overrides": {"env": {"A": "b"}}}]},
        {"topology": [{"region": "eu", "autoscaling": {"min": 2, "max": 4}}]},
        {"desired": "stopped"},
        {"drift": "report"},
    ],
)
async def test_scale_topology_and_stopping_change_in_place(tmp_path: Path, change: dict[str, Any]) -> None:
    async with a_fleet(tmp_path) as world:
        await world.apply(an_app())
        before, numbers = await world.deployment(), await world.numbers()
        applied = await world.apply(an_app(**change))
        after = await world.deployment()
        assert (after.id, after.revision, after.template) == (before.id, 1, before.template)
        assert applied.effects
        assert await world.numbers() != numbers
        assert applied.object["metadata"]["generation"] == 2


async def test_an_override_is_kept_in_the_row_of_its_region_only(tmp_path: Path) -> None:
    async with a_fleet(tmp_path) as world:
        rows = [{"region": "eu", "overrides": {"env": {"A": "b"}}}, {"region": "us"}]
        await world.apply(an_app(topology=rows))
        found = {row.reason["region"]: row.overrides for row in await world.topology()}
        assert found == {"eu": {"env": {"A": "b"}}, "us": None}


async def test_a_region_that_is_removed_gets_a_tombstone(tmp_path: Path) -> None:
    async with a_fleet(tmp_path) as world:
        await world.apply(an_app(regions=("eu", "us")))
        applied = await world.apply(an_app(regions=("eu",)))
        assert [(each.cluster, each.region, each.action) for each in applied.effects] == [("us1", "us", "delete")]
        assert {row.reason["region"] for row in await world.topology()} == {"eu"}
        gone = await world.rows(tables.Desired, tables.Desired.action == "delete")
        deployment = await world.deployment()
        assert [(row.name, row.namespace) for row in gone] == [(deployment.k8s_name, deployment.namespace)]
        await world.apply(an_app(regions=("eu", "us")))
        assert len(await world.wanted("deployment")) == 2


async def test_a_changed_template_makes_a_new_revision_beside_the_old_one(tmp_path: Path) -> None:
    async with a_fleet(tmp_path) as world:
        await world.apply(an_app())
        first = await world.report_app()
        await world.apply(an_app(image="shop/web:2"))
        second = await world.deployment()
        assert (second.revision, second.image, second.status) == (2, "shop/web:2", "deploying")
        assert await world.wanted("deployment") == {
            ("eu1", key_of("deployment", first)),
            ("eu1", key_of("deployment", second.id)),
        }
        old = await world.rows(tables.Deployment, tables.Deployment.id == first)
        assert (old[0].image, old[0].status) == ("shop/web:1", "ready")
        assert (await world.app()).live_deployment_id == first


REGISTRY = {"SERVER": "registry.example", "USERNAME": "ci", "PASSWORD": "hunter2"}


async def test_an_app_names_credentials_of_registries_or_has_those_of_its_environment(tmp_path: Path) -> None:
    async with a_fleet(tmp_path) as world:
        with pytest.raises(Invalid, match="imagePullSecrets"):
            await world.apply(an_app(imagePullSecrets=["hub"]))
        await world.apply(doc("Secret", "hub", {"values": {"PASSWORD": "hunter2"}}))
        with pytest.raises(Invalid, match="lacks SERVER, USERNAME") as refused:
            await world.apply(an_app(imagePullSecrets=["hub"]))
        assert "hunter2" not in str(refused.value)
        for name in ("hub", "other"):
            await world.apply(doc("Secret", name, {"values": REGISTRY}))
        await world.apply(an_app(imagePullSecrets=["hub"]))
        assert (await world.deployment()).template["imagePullSecrets"] == ["hub"]
        with pytest.raises(Conflict, match="apps use it: web"):
            await world.fleet.delete(ADMIN, ref("Secret", "hub"))
        await world.apply(an_app())
        assert "imagePullSecrets" not in (await world.deployment()).template
        await world.apply(doc("Environment", "prod", {"imagePullSecrets": ["other"]}))
        assert (await world.deployment()).revision == 2, "it reaches an app with its next change"
        await world.apply(an_app(image="shop/web:2"))
        assert (await world.deployment()).template["imagePullSecrets"] == ["other"]
        before = await world.numbers()
        await world.apply(doc("Secret", "other", {"values": {**REGISTRY, "PASSWORD": "hunter3"}}))
        told = {key for (_, key), number in (await world.numbers()).items() if number > max(before.values())}
        assert told == {key_of("deployment", (await world.deployment()).id)}, "agents are told of a new password"


async def test_the_contents_of_an_earlier_revision_are_rendered_as_they_were(tmp_path: Path) -> None:
    async with a_fleet(tmp_path) as world:
        await world.apply(an_app())
        async with world.databases.of("default").transaction() as tx:
            first = await tx.session.scalar(select(tables.Deployment))
            first.template = {name: value for name, value in first.template.items() if name != "render"}  # of before
        await world.apply(an_app(image="shop/web:2"))
        assert (await world.deployment()).template["render"] == 2
        await world.apply(an_app())
        again = await world.deployment()
        assert (again.revision, again.template["render"]) == (3, 1), "it ran by these rules, so it goes back to them"


async def test_a_revision_that_never_became_ready_is_replaced_at_once(tmp_path: Path) -> None:
    async with a_fleet(tmp_path) as world:
        await world.apply(an_app())
        live = await world.report_app()
        await world.apply(an_app(image="shop/web:2"))
        broken = (await world.deployment()).id
        await world.apply(an_app(image="shop/web:3"))
        newest = (await world.deployment()).id
        assert {key for _, key in await world.wanted("deployment")} == {
            key_of("deployment", live),
            key_of("deployment", newest),
        }
        old = await world.rows(tables.Deployment, tables.Deployment.id == broken)
        assert (old[0].desired_state, old[0].status) == ("archived", "superseded")


async def test_scale_and_regions_hold_for_the_old_revision_too_while_it_runs(tmp_path: Path) -> None:
    async with a_fleet(tmp_path) as world:
        await world.apply(an_app(regions=("eu", "us")))
        live = await world.report_app()
        await world.apply(an_app(regions=("eu", "us"), image="shop/web:2"))
        await world.apply(an_app(regions=("eu",), replicas=7, image="shop/web:2"))
        rows = await world.rows(tables.Topology, tables.Topology.deployment_id == live)
        assert [(row.reason["region"], row.replicas) for row in rows] == [("eu", 7)]


async def test_a_stopped_app_keeps_its_rows_and_runs_only_its_newest_revision(tmp_path: Path) -> None:
    async with a_fleet(tmp_path) as world:
        await world.apply(an_app())
        await world.report_app()
        await world.apply(an_app(image="shop/web:2", desired="stopped"))
        newest = await world.deployment()
        assert newest.status == "stopped"
        assert await world.wanted("deployment") == {("eu1", key_of("deployment", newest.id))}
        assert [row.desired_status for row in await world.topology()] == ["stopped"]
        await world.apply(an_app(image="shop/web:2"))
        assert (await world.deployment()).status == "deploying"
        await world.report_app()
        assert (await world.deployment()).status == "ready"


async def test_a_deleted_app_leaves_tombstones_and_nothing_else(tmp_path: Path) -> None:
    async with a_fleet(tmp_path) as world:
        await world.apply(an_app(regions=("eu", "us")))
        await world.report_app()
        await world.apply(an_app(regions=("eu", "us"), image="shop/web:2"))
        known = {row.key for row in await world.rows(tables.Desired)}
        deleted = await world.fleet.delete(ADMIN, ref("App", "web"))
        assert {each.action for each in deleted.effects} == {"delete"}
        assert await world.wanted() == set()
        rows = await world.rows(tables.Desired)
        assert {row.key for row in rows} == known
        assert all(row.action == "delete" and row.name and row.by_user for row in rows if row.kind == "deployment")
        for table in (tables.App, tables.Deployment, tables.Topology, tables.Instance, tables.Sentinel):
            assert await world.rows(table) == []
        assert (await world.apply(an_app())).created


async def test_dry_run_says_what_would_change_where_and_writes_nothing(tmp_path: Path) -> None:
    async with a_fleet(tmp_path) as world:
        await world.apply(an_app())
        position, numbers = await world.databases.fleet.position(), await world.numbers()
        events = len(await world.rows(tables.Event))
        tried = await world.apply(an_app(regions=("eu", "us"), image="shop/web:2"), dry_run=True)
        assert tried.dry_run
        assert {(each.region, each.action) for each in tried.effects} >= {("eu", "apply"), ("us", "apply")}
        assert [diff.path for diff in tried.changed] == ["spec.image", "spec.topology"]
        gone = await world.fleet.delete(ADMIN, ref("App", "web"), dry_run=True)
        assert [(each.cluster, each.action) for each in gone.effects] == [("eu1", "delete")]
        assert await world.databases.fleet.position() == position
        assert await world.numbers() == numbers
        assert (await world.app()).revision == 1
        assert len(await world.rows(tables.Event)) == events


async def test_faults_that_only_other_objects_show_have_paths_too(tmp_path: Path) -> None:
    async with a_fleet(tmp_path) as world:
        with pytest.raises(Invalid) as caught:
            await world.apply(an_app(regions=("eu", "mars"), secrets=["none"]))
        assert [error.field for error in caught.value.errors] == ["spec.topology[1].region", "spec.secrets[0]"]
        assert "Not found" in str(caught.value)
        strange = an_app()
        strange["metadata"]["environment"] = "nowhere"
        with pytest.raises(Invalid, match=r"metadata\.environment: Not found"):
            await world.apply(strange)
        assert await world.rows(tables.App) == []


async def test_a_version_that_has_passed_is_a_conflict(tmp_path: Path) -> None:
    async with a_fleet(tmp_path) as world:
        first = (await world.apply(an_app())).object["metadata"]["version"]
        second = (await world.apply(an_app(port=81), if_match=first)).object["metadata"]["version"]
        assert second > first
        with pytest.raises(Conflict, match=f"it has version {second}, not {first}"):
            await world.apply(an_app(port=82), if_match=first)
        with pytest.raises(Conflict):
            await world.fleet.delete(ADMIN, ref("App", "web"), if_match=first)
        with pytest.raises(Conflict):
            await world.apply(an_app("other"), if_match=first)
        with pytest.raises(AlreadyExists):
            await world.apply(an_app(), create_only=True)
        with pytest.raises(Conflict):
            await world.apply(an_app(), if_match=0)
        assert (await world.app()).spec["port"] == 81


async def test_ids_have_one_length_and_k8s_names_are_unique(tmp_path: Path) -> None:
    async with a_fleet(tmp_path) as world:
        await world.apply(an_app())
        await world.apply(an_app(image="shop/web:2"))
        await world.apply(an_app("other"))
        rows = await world.rows(tables.Deployment)
        assert len({row.k8s_name for row in rows}) == 3
        for table in (tables.App, tables.Deployment, tables.Topology, tables.Cluster, tables.Environment):
            assert all(len(row.id) == len("dep_") + 20 for row in await world.rows(table))


# Placement


async def test_load_spreads_over_clusters_and_shards(tmp_path: Path) -> None:
    clusters = {"eu1": ("eu", {"shards": ["a", "b"]}), "eu2": ("eu", {"shards": ["a", "b"]})}

    async with a_fleet(tmp_path, clusters=clusters) as world:
        for number in range(8):
            await world.apply(an_app(f"app-{number}", placement={"spread": "apart"}))
        rows = await world.rows(tables.Topology)
        placed = [(row.cluster_id, row.shard) for row in rows]
        assert {placed.count(place) for place in set(placed)} == {2}
        assert len(set(placed)) == 4


async def test_apps_of_one_environment_stay_on_one_cluster_of_a_region(tmp_path: Path) -> None:
    async with a_fleet(tmp_path, clusters=TWO_IN_EU) as world:
        for number in range(4):
            await world.apply(an_app(f"app-{number}"))
        assert len({row.cluster_id for row in await world.rows(tables.Topology)}) == 1


async def test_changing_a_cluster_moves_nothing_that_runs(tmp_path: Path) -> None:
    async with a_fleet(tmp_path, clusters=TWO_IN_EU) as world:
        await world.apply(an_app())
        before = await world.wanted()
        await world.apply(doc("Cluster", "eu1", {"region": "eu", "canSchedule": False, "taints": [{"key": "gone"}]}))
        await world.apply(an_app(replicas=3))
        assert await world.wanted() == before
        await world.apply(an_app("second"))
        assert {name for name, key in await world.wanted() - before} == {"eu2"}


async def test_what_no_cluster_takes_waits_and_is_placed_when_one_does(tmp_path: Path) -> None:
    async with a_fleet(tmp_path) as world:
        applied = await world.apply(an_app(placement={"labels": {"tier": "gold"}}))
        assert [(each.region, each.action) for each in applied.effects] == [("eu", "wait")]
        assert "no cluster accepts it" in applied.warnings[0]
        assert (await world.deployment()).status == "pending"
        shown = await world.fleet.status(ADMIN, ref("App", "web"))
        assert shown["regions"][0]["state"] == "Unplaced"
        assert "labels do not match: tier=gold" in shown["regions"][0]["message"]
        await world.apply(doc("Cluster", "eu1", {"region": "eu"}, labels={"tier": "gold"}))
        assert {name for name, _ in await world.wanted()} == {"eu1"}
        assert (await world.deployment()).status == "deploying"


async def test_nothing_new_goes_to_a_cluster_whose_agent_is_lost(tmp_path: Path) -> None:
    async with a_fleet(tmp_path, clusters=TWO_IN_EU) as world:
        await world.join("eu1", lost=True)
        await world.join("eu2")
        await world.apply(an_app())
        assert {name for name, _ in await world.wanted()} == {"eu2"}
        assert (await world.topology())[0].reason["refused"] == {"eu1": "its agent is lost"}


async def test_a_cluster_with_a_capacity_takes_no_more_than_that(tmp_path: Path) -> None:
    async with a_fleet(tmp_path, clusters={"eu1": ("eu", {"capacity": {"cpu": "1"}}), "eu2": ("eu", {})}) as world:
        large = {"resources": {"cpu": "600m"}, "placement": {"spread": "apart"}}
        for number in range(3):
            await world.apply(an_app(f"app-{number}", **large))
        names = {row.id: row.name for row in await world.rows(tables.Cluster)}
        placed = [names[row.cluster_id] for row in await world.rows(tables.Topology)]
        assert placed.count("eu1") == 1


# Moves


async def _moved(world: World) -> tuple[str, list[tables.Topology]]:
    await world.apply(an_app())
    live = await world.report_app()
    start = (await world.topology())[0].cluster_id
    names = {row.id: row.name for row in await world.rows(tables.Cluster)}
    other = "eu2" if names[start] == "eu1" else "eu1"
    moved = await world.fleet.move(EDITOR, ref("App", "web"), "eu", other)
    assert [(each.cluster, each.action) for each in moved.effects] == [(other, "apply")]
    assert live
    return other, await world.topology()


async def test_a_move_makes_the_new_one_before_it_breaks_the_old_one(tmp_path: Path) -> None:
    async with a_fleet(tmp_path, clusters=TWO_IN_EU) as world:
        other, rows = await _moved(world)
        assert sorted(row.desired_status for row in rows) == ["leaving", "running"]
        assert {name for name, _ in await world.wanted("deployment")} == {"eu1", "eu2"}
        deployment = await world.deployment()
        await world.report(deployment.id, only=other, count=0)
        assert len(await world.topology()) == 2
        await world.report(deployment.id, only=other)
        assert {name for name, _ in await world.wanted("deployment")} == {other}
        assert [row.desired_status for row in await world.topology()] == ["running"]
        gone = await world.rows(tables.Desired, tables.Desired.action == "delete", tables.Desired.kind == "deployment")
        assert [row.by_user for row in gone] == [True]


async def test_a_stopped_app_moves_at_once(tmp_path: Path) -> None:
    async with a_fleet(tmp_path, clusters=TWO_IN_EU) as world:
        await world.apply(an_app(desired="stopped"))
        names = {row.id: row.name for row in await world.rows(tables.Cluster)}
        start = names[(await world.topology())[0].cluster_id]
        other = "eu2" if start == "eu1" else "eu1"
        await world.fleet.move(ADMIN, ref("App", "web"), "eu", other)
        assert {name for name, _ in await world.wanted("deployment")} == {other}
        assert [(row.desired_status, row.moved_from) for row in await world.topology()] == [("stopped", "")]


async def test_a_move_can_be_called_off(tmp_path: Path) -> None:
    async with a_fleet(tmp_path, clusters=TWO_IN_EU) as world:
        other, _ = await _moved(world)
        start = "eu1" if other == "eu2" else "eu2"
        await world.fleet.move(ADMIN, ref("App", "web"), "eu", start)
        assert {name for name, _ in await world.wanted("deployment")} == {start}
        assert [row.desired_status for row in await world.topology()] == ["running"]


async def test_a_new_revision_during_a_move_goes_where_the_app_is_going(tmp_path: Path) -> None:
    async with a_fleet(tmp_path, clusters=TWO_IN_EU) as world:
        other, _ = await _moved(world)
        await world.apply(an_app(image="shop/web:2"))
        newest = await world.report_app()
        assert await world.wanted("deployment") == {(other, key_of("deployment", newest))}


async def _handed_over(world: World) -> tuple[str, str, str]:
    """A move to the other shard of the cluster has begun; the deployment, where it was and where it goes."""
    await world.apply(an_app())
    id_ = await world.report_app()
    old = (await world.topology())[0].shard
    new = "b" if old == "a" else "a"
    await world.fleet.move(ADMIN, ref("App", "web"), "eu", "eu1", new)
    return id_, old, new


async def _wanted_shards(world: World) -> dict[str, str]:
    rows = await world.rows(tables.Desired, tables.Desired.kind == "deployment")
    return {row.shard: row.action for row in rows}


ONE_WITH_SHARDS = {"eu1": ("eu", {"shards": ["a", "b", "c"]}), "eu2": ("eu", {})}


async def test_a_move_between_shards_of_a_cluster_says_whom_it_takes_over_from_until_it_is_done(tmp_path: Path) -> None:
    async with a_fleet(tmp_path, clusters=ONE_WITH_SHARDS) as world:
        id_, old, new = await _handed_over(world)
        rows = {row.shard: row for row in await world.topology()}
        assert (rows[old].desired_status, rows[new].moved_from) == ("leaving", rows[old].id)
        assert await _wanted_shards(world) == {old: "apply", new: "apply"}
        await world.report(id_, shard=new, count=0)
        assert len(await world.topology()) == 2, "the new one is not ready"
        await world.report(id_, shard=new)
        assert [(row.shard, row.moved_from) for row in await world.topology()] == [(new, "")]
        assert await _wanted_shards(world) == {old: "delete", new: "apply"}


async def test_a_move_between_shards_is_called_off_by_a_move_back_that_takes_over_in_turn(tmp_path: Path) -> None:
    async with a_fleet(tmp_path, clusters=ONE_WITH_SHARDS) as world:
        id_, old, new = await _handed_over(world)
        await world.fleet.move(ADMIN, ref("App", "web"), "eu", "eu1", old)
        rows = {row.shard: row for row in await world.topology()}
        assert (rows[new].desired_status, rows[new].moved_from) == ("leaving", "")
        assert (rows[old].desired_status, rows[old].moved_from) == ("running", rows[new].id)
        assert await _wanted_shards(world) == {old: "apply", new: "apply"}, "what was taken over is deleted by nobody"
        await world.report(id_, shard=old)
        assert await _wanted_shards(world) == {old: "apply", new: "delete"}
        assert [(row.shard, row.moved_from) for row in await world.topology()] == [(old, "")]


async def test_a_move_between_shards_cannot_be_moved_on_before_it_is_done(tmp_path: Path) -> None:
    async with a_fleet(tmp_path, clusters=ONE_WITH_SHARDS) as world:
        _, old, new = await _handed_over(world)
        for cluster, shard in (("eu1", "c"), ("eu2", "default")):
            with pytest.raises(Invalid, match=f"move it back to {old}"):
                await world.fleet.move(ADMIN, ref("App", "web"), "eu", cluster, shard)
        assert await _wanted_shards(world) == {old: "apply", new: "apply"}


async def test_a_move_to_where_it_cannot_run_is_refused(tmp_path: Path) -> None:
    async with a_fleet(tmp_path, clusters=TWO_IN_EU) as world:
        await world.apply(an_app(placement={"labels": {"tier": "gold"}}))
        for cluster, why in (("us1", "Not found"), ("none", "Not found"), ("eu2", "labels do not match")):
            with pytest.raises(Invalid, match=why):
                await world.fleet.move(ADMIN, ref("App", "web"), "eu", cluster)
        with pytest.raises(NotFound):
            await world.fleet.move(ADMIN, ref("App", "none"), "eu", "eu1")
        with pytest.raises(BadRequest):
            await world.fleet.move(ADMIN, ref("Project", "shop"), "eu", "eu1")


async def test_old_revisions_are_forgotten_after_a_while(tmp_path: Path) -> None:
    async with a_fleet(tmp_path) as world:
        for number in range(25):
            await world.apply(an_app(image=f"shop/web:{number}"))
        rows = await world.rows(tables.Deployment)
        assert len(rows) == 20
        shown = await world.fleet.history(ADMIN, ref("App", "web"))
        assert [each["revision"] for each in shown["revisions"]][:2] == [25, 24]
