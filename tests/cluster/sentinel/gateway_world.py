"""A cluster in this process, a gateway with a real Envoy, and instances that are small HTTP servers."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any, cast

import httpx

from shoal.apiserver.inprocess import InProcessTransport
from shoal.apiserver.user import User
from shoal.app.ports import any_free
from shoal.base.clock import RealClock
from shoal.base.metrics import Metrics
from shoal.base.tasks import cancel_all
from shoal.client import Client, Disconnected, ResourceType, Unreachable, builtin
from shoal.client.transport import Reply, StreamReply, Transport
from shoal.crds.sentinel import definitions
from shoal.krane.sentinels import install
from shoal.kube.objects import Obj
from shoal.sentinel.config import SentinelConfig
from shoal.sentinel.inputs import POLICY_TYPE, ROUTE_TYPE
from shoal.sentinel.service import Gateway
from shoal.sentinel.snapshot import SavedState
from shoal.testing.servers import local_server
from shoal.testing.waiting import eventually

ENVIRONMENT = "env_1"
LABELS = {"shoal.dev/environment": ENVIRONMENT}
# What krane's rules allow to gateways has to be enough.
ACCOUNT = User(
    "system:serviceaccount:sentinel:sentinel-eu",
    ("system:serviceaccounts", "system:serviceaccounts:sentinel", "system:authenticated"),
)
SLICES = builtin("endpointslices", "discovery.k8s.io")


class Instance:
    """Answers every request with its name; ``delay_s`` first."""

    def __init__(self, name: str, delay_s: float = 0.0) -> None:
        self.name = name
        self.delay_s = delay_s
        self.port = 0
        self.requests = 0
        self.heads: list[bytes] = []  # of the last requests
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        assert self._server is not None
        self._server.close()
        await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                self.requests += 1
                self.heads = [*self.heads[-9:], head]
                await asyncio.sleep(self.delay_s)
                body = self.name.encode()
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body))
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


def route(name: str, host: str, *deployments: str, **spec: Any) -> Obj:
    backends = [{"deployment": one, "namespace": "shop", "service": _service(one)} for one in deployments]
    return {
        "apiVersion": ROUTE_TYPE.api_version,
        "kind": ROUTE_TYPE.kind,
        "metadata": {"name": name, "namespace": "sentinel", "labels": LABELS},
        "spec": {"environment": ENVIRONMENT, "host": host, "backends": backends, **spec},
    }


def endpoint_slice(deployment: str, instance: Instance) -> Obj:
    """One for each instance: all endpoints of a slice have the same port."""
    service = _service(deployment)
    labels = {**LABELS, "kubernetes.io/service-name": service}
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {"name": f"{service}-{instance.port}", "namespace": "shop", "labels": labels},
        "addressType": "IPv4",
        "ports": [{"name": "http", "port": instance.port, "protocol": "TCP"}],
        "endpoints": [{"addresses": ["127.0.0.1"], "conditions": {"ready": True}}],
    }


def _service(deployment: str) -> str:
    return deployment.replace("_", "-")


class World:
    """What a test does to the cluster, and asks of the gateway."""

    def __init__(self, client: Client, gateway: Gateway, config: SentinelConfig) -> None:
        self.client = client
        self.gateway = gateway
        self.config = config
        self.transport: CuttableTransport | None = None  # of the gateway; not of the test
        self._slices: set[str] = set()
        self.http = httpx.AsyncClient(base_url=f"http://{config.host}:{config.port}", timeout=60)

    async def put(self, type_: ResourceType, obj: Obj) -> Obj:
        return await self.client.of(type_).apply(obj, force=True)

    async def route(self, name: str, host: str, *deployments: str, **spec: Any) -> None:
        await self.put(ROUTE_TYPE, route(name, host, *deployments, **spec))

    async def endpoints(self, deployment: str, *instances: Instance) -> None:
        """These, and no others, are the instances of the deployment."""
        wanted = {obj["metadata"]["name"]: obj for obj in (endpoint_slice(deployment, one) for one in instances)}
        for obj in wanted.values():
            await self.put(SLICES, obj)
        mine = {name for name in self._slices if name.startswith(f"{_service(deployment)}-")}
        for name in mine - wanted.keys():
            await self.client.of(SLICES).delete(name, "shop")
        self._slices = self._slices - mine | set(wanted)

    async def get(self, host: str, path: str = "/") -> httpx.Response:
        return await self.http.get(path, headers={"host": host})

    async def answers(self, host: str, text: str, path: str = "/") -> None:
        async def look() -> bool:
            try:
                found = await self.get(host, path)
            except httpx.TransportError:
                return False
            return found.status_code == 200 and found.text == text

        await eventually(look)

    async def status(self, name: str) -> Obj | None:
        found = await self.client.of(ROUTE_TYPE).get(name, "sentinel")
        entries = (found.get("status") or {}).get("gateways") or ()
        return next((one for one in entries if one["name"] == self.config.replica), None)


async def prepare(client: Client) -> None:
    """The namespaces and kinds that krane makes in a real cluster."""
    await client.of(builtin("namespaces")).create({"metadata": {"name": "shop"}})
    for shared in install.shared_objects():
        await (await client.by_kind(shared["kind"], shared["apiVersion"])).create(shared)
    for definition in definitions():
        await client.of(builtin("customresourcedefinitions", "apiextensions.k8s.io")).create(definition)
    for type_ in (ROUTE_TYPE, POLICY_TYPE):
        await eventually(lambda type_=type_: client.of(type_).list())


@asynccontextmanager
async def gateway(client: Client, *, saved: SavedState | None = None, **settings: Any) -> AsyncIterator[World]:
    """A gateway of the environment. Entered when it runs, ready or not."""
    given = {
        "name": "sentinel-eu", "pod": "sentinel-eu-0", "region": "eu", "environment": ENVIRONMENT, "port": any_free("127.0.0.1"),
        "health_port": any_free("127.0.0.1"), "metrics_port": any_free("127.0.0.1"), "concurrency": 1, "drain_s": 1.0, "stats_s": 0.5,
    }  # fmt: skip
    config = SentinelConfig(**{**given, **settings})
    with tempfile.TemporaryDirectory(prefix="sg-", dir="/tmp") as folder:
        made = Gateway(
            config, client, Path(folder), clock=RealClock(), random=Random(1).random, metrics=Metrics(), saved=saved
        )
        async with made.running():
            world = World(client, made, config)
            try:
                yield world
            finally:
                await world.http.aclose()


@asynccontextmanager
async def world(*before: tuple[ResourceType, Obj], **settings: Any) -> AsyncIterator[World]:
    """A cluster, with these objects in it, and a gateway that is ready."""
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(local_server(loopback_endpoints=True))
        client = Client(cast(Transport, server.transport), clock=RealClock(), field_manager="test")
        await prepare(client)
        for type_, obj in before:
            await client.of(type_).apply(obj, force=True)
        transport = CuttableTransport(cast(Transport, InProcessTransport(server.server.handler, ACCOUNT)))
        own = Client(cast(Transport, transport), clock=RealClock(), field_manager="sentinel")
        found = await stack.enter_async_context(gateway(own, **settings))
        found.client, found.transport = client, transport
        await eventually(lambda: all(found.gateway.ready.values()), timeout_s=60)
        yield found


@asynccontextmanager
async def instances(*names: str) -> AsyncIterator[list[Instance]]:
    made = [Instance(name) for name in names]
    for one in made:
        await one.start()
    try:
        yield made
    finally:
        for one in made:
            await one.stop()


@asynccontextmanager
async def steady_load(world: World, host: str, results: list[str]) -> AsyncIterator[None]:
    """Requests one after the other until the end of the block; each one's outcome goes into ``results``."""

    async def ask() -> None:
        while True:
            try:
                found = await world.get(host)
                results.append(found.text if found.status_code == 200 else f"error {found.status_code} {found.text}")
            except httpx.TransportError as error:
                results.append(f"error {error!r}")
            await asyncio.sleep(0.002)

    tasks = [asyncio.create_task(ask(), name=f"load/{n}") for n in range(4)]
    try:
        yield
    finally:
        await cancel_all(*tasks)


