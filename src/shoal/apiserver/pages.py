"""Non-resource paths: discovery, OpenAPI, version, health, metrics, debugging. Built on first use and kept."""

from __future__ import annotations

import platform
from collections.abc import Callable, Sequence
from typing import Any

import orjson

from shoal.apiserver.aggregator.service import Aggregator
from shoal.apiserver.authn.keys import IssuerDocuments
from shoal.apiserver.context import Core
from shoal.apiserver.health import ENDPOINTS, HealthChecks
from shoal.apiserver.http import Request, Response
from shoal.apiserver.messages import DocumentResponse
from shoal.apiserver.negotiate import query
from shoal.base.metrics import Metrics, formatted, metrics_page
from shoal.base.supervision import stalled_loops
from shoal.errors import NotFound
from shoal.kube.discovery import DiscoveryDocuments, wants_aggregated
from shoal.kube.resources import Resource
from shoal.kube.schema import kubernetes_version

_TEXT = b"text/plain; charset=utf-8"
_HEALTH = tuple(f"/{endpoint}" for endpoint in ENDPOINTS)
_BELOW_HEALTH = tuple(f"/{endpoint}/" for endpoint in ENDPOINTS)


class Pages:
    """Answers non-resource paths."""

    def __init__(
        self,
        core: Core,
        metrics: Metrics,
        aggregator: Aggregator,
        more_schemas: Callable[[], Sequence[tuple[Resource, dict[str, Any]]]] = tuple,
        issuer: IssuerDocuments | None = None,
    ) -> None:
        """``more_schemas``: of served resources that are neither built in nor defined by users."""
        self.core = core
        self._aggregator = aggregator
        self._more_schemas = more_schemas
        self._metrics = metrics  # of this server and the parts beside it; a process may have several servers
        address = f"{core.config.advertise_address}:{core.config.advertise_port}"
        self._discovery = DiscoveryDocuments((served.resource for served in core.registry), server_address=address)
        self._discovered = core.registry.version, aggregator.version
        self._openapi: object | None = None
        self._version = _version_body()
        self._started_s = core.clock.wall_s()
        self.ready = False
        self.health = HealthChecks()
        self.health.add("ping", str)
        self.health.add("store", lambda: core.store.problem)
        self.health.add("loops", _stalled, ("healthz", "livez"))
        self.health.add("boot", lambda: "" if self.ready else "not ready yet", ("readyz",))
        self.issuer = issuer  # of service account tokens, when this server signs them

    def handle(self, request: Request) -> Response:
        path = request.path.rstrip("/") or "/"
        if path in _HEALTH or path.startswith(_BELOW_HEALTH):
            return self._health(path, request)
        if path == "/version":
            return DocumentResponse(200, self._version)
        if path == "/api" or path == "/apis" or path.startswith(("/api/", "/apis/")):
            return self._discover(path, request)
        if path.startswith("/openapi/"):
            return self._open_api(path, request)
        if path == "/metrics" or path == "/metrics/slis":
            return self._counts(path, request)
        if path in ("/statusz", "/flagz"):
            return self._debug_page(path, request)
        if self.issuer is not None:
            document = self.issuer.get(path)
            if document is not None:
                return Response(200, *document)
        if path == "/":
            return DocumentResponse(200, orjson.dumps({"paths": self._paths()}))
        raise NotFound("the server could not find the requested resource")

    # -- discovery -------------------------------------------------------------------------------------------------

    def _discover(self, path: str, request: Request) -> Response:
        self._refresh()
        aggregated = wants_aggregated(request.headers.get(b"accept", b"").decode("latin-1"))
        document = self._discovery.get(path, aggregated=aggregated)
        if document is None:
            raise NotFound("the server could not find the requested resource")
        headers: list[tuple[bytes, bytes]] = [(b"Vary", b"Accept")]
        if document.etag:
            etag = document.etag.encode()
            headers += [(b"ETag", etag)]
            if request.headers.get(b"if-none-match") == etag:
                return Response(304, b"", b"", headers)
        return DocumentResponse(200, document.body, document.content_type.encode(), headers)

    def _refresh(self) -> None:
        """Rebuild the documents after definitions or APIServices changed."""
        aggregator = self._aggregator
        known = self.core.registry.version, aggregator.version
        if self._discovered != known:
            self._discovered = known
            here = tuple(served.resource for served in self.core.registry)
            self._discovery.update(here, aggregator.priorities, aggregator.elsewhere())

    def _paths(self) -> list[str]:
        self._refresh()
        groups = [f"/apis/{g}/{v}" if g else f"/api/{v}" for g, v in self._discovery.group_versions()]
        return [
            *(() if self.issuer is None else (self.issuer.CONFIGURATION,)),
            "/api",
            "/apis",
            *groups,
            "/flagz",
            "/healthz",
            "/livez",
            "/metrics",
            "/metrics/slis",
            "/openapi/v2",
            "/openapi/v3",
            *(() if self.issuer is None else (self.issuer.KEY_SET,)),
            "/readyz",
            "/statusz",
            "/version",
        ]

    # -- OpenAPI ---------------------------------------------------------------------------------------------------

    def _open_api(self, path: str, request: Request) -> Response:
        from shoal.kube.openapi import OpenApi

        if self._openapi is None:
            self._openapi = OpenApi()
            self._openapi_version = -1, -1
        documents: OpenApi = self._openapi  # type: ignore[assignment]
        registry, aggregator = self.core.registry, self._aggregator
        if self._openapi_version != (registry.version, aggregator.version):
            self._openapi_version = registry.version, aggregator.version
            defined = [(s.resource, s.crd.openapi) for s in registry if s.crd is not None]
            here = {served.resource for served in registry}
            documents.set_custom([*defined, *(each for each in self._more_schemas() if each[0] in here)])
            documents.set_aggregated(each.openapi for each in aggregator.routes.values() if each.openapi is not None)
        accept = request.headers.get(b"accept", b"").decode("latin-1")
        found = documents.resolve(path, query(request.query).get("hash", ""), accept)
        if found is None:
            raise NotFound("the server could not find the requested resource")
        headers = [(name.encode(), value.encode()) for name, value in found.headers.items()]
        etag = next((value for name, value in headers if name.lower() == b"etag"), None)
        if etag is not None and request.headers.get(b"if-none-match") == etag:
            return Response(304, b"", b"", headers)
        return Response(found.status, found.body, found.content_type.encode(), headers)

    # -- health ----------------------------------------------------------------------------------------------------

    def _health(self, path: str, request: Request) -> Response:
        asked = query(request.query)
        good, text = self.health.ask(
            path.strip("/"), verbose="verbose" in asked, excluded=asked.get("exclude", "").split(",")
        )
        return Response(200 if good else 500, text.encode(), _TEXT)

    def _counts(self, path: str, request: Request) -> Response:
        accept = request.headers.get(b"accept", b"").decode("latin-1")
        if path == "/metrics":
            body, media = metrics_page(self._metrics, accept=accept)
        else:
            body, media = formatted(self.health.metrics.expose(), accept)
        return Response(200, body, media.encode())

    def _debug_page(self, path: str, request: Request) -> Response:
        from shoal.apiserver import zpages

        accept = request.headers.get(b"accept", b"").decode("latin-1")
        if path == "/flagz":
            return zpages.flagz(accept, self.core.config)
        now_s = self.core.clock.wall_s()
        return zpages.statusz(accept, started_s=self._started_s, now_s=now_s, paths=self._paths())


def _version_body() -> bytes:
    version = kubernetes_version()
    major, minor, _ = version.split(".", 2)
    return orjson.dumps(
        {
            "major": major,
            "minor": minor,
            "gitVersion": f"v{version}+shoal",
            "gitCommit": "",
            "gitTreeState": "clean",
            "buildDate": "1970-01-01T00:00:00Z",
            "goVersion": "",
            "compiler": "cpython",
            "platform": f"{platform.system().lower()}/{_machine()}",
        }
    )


def _machine() -> str:
    return {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())


def _stalled() -> str:
    return "; ".join(f"{name}: {why}" for name, why in stalled_loops().items())
