"""Gateways of a cluster whose agent is lost, as peers and people see them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from fleet_world import ADMIN, World, a_fleet, an_app, doc, ref

from shoal.control.database import tables
from shoal.control.domain import gateways
from shoal.control.domain.model import ObjectRef
from shoal.errors import Invalid
from shoal.sync.keys import Place, key_of

ROUTE = {"host": "shop.example", "app": "web"}


async def two_gateways(world: World) -> dict[str, tables.Sentinel]:
    """Healthy ones in both regions, by region."""
    await world.apply(an_app(regions=("eu", "us")))
    await world.apply(doc("Route", "front", ROUTE))
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
        await report(world, made["eu"], health="unhealthy", available=0, fault=fault, told={"version": 1})
        shown = (await world.fleet.status(ADMIN, ObjectRef("Sentinel", "eu", "shop", "prod")))["places"][0]["reported"]
        assert shown["fault"] == fault and "told" not in shown
        reason = (await world.fleet.status(ADMIN))["gateways"][0]["reason"]
        expected = "0 of 1 replicas are available; ImagePullBackOff: sentinel-eu-x: image shop/gateway:9: not found"
        assert reason == expected
        lines = (await world.fleet.explain(ADMIN, ref("App", "web")))["lines"]
        assert any("ImagePullBackOff" in line for line in lines)


async def names(world: World) -> list[str]:
    return sorted(each.name for each in await world.rows(tables.Sentinel))


async def test_an_environment_gets_gateways_with_its_first_route_and_keeps_them(tmp_path: Path) -> None:
    async with a_fleet(tmp_path) as world:
        await world.apply(an_app(regions=("eu", "us")))
        await world.report_app()
        assert await names(world) == [], "nobody could reach anything through it"
        await world.apply(doc("Route", "front", ROUTE))
        assert await names(world) == ["eu", "us"]
        wanted = {key for _, key in await world.wanted()}
        route = (await world.rows(tables.Route))[0]
        assert key_of("route", route.id) in wanted and any(key.startswith("keys/") for key in wanted)
        await world.fleet.delete(ADMIN, ref("Route", "front"))
        await world.report_app()
        assert await names(world) == ["eu", "us"], "users know their addresses"


async def test_a_route_before_its_app_is_ready_makes_no_gateway(tmp_path: Path) -> None:
    async with a_fleet(tmp_path) as world:
        await world.apply(an_app())
        await world.apply(doc("Route", "front", ROUTE))
        assert await names(world) == []
        await world.report_app()
        assert await names(world) == ["eu"]


async def test_an_environment_without_gateways_has_none_and_has_them_again_when_it_says_so(tmp_path: Path) -> None:
    async with a_fleet(tmp_path) as world:
        await two_gateways(world)
        await world.apply(doc("Environment", "prod", {"gateway": False}))  # off, in YAML
        assert await names(world) == []
        kinds = {key.partition("/")[0] for _, key in await world.wanted()}
        assert kinds == {"deployment"}, "nothing for gateways is left in the clusters"
        await world.report_app()
        assert await names(world) == []
        await world.apply(doc("Environment", "prod", {"gateway": "on"}))
        assert await names(world) == ["eu", "us"]


async def test_a_deleted_gateway_comes_back_while_its_app_and_a_route_are_there(tmp_path: Path) -> None:
    async with a_fleet(tmp_path) as world:
        made = await two_gateways(world)
        await world.fleet.delete(ADMIN, ObjectRef("Sentinel", "eu", "shop", "prod"))
        again = {each.name: each.id for each in await world.rows(tables.Sentinel)}
        assert sorted(again) == ["eu", "us"] and again["eu"] != made["eu"].id
        await world.apply(doc("Environment", "prod", {"gateway": "off"}))
        await world.apply(doc("Sentinel", "own", {"region": "eu"}, project="shop", environment="prod"))
        await world.fleet.delete(ADMIN, ObjectRef("Sentinel", "own", "shop", "prod"))
        assert await names(world) == []


async def test_a_gateway_that_somebody_made_stays_where_the_environment_has_none_by_itself(tmp_path: Path) -> None:
    async with a_fleet(tmp_path) as world:
        await world.apply(doc("Environment", "prod", {"gateway": "off"}))
        for each in (
            an_app(),
            doc("Route", "front", ROUTE),
            doc("Sentinel", "own", {"region": "eu"}, project="shop", environment="prod"),
        ):
            await world.apply(each)
        await world.report_app()
        assert await names(world) == ["own"]


async def test_gateway_is_on_or_off(tmp_path: Path) -> None:
    async with a_fleet(tmp_path) as world:
        with pytest.raises(Invalid, match=r"spec\.gateway"):
            await world.apply(doc("Environment", "prod", {"gateway": "maybe"}))
