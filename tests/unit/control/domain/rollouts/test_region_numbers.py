"""Both revisions of a rollout in numbers: the requests of the last minute that gateways have told of."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fleet_world import World, a_fleet, an_app
from rollout_world import CANARY, play, rollout, served

from shoal.control.database import tables
from shoal.control.database.traffic import SAMPLE_MS

BEFORE_5_MS, BEFORE_20_MS = 4, 15  # buckets


async def told(world: World, at_ms: int, **requests: dict[int, tuple[int, int]]) -> None:
    """Gateways have told of requests up to 5 s after ``at_ms``: by region, of each revision how many there were and
    how many of them failed. All took 4 to 5 ms, one took 16 to 18 ms."""
    regions = {row.name: row.id for row in await world.rows(tables.Region)}
    ids = {row.revision: row.id for row in await world.rows(tables.Deployment)}
    environment = (await world.rows(tables.Environment))[0].id
    for name, counted in requests.items():
        for sentinel in await world.rows(tables.Sentinel, tables.Sentinel.region_id == regions[name]):
            counts = {"pod": {"until": at_ms + SAMPLE_MS}}
            await world.report_sentinel(sentinel.id, health="healthy", available=1, desired=1, counted=counts)
        shown = {
            ids[revision]: {
                "codes": [0, total - failed, 0, 0, failed],
                "times": [BEFORE_5_MS, total - 1, BEFORE_20_MS, 1],
                "latencyMs": total * 5,
            }
            for revision, (total, failed) in counted.items()
        }
        async with world.databases.of("default").transaction() as tx:
            tx.session.add(
                tables.Traffic(
                    environment_id=environment, from_at=at_ms, span_ms=SAMPLE_MS, region_id=regions[name],
                    workspace_id="default", deployments=shown,
                )
            )  # fmt: skip


async def a_canary(world: World) -> int:
    """Two regions in two waves, the first at a quarter of the requests; the end of the newest sample."""
    regions = ("eu", "us")
    await served(world, regions=regions, replicas=4)
    await world.apply(
        an_app(regions=regions, replicas=4, image="shop/web:2", rollout={**CANARY, "regions": ["us", "eu"]})
    )
    await play(world)
    now = world.databases.of("default").time.now_ms()
    return now - now % SAMPLE_MS


async def by_region(world: World) -> dict[str, dict[str, Any]]:
    return {each["region"]: each for each in (await rollout(world))["regions"]}


async def test_both_revisions_have_their_instances_and_requests_in_every_region(tmp_path: Path) -> None:
    async with a_fleet(tmp_path) as world:
        end = await a_canary(world)
        await told(world, end - SAMPLE_MS, us={1: (300, 0), 2: (100, 5)}, eu={1: (400, 0)})
        found = await by_region(world)
        assert found["us"]["candidate"] == {
            "ready": 1, "instances": 1, "weight": 25, "routed": 25, "requests": 100, "failed": 5, "p50": 4.5, "p99": 5.0,
        }  # fmt: skip
        stable = found["us"]["stable"]
        assert (stable["ready"], stable["instances"], stable["weight"], stable["requests"]) == (4, 4, 75, 300)
        assert found["eu"]["stable"]["requests"] == 400
        later = found["eu"]["candidate"]
        assert (later["instances"], later["requests"], later["p99"]) == (0, 0, None), "its wave has not begun"
        assert found["us"]["goal"] == {"weight": 25, "instances": 1}


async def test_only_the_minute_before_the_newest_sample_counts(tmp_path: Path) -> None:
    async with a_fleet(tmp_path) as world:
        end = await a_canary(world)
        found = (await by_region(world))["us"]["candidate"]
        assert (found["requests"], found["p50"], found["p99"]) == (0, None, None), "no gateway has told of any"
        for at_ms in (end - 65_000, end - 60_000, end - SAMPLE_MS):
            await told(world, at_ms, us={2: (10, 1)})
        assert (await by_region(world))["us"]["candidate"]["requests"] == 20
        await world.clock.advance(61)
        found = (await by_region(world))["us"]["candidate"]
        assert found["requests"] == 0, "gateways that are silent for longer say nothing of now"
