"""What a gateway knows is what the cluster has of its environment; read from a real API server."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random
from typing import Any, cast

import orjson

from shoal.base.clock import RealClock
from shoal.base.tasks import cancel_all
from shoal.client import Client, builtin
from shoal.client.transport import Transport
from shoal.crds.sentinel import definitions
from shoal.sentinel.config import SentinelConfig
from shoal.sentinel.inputs import POLICY_TYPE, ROUTE_TYPE, InputKeeper
from shoal.sentinel.model import ServiceKey, Settings
from shoal.testing.servers import local_server
from shoal.testing.waiting import eventually

SLICES = builtin("endpointslices", "discovery.k8s.io")


@asynccontextmanager
async def cluster() -> AsyncIterator[Client]:
    async with local_server() as server:
        client = Client(cast(Transport, server.transport), clock=RealClock())
        for name in ("sentinel", "shop"):
            await client.of(builtin("namespaces")).create({"metadata": {"name": name}})
        for definition in definitions():
            await client.of(builtin("customresourcedefinitions", "apiextensions.k8s.io")).create(definition)
        for type_ in (ROUTE_TYPE, POLICY_TYPE):
            await eventually(lambda type_=type_: client.of(type_).list())
        yield client


@asynccontextmanager
async def keeping(client: Client, **config: Any) -> AsyncIterator[InputKeeper]:
    keeper = InputKeeper(
        client, SentinelConfig(name="gw", **config), Settings(), clock=RealClock(), random=Random(1).random,
        changed=lambda: None,
    )  # fmt: skip
    running = asyncio.create_task(keeper.run(), name="inputs")
    try:
        await eventually(lambda: keeper.synced)
        yield keeper
    finally:
        await cancel_all(running)


def about(name: str, environment: str, namespace: str = "sentinel", **labels: str) -> dict[str, Any]:
    return {"name": name, "namespace": namespace, "labels": {"shoal.dev/environment": environment, **labels}}


async def add_route(client: Client, name: str, environment: str, **spec: Any) -> None:
    given = {"environment": environment, "host": f"{name}.example", **spec}
    await client.of(ROUTE_TYPE).create({"metadata": about(name, environment), "spec": given})


async def add_slice(client: Client, name: str, environment: str, *addresses: str) -> None:
    await client.of(SLICES).create(
        {
            "metadata": about(name, environment, "shop", **{"kubernetes.io/service-name": "web"}),
            "addressType": "IPv4",
            "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}],
            "endpoints": [{"addresses": [one], "conditions": {"ready": True}} for one in addresses],
        }
    )


def encoded(text: bytes) -> str:
    return base64.b64encode(text).decode()


async def test_a_gateway_knows_its_environment_and_no_other() -> None:
    async with cluster() as client:
        await add_route(client, "mine", "env_1")
        await add_route(client, "theirs", "env_2")
        await add_slice(client, "web-1", "env_1", "10.0.0.1")
        await add_slice(client, "web-2", "env_2", "10.0.0.2")
        async with keeping(client, environment="env_1") as keeper:
            known = keeper.current()
            assert set(known.routes) == {"mine"}
            found = known.endpoints[ServiceKey("shop", "web")].endpoints
            assert [one.address for one in found] == ["10.0.0.1"]
        async with keeping(client, shared=True) as keeper:
            assert set(keeper.current().routes) == {"mine", "theirs"}


async def test_only_what_changed_is_another_object() -> None:
    async with cluster() as client:
        await add_route(client, "mine", "env_1")
        await add_slice(client, "web-1", "env_1", "10.0.0.1")
        async with keeping(client, environment="env_1") as keeper:
            before = keeper.current()
            assert keeper.current() is before
            await add_slice(client, "web-2", "env_1", "10.0.0.2")
            key = ServiceKey("shop", "web")
            await eventually(lambda: len(keeper.current().endpoints[key].endpoints) == 2)
            assert keeper.current().routes is before.routes
            await client.of(SLICES).delete("web-1", "shop")
            await client.of(SLICES).delete("web-2", "shop")
            await eventually(lambda: key not in keeper.current().endpoints)


async def test_certificates_keys_and_peers_are_read_and_go_again() -> None:
    async with cluster() as client:
        async with keeping(client, environment="env_1") as keeper:
            secrets = client.of(builtin("secrets"))
            entry = orjson.dumps({"digest": "AB", "permissions": ["read"], "subject": "ci", "expires": 0})
            await secrets.create(
                {"metadata": about("keys-env-1", "env_1"), "type": "Opaque", "data": {"key_1": encoded(entry)}}
            )
            pair = {"tls.crt": encoded(b"certificate"), "tls.key": encoded(b"key")}
            await secrets.create({"metadata": about("shop-tls", "env_1"), "type": "kubernetes.io/tls", "data": pair})
            peers = orjson.dumps([{"region": "us", "addresses": ["192.0.2.1:8040"], "distance": 1}]).decode()
            await client.of(builtin("configmaps")).create(
                {"metadata": about("peers-gw", "env_1"), "data": {"peers.json": peers}}
            )
            await eventually(lambda: keeper.current().keys and keeper.current().tls and keeper.current().peers)
            (key,) = keeper.current().keys["env_1"].keys
            assert (key.digest, key.subject, key.permissions) == ("ab", "ci", frozenset({"read"}))
            assert keeper.current().tls["shop-tls"].certificate == b"certificate"
            assert keeper.current().peers[0].region == "us"
            await secrets.delete("keys-env-1", "sentinel")
            await secrets.delete("shop-tls", "sentinel")
            await eventually(lambda: not keeper.current().keys and not keeper.current().tls)
