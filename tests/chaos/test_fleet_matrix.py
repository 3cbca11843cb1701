"""A long round of faults at every hop of a fleet, two at a time, in random order, while apps change.

It lasts a minute for each round; SHOAL_FAULT_SEED repeats an order.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from tests.chaos.rounds import ROUNDS

from shoal.testing.broken_fleet import HOPS, BrokenFleet, broken_fleet
from shoal.testing.faults import Faults

CLUSTERS = {"eu-1": "eu", "eu-2": "eu"}
APPS = tuple(f"app{at}" for at in range(6))
FOR_S = 60.0 * ROUNDS


def all_faults(world: BrokenFleet, chance: random.Random) -> dict[str, Callable[[], Awaitable[None]]]:
    """All faults of the fleet."""
    fleet = world.fleet
    found: dict[str, Callable[[], Awaitable[None]]] = {
        "kill database": lambda: world.kill_database(away_s=chance.uniform(0, 3)),
        "kill control": lambda: world.kill(fleet.control, away_s=chance.uniform(0, 3)),
    }
    for place, agent in fleet.agents.items():
        found[f"kill agent {place[0]}"] = lambda agent=agent: world.kill(agent, away_s=chance.uniform(0, 3))
    for name, cluster in fleet.clusters.items():
        found[f"kill cluster {name}"] = lambda it=cluster.process: world.kill(it, away_s=chance.uniform(0, 3))
    for hop in HOPS:
        found[f"cut {hop}"] = lambda hop=hop: world.cut(world.hop(hop), away_s=chance.uniform(0, 5))
        found[f"delay {hop}"] = lambda hop=hop: world.delay(
            world.hop(hop), by_s=chance.uniform(0, 0.5), for_s=chance.uniform(0, 5)
        )
        found[f"repeat {hop}"] = lambda hop=hop: world.repeat(world.hop(hop), for_s=chance.uniform(0, 2))
    return found


@pytest.mark.timeout(FOR_S + 300)
async def test_a_fleet_survives_every_fault_in_any_order(tmp_path: Path, faults: Faults) -> None:
    chance = faults.random

    async with broken_fleet(tmp_path, CLUSTERS) as world:
        for name in APPS:
            await world.change(name, "eu")
        await world.witness.settled()
        known = all_faults(world, chance)
        until = time.monotonic() + FOR_S
        async with world.load(APPS, "eu") as said:
            while time.monotonic() < until:
                chosen = chance.sample(sorted(known), 2)
                print(f"{until - time.monotonic():6.1f} s left: {' and '.join(chosen)}", flush=True)
                await asyncio.gather(*(known[name]() for name in chosen))
                await asyncio.sleep(chance.uniform(0, 3))
                if chance.random() < 0.3:
                    name = chance.choice(APPS)
                    regions = (await asyncio.to_thread(world.fleet.api.app_status, name))["regions"]
                    to = "eu-2" if regions[0]["cluster"] == "eu-1" else "eu-1"
                    print(f"{until - time.monotonic():6.1f} s left: move {name} to {to}", flush=True)
                    await world.move(name, "eu", to)
            for hop in HOPS:
                for link in world.hop(hop):
                    link.heal()
        await world.check(APPS, timeout_s=180)
        print(f"{said.changes} changes acknowledged after {said.attempts} attempts")