class CuttableTransport:
    """A transport to the API server that a test can cut: then requests fail and watches break."""

    def __init__(self, inner: Transport) -> None:
        self.inner = inner
        self._cut = asyncio.Event()
        self.refused = 0  # requests while it was cut

    def cut(self) -> None:
        self._cut.set()

    def mend(self) -> None:
        self._cut.clear()

    def _check(self) -> None:
        if self._cut.is_set():
            self.refused += 1
            raise Unreachable("the connection is cut")

    async def request(self, method: str, target: str, **given: Any) -> Reply:
        self._check()
        return await self.inner.request(method, target, **given)

    async def stream(self, method: str, target: str, **given: Any) -> StreamReply:
        self._check()
        return cast(StreamReply, _CuttableStream(await self.inner.stream(method, target, **given), self._cut))

    async def close(self) -> None:
        await self.inner.close()


class _CuttableStream:
    def __init__(self, inner: StreamReply, cut: asyncio.Event) -> None:
        self._inner = inner
        self._cut = cut
        self.status, self.headers = inner.status, inner.headers

    async def chunks(self) -> AsyncIterator[bytes]:
        source = self._inner.chunks()
        cut = asyncio.create_task(self._cut.wait(), name="cut")
        try:
            while True:
                chunk = asyncio.ensure_future(anext(source, None))
                await asyncio.wait({chunk, cut}, return_when=asyncio.FIRST_COMPLETED)
                if cut.done():
                    await cancel_all(chunk)
                    raise Disconnected("the connection was cut")
                found = chunk.result()
                if found is None:
                    return
                yield found
        finally:
            cut.cancel()

    async def close(self) -> None:
        await self._inner.close()
