"""Both revisions of a rollout in numbers: the requests of the last minute that gateways have told of."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fleet_world import World, a_fleet, an_app
from rollout_world import CANARY, play, rollout, served
from told_traffic import told

from shoal.control.database.traffic import SAMPLE_MS


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


async def test_copies_are_shown_apart_from_what_users_sent(tmp_path: Path) -> None:
    async with a_fleet(tmp_path) as world:
        end = await a_canary(world)
        await told(world, end - SAMPLE_MS, copies=2, us={1: (300, 0), 2: (100, 5)})
        found = (await by_region(world))["us"]
        assert (found["candidate"]["requests"], found["candidate"]["failed"]) == (0, 0)
        assert found["candidate"]["copies"] == {"requests": 100, "failed": 5, "p50": 4.5, "p99": 5.0}
        assert "copies" not in found["stable"]
