"""Several control planes on one PostgreSQL act as one: an agent that loses its control plane continues with another."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path

import pytest

from shoal.testing.databases import shared_postgres
from shoal.testing.fleet_recorder import FleetRecorder, marker_of
from shoal.testing.fleets import Api, Balancer, LocalFleet, app
from shoal.testing.waiting import eventually

pytestmark = pytest.mark.timeout(300)  # enough for a busy machine

WAIT_S = 60.0
CLUSTERS = {"eu-1": "eu", "us-1": "us"}
AGENTS = [f"{cluster}-default" for cluster in CLUSTERS]
NAMES = ("a", "b", "c")
CHANGES = 45


async def test_agents_of_a_control_plane_that_is_killed_go_on_at_another_from_their_cursor(tmp_path: Path) -> None:
    database = shared_postgres().create_database()

    with LocalFleet(tmp_path, database=database) as fleet:
        await asyncio.to_thread(fleet.start, CLUSTERS)
        second = await asyncio.to_thread(fleet.add_control, "second")
        async with Balancer(fleet.control_port) as balancer:  # all agents begin at the first
            places = [(cluster, "default") for cluster in CLUSTERS]
            await asyncio.to_thread(lambda: fleet.start_agents(places, port=balancer.port))
            api = fleet.connect(second)  # users are at the second
            async with FleetRecorder(fleet) as witness:
                for name in NAMES:
                    await asyncio.to_thread(api.put, app(name, {"eu": 1, "us": 1}, marker="0"))
                await witness.settled()
                full = await asyncio.to_thread(syncs, fleet)
                balancer.targets.append(second)
                for number in range(1, CHANGES + 1):
                    document = app(NAMES[number % len(NAMES)], {"eu": 1, "us": 1}, marker=str(number))
                    await asyncio.to_thread(api.put, document)
                    if number == CHANGES // 3:
                        await asyncio.to_thread(fleet.control.kill)
                rows = await witness.settled()
                witness.assert_nothing_wanted_was_deleted(rows)
                for number in range(CHANGES - len(NAMES) + 1, CHANGES + 1):
                    for cluster in CLUSTERS:
                        found = witness.of_app(NAMES[number % len(NAMES)], cluster)
                        assert [marker_of(obj) for obj in found] == [str(number)]
                assert await asyncio.to_thread(syncs, fleet) == full, "a full sync although the cursor was known"
                hellos = "shoal_control_hellos_total"
                resumed = await asyncio.to_thread(lambda: api.metric(hellos, result="resumed"))
                others = await asyncio.to_thread(lambda: api.metric(hellos)) - resumed
                assert (resumed, others) == (2 * len(AGENTS), 0)
                for name in NAMES:  # what agents report goes to the one that is left
                    await eventually(
                        partial(asyncio.to_thread, is_ready, api, name), timeout_s=WAIT_S, explain=fleet.logs
                    )
                api.close()


def syncs(fleet: LocalFleet) -> float:
    return sum(fleet.agent_metric(name, "shoal_krane_syncs_total", kind="full") for name in AGENTS)


def is_ready(api: Api, name: str) -> bool:
    return bool(api.app_status(name)["state"] == "Ready")
