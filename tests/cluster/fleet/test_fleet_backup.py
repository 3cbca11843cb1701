"""`shoal backup` on a fleet that runs: with traffic through a gateway, with agents connected, and with watches open."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from shoal.client import Scope, builtin
from shoal.errors import Expired
from shoal.testing.fleets import FleetCluster, LocalFleet, app
from shoal.testing.load import RequestLoad, RequestOutcome
from shoal.testing.traffic import HOST, demo_fleet, gateway_address
from shoal.testing.waiting import eventually

pytestmark = [pytest.mark.timeout(300)]  # enough for a busy machine

RATE = 100.0
NEW = tuple(f"later{at}" for at in range(7))  # more than the brake lets pass
AGENT = "eu-1-default"


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalFleet]:
    with demo_fleet(tmp_path_factory.mktemp("backup")) as fleet:
        yield fleet


def shoal(*arguments: str) -> str:
    done = subprocess.run([sys.executable, "-m", "shoal", *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def refused(*arguments: str) -> str:
    done = subprocess.run([sys.executable, "-m", "shoal", *arguments], capture_output=True, text=True, check=False)
    assert done.returncode != 0, done.stdout
    return done.stderr


def bad(outcomes: list[RequestOutcome]) -> Counter[tuple[str, int, str]]:
    return Counter((one.asked, one.status, one.error) for one in outcomes if one.status != 200)


def held(fleet: LocalFleet) -> list[str]:
    found: list[str] = fleet.agent_status(AGENT)["controllers"].get("deployments", {}).get("heldDeletes", [])
    return found


async def apps_in(cluster: FleetCluster) -> set[str]:
    """The apps whose Deployments are in the cluster."""
    async with cluster.client() as client:
        found = await client.of(builtin("deployments", "apps")).list()
        return {each["metadata"]["name"].rsplit("-", 2)[0] for each in found.items}


def echo(name: str) -> dict[str, Any]:
    return app(name, {"eu": 1}, image="shoal/echo", resources={"cpu": "10m", "memory": "32Mi"})


async def test_a_restored_control_plane_deletes_nothing_that_runs_and_no_request_fails(
    fleet: LocalFleet, tmp_path: Path
) -> None:
    folder, file = str(fleet.folder), str(tmp_path / "backup.tar")
    cluster, run = fleet.clusters["eu-1"], asyncio.to_thread

    async def until(condition: Callable[[set[str]], bool]) -> None:
        async def look() -> bool:
            return condition(await apps_in(cluster))

        await eventually(look, timeout_s=120, explain=fleet.logs)

    address = await run(gateway_address, fleet.api)
    with RequestLoad(tmp_path / "load", address, HOST, rate=RATE, mix=("GET /",)) as load:
        await eventually(lambda: run(lambda: len(load.outcomes()) > RATE), timeout_s=60)
        told = await run(shoal, "backup", "create", file, "--dir", folder, "--only", "control")
        assert "control: " in told and "rows in" in told
        assert "undamaged" in await run(shoal, "backup", "verify", file)
        for name in NEW:
            await run(fleet.api.put, echo(name))
        await until(lambda found: {"web", *NEW} <= found)

        assert "already in use" in await run(refused, "backup", "restore", file, "--dir", folder, "--force")
        await run(fleet.control.stop)
        assert "--force" in await run(refused, "backup", "restore", file, "--dir", folder)
        await run(shoal, "backup", "restore", file, "--dir", folder, "--force")
        await run(fleet.control.start)
        await eventually(lambda: run(lambda: len(held(fleet)) >= len(NEW)), timeout_s=120, explain=fleet.logs)
        assert {"web", *NEW} <= await apps_in(cluster), "deletions are held until an operator confirms them"

        await run(fleet.api.put, echo("again"))
        await until(lambda found: "again" in found)
        await run(fleet.api.request, "POST", "/agents/eu-1/default/confirm-deletes")
        await until(lambda found: not set(NEW) & found)
        assert {"web", "again"} <= await apps_in(cluster)
        seen = len(load.outcomes())
        await eventually(lambda: run(lambda: len(load.outcomes()) > seen + RATE), timeout_s=60)
    assert not bad(load.outcomes())


async def test_a_restored_cluster_has_its_objects_again_and_watches_from_before_get_410(
    fleet: LocalFleet, tmp_path: Path
) -> None:
    cluster, folder, file = fleet.clusters["eu-1"], str(fleet.folder), str(tmp_path / "backup.tar")

    def config_map(name: str) -> dict[str, Any]:
        return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"a": "b"}}

    async with cluster.client() as client:
        maps = client.of(builtin("configmaps"))
        await maps.create(config_map("before"), "default")
        told = await asyncio.to_thread(shoal, "backup", "create", file, "--dir", folder, "--only", "clusters/eu-1")
        assert "objects at revision" in told
        made = await maps.create(config_map("after"), "default")
        seen = made["metadata"]["resourceVersion"]
    await asyncio.to_thread(cluster.process.stop)
    await asyncio.to_thread(shoal, "backup", "restore", file, "--dir", folder, "--only", "clusters/eu-1", "--force")
    await asyncio.to_thread(cluster.process.start)
    async with cluster.client() as client:
        maps, scope = client.of(builtin("configmaps")), Scope(namespace="default")
        found = await maps.list(scope)
        names = {each["metadata"]["name"] for each in found.items}
        assert "before" in names and "after" not in names
        with pytest.raises(Expired):
            async with await maps.watch(scope, resource_version=seen) as watch:
                await anext(aiter(watch))
