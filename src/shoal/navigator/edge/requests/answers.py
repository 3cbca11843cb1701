"""The answer to each kind of request, in parts."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from dataclasses import dataclass
from typing import Protocol, assert_never

import orjson

from shoal.base import tracing
from shoal.client import Client, Scope, TransportError, builtin
from shoal.errors import BadRequest, ServiceUnavailable
from shoal.navigator.connections import ServiceConnection, connections_json
from shoal.navigator.edge.requests.connections import Connections
from shoal.navigator.edge.requests.proxies import Proxies
from shoal.wire.navigator.v1 import navigator_pb as pb

_LINES_BYTES = 64 * 1024


class CallSource(Protocol):
    """Calls as the cluster's own proxies have counted them."""

    @property
    def has_proxies(self) -> bool: ...

    def between(
        self, start_s: float, end_s: float, *, namespace: str, service: str
    ) -> tuple[list[ServiceConnection], list[str]]:
        """Rates over the period, and what is missing."""


@dataclass(frozen=True, slots=True)
class Answers:
    """``prometheus`` is None where none is known."""

    client: Client
    proxies: Proxies
    calls: CallSource
    namespaces: Callable[[], frozenset[str] | None]  # those watched one by one; None: the whole cluster
    prometheus: Connections | None

    async def __call__(self, request: pb.Request) -> AsyncGenerator[bytes, None]:
        what = request.what.field if request.what is not None else ""
        opened = tracing.begin("edge.answer", parent=request.trace, what=what) if tracing.is_on() else None
        parts = self._parts(request)
        try:
            async with aclosing(parts):
                async for part in parts:
                    yield part
        finally:
            if opened is not None:
                opened.end()

    def _parts(self, request: pb.Request) -> AsyncGenerator[bytes, None]:
        what = request.what
        assert what is not None
        match what.field:
            case "logs":
                return logs(self.client, what.value)
            case "events":
                return lines(events(self.client, what.value, self.namespaces()))
            case "proxy_config":
                return self._proxy(what.value)
            case "connections":
                return self._connections(what.value)
            case _:
                assert_never(what)

    async def _proxy(self, asked: pb.ProxyConfig) -> AsyncGenerator[bytes, None]:
        yield await self.proxies.config(asked.namespace, asked.pod, raw=asked.raw)

    async def _connections(self, asked: pb.ServiceConnections) -> AsyncGenerator[bytes, None]:
        if self.prometheus is None and not self.calls.has_proxies:
            raise BadRequest(
                "nothing measures calls: the cluster has no gateway of Shoal; for a mesh set requests.prometheus or "
                "calls.istio_proxies of the edge"
            )
        start_s, end_s = asked.start_ms / 1000, asked.end_ms / 1000
        found, warnings = self.calls.between(start_s, end_s, namespace=asked.namespace, service=asked.service)
        if self.prometheus is not None:
            try:
                found += await self.prometheus.between(
                    start_s, end_s, namespace=asked.namespace, service=asked.service
                )  # fmt: skip
            except (ServiceUnavailable, TransportError) as error:
                if not self.calls.has_proxies:
                    raise
                warnings.append(f"the metrics of Prometheus are missing: {error}")
        yield orjson.dumps(connections_json(found, warnings))


async def logs(client: Client, asked: pb.PodLogs) -> AsyncGenerator[bytes, None]:
    """The bytes of a container's log as they come."""
    params: dict[str, str | int | bool] = {}
    if asked.container:
        params["container"] = asked.container
    for name, value in (("follow", asked.follow), ("previous", asked.previous), ("timestamps", asked.timestamps)):
        if value:
            params[name] = True
    if asked.tail >= 0:
        params["tailLines"] = asked.tail
    if asked.since_seconds > 0:
        params["sinceSeconds"] = asked.since_seconds
    path = builtin("pods").path(asked.namespace, asked.pod, "log")
    reply = await client.stream("GET", path, params=params or None, headers={"accept": "*/*"})
    try:
        async for chunk in reply.chunks():
            yield chunk
    finally:
        await reply.close()


async def events(
    client: Client, asked: pb.ClusterEvents, namespaces: frozenset[str] | None = None
) -> AsyncGenerator[bytes, None]:
    """Kubernetes events, each as JSON; those of ``namespaces``, one after the other, unless one is named."""
    fields = (("kind", asked.kind), ("name", asked.name))
    selector = ",".join(f"involvedObject.{field}={value}" for field, value in fields if value)
    places = [asked.namespace] if asked.namespace or namespaces is None else sorted(namespaces)
    for place in places:
        async for page in client.of(builtin("events")).pages(Scope(namespace=place, field_selector=selector)):
            for item in page.items:
                item["metadata"].pop("managedFields", None)
                yield orjson.dumps(item)


async def lines(rows: AsyncIterator[bytes]) -> AsyncGenerator[bytes, None]:
    """Rows as lines, many to a part."""
    gathered: list[bytes] = []
    size = 0
    async for row in rows:
        gathered.append(row + b"\n")
        size += len(row) + 1
        if size >= _LINES_BYTES:
            yield b"".join(gathered)
            gathered, size = [], 0
    if gathered:
        yield b"".join(gathered)
