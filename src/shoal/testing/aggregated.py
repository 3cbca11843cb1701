"""A small aggregated API server for tests: HTTPS, only for the front proxy, with resources in memory.

async with aggregated_server(front_proxy_ca) as ships:
    await register(server, ships)            # a Service, an EndpointSlice and an APIService for it

It serves ``ships`` of ``sea.example/v1``: get, list, watch, create; ``ships/NAME/log``, a long text;
``ships/NAME/talk``, a connection that returns what it gets; discovery and OpenAPI. ``requests`` has what came in.
"""

from __future__ import annotations

import asyncio
import base64
import ssl
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson

from shoal.apiserver.http import HttpServer, Request, Response
from shoal.apiserver.messages import Answer, Sink, Upgrade, Wire, frame
from shoal.app.pki import Pki
from shoal.base.clock import RealClock
from shoal.kube.objects import Obj
from shoal.testing.servers import LocalServer

GROUP, VERSION = "sea.example", "v1"
BASE = f"/apis/{GROUP}/{VERSION}"
SERVICE, NAMESPACE = "ships-api", "kube-system"
API_SERVICES = "/apis/apiregistration.k8s.io/v1/apiservices"
_RESOURCES = [
    {"name": "ships", "singularName": "ship", "namespaced": True, "kind": "Ship", "shortNames": ["sh"],
     "verbs": ["create", "get", "list", "watch"]},
    {"name": "ships/log", "singularName": "", "namespaced": True, "kind": "Ship", "verbs": ["get"]},
]  # fmt: skip
_SHIP = {
    "type": "object",
    "description": "A Ship sails.",
    "properties": {
        "apiVersion": {"type": "string"},
        "kind": {"type": "string"},
        "metadata": {"type": "object"},
        "sails": {"type": "integer"},
    },  # fmt: skip
    "x-kubernetes-group-version-kind": [{"group": GROUP, "version": VERSION, "kind": "Ship"}],
}


class ShipWatch:
    """An endless stream of events."""

    def __init__(self, server: AggregatedServer) -> None:
        self.status, self.content_type = 200, b"application/json"
        self.headers: Sequence[tuple[bytes, bytes]] = ()
        self._server = server
        self.sink: Sink | None = None

    def attach(self, sink: Sink) -> None:
        self.sink = sink
        for ship in self._server.ships.values():
            self.send({"type": "ADDED", "object": ship})

    def send(self, event: Obj) -> None:
        if self.sink is not None:
            self.sink.write(frame(orjson.dumps(event) + b"\n"))

    def on_writable(self) -> None:
        """Events are few."""

    def on_closed(self) -> None:
        self.sink = None
        self._server.watches.remove(self)


class Echo(Upgrade):
    """A connection that returns what it gets."""

    def __init__(self) -> None:
        super().__init__(((b"Connection", b"Upgrade"), (b"Upgrade", b"echo")))
        self._wire: Wire | None = None

    def attach(self, wire: Wire) -> None:
        self._wire = wire

    def on_data(self, data: bytes) -> None:
        assert self._wire is not None
        self._wire.write(data)

    def on_writable(self) -> None:
        """What it gets is little."""

    def on_closed(self) -> None:
        self.ended()


@dataclass(slots=True)
class AggregatedServer:
    """A running server."""

    host: str
    port: int
    ca: bytes  # PEM
    ships: dict[tuple[str, str], Obj] = field(default_factory=dict)
    requests: list[Request] = field(default_factory=list)
    watches: list[ShipWatch] = field(default_factory=list)
    failing: int = 0  # the status of all answers, if not 0
    resources: list[Obj] = field(default_factory=lambda: [dict(each) for each in _RESOURCES])

    @property
    def ca_bundle(self) -> str:
        return base64.b64encode(self.ca).decode()

    async def handle(self, request: Request) -> Answer:
        self.requests.append(request)
        if self.failing:
            return Response(self.failing, b"broken", b"text/plain")
        if request.path == BASE:
            return _json({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": f"{GROUP}/{VERSION}",
                          "resources": self.resources})  # fmt: skip
        if request.path == "/openapi/v3":
            return _json({"paths": {f"apis/{GROUP}/{VERSION}": {"serverRelativeURL": f"/openapi/v3{BASE}?hash=ABC"}}})
        if request.path == f"/openapi/v3{BASE}":
            return _json(_openapi_v3())
        if request.path == "/openapi/v2":
            return _json(_openapi_v2())
        if request.path == f"{BASE}/moved":
            return Response(302, b"", b"", ((b"Location", b"https://example.org/"),))
        return self._resource(request, request.path.removeprefix(f"{BASE}/namespaces/").split("/"))

    def _resource(self, request: Request, parts: Sequence[str]) -> Answer:
        match parts:
            case [namespace, "ships"] if request.method == "POST":
                ship = {**orjson.loads(request.body), "apiVersion": f"{GROUP}/{VERSION}", "kind": "Ship"}
                self.ships[namespace, ship["metadata"]["name"]] = ship
                for watch in self.watches:
                    watch.send({"type": "ADDED", "object": ship})
                return _json(ship, 201)
            case [_, "ships"] if "watch=" in request.query:
                watch = ShipWatch(self)
                self.watches.append(watch)
                return watch
            case [namespace, "ships"]:
                items = [ship for (where, _), ship in sorted(self.ships.items()) if where == namespace]
                return _json({"kind": "ShipList", "apiVersion": f"{GROUP}/{VERSION}", "metadata": {}, "items": items})
            case [namespace, "ships", name] if (namespace, name) in self.ships:
                return _json(self.ships[namespace, name])
            case [_, "ships", _, "talk", *_]:
                return Echo()
            case [_, "ships", _, "log"]:
                return Response(200, b"all well\n" * 100_000, b"text/plain")
        status = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404}
        return _json({**status, "message": "no such ship"}, 404)


