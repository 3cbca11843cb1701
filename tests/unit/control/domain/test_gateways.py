"""Gateways of a cluster whose agent is lost, as peers and people see them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fleet_world import ADMIN, World, a_fleet, an_app, ref

from shoal.control.database import tables
from shoal.control.domain import gateways
from shoal.control.domain.model import ObjectRef
from shoal.sync.keys import Place, key_of


async def two_gateways(world: World) -> dict[str, tables.Sentinel]:
    """Healthy ones in both regions, by region."""
    await world.apply(an_app(regions=("eu", "us")))
    await world.report_app()
    for cluster in ("eu1", "us1"):
        await world.join(cluster)
    for each in await world.rows(tables.Sentinel):
        await report(world, each)
    return {each.name: each for each in await world.rows(tables.Sentinel)}


async def report(world: World, sentinel: tables.Sentinel, **observed: Any) -> None:
    good = {"available": 1, "health": "healthy", "image": "gateway:1", "entries": [f"{sentinel.name}:8043"]}
    await world.report_sentinel(sentinel.id, **(good | observed))


async def lose(world: World, sentinel: tables.Sentinel, cluster: str) -> None:
    await world.join(cluster, lost=True)
    async with world.databases.of("default").transaction() as tx:
        await gateways.lose(tx, Place(sentinel.cluster_id, sentinel.shard))


async def test_the_gateways_of_a_lost_cluster_are_unhealthy_and_their_peers_are_told(tmp_path: Path) -> None:
    async with a_fleet(tmp_path) as world:
        made = await two_gateways(world)
        before = await world.numbers()
        await lose(world, made["us"], "us1")
        after = await world.numbers()
        told = {key for key in after if after[key] != before[key]}
        assert told == {(made["eu"].cluster_id, key_of("sentinel", made["eu"].id))}
        found = {each.name: each.health for each in await world.rows(tables.Sentinel)}
        assert found == {"eu": "healthy", "us": "unhealthy"}
        await lose(world, made["us"], "us1")
        assert await world.numbers() == after, "once is enough"
        await report(world, made["us"])
        assert (await world.rows(tables.Sentinel, tables.Sentinel.name == "us"))[0].health == "healthy"


async def test_status_and_explain_show_the_gateway_of_a_lost_cluster_with_the_reason(tmp_path: Path) -> None:
    async with a_fleet(tmp_path) as world:
        made = await two_gateways(world)
        shown = (await world.fleet.status(ADMIN))["gateways"]
        assert [(each["region"], each["health"], each["reason"]) for each in shown] == [
            ("eu", "healthy", ""), ("us", "healthy", ""),
        ]  # fmt: skip
        await lose(world, made["us"], "us1")
        shown = (await world.fleet.status(ADMIN))["gateways"]
        assert [(each["region"], each["health"], each["reason"][:9]) for each in shown] == [
            ("eu", "healthy", ""), ("us", "unhealthy", "AgentLost"),
        ]  # fmt: skip
        lines = (await world.fleet.explain(ADMIN, ref("App", "web")))["lines"]
        assert any(line.startswith("gateway us → us1/default: unhealthy, AgentLost") for line in lines)


async def test_status_shows_a_gateway_that_does_not_hear_of_its_cluster(tmp_path: Path) -> None:
    async with a_fleet(tmp_path) as world:
        made = await two_gateways(world)
        await report(world, made["eu"], health="stale", stale=["sentinel-eu-x"])
        shown = (await world.fleet.status(ADMIN))["gateways"][0]
        assert shown["health"] == "stale" and "sentinel-eu-x" in shown["reason"]
        listed = (await world.fleet.get(ADMIN, ObjectRef("Sentinel", "eu", "shop", "prod")))["status"]
        assert listed["health"] == "stale"


async def test_status_tells_pods_that_were_taken_out_of_their_service_from_those_that_serve(tmp_path: Path) -> None:
    async with a_fleet(tmp_path) as world:
        made = await two_gateways(world)
        await report(world, made["eu"], stale=["sentinel-eu-x", "sentinel-eu-y"], takenOut=["sentinel-eu-y"])
        reason = (await world.fleet.status(ADMIN))["gateways"][0]["reason"]
        assert "serves its last configuration: sentinel-eu-x; " in reason
        assert reason.endswith("taken out of its Service: sentinel-eu-y")


async def test_status_and_explain_say_why_replicas_of_a_gateway_do_not_run(tmp_path: Path) -> None:
    async with a_fleet(tmp_path) as world:
        made = await two_gateways(world)
        fault = {"reason": "ImagePullBackOff", "message": "sentinel-eu-x: image shop/gateway:9: not found"}
        await report(world, made["eu"], health="unhealthy", available=0, fault=fault)
        reason = (await world.fleet.status(ADMIN))["gateways"][0]["reason"]
        expected = "0 of 1 replicas are available; ImagePullBackOff: sentinel-eu-x: image shop/gateway:9: not found"
        assert reason == expected
        lines = (await world.fleet.explain(ADMIN, ref("App", "web")))["lines"]
        assert any("ImagePullBackOff" in line for line in lines)
