"""A short round of all faults of a fleet while apps change; ``test_fleet_matrix`` has the long one."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from shoal.testing.broken_fleet import HOPS, broken_fleet

pytestmark = pytest.mark.timeout(300)  # enough for a busy machine

CLUSTERS = {"eu-1": "eu", "eu-2": "eu"}
APPS = ("a", "b", "c", "d")


async def test_whatever_breaks_the_clusters_end_as_desired_and_nothing_acknowledged_is_lost(tmp_path: Path) -> None:
    async with broken_fleet(tmp_path, CLUSTERS) as world:
        fleet = world.fleet
        for name in APPS:
            await world.change(name, "eu")
        await world.witness.settled()
        async with world.load(APPS, "eu") as said:
            for hop in HOPS:
                await world.cut(world.hop(hop), away_s=0.5)
                await world.delay(world.hop(hop), for_s=0.5)
                await world.repeat(world.hop(hop), for_s=0.3)
            await world.kill(fleet.agents["eu-1", "default"])
            await world.kill_database()
            await world.kill(fleet.clusters["eu-2"].process)
            await world.kill(fleet.control)
            where = (await asyncio.to_thread(fleet.api.app_status, "a"))["regions"][0]["cluster"]
            await world.move("a", "eu", "eu-2" if where == "eu-1" else "eu-1")
        await world.check(APPS)
        print(f"\n{said.changes} changes acknowledged after {said.attempts} attempts")
        assert said.changes > 3 * len(APPS)
