"""Builds the cluster service and its ASGI application.

service = ClusterServer(databases, tokens, sealer, clock=…, random=…)
app = service.app                       # for a listener, or mounted beside another application
await service.run()                     # until cancelled; streams end with it
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any
from urllib.parse import quote

import orjson
from connectrpc.code import Code
from connectrpc.errors import ConnectError

from shoal.base.clock import Clock
from shoal.base.metrics import PROCESS, Metrics
from shoal.base.supervision import Run, supervise
from shoal.base.tasks import run_all
from shoal.control.database.engine import Databases
from shoal.control.database.tokens import ApiTokens
from shoal.control.domain import broken, readiness
from shoal.control.domain.model import Sealer
from shoal.control.service.agents.agents import Agents
from shoal.control.service.agents.auth import ALLOWED, FOR_RELAYS, Gate
from shoal.control.service.agents.token_cache import TokenCache
from shoal.control.service.calls import ClusterCalls
from shoal.control.service.config import ServiceConfig
from shoal.control.service.desired.directory import Directory
from shoal.control.service.desired.loader import Loader
from shoal.control.service.desired.reported import Reported
from shoal.control.service.garbage import freeze_kept_objects
from shoal.control.service.metrics import ServiceMetrics
from shoal.control.service.region import RegionCalls, RegionDeps
from shoal.control.service.reports.reports import Consequences, Reports
from shoal.control.service.stream.compression import Gzip
from shoal.control.service.stream.events import codecs
from shoal.control.service.stream.hub import Hub
from shoal.control.service.stream.outgoing import Outgoing
from shoal.wire.fleet.v1.cluster_connect import ClusterService, ClusterServiceASGIApplication
from shoal.wire.fleet.v1.relay_connect import RelayService, RelayServiceASGIApplication

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Any]]
Send = Callable[[Any], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]

PATH = f"/{ClusterService.desc().type_name}/"
PATHS = (PATH, f"/{RelayService.desc().type_name}/")  # of agents, and of relays
_UNIMPLEMENTED = b"12"  # of gRPC
DEFAULTS = ServiceConfig()
CONSEQUENCES = Consequences(
    deployments=readiness.after_report, sentinels=readiness.after_sentinel_report, answers=broken.after_answers
)


class ClusterServer:
    """One per process."""

    def __init__(
        self,
        databases: Databases,
        tokens: ApiTokens,
        sealer: Sealer,
        *,
        clock: Clock,
        random: Callable[[], float],
        config: ServiceConfig = DEFAULTS,
        metrics: Metrics = PROCESS,
        consequences: Consequences = CONSEQUENCES,
    ) -> None:
        self._clock = clock
        counts = ServiceMetrics(metrics)
        self.reported, token_cache = Reported(), TokenCache()
        self.directory = Directory(databases, clock)
        self.hub = Hub(databases, config, counts, self.reported, clock=clock, random=random)
        self.agents = Agents(
            databases,
            self.directory,
            self.hub,
            self.reported,
            token_cache,
            config,
            counts,
            clock=clock,
            random=random,
        )
        self.loader = Loader(databases, self.hub.index, self.directory, sealer, counts, cache_bytes=config.cache_bytes)
        self.reports = Reports(
            databases, self.directory, self.hub.index, self.reported, config, counts, consequences, clock=clock
        )
        calls = self._calls = ClusterCalls(
            self.hub, self.agents, self.loader, self.reports, config, counts, clock=clock, random=random
        )
        gate = Gate(tokens, token_cache, counts, clock=clock)
        relays = RegionCalls(
            RegionDeps(hub=self.hub, agents=self.agents, loader=self.loader, gate=gate, config=config, metrics=counts,
                        clock=clock, random=random)
        )  # fmt: skip
        self.app = make_cluster_app(calls, gate, relays, read_max_bytes=config.read_max_bytes)

    async def run(self) -> None:
        """Follow the databases and look after the agents. When it ends, so do the streams."""
        try:
            loops: dict[str, Run] = {
                "control-hub": self.hub.run,
                "control-loader": self.loader.run,
                "control-reports": self.reports.run,
                "control-agents": self.agents.run,
            }
            await run_all({name: supervise(name, loop, clock=self._clock) for name, loop in loops.items()})
        finally:
            self.hub.stop(ConnectError(Code.UNAVAILABLE, "the control plane is stopping"))

    def use(self, config: ServiceConfig) -> None:
        """Other settings from now on. How much is kept in memory and how large a message may be stays as it was."""
        for part in (self.hub, self.agents, self.reports, self._calls):
            part.use(config)

    async def freeze_kept_objects(self) -> None:
        """Spare the collector what stays; for a process that does nothing else. Until cancelled."""
        await self.hub.ready()
        await freeze_kept_objects(self._clock, lambda: len(self.hub.streams))

    async def ready(self) -> None:
        """Return once streams can be served."""
        await self.hub.ready()


def make_cluster_app(
    service: ClusterService, gate: Any, relays: RelayService | None = None, *, read_max_bytes: int
) -> Application:
    """The ASGI application, with the service of relays where there is one. A method that does not exist is answered in
    the caller's protocol."""
    application: Any = ClusterServiceASGIApplication(
        service, interceptors=[gate], read_max_bytes=read_max_bytes, codecs=codecs(), compressions=[Gzip()]
    )
    of_relays: Any = relays and RelayServiceASGIApplication(
        relays, interceptors=[gate], read_max_bytes=read_max_bytes, compressions=[Gzip()]
    )
    known = {PATH + name for name in ALLOWED}
    known_of_relays = {PATHS[1] + name for name in FOR_RELAYS} if relays is not None else set()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await application(scope, receive, send)
            return
        if _content_type(scope).startswith((b"application/json", b"application/proto")):  # streams have no end
            whole = _Whole(receive, send, limit=4 * read_max_bytes)
            receive, send = whole.receive, whole.send
        else:
            send = Outgoing(send).send
        if scope["path"] in known:
            await application(scope, receive, send)
        elif scope["path"] in known_of_relays:
            await of_relays(scope, receive, send)
        else:
            await _unknown_method(scope, send)

    return app


class _Whole:
    """Reads the rest of a unary request before it is answered: a client whose stream is reset while it still sends may
    never look at the answer that says why."""

    def __init__(self, receive: Receive, send: Send, *, limit: int) -> None:
        self._receive = receive
        self._send = send
        self._left = limit
        self._done = False

    async def receive(self) -> Any:
        message = await self._receive()
        if message["type"] != "http.request" or not message.get("more_body"):
            self._done = True
        self._left -= len(message.get("body", b""))
        return message

    async def send(self, message: Any) -> None:
        while not self._done and self._left > 0:
            await self.receive()
        await self._send(message)


def _content_type(scope: Scope) -> bytes:
    return next((value for name, value in scope["headers"] if name == b"content-type"), b"")


async def _unknown_method(scope: Scope, send: Send) -> None:
    message = f"unknown method {scope['path'][:200]}"
    if _content_type(scope).startswith(b"application/grpc"):
        headers = [(b"content-type", b"application/grpc")]
        trailers = [(b"grpc-status", _UNIMPLEMENTED), (b"grpc-message", quote(message).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers, "trailers": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})
        await send({"type": "http.response.trailers", "headers": trailers, "more_trailers": False})
        return
    body = orjson.dumps({"code": Code.UNIMPLEMENTED.value, "message": message})
    await send({"type": "http.response.start", "status": 404, "headers": [(b"content-type", b"application/json")]})
    await send({"type": "http.response.body", "body": body, "more_body": False})