def _json(content: Any, status: int = 200) -> Response:
    return Response(status, orjson.dumps(content))


def _openapi_v3() -> Obj:
    return {"openapi": "3.0.0", "info": {"title": "ships", "version": "1"}, "paths": {f"{BASE}/": {}},
            "components": {"schemas": {"example.sea.v1.Ship": _SHIP}}}  # fmt: skip


def _openapi_v2() -> Obj:
    listed = {
        "get": {"responses": {"200": {"description": "OK", "schema": {"$ref": "#/definitions/example.sea.v1.Ship"}}}}
    }
    return {
        "swagger": "2.0",
        "info": {"title": "ships", "version": "1"},
        "paths": {f"{BASE}/namespaces/{{namespace}}/ships": listed, "/healthz": {}, "/apis/other.example/v1/": {}},
        "definitions": {"example.sea.v1.Ship": _SHIP, "unused": {"type": "object"}},
    }


@asynccontextmanager
async def aggregated_server(front_proxy_ca: Path, *, host: str = "127.0.0.1") -> AsyncIterator[AggregatedServer]:
    """Accepts only clients with a certificate of ``front_proxy_ca``."""
    with tempfile.TemporaryDirectory() as directory:
        pki = Pki(Path(directory) / "pki", now=datetime.now(UTC))
        pair = pki.ensure_server([f"{SERVICE}.{NAMESPACE}.svc"])
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(pair.cert, pair.key)
        context.load_verify_locations(front_proxy_ca)
        context.verify_mode = ssl.CERT_REQUIRED
        ca = pki.ca_cert.read_bytes()
    server = AggregatedServer(host, 0, ca)
    loop = asyncio.get_running_loop()
    http = HttpServer(server.handle, _on_error, loop=loop, clock=RealClock())
    listener = await loop.create_server(http, host, 0, ssl=context, ssl_shutdown_timeout=0.5)
    server.port = listener.sockets[0].getsockname()[1]
    try:
        yield server
    finally:
        listener.close()
        await http.stop(grace_s=0.0)


def _on_error(request: Request, error: Exception) -> Response:
    return Response(500, f"{type(error).__name__}: {error}".encode(), b"text/plain")


def api_service(**spec: Any) -> Obj:
    """An APIService for the server; ``spec`` are other fields of it."""
    return {
        "apiVersion": "apiregistration.k8s.io/v1",
        "kind": "APIService",
        "metadata": {"name": f"{VERSION}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "version": VERSION,
            "groupPriorityMinimum": 500,
            "versionPriority": 20,
            "service": {"name": SERVICE, "namespace": NAMESPACE},
            **spec,
        },
    }


async def register(server: LocalServer, ships: AggregatedServer) -> None:
    """Create the Service, its EndpointSlice and the APIService."""
    await server.post(f"/api/v1/namespaces/{NAMESPACE}/services", service())
    await server.post(f"/apis/discovery.k8s.io/v1/namespaces/{NAMESPACE}/endpointslices", endpoints(ships))
    await server.post(API_SERVICES, api_service(caBundle=ships.ca_bundle))


def service() -> Obj:
    return {"metadata": {"name": SERVICE}, "spec": {"ports": [{"name": "https", "port": 443}]}}


def endpoints(ships: AggregatedServer) -> Obj:
    return {
        "metadata": {"name": SERVICE, "labels": {"kubernetes.io/service-name": SERVICE}},
        "addressType": "IPv4",
        "endpoints": [{"addresses": [ships.host], "conditions": {"ready": True}}],
        "ports": [{"name": "https", "port": ships.port}],
    }
