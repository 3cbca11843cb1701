"""Gateways of a real fleet whose objects a user deletes in the cluster."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from shoal.client import builtin
from shoal.krane.sentinels.install import AGENT_GATEWAY_ROLE
from shoal.testing.fleets import ENVIRONMENT, PROJECT, LocalFleet, app
from shoal.testing.waiting import eventually

pytestmark = pytest.mark.timeout(300)  # enough for a busy machine

ROUTE = {
    "apiVersion": "shoal.dev/v1", "kind": "Route", "spec": {"host": "shop.example", "app": "web"},
    "metadata": {"name": "front", "project": PROJECT, "environment": ENVIRONMENT},
}  # fmt: skip


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
            await roles.create({"metadata": {"name": AGENT_GATEWAY_ROLE}, "rules": role["rules"]})
        after = await until(healthy=True)
        assert after["address"] == before["address"] != ""
