"""The release before this version runs with data, agents and traffic, and is upgraded part by part.

Until the end, processes of both versions work together: two control planes on one database, an old relay below a new control
plane, old agents, gateways that were started by the old version. No request fails and no object is lost.
"""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import orjson
import pytest
from tests.chaos.releases import build_release, newest_release

from shoal.app.ports import any_free
from shoal.base.files import write_private
from shoal.client import Scope, builtin
from shoal.krane import rbac
from shoal.testing.databases import shared_postgres
from shoal.testing.fleets import ENVIRONMENT, HOST, PROJECT, Balancer, FleetCluster, LocalFleet, Process, app
from shoal.testing.load import RequestLoad, RequestOutcome
from shoal.testing.traffic import HOST as SITE
from shoal.testing.traffic import demo_app, gateway_address
from shoal.testing.waiting import eventually

pytestmark = [pytest.mark.timeout(900)]

RATE = 100.0
OTHERS = tuple(f"app{at}" for at in range(5))
CONFIG_MAPS = 50
run = asyncio.to_thread


@pytest.fixture(scope="module")
def old_python(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(build_release(newest_release(), tmp_path_factory.mktemp("release")))


async def upgrade(process: Process, *, kill: bool = False) -> None:
    """End a process of the old version and start it as one of this version. Killing a cluster leaves its pods running."""
    await run(process.kill if kill else process.stop)
    process.python = sys.executable
    await run(process.start)


@asynccontextmanager
async def load_on(address: str, file: Path) -> AsyncIterator[None]:
    """Requests to ``address`` inside the block, none of which may fail."""
    with RequestLoad(file, address, SITE, rate=RATE, mix=("GET /", "POST /echo")) as load:
        await enough(load)
        yield
        await enough(load)
    assert not bad(load.outcomes()), file.name


async def enough(load: RequestLoad) -> None:
    """Two seconds of requests."""
    seen = len(load.outcomes())
    await eventually(lambda: run(lambda: len(load.outcomes()) > seen + 2 * RATE), timeout_s=60)


def bad(outcomes: list[RequestOutcome]) -> Counter[tuple[str, int, str]]:
    return Counter((one.asked, one.status, one.error) for one in outcomes if one.status != 200)


async def state_of(cluster: FleetCluster) -> dict[str, Any]:
    """Uid and specification of what users and agents made in a cluster."""
    async with cluster.client() as client:
        maps = await client.of(builtin("configmaps")).list(Scope(namespace="default"))
        deployments = await client.of(builtin("deployments", "apps")).list()
        pods = await client.of(builtin("pods")).list()
    return {
        f"{kind} {each['metadata']['name']}": (each["metadata"]["uid"], each.get("data"))
        for kind, found in (("map", maps), ("deployment", deployments), ("pod", pods))
        for each in found.items
    }


async def gateway_pods(cluster: FleetCluster) -> dict[str, str]:
    """Names and addresses of the ready gateway pods."""
    async with cluster.client() as client:
        pods = await client.of(builtin("pods")).list(Scope(namespace="sentinel"))
    return {
        each["metadata"]["name"]: f"{each['status']['podIP']}:8040"
        for each in pods.items
        if any(one["type"] == "Ready" and one["status"] == "True" for one in each["status"].get("conditions", ()))
        and "deletionTimestamp" not in each["metadata"]
    }


async def settled(fleet: LocalFleet) -> None:
    """Until every app is applied and ready in its newest version."""

    def look() -> bool:
        found = fleet.api.get(f"/projects/{PROJECT}/environments/{ENVIRONMENT}/apps")["items"]
        states = [fleet.api.app_status(each["metadata"]["name"]) for each in found]
        return all(state["state"] == "Ready" for state in states)

    await eventually(lambda: run(look), timeout_s=120, explain=fleet.logs)


async def test_a_fleet_is_upgraded_part_by_part_without_losing_a_request_or_an_object(
    old_python: str, tmp_path: Path
) -> None:
    database = shared_postgres().create_database()
    with LocalFleet(tmp_path / "fleet", database=database, python=old_python) as fleet:
        try:
            await run(fleet.start, {"eu-1": "eu", "us-1": "us"}, flags=("--runtime", "process"))
            async with Balancer(fleet.control_port) as front:
                await _upgrade_all(fleet, front, tmp_path)
        finally:
            for cluster in fleet.clusters.values():
                await run(cluster.process.stop)  # if killed, it would leave its pods running


async def _upgrade_all(fleet: LocalFleet, front: Balancer, tmp_path: Path) -> None:
    await run(fleet.use_control, front.port)
    relay_port = any_free(HOST)
    relay = await run(fleet.new_relay, "us", relay_port)
    await run(relay.start)
    join = await run(fleet.join_file, "us-1")
    content = orjson.loads(join.read_bytes())
    write_private(join, orjson.dumps({**content, "url": f"https://{HOST}:{relay_port}", "ca": fleet.relay_ca()}))
    await run(fleet.start_agents, [("us-1", "default")])
    await run(fleet.start_agents, [("eu-1", "default")], port=front.port)
    about = {"name": "web", "project": PROJECT, "environment": ENVIRONMENT}
    route = {"apiVersion": "shoal.dev/v1", "kind": "Route", "metadata": about, "spec": {"host": SITE, "app": "web"}}
    await run(fleet.api.apply, demo_app("v1"), route, *(app(name, {"us": 1}, image="shoal/echo") for name in OTHERS))
    eu, us = fleet.clusters["eu-1"], fleet.clusters["us-1"]
    async with eu.client() as client:
        for at in range(CONFIG_MAPS):
            each = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": f"c{at}"}, "data": {"at": str(at)}}
            await client.of(builtin("configmaps")).create(each, "default")
    address = await run(gateway_address, fleet.api)
    await settled(fleet)
    before = {"eu": await state_of(eu), "us": await state_of(us)}
    (direct, *_) = (await gateway_pods(eu)).values()

    async with load_on(direct, tmp_path / "control"):
        fleet.python = sys.executable
        port = await run(fleet.add_control, "control2")  # the new control plane beside the old one, on its database
        await run(fleet.api.put, app("between", {"us": 1}, image="shoal/echo"))  # the old one works on
        await settled(fleet)
        front.targets = [port]
        front.cut()
        await run(fleet.control.stop)
        await settled(fleet)
    async with load_on(direct, tmp_path / "relay"):
        await upgrade(relay)
        await settled(fleet)
    async with load_on(direct, tmp_path / "agents"):
        for name, cluster in fleet.clusters.items():
            await apply_rights(cluster)
            await upgrade(fleet.agents[name, "default"])
        await settled(fleet)
    async with load_on(direct, tmp_path / "clusters"):
        for cluster in (us, eu):
            await upgrade(cluster.process, kill=True)
        await settled(fleet)
    after = {"eu": await state_of(eu), "us": await state_of(us)}
    for region, known in before.items():
        assert {name: after[region].get(name) for name in known} == known, "the same objects, and no pod restarted"

    async with load_on(address, tmp_path / "gateways"):
        await replace_gateways(fleet, eu)
    await run(fleet.api.put, demo_app("v2"))
    await settled(fleet)
    with RequestLoad(tmp_path / "last", address, SITE, rate=RATE) as load:
        await enough(load)
    assert {one.version for one in load.outcomes()[-50:]} == {"v2"}, "the upgraded fleet rolls an app out"


async def apply_rights(cluster: FleetCluster) -> None:
    """What ``shoal krane manifests`` of this version prints, since a new version may need more rights."""
    async with cluster.client() as client:
        for manifest in rbac.manifests():
            await (await client.by_kind(manifest["kind"], manifest["apiVersion"])).apply(manifest)


async def replace_gateways(fleet: LocalFleet, cluster: FleetCluster) -> None:
    """Delete the gateway's pods one by one; their successors run this version."""
    for name in await gateway_pods(cluster):
        ready = set(await gateway_pods(cluster)) - {name}
        async with cluster.client() as client:
            await client.of(builtin("pods")).delete(name, "sentinel")

        async def replaced(known: set[str] = ready, old: str = name) -> bool:
            found = set(await gateway_pods(cluster))
            return old not in found and len(found) > len(known)

        await eventually(replaced, timeout_s=60, explain=fleet.logs)
