"""Apps that adopt Deployments: which cluster they go to, what is kept with the revision, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from fleet_world import ADMIN, World, a_fleet, an_app, doc, ref
from sqlalchemy import select

from shoal.control.database import tables
from shoal.control.domain.rollouts.contents import same_contents
from shoal.errors import Invalid

TWO_IN_EU: dict[str, tuple[str, dict[str, Any]]] = {"eu1": ("eu", {}), "eu2": ("eu", {}), "us1": ("us", {})}


async def adopting(world: World, cluster: str = "eu2", *, region: str = "eu", **changes: Any) -> dict[str, Any]:
    (environment,) = await world.rows(tables.Environment)
    adopt = {
        "cluster": cluster, "namespace": environment.namespace, "deployment": "web", "uid": "u-1",
        "selector": {"app": "web"}, **changes,
    }  # fmt: skip
    return {"region": region, "replicas": 3, "adopt": adopt}


async def places(world: World, *, of_revision: int = 0) -> dict[str, str]:
    """Cluster by region, of the newest revision or another one."""
    app = await world.app()
    revision = of_revision or app.revision
    deployments = {row.id for row in await world.rows(tables.Deployment, tables.Deployment.revision == revision)}
    clusters = {row.id: row.name for row in await world.rows(tables.Cluster)}
    regions = {row.id: row.name for row in await world.rows(tables.Region)}
    rows = await world.rows(tables.Topology)
    return {regions[row.region_id]: clusters[row.cluster_id] for row in rows if row.deployment_id in deployments}


async def test_it_is_placed_where_it_runs_whatever_the_cluster_says_of_new_deployments(tmp_path: Path) -> None:
    clusters = {**TWO_IN_EU, "eu2": ("eu", {"canSchedule": False, "capacity": {"deployments": 0}})}
    async with a_fleet(tmp_path, clusters=clusters) as world:
        await world.apply(an_app() | {"spec": {"image": "shop/web:1", "topology": [await adopting(world)]}})
        assert await places(world) == {"eu": "eu2"}
        (row,) = await world.topology()
        assert row.reason["because"] == "Deployment web, which it adopts, runs there"
        adopted = (await world.deployment()).template["adopted"]
        assert adopted["eu"]["clusterId"] == row.cluster_id and adopted["eu"]["uid"] == "u-1"


async def test_the_same_file_changes_nothing_and_later_revisions_are_ordinary(tmp_path: Path) -> None:
    async with a_fleet(tmp_path, clusters=TWO_IN_EU) as world:
        row = await adopting(world)
        await world.apply(doc("App", "web", {"image": "shop/web:1", "topology": [row]}))
        before = await world.numbers()
        await world.apply(doc("App", "web", {"image": "shop/web:1", "topology": [row]}))
        assert ((await world.app()).revision, await world.numbers()) == (1, before)
        await world.report_app()
        await world.apply(doc("App", "web", {"image": "shop/web:2", "topology": [row]}))
        assert "adopted" not in (await world.deployment()).template
        assert await places(world) == {"eu": "eu2"}, "beside what it replaces"
        assert await places(world, of_revision=1) == {"eu": "eu2"}
        await world.report_app()
        gone = await world.rows(tables.Desired, tables.Desired.action == "delete")
        assert len(gone) == 1 and gone[0].by_user, "the adopted one is retired as any revision"
        await world.apply(doc("App", "web", {"image": "shop/web:1", "topology": [row]}))
        assert (await world.app()).revision == 3 and "adopted" not in (await world.deployment()).template
        first, _, third = sorted(await world.rows(tables.Deployment), key=lambda each: each.revision)
        assert same_contents(first, third), "what was taken back is known again"


async def test_a_region_that_is_added_adopts_what_runs_there(tmp_path: Path) -> None:
    async with a_fleet(tmp_path, clusters=TWO_IN_EU) as world:
        first, second = await adopting(world), await adopting(world, "us1", region="us", uid="u-2")
        await world.apply(doc("App", "web", {"image": "shop/web:1", "topology": [first]}))
        await world.apply(doc("App", "web", {"image": "shop/web:1", "topology": [first, second]}))
        assert (await world.app()).revision == 1
        assert await places(world) == {"eu": "eu2", "us": "us1"}
        adopted = (await world.deployment()).template["adopted"]
        assert {region: each["uid"] for region, each in adopted.items()} == {"eu": "u-1", "us": "u-2"}


async def test_a_region_that_has_instances_adopts_nothing_and_says_so(tmp_path: Path) -> None:
    async with a_fleet(tmp_path, clusters=TWO_IN_EU) as world:
        await world.apply(an_app())
        change = await world.apply(doc("App", "web", {"image": "shop/web:1", "topology": [await adopting(world)]}))
        assert "adopted" not in (await world.deployment()).template
        assert change.warnings == ["region eu has instances of the app already: web is not adopted"]


async def test_moved_to_another_cluster_it_is_a_deployment_of_its_own(tmp_path: Path) -> None:
    async with a_fleet(tmp_path, clusters=TWO_IN_EU) as world:
        await world.apply(doc("App", "web", {"image": "shop/web:1", "topology": [await adopting(world)]}))
        await world.report_app()
        await world.fleet.move(ADMIN, ref("App", "web"), "eu", "eu1")
        here = {row.name: row.id for row in await world.rows(tables.Cluster)}
        adopted = (await world.deployment()).template["adopted"]["eu"]
        assert adopted["clusterId"] == here["eu2"] != here["eu1"]  # what the agent of eu1 gets does not say adopt


@pytest.mark.parametrize(
    ("change", "field", "said"),
    [
        ({"cluster": "eu9"}, "adopt.cluster", "region eu has no cluster of that name"),
        ({"cluster": "us1"}, "adopt.cluster", "region eu has no cluster of that name"),
        ({"namespace": "elsewhere"}, "adopt.namespace", "with spec.namespace elsewhere"),
        ({"selector": {}}, "adopt.selector", "the labels by which the Deployment selects its pods"),
        ({"uid": ""}, "adopt.uid", "Required"),
    ],
)
async def test_what_the_fleet_can_see_is_refused_at_once(
    tmp_path: Path, change: dict[str, Any], field: str, said: str
) -> None:
    async with a_fleet(tmp_path, clusters=TWO_IN_EU) as world:
        row = await adopting(world, **change)
        with pytest.raises(Invalid) as refused:
            await world.apply(doc("App", "web", {"image": "shop/web:1", "topology": [row]}))
        assert f"spec.topology[0].{field}" in str(refused.value) and said in str(refused.value)
        assert not await world.rows(tables.App)


async def test_an_agent_of_an_earlier_release_is_named_with_the_fix(tmp_path: Path) -> None:
    async with a_fleet(tmp_path, clusters=TWO_IN_EU) as world:
        document = doc("App", "web", {"image": "shop/web:1", "topology": [await adopting(world)]})
        await world.join("eu2")

        async def says(**state: Any) -> None:
            async with world.databases.fleet.transaction() as tx:
                (agent,) = await tx.session.scalars(select(tables.Agent))
                agent.state = {"deployments": {}, **state}

        await says()
        with pytest.raises(Invalid, match="a release that cannot adopt Deployments: upgrade it first: shoal agents"):
            await world.apply(document)
        await says(abilities=["adopt"])
        await world.apply(document)


@pytest.mark.parametrize("label", ["shoal.dev/app", "app.kubernetes.io/managed-by", "app.kubernetes.io/component"])
async def test_labels_that_agents_set_are_not_for_users(tmp_path: Path, label: str) -> None:
    async with a_fleet(tmp_path) as world:
        with pytest.raises(Invalid, match="the agent sets it: use another label"):
            await world.apply(an_app(podLabels={label: "web"}))
