"""A gateway that starts without its cluster serves its saved state; and a gateway prefers instances of its zone."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
from gateway_world import (
    ENVIRONMENT,
    LABELS,
    SLICES,
    CuttableTransport,
    Instance,
    World,
    endpoint_slice,
    gateway,
    instances,
    route,
    world,
)

from shoal.base.clock import RealClock
from shoal.client import Client, builtin
from shoal.client.transport import Transport
from shoal.sentinel import snapshot
from shoal.sentinel.config import SentinelConfig
from shoal.sentinel.inputs import ROUTE_TYPE
from shoal.sentinel.zone import LABEL, find_zone
from shoal.testing.waiting import eventually


@asynccontextmanager
async def restarted(before: World, state: Path) -> AsyncIterator[World]:
    """Another gateway of the same name, whose connection to the cluster is cut; the old one has ended."""
    assert before.transport is not None
    transport = CuttableTransport(before.transport.inner)
    transport.cut()
    client = Client(transport, clock=RealClock(), field_manager="sentinel")  # type: ignore[arg-type]
    saved = snapshot.read(SentinelConfig(name=before.config.name, environment=ENVIRONMENT, state=state))
    async with gateway(client, saved=saved, state=state, restore_s=0.2) as found:
        found.client, found.transport = before.client, transport
        yield found


async def readiness(up: World) -> dict[str, Any]:
    async with httpx.AsyncClient() as http:
        found: dict[str, Any] = (await http.get(f"http://{up.config.host}:{up.config.health_port}/readyz")).json()
        return found


async def test_a_gateway_that_starts_while_the_cluster_is_unreachable_serves_its_saved_state(tmp_path: Path) -> None:
    async with instances("one") as (one,):
        given = (SLICES, endpoint_slice("dep_1", one)), (ROUTE_TYPE, route("web", "shop.example", "dep_1"))
        async with world(*given, state=tmp_path) as up:
            await up.answers("shop.example", "one")
            await eventually(lambda: (tmp_path / snapshot.FILE).exists())
            up.gateway.leave()
            async with restarted(up, tmp_path) as again:
                await eventually(lambda: all(again.gateway.ready.values()), timeout_s=20)
                assert (await again.get("shop.example")).text == "one"
                told = await readiness(again)
                assert told["ok"] and "cannot be read" in told["notes"]["inputs"]
                await up.route("later", "later.example", "dep_1")
                assert (await again.get("later.example")).status_code == 404
                assert again.transport is not None
                again.transport.mend()
                await again.answers("later.example", "one")
                assert (await again.get("shop.example")).text == "one"
                assert "notes" not in await readiness(again)


async def test_without_a_saved_state_a_gateway_is_not_ready_before_the_cluster_can_be_read(tmp_path: Path) -> None:
    async with world() as up:
        up.gateway.leave()
        (tmp_path / snapshot.FILE).write_bytes(b"{}")
        async with restarted(up, tmp_path) as again:
            assert again.transport is not None
            await eventually(lambda: again.transport is not None and again.transport.refused > 3)
            told = await readiness(again)
            assert not told["ok"] and not told["checks"]["inputs"]
            again.transport.mend()
            await eventually(lambda: all(again.gateway.ready.values()), timeout_s=20)


def zoned(service: str, instance: Instance, zone: str) -> dict[str, Any]:
    made = endpoint_slice(service, instance)
    made["endpoints"][0]["zone"] = zone
    return made


def own_slice(*zones: str) -> dict[str, Any]:
    """Of the gateway's own Service."""
    about = {"name": "sentinel-eu-1", "namespace": "sentinel"}
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {**about, "labels": {**LABELS, "kubernetes.io/service-name": "sentinel-eu"}},
        "addressType": "IPv4",
        "ports": [{"name": "http", "port": 8040, "protocol": "TCP"}],
        "endpoints": [
            {"addresses": [f"127.0.1.{at}"], "conditions": {"ready": True}, "zone": zone}
            for at, zone in enumerate(zones, 1)
        ],
    }


async def test_a_gateway_asks_instances_of_its_own_zone_first() -> None:
    async with instances("a1", "a2", "b1", "b2") as found:
        slices = [(SLICES, zoned("dep_1", one, one.name[0])) for one in found]
        given = (ROUTE_TYPE, route("web", "shop.example", "dep_1")), (SLICES, own_slice("a", "b"))
        async with world(*slices, *given, zone="a") as up:
            answers = {(await up.get("shop.example")).text for _ in range(30)}
            assert answers == {"a1", "a2"}


async def test_the_zone_is_that_of_the_node_unless_it_is_given_or_cannot_be_known() -> None:
    async with world() as up:
        node = {"metadata": {"name": "node-1", "labels": {LABEL: "eu-b"}}}
        await up.client.of(builtin("nodes")).create(node)
        mine = up.gateway.inputs.routes  # its account is the one that krane's rules are for
        assert mine.synced and up.transport is not None
        client = Client(_transport(up.transport), clock=RealClock())

        async def zone(**fields: str) -> str:
            return await find_zone(client, SentinelConfig(**fields), known="kept", clock=RealClock())  # type: ignore[arg-type]

        assert await zone(node="node-1") == "eu-b"
        assert await zone(node="node-1", zone="given") == "given"
        assert await zone() == ""
        assert await zone(node="missing") == "kept"
        up.transport.cut()
        assert await zone(node="node-1") == "kept"


def _transport(transport: CuttableTransport) -> Transport:
    return transport  # type: ignore[return-value]
