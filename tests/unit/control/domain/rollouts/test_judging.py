"""What is judged where users' requests do not reach the candidate by its weight: copies of them, and testers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from fleet_world import World, a_fleet, an_app
from rollout_world import play, rollout, served
from told_traffic import told

from shoal.control.database.traffic import SAMPLE_MS

MIRROR = {
    "steps": [{"mirror": 50}, {"analysis": "30s"}, {"mirror": 0}, {"weight": 50}, {"pause": {}}],
    "interval": "5s",
}
TESTERS = [{"header": {"name": "x-beta", "value": "1"}}, {"analysis": "30s"}, {"weight": 50}, {"pause": {}}]


async def seconds(world: World, count: int, *, copies: int = 0, **requests: dict[int, tuple[int, int]]) -> None:
    """Time passes, and gateways tell of these requests in every 5 s of it."""
    for _ in range(count // 5):
        await world.clock.advance(5)
        now = world.databases.of("default").time.now_ms()
        await told(world, now - now % SAMPLE_MS - SAMPLE_MS, copies=copies, **requests)
        await play(world)


async def begin(world: World, spec: dict[str, Any]) -> None:
    await served(world, replicas=2)
    await world.apply(an_app(replicas=2, image="shop/web:2", rollout=spec))
    await play(world)


@pytest.mark.parametrize("abort", [{}, {"errors": "1%"}])
async def test_copies_that_fail_take_the_rollout_back(tmp_path: Path, abort: dict[str, str]) -> None:
    async with a_fleet(tmp_path) as world:
        await begin(world, {**MIRROR, **({"abort": abort} if abort else {})})
        await seconds(world, 90, copies=2, eu={1: (500, 0), 2: (250, 50)})
        found = await rollout(world)
        assert found["outcome"] == "rolledBack" and "20.0 % of" in found["reason"]
        assert found["weight"] == 0, "no user got an answer of it"


async def test_good_copies_let_the_step_pass_and_missing_ones_hold_it(tmp_path: Path) -> None:
    async with a_fleet(tmp_path) as world:
        await begin(world, {**MIRROR, "abort": {"errors": "1%", "p99": "1s"}})
        await seconds(world, 60, eu={1: (500, 0)})
        assert (await rollout(world))["step"] == 1, "no copies: nothing is known"
        await seconds(world, 30, copies=2, eu={1: (500, 0), 2: (250, 0)})
        assert ((await rollout(world))["step"], (await rollout(world))["hold"]) == (4, "waits for approval")


async def test_copies_say_nothing_once_users_requests_reach_the_candidate(tmp_path: Path) -> None:
    spec = {"steps": [{"mirror": 50}, {"weight": 50}, {"analysis": "10s"}], "interval": "5s", "abort": {"errors": "1%"}}
    async with a_fleet(tmp_path) as world:
        await begin(world, spec)
        await seconds(world, 60, copies=2, eu={1: (500, 0), 2: (250, 250)})
        found = await rollout(world)
        assert (found["step"], found["outcome"]) == (2, "")


async def test_testers_requests_are_judged_before_others_get_the_candidate(tmp_path: Path) -> None:
    async with a_fleet(tmp_path) as world:
        await begin(world, {"steps": TESTERS, "interval": "5s", "abort": {"errors": "1%"}})
        await seconds(world, 60, eu={1: (500, 0), 2: (250, 50)})
        assert (await rollout(world))["outcome"] == "rolledBack"
