"""The answer to each kind of request, in parts."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass
from typing import assert_never

import orjson

from shoal.client import Client, Scope, builtin
from shoal.errors import BadRequest
from shoal.navigator.connections import connections_json
from shoal.navigator.edge.requests.connections import Connections
from shoal.navigator.edge.requests.proxies import Proxies
from shoal.wire.navigator.v1 import navigator_pb as pb

_LINES_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class Answers:
    """``connections`` is None where no metrics are known."""

    client: Client
    proxies: Proxies
    connections: Connections | None

    async def __call__(self, request: pb.Request) -> AsyncGenerator[bytes, None]:
        parts = self._parts(request)
        async with aclosing(parts):
            async for part in parts:
                yield part

    def _parts(self, request: pb.Request) -> AsyncGenerator[bytes, None]:
        what = request.what
        assert what is not None
        match what.field:
            case "logs":
                return logs(self.client, what.value)
            case "events":
                return lines(events(self.client, what.value))
            case "proxy_config":
                return self._proxy(what.value)
            case "connections":
                return self._connections(what.value)
            case _:
                assert_never(what)

    async def _proxy(self, asked: pb.ProxyConfig) -> AsyncGenerator[bytes, None]:
        yield await self.proxies.config(asked.namespace, asked.pod, raw=asked.raw)

    async def _connections(self, asked: pb.ServiceConnections) -> AsyncGenerator[bytes, None]:
        if self.connections is None:
            raise BadRequest("no Prometheus is configured: set requests.prometheus of the edge")
        found = await self.connections.between(
            asked.start_ms / 1000, asked.end_ms / 1000, namespace=asked.namespace, service=asked.service
        )
        yield orjson.dumps(connections_json(found))


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


async def events(client: Client, asked: pb.ClusterEvents) -> AsyncGenerator[bytes, None]:
    """Kubernetes events, each as JSON."""
    fields = (("kind", asked.kind), ("name", asked.name))
    selector = ",".join(f"involvedObject.{field}={value}" for field, value in fields if value)
    async for page in client.of(builtin("events")).pages(Scope(namespace=asked.namespace, field_selector=selector)):
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
