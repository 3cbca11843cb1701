"""Kubelet's endpoints for a whole simulated fleet on one port: statistics, pods and a word in place of each log.

Which node is meant is told by the address that was dialled, so nodes need addresses that lead to this process, such as
those of a network on the loopback interface; else by the host of the request.
"""

from __future__ import annotations

import ssl

import orjson

from shoal.base.clock import Clock
from shoal.errors import BadRequest, NotFound
from shoal.kube import quantity
from shoal.node.server import stats
from shoal.node.server.http import HttpsServer, Request
from shoal.node.server.service import API_SERVER
from shoal.node.simulated.fleet import Fleet
from shoal.node.simulated.nodes import SimulatedNode
from shoal.reconcile import ObjectKey

_JSON = "application/json"


class FleetServer:
    """Serves all nodes of a fleet."""

    def __init__(self, fleet: Fleet, *, clock: Clock, allowed: frozenset[str] = frozenset({API_SERVER})) -> None:
        self._fleet = fleet
        self._clock = clock
        self._https = HttpsServer(self.handle, clock=clock, allowed=allowed)
        self._rates: dict[str, stats.Rates] = {}  # by node
        self._started_at = clock.wall_s()

    async def listen(self, host: str, port: int, tls: ssl.SSLContext) -> int:
        return await self._https.listen(host, port, tls)

    async def close(self) -> None:
        await self._https.close()

    async def handle(self, request: Request) -> None:
        match request.path:
            case ("healthz",):
                await request.answer(200, b"ok")
            case ("pods",):
                items = list(self._fleet.pods_of(self._node(request).name))
                body = {"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": items}
                await request.answer(200, orjson.dumps(body), _JSON)
            case ("stats", "summary"):
                await self._summary(request)
            case ("metrics", "resource"):
                await self._metrics(request)
            case ("containerLogs", namespace, pod, container):
                if self._fleet.usage(ObjectKey(namespace, pod)) is None:
                    raise BadRequest(f'container "{container}" in pod "{pod}" is waiting to start: ContainerCreating')
                await request.answer(200, b"this container is simulated and writes nothing\n")
            case ("exec" | "attach" | "portForward", *_):
                raise BadRequest("this pod is simulated: there is nothing to connect to")
            case _:
                raise NotFound("404 page not found")

    def _node(self, request: Request) -> SimulatedNode:
        dialled = (request.writer.get_extra_info("sockname") or ("",))[0]
        host = request.headers.get("host", "").rsplit(":", 1)[0]
        for node in self._fleet.nodes:
            if node.address == dialled or host in (node.name, node.address):
                return node
        raise NotFound(f"no simulated node has the address {dialled or host}")

    async def _summary(self, request: Request) -> None:
        node = self._node(request)
        found = self._fleet.stats(node.name)
        rates = self._rates.setdefault(node.name, stats.Rates())
        rates.update(found)
        memory = quantity.parse(self._fleet.config.memory).value()
        disk = (0, quantity.parse(self._fleet.config.disk).value())
        body = stats.summary(
            node.name, self._started_at, self._fleet.pods_of(node.name), found, rates, memory_bytes=memory, disk=disk,
            now=self._clock.wall_s(),
        )  # fmt: skip
        await request.answer(200, orjson.dumps(body), _JSON)

    async def _metrics(self, request: Request) -> None:
        node = self._node(request)
        pods = {pod["metadata"]["uid"]: pod for pod in self._fleet.pods_of(node.name)}
        text = stats.resource_metrics(pods, self._fleet.stats(node.name), self._clock.wall_s())
        await request.answer(200, text.encode(), "text/plain; version=0.0.4; charset=utf-8")
