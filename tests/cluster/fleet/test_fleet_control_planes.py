"""Several control planes on one PostgreSQL act as one: an agent that loses its control plane continues with another."""

from __future__ import annotations

import asyncio
from contextlib import closing
from functools import partial
from pathlib import Path

import orjson
import pytest

from shoal.base.files import write_private
from shoal.cli.fleet.tokens import JoinAddresses, TokenOptions, create
from shoal.cli.rest import Rest
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
                newest = {NAMES[number % len(NAMES)]: str(number) for number in range(1, CHANGES + 1)}
                await witness.until(lambda: are_alone(witness, newest), what="the newest revisions", timeout_s=WAIT_S)
                rows = await witness.settled()
                witness.assert_nothing_wanted_was_deleted(rows)
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


async def test_an_agent_whose_join_file_has_both_control_planes_goes_on_at_the_other(tmp_path: Path) -> None:
    database = shared_postgres().create_database()
    with LocalFleet(tmp_path, database=database) as fleet:
        await asyncio.to_thread(fleet.start, {"eu-1": "eu"})
        second = await asyncio.to_thread(fleet.add_control, "second")
        api = fleet.connect(second)
        wanted = JoinAddresses(urls=(f"https://127.0.0.1:{fleet.control_port}", f"https://127.0.0.1:{second}"))
        options = TokenOptions(kind="agent", cluster="eu-1", region="eu", shard="default", addresses=wanted)
        with closing(Rest(api.context)) as rest:
            made = create(rest, options)
            plain = create(rest, TokenOptions(kind="agent", cluster="eu-1", region="eu", name="another"))
        # the second control plane has the URL of the first from its credentials
        assert plain["join"]["urls"] == [f"https://127.0.0.1:{port}" for port in (second, fleet.control_port)]
        write_private(tmp_path / "join-eu-1-default.json", orjson.dumps(made["join"]))
        await asyncio.to_thread(fleet.start_agents, [("eu-1", "default")])
        await asyncio.to_thread(api.put, app("a", {"eu": 1}, marker="0"))
        await eventually(partial(asyncio.to_thread, is_ready, api, "a"), timeout_s=WAIT_S, explain=fleet.logs)
        streams = partial(asyncio.to_thread, api.metric, "shoal_control_streams")
        assert await streams() == 0, "the first is preferred"
        await asyncio.to_thread(fleet.control.kill)
        await asyncio.to_thread(api.put, app("a", {"eu": 2}, marker="1"))
        await eventually(partial(asyncio.to_thread, has_replicas, api, 2), timeout_s=WAIT_S, explain=fleet.logs)
        assert await streams() == 2
        status = await asyncio.to_thread(fleet.agent_status, "eu-1-default")
        breakers = [status["controlPlane"]["breaker"], *(each["breaker"] for each in status["controllers"].values())]
        assert breakers == ["closed"] * 3
        api.close()


def has_replicas(api: Api, count: int) -> bool:
    return [region["reported"]["ready"] for region in api.app_status("a")["regions"]] == [count]


def are_alone(witness: FleetRecorder, newest: dict[str, str]) -> bool:
    """Whether every cluster has the newest revision of each app and no other."""
    return all(
        [marker_of(obj) for obj in witness.of_app(name, cluster)] == [marker]
        for name, marker in newest.items()
        for cluster in CLUSTERS
    )


def syncs(fleet: LocalFleet) -> float:
    return sum(fleet.agent_metric(name, "shoal_krane_syncs_total", kind="full") for name in AGENTS)


def is_ready(api: Api, name: str) -> bool:
    return bool(api.app_status(name)["state"] == "Ready")
