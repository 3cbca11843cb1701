"""Revisions are exchanged region by region: what serves stays until what replaces it serves and every gateway knows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fleet_world import ADMIN, World, a_fleet, an_app, doc, ref
from sqlalchemy import select

from shoal.control.database import tables
from shoal.control.domain import readiness
from shoal.control.domain.model import ObjectRef
from shoal.control.domain.routing import read_targets
from shoal.sync.keys import key_of

ROUTE = {"host": "shop.example.com", "app": "web"}


async def rows_of(world: World) -> dict[tuple[str, int], tables.Topology]:
    """By region and revision."""
    rows = await world.rows(tables.Topology)
    return {(row.reason["region"], row.revision): row for row in rows}


async def weights(world: World) -> dict[tuple[str, int], int]:
    return {where: row.weight for where, row in (await rows_of(world)).items()}


async def routed(world: World, region: str) -> list[tuple[str, int]]:
    """What gateways of a region are sent for the app: deployments and weights."""
    environment = (await world.rows(tables.Environment))[0]
    found = (await world.rows(tables.Region, tables.Region.name == region))[0]
    async with world.databases.fleet.reading() as session:
        targets = (await read_targets(session, [environment.id]))[environment.id]
    return [(share.target.deployment, share.weight) for share in targets.in_region(found.id).get("web", [])]


async def served(world: World, **options: Any) -> str:
    """An app behind a route and a gateway in each of its regions; returns its first deployment."""
    await world.apply(an_app(**options))
    first = await world.report_app()
    await world.apply(doc("Route", "r", ROUTE))
    for sentinel in await world.rows(tables.Sentinel):
        await world.report_sentinel(sentinel.id, health="healthy", available=1, desired=1, image="gateway:1")
    await world.report_config("route", "keys")
    return first


async def waiting(world: World, cluster: str, *pods: str) -> None:
    """The agent of a cluster has applied the routes, and these pods of gateways have not taken them."""
    async with world.databases.of("default").transaction() as tx:
        places = {row.id for row in await world.rows(tables.Cluster, tables.Cluster.name == cluster)}
        rows = list(await tx.session.scalars(select(tables.Desired).where(tables.Desired.kind == "route")))
        for row in rows:
            if row.cluster_id in places:
                row.applied_number, row.observed = row.number, {"waiting": list(pods)}
        await tx.session.flush()
        await readiness.after_sentinel_report(tx, {row.key for row in rows if row.action == "apply"})


async def test_a_bad_image_beside_a_region_without_instances_replaces_nothing(tmp_path: Path) -> None:
    rows = [{"region": "eu", "replicas": 0}, {"region": "us", "replicas": 2}]
    async with a_fleet(tmp_path) as world:
        first = await served(world, topology=rows)
        await world.apply(an_app(topology=rows, image="shop/none:1"))
        await world.report_app(ready=False, reason="ErrImagePull", status="failed")
        assert (await world.deployment()).status == "deploying"
        assert await routed(world, "us") == [(first, 100)]
        assert await routed(world, "eu") == [(first, 100)], "a region without instances leads to the others"
        assert ("us1", key_of("deployment", first)) in await world.wanted()
        shown = await world.fleet.status(ADMIN, ref("App", "web"))
        us = next(each for each in shown["regions"] if each["region"] == "us")
        assert (us["state"], us["reason"]) == ("Failing", "ErrImagePull")
        assert "revision 1 keeps serving" in us["message"]


async def test_a_region_that_fails_keeps_the_old_revision_and_catches_up_by_itself(tmp_path: Path) -> None:
    async with a_fleet(tmp_path) as world:
        first = await served(world, regions=("eu", "us"))
        await world.apply(an_app(regions=("eu", "us"), image="shop/web:2"))
        second = (await world.deployment()).id
        await world.report(second, only="eu1")
        await world.report(second, only="us1", ready=False, status="failed", reason="ErrImagePull")
        await world.report_config("route")
        assert (await weights(world)) == {("eu", 2): 100, ("us", 1): 100, ("us", 2): 0}
        assert (await routed(world, "eu"), await routed(world, "us")) == ([(second, 100)], [(first, 100)])
        assert (await world.deployment()).status == "ready", "all regions but one"
        assert ("us1", key_of("deployment", first)) in await world.wanted()
        assert ("eu1", key_of("deployment", first)) not in await world.wanted()
        await world.report(second, only="us1")
        await world.report_config("route")
        assert (await weights(world)) == {("eu", 2): 100, ("us", 2): 100}
        old = (await world.rows(tables.Deployment, tables.Deployment.id == first))[0]
        assert (old.desired_state, old.status) == ("archived", "superseded")


async def test_instances_are_exchanged_within_the_surge(tmp_path: Path) -> None:
    async with a_fleet(tmp_path) as world:
        first = await served(world, replicas=8)
        await world.apply(an_app(replicas=8, image="shop/web:2"))
        second = (await world.deployment()).id
        seen = []
        for _ in range(4):
            known = await rows_of(world)
            told = [known["eu", number].instances if ("eu", number) in known else 0 for number in (1, 2)]
            seen.append((told, known["eu", 2].weight))
            await world.report(second, count=known["eu", 2].instances)
            if ("eu", 1) in known:
                await world.report(first, count=known["eu", 1].instances or 8)
            await world.report_config("route")
        assert seen == [([None, 2], 0), ([6, 4], 25), ([4, 6], 50), ([2, 8], 75)]
        assert await weights(world) == {("eu", 2): 100}
        assert [row.instances for row in await world.topology()] == [None]
        assert (await world.deployment()).status == "ready"


async def test_a_region_says_how_much_it_may_surge(tmp_path: Path) -> None:
    async with a_fleet(tmp_path) as world:
        topology = [{"region": "eu", "replicas": 4, "surge": "100%"}]
        await served(world, topology=topology)
        await world.apply(an_app(topology=topology, image="shop/web:2"))
        assert (await rows_of(world))["eu", 2].instances == 4


async def test_an_autoscaled_revision_is_replaced_by_as_many_instances_as_it_has_now(tmp_path: Path) -> None:
    scaled = {"autoscaling": {"min": 1, "max": 12}}
    async with a_fleet(tmp_path) as world:
        first = await served(world, **scaled)
        await scaled_to(world, first, 10)
        await world.apply(an_app(image="shop/web:2", **scaled))
        second = (await world.deployment()).id
        known = await rows_of(world)
        assert (known["eu", 1].instances, known["eu", 2].instances, known["eu", 2].target) == (None, 3, 10)
        for _ in range(6):
            known = await rows_of(world)
            await world.report(second, count=known["eu", 2].instances or 10)
            await world.report_config("route")
        assert await weights(world) == {("eu", 2): 100}
        (row,) = await world.topology()
        assert (row.instances, row.target) == (None, 0), "its autoscaler decides again"


async def scaled_to(world: World, deployment_id: str, count: int) -> None:
    """An autoscaler has made so many instances of a deployment."""
    async with world.databases.of("default").transaction() as tx:
        found = await tx.session.scalars(select(tables.Desired).where(tables.Desired.object_id == deployment_id))
        for row in found:
            row.observed = {**(row.observed or {}), "desired": count}
    await world.report(deployment_id, count=count)


async def test_a_region_without_room_says_so_and_keeps_the_old_revision(tmp_path: Path) -> None:
    async with a_fleet(tmp_path) as world:
        first = await served(world, replicas=2)
        await world.apply(an_app(replicas=2, image="shop/web:2"))
        await world.report_app(count=1, ready=False, reason="Unschedulable", message="0/1 nodes: Insufficient cpu")
        assert await routed(world, "eu") == [(first, 100)]
        shown = (await world.fleet.status(ADMIN, ref("App", "web")))["regions"][0]
        assert shown["reason"] == "NoCapacity"
        assert "Insufficient cpu" in shown["message"] and "revision 1 keeps serving" in shown["message"]


async def test_old_instances_wait_for_every_gateway_and_status_names_it(tmp_path: Path) -> None:
    async with a_fleet(tmp_path) as world:
        first = await served(world)
        await world.apply(an_app(image="shop/web:2"))
        await world.report_app()
        await waiting(world, "eu1", "sentinel-eu-x", "sentinel-eu-y")
        await world.clock.advance(3600)
        await world.fleet.sweep()
        assert ("eu1", key_of("deployment", first)) in await world.wanted(), "no timer ends the wait"
        shown = (await world.fleet.status(ADMIN, ref("App", "web")))["regions"][0]
        assert shown["reason"] == "GatewayBehind"
        assert "eu (sentinel-eu-x, sentinel-eu-y)" in shown["message"]
        await waiting(world, "eu1")
        assert ("eu1", key_of("deployment", first)) not in await world.wanted()


async def test_a_forgotten_gateway_is_not_waited_for_until_it_is_heard_of_again(tmp_path: Path) -> None:
    async with a_fleet(tmp_path) as world:
        first = await served(world)
        await world.apply(an_app(image="shop/web:2"))
        second = await world.report_app()
        await waiting(world, "eu1", "sentinel-eu-x")
        gateway = ObjectRef("Sentinel", "eu", "shop", "prod")
        assert await world.fleet.forget_gateway(ADMIN, gateway) == ["sentinel-eu-x"]
        assert ("eu1", key_of("deployment", first)) not in await world.wanted()
        await waiting(world, "eu1")
        assert [row.forgotten for row in await world.rows(tables.Sentinel)] == [None]
        await world.apply(an_app(image="shop/web:3"))
        await world.report_app()
        await waiting(world, "eu1", "sentinel-eu-x")
        assert ("eu1", key_of("deployment", second)) in await world.wanted()


async def test_a_removed_gateway_is_not_waited_for(tmp_path: Path) -> None:
    async with a_fleet(tmp_path) as world:
        first = await served(world)
        await world.apply(an_app(image="shop/web:2"))
        await world.report_app()
        await waiting(world, "eu1", "sentinel-eu-x")
        (sentinel,) = await world.rows(tables.Sentinel)
        async with world.databases.of("default").transaction() as tx:
            for row in await tx.session.scalars(select(tables.Desired).where(tables.Desired.kind == "sentinel")):
                row.action = "delete"
            await tx.session.delete(await tx.session.get_one(tables.Sentinel, sentinel.id))
        await world.fleet.sweep()
        assert ("eu1", key_of("deployment", first)) not in await world.wanted()


async def test_a_region_without_instances_follows_and_is_waited_for(tmp_path: Path) -> None:
    both = [{"region": "eu"}, {"region": "us", "replicas": 2}]
    only = [{"region": "eu", "replicas": 0}, {"region": "us", "replicas": 2}]
    async with a_fleet(tmp_path) as world:
        first = await served(world, topology=both)  # so that eu has a gateway
        await world.apply(an_app(topology=only))
        await world.report_config("route")
        await world.apply(an_app(topology=only, image="shop/web:2"))
        second = (await world.deployment()).id
        assert await routed(world, "eu") == [(first, 100)]
        await world.report(second, only="us1", count=1)
        assert await routed(world, "eu") == [(first, 100)], "gateways of us do not know the new one yet"
        await waiting(world, "us1")
        await world.report(second, only="us1", count=2)
        await waiting(world, "us1")
        assert await routed(world, "eu") == [(second, 100)]
        assert await routed(world, "us") == [(second, 100), (first, 0)], "eu may still ask for it"
        assert ("us1", key_of("deployment", first)) in await world.wanted()
        shown = await world.fleet.status(ADMIN, ref("App", "web"))
        us = next(each for each in shown["regions"] if each["region"] == "us")
        assert us["reason"] == "GatewayBehind" and "eu" in us["message"]
        await waiting(world, "eu1")
        assert ("us1", key_of("deployment", first)) not in await world.wanted()
        assert await routed(world, "us") == [(second, 100)]


async def test_an_app_scaled_to_nothing_everywhere_keeps_its_route(tmp_path: Path) -> None:
    async with a_fleet(tmp_path) as world:
        first = await served(world, regions=("eu", "us"))
        await world.apply(an_app(topology=[{"region": region, "replicas": 0} for region in ("eu", "us")]))
        await world.report_config("route")
        assert await routed(world, "eu") == await routed(world, "us") == [(first, 100)], "no instance is not no route"


async def test_an_override_makes_a_revision_and_other_regions_take_its_number_over(tmp_path: Path) -> None:
    async with a_fleet(tmp_path) as world:
        first = await served(world, regions=("eu", "us"))
        numbers = await world.numbers()
        changed = [{"region": "eu"}, {"region": "us", "overrides": {"image": "shop/none:1"}}]
        await world.apply(an_app(topology=changed))
        assert (await world.app()).revision == 2
        known = await rows_of(world)
        assert {where: row.deployment_id for where, row in known.items()} == {
            ("eu", 2): first, ("us", 1): first, ("us", 2): (await world.deployment()).id,
        }  # fmt: skip
        eu = known["eu", 2]
        assert (await world.numbers())[eu.cluster_id, key_of("deployment", first)] == numbers[
            eu.cluster_id, key_of("deployment", first)
        ], "nothing is sent where nothing changes"
        await world.report_app(ready=False, status="failed", reason="ErrImagePull")
        shown = await world.fleet.status(ADMIN, ref("App", "web"))
        assert shown["state"] != "Ready" and [each["state"] for each in shown["regions"]] == ["Ready", "Failing"]
        instances = await world.fleet.instances(ADMIN, ref("App", "web"))
        assert {(each["region"], each["revision"]) for each in instances} == {("eu", 2), ("us", 1), ("us", 2)}


async def test_going_back_to_what_runs_restarts_nothing(tmp_path: Path) -> None:
    async with a_fleet(tmp_path) as world:
        first = await served(world)
        await world.apply(an_app(image="shop/none:1"))
        broken = await world.report_app(ready=False, status="failed", reason="ErrImagePull")
        await world.apply(an_app())
        assert await world.wanted("deployment") == {("eu1", key_of("deployment", first))}
        assert (await world.app()).revision == 3
        assert [(row.revision, row.deployment_id, row.weight) for row in await world.rows(tables.Topology)] == [
            (3, first, 100)
        ]
        await world.report(first)
        assert (await world.deployment()).status == "ready"
        shown = await world.fleet.history(ADMIN, ref("App", "web"))
        found = {each["revision"]: (each["status"], each["state"], each["live"]) for each in shown["revisions"]}
        assert found[3] == ("ready", "running", True)
        assert found[2] == ("superseded", "archived", False) and broken
        assert found[1] == ("superseded", "archived", False), "its instances count as revision 3"


async def test_a_revision_that_never_serves_is_stopped_at_its_deadline_and_remembered(tmp_path: Path) -> None:
    async with a_fleet(tmp_path) as world:
        first = await served(world)
        await world.apply(an_app(image="shop/none:1", readiness={"deadline": 60}))
        await world.report_app(ready=False, status="failed", reason="ErrImagePull", message="no such image")
        await world.clock.advance(61)
        await world.fleet.sweep()
        broken = await world.deployment()
        assert broken.status == "failed"
        assert broken.reason.startswith("not ready after 60 s; eu: pod-0: ErrImagePull")
        assert (await rows_of(world))["eu", 2].desired_status == "stopped"
        assert await routed(world, "eu") == [(first, 100)]
        events = await world.fleet.events(ADMIN, ref("App", "web"))
        assert any("it is stopped" in each["message"] for each in events if each["reason"] == "Failed")
        await world.apply(an_app(image="shop/web:2"))
        await world.report_app()
        await world.report_config("route")
        shown = await world.fleet.history(ADMIN, ref("App", "web"))
        found = {each["revision"]: each["status"] for each in shown["revisions"]}
        assert found == {3: "ready", 2: "failed", 1: "superseded"}


async def test_a_newer_revision_replaces_an_exchange_under_way(tmp_path: Path) -> None:
    async with a_fleet(tmp_path) as world:
        first = await served(world, replicas=4)
        await world.apply(an_app(replicas=4, image="shop/web:2"))
        second = (await world.deployment()).id
        await world.report(second, count=1)
        await world.report_config("route")
        await world.report(first, count=3)
        await world.apply(an_app(replicas=4, image="shop/web:3"))
        third = (await world.deployment()).id
        assert dict(await routed(world, "eu")) == {first: 75, second: 25}
        for _ in range(8):
            known = {row.deployment_id: row for row in await world.rows(tables.Topology)}
            for id_, row in known.items():
                await world.report(id_, count=4 if row.instances is None else row.instances)
            await world.report_config("route")
        assert await routed(world, "eu") == [(third, 100)]
        assert await world.wanted("deployment") == {("eu1", key_of("deployment", third))}


async def test_what_a_control_plane_of_an_earlier_version_wrote_keeps_its_requests(tmp_path: Path) -> None:
    async with a_fleet(tmp_path) as world:
        first = await served(world)
        async with world.databases.of("default").transaction() as tx:
            for row in await tx.session.scalars(select(tables.Topology)):
                row.revision = row.weight = row.routed = 0
        assert await routed(world, "eu") == [(first, 100)]
        await world.fleet.sweep()
        assert await weights(world) == {("eu", 1): 100}
        assert await routed(world, "eu") == [(first, 100)]
