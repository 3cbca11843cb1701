"""The endpoints of one node: what kubelet serves to the API server.

/healthz · /pods · /stats/summary · /metrics · /metrics/resource
/containerLogs/{namespace}/{pod}/{container}
/exec|attach/{namespace}/{pod}[/{uid}]/{container}      WebSocket
/portForward/{namespace}/{pod}[/{uid}]                  WebSocket
"""

from __future__ import annotations

import ssl

import orjson

from shoal.base import websocket
from shoal.base.clock import Clock
from shoal.base.http1.server import ClientIdentity, Http1Server, ServerRequest
from shoal.base.metrics import metrics_page
from shoal.errors import BadRequest, InternalError, NotFound
from shoal.kube.kinds.bootstrap_rbac import KUBELET_CLIENT, KUBELET_CLIENT_GROUP
from shoal.node.agent import NodeAgent
from shoal.node.containers import find, newest
from shoal.node.pods.worker import PodWorker
from shoal.node.pressure import disk_usage
from shoal.node.resources import amount
from shoal.node.runtime.model import (
    Container,
    ContainerPhase,
    ContainerStats,
    NoSuchContainer,
    RuntimeFailure,
    SessionOptions,
    StartFailure,
)
from shoal.node.server import logs, stats
from shoal.node.server.metrics import kubelet_metrics
from shoal.node.server.sessions import accept, copy_session, forward

_JSON = "application/json"
API_SERVER = ClientIdentity(KUBELET_CLIENT, KUBELET_CLIENT_GROUP)


