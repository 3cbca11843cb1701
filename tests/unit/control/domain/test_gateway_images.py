"""A changed image of an environment's gateways: one region after the other, judged by what they count."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from fleet_world import ADMIN, World, a_fleet, an_app, doc

from shoal.control.database import tables
from shoal.control.database.traffic import SAMPLE_MS, TrafficKey, TrafficTotals
from shoal.control.domain.gateway_images import SOAK_MS, Failures, fault_of
from shoal.sync.counters import Counts

ROUTE = {"host": "shop.example", "app": "web"}


async def gateways(world: World) -> dict[str, tables.Sentinel]:
    return {each.name: each for each in await world.rows(tables.Sentinel)}


async def images(world: World) -> dict[str, str]:
    return {name: each.image for name, each in (await gateways(world)).items()}


async def report(world: World, name: str, **observed: Any) -> None:
    sentinel = (await gateways(world))[name]
    good = {"available": 1, "health": "healthy", "image": sentinel.image or "agent:1"}
    await world.report_sentinel(sentinel.id, **(good | observed))


async def two_gateways(world: World) -> None:
    await world.apply(an_app(regions=("eu", "us")))
    await world.apply(doc("Route", "front", ROUTE))
    await world.report_app()
    for name in ("eu", "us"):
        await report(world, name)


async def requests(world: World, region: str, good: int, bad: int) -> None:
    """A gateway of the region has counted these just now."""
    environment = (await world.rows(tables.Environment))[0]
    region_id = next(row.id for row in await world.rows(tables.Region) if row.name == region)
    async with world.databases.of("default").transaction() as tx:
        totals = TrafficTotals()
        at = tx.now - tx.now % SAMPLE_MS - SAMPLE_MS
        counts = Counts((0, good, 0, 0, bad), {4: good + bad}, 3)
        key = TrafficKey(environment.id, at, SAMPLE_MS, region_id)
        totals.add(key, environment.workspace_id, (await world.deployment()).id, {"entry": counts})
        await totals.write(tx)


async def changed(world: World, image: str) -> None:
    await world.apply(doc("Environment", "prod", {"sentinel": {"image": image}}))


async def test_one_region_follows_the_other_when_it_is_ready_and_was_seen_to_serve(tmp_path: Path) -> None:
    async with a_fleet(tmp_path) as world:
        await two_gateways(world)
        await changed(world, "edge:2")
        assert await images(world) == {"eu": "edge:2", "us": ""}
        await report(world, "eu", image="agent:1")
        await world.clock.advance(SOAK_MS / 1000 + 10)
        await report(world, "eu", image="agent:1")
        assert await images(world) == {"eu": "edge:2", "us": ""}, "its pods still run the old one"
        await report(world, "eu")
        await requests(world, "eu", 100, 0)
        await report(world, "eu", available=1, entries=["eu:8043"])
        assert await images(world) == {"eu": "edge:2", "us": ""}, "it has just begun"
        await world.clock.advance(SOAK_MS / 1000 + 10)
        await report(world, "eu")
        assert await images(world) == {"eu": "edge:2", "us": "edge:2"}
        await report(world, "us")
        await world.clock.advance(SOAK_MS / 1000 + 10)
        await report(world, "us")
        notes = [set(each.annotations) for each in (await gateways(world)).values()]
        assert notes == [{"shoal.dev/made-by"}, {"shoal.dev/made-by"}], "nothing is left to watch"
        assert [each["reason"] for each in (await world.fleet.status(ADMIN))["gateways"]] == ["", ""]


async def test_a_gateway_with_which_more_requests_fail_keeps_the_other_regions_as_they_are(tmp_path: Path) -> None:
    async with a_fleet(tmp_path) as world:
        await two_gateways(world)
        await world.clock.advance(60)
        await requests(world, "eu", 100, 1)
        await changed(world, "edge:2")
        await world.clock.advance(10)
        await report(world, "eu")
        await world.clock.advance(30)
        await requests(world, "eu", 60, 40)
        await requests(world, "us", 0, 100)  # of another region: not its fault
        await world.clock.advance(SOAK_MS / 1000)
        for _ in range(2):
            await report(world, "eu")
        assert await images(world) == {"eu": "edge:2", "us": ""}
        shown = {each["region"]: each["reason"] for each in (await world.fleet.status(ADMIN))["gateways"]}
        assert shown["eu"].startswith("40% of 100 requests failed since it has its new image, 1% of 101 before")
        assert shown["us"] == ""
        events = [row for row in await world.rows(tables.Event) if row.reason == "ImageFailed"]
        assert [row.type for row in events] == ["Warning"], "it is told once"
        await changed(world, "edge:3")
        assert await images(world) == {"eu": "edge:3", "us": ""}, "another image begins again"
        assert "failed" not in (await world.fleet.status(ADMIN))["gateways"][0]["reason"]


async def test_a_gateway_that_does_not_become_ready_keeps_the_other_regions_as_they_are(tmp_path: Path) -> None:
    async with a_fleet(tmp_path) as world:
        await two_gateways(world)
        await changed(world, "edge:broken")
        for _ in range(3):
            await world.clock.advance(600)
            await report(world, "eu", image="", fault={"reason": "ImagePullBackOff", "message": "no such image"})
            await report(world, "us", entries=["us:8043"])
        assert await images(world) == {"eu": "edge:broken", "us": ""}
        assert "ImagePullBackOff" in (await world.fleet.status(ADMIN))["gateways"][0]["reason"]
        await changed(world, "")
        assert await images(world) == {"eu": "", "us": ""}


@pytest.mark.parametrize(
    ("before", "since", "is_worse"),
    [
        (Failures(1000, 0), Failures(1000, 0), False),
        (Failures(1000, 0), Failures(1000, 51), True),
        (Failures(1000, 0), Failures(1000, 49), False),
        (Failures(1000, 300), Failures(1000, 320), False),
        (Failures(), Failures(19, 19), False),
        (Failures(), Failures(20, 20), True),
        (Failures(), Failures(), False),
    ],
)
def test_what_is_worse_needs_enough_requests_and_a_clear_difference(
    before: Failures, since: Failures, is_worse: bool
) -> None:
    assert bool(fault_of(before, since)) == is_worse
