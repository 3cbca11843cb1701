"""Gateways of a real fleet whose objects a user deletes in the cluster."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from shoal.base.files import holder_of
from shoal.client import builtin
from shoal.krane.sentinels.install import AGENT_GATEWAY_ROLE
from shoal.testing.fleets import ENVIRONMENT, PROJECT, LocalFleet, app
from shoal.testing.traffic import demo_fleet, gateway_address
from shoal.testing.waiting import eventually, eventually_blocking

pytestmark = pytest.mark.timeout(300)  # enough for a busy machine

ROUTE = {
    "apiVersion": "shoal.dev/v1", "kind": "Route", "spec": {"host": "shop.example", "app": "web"},
    "metadata": {"name": "front", "project": PROJECT, "environment": ENVIRONMENT},
}  # fmt: skip


def shoal(fleet: LocalFleet, *words: str) -> subprocess.CompletedProcess[str]:
    context = fleet.api.context
    given = {"SHOAL_URL": context.url, "SHOAL_TOKEN": context.token, "SHOAL_CA": context.ca}
    command = [sys.executable, "-m", "shoal", *words, "-p", PROJECT, "-e", ENVIRONMENT]
    return subprocess.run(command, env=os.environ | given, capture_output=True, text=True, timeout=120, check=False)


async def test_gateways_whose_namespace_is_deleted_come_back_and_while_they_cannot_status_says_why(
    tmp_path: Path,
) -> None:
    with LocalFleet(tmp_path) as fleet:
        await asyncio.to_thread(fleet.start, {"eu-1": "eu"})
        await asyncio.to_thread(fleet.start_agents, [("eu-1", "default")])
        await asyncio.to_thread(fleet.api.apply, app("web", {"eu": 1}), ROUTE)

        async def gateway() -> dict[str, Any]:
            (found,) = (await asyncio.to_thread(fleet.api.get, "/status"))["gateways"]
            return dict(found)

        async def until(healthy: bool) -> dict[str, Any]:
            def seen(one: dict[str, Any]) -> bool:
                return (one["health"] == "healthy" and not one["reason"]) == healthy

            return dict(await eventually(gateway, until=seen, timeout_s=60, explain=fleet.logs, retry_on=(ValueError,)))

        before = await until(healthy=True)
        async with fleet.clusters["eu-1"].client() as admin:
            roles = admin.of(builtin("clusterroles", "rbac.authorization.k8s.io"))
            role = await roles.get(AGENT_GATEWAY_ROLE)
            await roles.delete(AGENT_GATEWAY_ROLE)
            await admin.of(builtin("namespaces")).delete("sentinel")
            refused = await eventually(gateway, until=lambda one: "orbidden" in one["reason"], timeout_s=60)
            assert "sentinel" in refused["reason"]
            waited = await asyncio.to_thread(shoal, fleet, "status", "web", "--wait-ready", "--timeout", "2s")
            assert waited.returncode == 1 and "gateway" in waited.stderr and "orbidden" in waited.stderr, waited
            assert (await asyncio.to_thread(fleet.api.app_status, "web"))["state"] == "Ready", "only its gateway is not"
            await roles.create({"metadata": {"name": AGENT_GATEWAY_ROLE}, "rules": role["rules"]})
            waited = await asyncio.to_thread(shoal, fleet, "status", "web", "--wait-ready", "--timeout", "60s")
            assert waited.returncode == 0 and "Ready" in waited.stdout, waited
        after = await until(healthy=True)
        assert after["address"] == before["address"] != ""


@pytest.mark.chaos  # almost a minute
def test_a_gateway_cut_off_from_its_cluster_is_shown_as_stale_everywhere(tmp_path: Path) -> None:
    """Gateways reach the API server by its Service, so they are cut off while the service proxy is stopped."""
    with demo_fleet(tmp_path) as fleet:
        gateway_address(fleet.api)
        sentinels = f"/projects/{PROJECT}/environments/{ENVIRONMENT}/sentinels"

        def counted() -> bool:
            (found,) = fleet.api.get(sentinels)["items"]
            status = fleet.api.get(f"{sentinels}/{found['metadata']['name']}/status")
            return bool(status["places"][0]["reported"]["stats"]["gateways"])

        eventually_blocking(counted, timeout_s=60, retry_on=(KeyError, TypeError), explain=fleet.logs)
        commands = (("status",), ("get", "sentinels"), ("explain", "app", "web"))

        def shows(word: str) -> bool:
            return all(word in shoal(fleet, *command).stdout for command in commands)

        assert not any("stale" in shoal(fleet, *command).stdout for command in commands)
        proxy = holder_of(tmp_path / "clusters" / "eu-1" / "proxy" / "proxy.lock")
        assert proxy is not None
        os.kill(proxy, signal.SIGSTOP)
        try:
            eventually_blocking(lambda: shows("stale"), timeout_s=120, explain=fleet.logs)
            waited = shoal(fleet, "status", "web", "--wait-ready", "--timeout", "1s")
            assert waited.returncode == 1 and "no sign of life" in waited.stderr
        finally:
            os.kill(proxy, signal.SIGCONT)
        eventually_blocking(lambda: "stale" not in shoal(fleet, "status").stdout, timeout_s=60, explain=fleet.logs)