class NodeServer:
    """Serves one agent. ``listen`` opens its port, ``close`` ends all sessions."""

    def __init__(self, agent: NodeAgent, *, clock: Clock, allowed: ClientIdentity = API_SERVER) -> None:
        self._agent = agent
        self._clock = clock
        self._https = Http1Server(self.handle, clock=clock, allowed=allowed)
        self._rates = stats.Rates()
        self._started_at = clock.wall_s()

    async def listen(self, host: str, port: int, tls: ssl.SSLContext) -> int:
        """Open the port; ``tls`` asks for a client certificate. Returns the port's number."""
        return await self._https.listen(host, port, tls)

    async def close(self) -> None:
        await self._https.close()

    async def handle(self, request: ServerRequest) -> None:
        match request.path:
            case ("healthz",) | ("healthz", "ping" | "syncloop"):
                await request.answer(200, b"ok")
            case ("pods",) | ("runningpods",):
                await self._pods(request)
            case ("stats", "summary"):
                await self._summary(request)
            case ("metrics",):
                await self._own_metrics(request)
            case ("metrics", "resource"):
                await self._metrics(request)
            case ("containerLogs", namespace, pod, container):
                await self._logs(request, self._worker(namespace, pod), container)
            case ("exec", namespace, pod, container) | ("exec", namespace, pod, _, container):
                await self._exec(request, self._worker(namespace, pod), container)
            case ("attach", namespace, pod, container) | ("attach", namespace, pod, _, container):
                await self._attach(request, self._worker(namespace, pod), container)
            case ("portForward", namespace, pod) | ("portForward", namespace, pod, _):
                await self._forward(request, self._worker(namespace, pod))
            case _:
                raise NotFound("404 page not found")

    def _worker(self, namespace: str, name: str) -> PodWorker:
        found = self._agent.worker(namespace, name)
        if found is None:
            raise NotFound(f'pod "{name}_{namespace}" does not exist')
        return found

    # facts

    async def _pods(self, request: ServerRequest) -> None:
        items = [{**worker.pod, "status": worker.status} for worker in self._agent.workers]
        body = {"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": items}
        await request.answer(200, orjson.dumps(body), _JSON)

    async def _summary(self, request: ServerRequest) -> None:
        found = await self._stats()
        memory = amount("memory", (self._agent.node.get("status") or {}).get("capacity", {}).get("memory", "0"))
        body = stats.summary(
            self._agent.config.name, self._started_at, [worker.pod for worker in self._agent.workers], found,
            self._rates, memory_bytes=memory, disk=disk_usage(self._agent.config.root), now=self._clock.wall_s(),
        )  # fmt: skip
        await request.answer(200, orjson.dumps(body), _JSON)

    async def _own_metrics(self, request: ServerRequest) -> None:
        views = (worker.view.containers if worker.view is not None else () for worker in self._agent.workers)
        found = kubelet_metrics(self._agent.config.name, ((one.phase for one in each) for each in views))
        await request.answer(200, *metrics_page(found, accept=request.headers.get("accept", "")))

    async def _metrics(self, request: ServerRequest) -> None:
        pods = {worker.uid: worker.pod for worker in self._agent.workers}
        text = stats.resource_metrics(pods, await self._stats(), self._clock.wall_s())
        await request.answer(200, text.encode(), "text/plain; version=0.0.4; charset=utf-8")

    async def _stats(self) -> tuple[ContainerStats, ...]:
        try:
            found = await self._agent.runtime.stats()
        except RuntimeFailure as failure:
            raise InternalError(str(failure)) from failure
        self._rates.update(found)
        return found

    # containers

    async def _logs(self, request: ServerRequest, worker: PodWorker, name: str) -> None:
        wanted = logs.parse(request, self._clock.wall_s())
        container = logs.container_for_logs(worker, name, before=wanted.previous)
        try:
            await request.stream(logs.text_of(self._agent.runtime, container.id, wanted))
        except NoSuchContainer as error:
            raise NotFound(str(error)) from error

    def _running(self, worker: PodWorker, name: str) -> Container:
        if find(worker.pod, name) is None:
            raise NotFound(f'container not found ("{name}")')
        containers = worker.view.containers if worker.view is not None else ()
        found = newest(containers).get(name)
        if found is None or found.phase is not ContainerPhase.RUNNING:
            raise NotFound(f'container not found ("{name}")')
        return found

    async def _exec(self, request: ServerRequest, worker: PodWorker, name: str) -> None:
        container, options = self._running(worker, name), _options(request)
        command = tuple(request.query.get("command", ()))
        if not command:
            raise BadRequest("you must specify a command")
        socket = await accept(request, websocket.REMOTE_COMMAND)
        try:
            session = await self._agent.runtime.exec(container.id, command, options)
        except (StartFailure, NoSuchContainer) as failure:
            status = websocket.failure_status(f"error executing command in container: {failure}")
            if isinstance(failure, StartFailure):
                status = websocket.exit_status(127) | {"message": str(failure)}
            await socket.send(websocket.Channel.ERROR, websocket.error_message(status, socket.subprotocol))
            await socket.close()
            return
        await copy_session(socket, session, options)

    async def _attach(self, request: ServerRequest, worker: PodWorker, name: str) -> None:
        container, options = self._running(worker, name), _options(request)
        socket = await accept(request, websocket.REMOTE_COMMAND)
        await copy_session(socket, await self._agent.runtime.attach(container.id, options), options)

    async def _forward(self, request: ServerRequest, worker: PodWorker) -> None:
        view = worker.view
        if view is None or view.sandbox is None or not view.sandbox.ready:
            raise NotFound(f"pod {worker.pod['metadata']['name']} is not running")
        sandbox_id = view.sandbox.id
        ports = []
        for text in ",".join(request.query.get("ports", []) + request.query.get("port", [])).split(","):
            if not (text.isascii() and text.isdigit() and 0 < int(text) < 65536):
                raise BadRequest(f'unable to parse "{text}" as a port')
            ports.append(int(text))
        socket = await accept(request, websocket.PORT_FORWARD)
        await forward(socket, ports, lambda port: self._agent.runtime.connect(sandbox_id, port))


def _options(request: ServerRequest) -> SessionOptions:
    """The streams that a client requests; kubelet and the API use different parameter names."""
    tty = request.flag("tty")
    options = SessionOptions(
        stdin=request.flag("input", "stdin"),
        stdout=request.flag("output", "stdout"),
        stderr=request.flag("error", "stderr") and not tty,
        tty=tty,
    )
    if not (options.stdin or options.stdout or options.stderr):
        raise BadRequest("you must specify at least 1 of stdin, stdout, stderr")
    return options
