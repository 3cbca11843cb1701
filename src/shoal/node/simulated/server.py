"""Kubelet's endpoints for a whole simulated fleet on one port: statistics, pods, and a placeholder for each log.

The address that the client connected to identifies the node, so nodes need addresses of this machine, for example of
the loopback network; otherwise the host of the request does.
"""

from __future__ import annotations

import asyncio
import socket
import ssl

import orjson

from shoal.base import websocket
from shoal.base.clock import Clock
from shoal.base.http1.server import ClientIdentity, ContextOf, Http1Server, ServerRequest
from shoal.base.metrics import metrics_page
from shoal.base.tasks import wait_first
from shoal.errors import BadRequest, NotFound
from shoal.kube import quantity
from shoal.node.server import stats
from shoal.node.server.metrics import kubelet_metrics
from shoal.node.server.service import API_SERVER
from shoal.node.server.sessions import accept
from shoal.node.simulated.fleet import SimulatedFleet
from shoal.node.simulated.nodes import SimulatedNode
from shoal.reconcile import ObjectKey

_JSON = "application/json"
_NOTHING_THERE = "this pod is simulated: there is nothing to connect to"


class FleetServer:
    """Serves all nodes of a fleet."""

    def __init__(self, fleet: SimulatedFleet, *, clock: Clock, allowed: ClientIdentity = API_SERVER) -> None:
        self._fleet = fleet
        self._clock = clock
        self._https = Http1Server(self.handle, clock=clock, allowed=allowed)
        self._rates: dict[str, stats.Rates] = {}  # by node
        self._started_at = clock.wall_s()

    async def listen(self, host: str, port: int, tls: ssl.SSLContext) -> int:
        return await self._https.listen(host, port, tls)

    async def serve(self, listening: socket.socket, context_of: ContextOf) -> None:
        await self._https.serve(listening, context_of)

    async def close(self) -> None:
        await self._https.close()

    async def handle(self, request: ServerRequest) -> None:
        match request.path:
            case ("healthz",):
                await request.answer(200, b"ok")
            case ("pods",):
                items = list(self._fleet.pods_of(self._node(request).name))
                body = {"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": items}
                await request.answer(200, orjson.dumps(body), _JSON)
            case ("stats", "summary"):
                await self._summary(request)
            case ("metrics",):
                await self._own_metrics(request)
            case ("metrics", "resource"):
                await self._metrics(request)
            case ("containerLogs", namespace, pod, container):
                if not self._fleet.has_started(ObjectKey(namespace, pod)):
                    raise BadRequest(f'container "{container}" in pod "{pod}" is waiting to start: ContainerCreating')
                await request.answer(200, b"this container is simulated and writes nothing\n")
            case ("exec" | "attach", *_):
                channels = await accept(request, websocket.REMOTE_COMMAND)
                status = websocket.failure_status(_NOTHING_THERE)
                await channels.send(websocket.Channel.ERROR, websocket.error_message(status, channels.subprotocol))
                await channels.close()
            case ("portForward", *_):
                raise BadRequest(_NOTHING_THERE)
            case _:
                raise NotFound("404 page not found")

    def _node(self, request: ServerRequest) -> SimulatedNode:
        dialled = (request.writer.get_extra_info("sockname") or ("",))[0]
        host = request.headers.get("host", "").rsplit(":", 1)[0]
        nodes = self._fleet.nodes
        node = nodes.at(dialled) or nodes.at(host) or nodes.get(host)
        if node is not None:
            return node
        raise NotFound(f"no simulated node has the address {dialled or host}")

    async def _summary(self, request: ServerRequest) -> None:
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

    async def _own_metrics(self, request: ServerRequest) -> None:
        node = self._node(request).name
        statuses = ((pod.get("status") or {}).get("containerStatuses") or () for pod in self._fleet.pods_of(node))
        states = (("running" for one in each if "running" in (one.get("state") or {})) for each in statuses)
        await request.answer(
            200, *metrics_page(kubelet_metrics(node, states), accept=request.headers.get("accept", ""))
        )

    async def _metrics(self, request: ServerRequest) -> None:
        node = self._node(request)
        pods = {pod["metadata"]["uid"]: pod for pod in self._fleet.pods_of(node.name)}
        text = stats.resource_metrics(pods, self._fleet.stats(node.name), self._clock.wall_s())
        await request.answer(200, text.encode(), "text/plain; version=0.0.4; charset=utf-8")


class FleetEndpoints:
    """Serves a fleet while its manager runs. A ``Runnable``."""

    name = "simulated-nodes/endpoints"

    def __init__(self, server: FleetServer, listening: socket.socket, context_of: ContextOf) -> None:
        self._server = server
        self._listening = listening
        self._context_of = context_of
        self._stopped = asyncio.Event()

    async def run(self) -> None:
        try:
            await wait_first(self._server.serve(self._listening, self._context_of), self._stopped.wait())
        finally:
            await self._server.close()
            self._listening.close()

    def stop(self) -> None:
        self._stopped.set()
