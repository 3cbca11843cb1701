"""The calls of the cluster service at a relay: streams are served from its mirrors, all other calls are forwarded.

The control plane decides which agents are admitted. The interceptor here only reads the token of a call; the relay
answers nothing with it before the control plane has admitted it, now or earlier.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextvars import ContextVar
from typing import Any

from connectrpc.code import Code
from connectrpc.errors import ConnectError
from connectrpc.request import RequestContext

from shoal.base.clock import Clock
from shoal.base.logs import get_logger
from shoal.base.tasks import OwnedTasks
from shoal.control.relay.config import RelayConfig
from shoal.control.relay.forwarding import Forwarding, Reports
from shoal.control.relay.link import CallerHeaders
from shoal.control.relay.metrics import RelayMetrics
from shoal.control.relay.protocol import Mirror, RelaySession
from shoal.control.relay.upstream import Served, Upstream
from shoal.control.service.agents.auth import ALLOWED, bearer
from shoal.control.service.stream.counts import PlainCounts
from shoal.control.service.stream.protocol import FullSync, Resume, SessionConfig
from shoal.control.service.stream.sender import BatchSender, StreamSender
from shoal.sync.keys import StreamKind
from shoal.wire.fleet.v1 import cluster_pb as pb
from shoal.wire.fleet.v1.cluster_connect import ClusterService

_HEADER_LENGTH = 64

_log = get_logger("control.relay.service")
_caller: ContextVar[CallerHeaders | None] = ContextVar("shoal_relay_caller", default=None)


class CredentialsInterceptor:
    """A metadata interceptor: every method needs a token, which is checked where it is used."""

    async def on_start(self, ctx: RequestContext[Any, Any]) -> None:
        _caller.set(None)
        headers = ctx.request_headers
        token = bearer(headers.get("authorization") or "")
        if ctx.method.name not in ALLOWED:
            raise ConnectError(Code.UNIMPLEMENTED, f"unknown method {ctx.method.name}")
        trace = (headers.get("traceparent") or "")[:_HEADER_LENGTH]
        _caller.set(CallerHeaders(token, trace, (headers.get("x-correlation-id") or "")[:_HEADER_LENGTH]))

    async def on_end(self, token: None, ctx: RequestContext[Any, Any], error: Exception | None, /) -> None:
        if error is not None and not isinstance(error, ConnectError):
            _log.error("a call failed", error=error, method=ctx.method.name)


def caller() -> CallerHeaders:
    found = _caller.get()
    if found is None:
        raise ConnectError(Code.UNAUTHENTICATED, "no kind of token may call this method")
    return found


class RelayCalls(ClusterService):
    def __init__(
        self,
        upstreams: Mapping[StreamKind, Upstream],
        forwarding: Forwarding,
        config: RelayConfig,
        metrics: RelayMetrics,
        *,
        clock: Clock,
        random: Callable[[], float],
    ) -> None:
        self._upstreams = upstreams
        self._forwarding = forwarding
        self._config = config
        self._metrics = metrics
        self._clock = clock
        self._random = random
        self._batch = BatchSender()

    async def join(self, request: pb.JoinRequest, _ctx: RequestContext[Any, Any]) -> pb.JoinResponse:
        return await self._forwarding.join(request, caller())

    async def heartbeat(self, request: pb.HeartbeatRequest, _ctx: RequestContext[Any, Any]) -> pb.HeartbeatResponse:
        return await self._forwarding.heartbeat(request, caller())

    async def report_deployment_status(self, request: Reports, _ctx: RequestContext[Any, Any]) -> pb.ReportResponse:
        return await self._forwarding.report(StreamKind.DEPLOYMENTS, request, caller())

    async def report_sentinel_status(self, request: Reports, _ctx: RequestContext[Any, Any]) -> pb.ReportResponse:
        return await self._forwarding.report(StreamKind.SENTINELS, request, caller())

    async def get_desired_deployment(self, request: pb.GetDesiredRequest, _ctx: RequestContext[Any, Any]) -> pb.Item:
        return await self._forwarding.get("get_desired_deployment", request, caller())

    async def get_desired_sentinel(self, request: pb.GetDesiredRequest, _ctx: RequestContext[Any, Any]) -> pb.Item:
        return await self._forwarding.get("get_desired_sentinel", request, caller())

    def watch_deployments(
        self, request: AsyncIterator[pb.WatchRequest], _ctx: RequestContext[Any, Any]
    ) -> AsyncIterator[pb.WatchEvent]:
        return self._watch(StreamKind.DEPLOYMENTS, request)

    def watch_sentinels(
        self, request: AsyncIterator[pb.WatchRequest], _ctx: RequestContext[Any, Any]
    ) -> AsyncIterator[pb.WatchEvent]:
        return self._watch(StreamKind.SENTINELS, request)

    def sync_deployments(self, request: pb.SyncRequest, _ctx: RequestContext[Any, Any]) -> AsyncIterator[pb.WatchEvent]:
        return self._sync(StreamKind.DEPLOYMENTS, request)

    def sync_sentinels(self, request: pb.SyncRequest, _ctx: RequestContext[Any, Any]) -> AsyncIterator[pb.WatchEvent]:
        return self._sync(StreamKind.SENTINELS, request)

    # streams

    async def _watch(
        self, stream: StreamKind, requests: AsyncIterator[pb.WatchRequest]
    ) -> AsyncIterator[pb.WatchEvent]:
        who, upstream = caller(), self._upstreams[stream]
        first = await anext(aiter(requests), None)
        hello = first.request if first is not None else None
        if hello is None or hello.field != "hello":
            raise ConnectError(Code.INVALID_ARGUMENT, "the first request of a stream must be a hello")
        identity = _complete(hello.value.identity)
        served, mirror, how = await upstream.attach(identity, who.token, hello.value.cursor)
        try:
            sender = self._sender(served, mirror, stream)
            session = self._session(mirror, hello.value.cursor if isinstance(how, Resume) else "", sender, once=False)
            tasks = OwnedTasks()
            tasks.start(_read(requests, session, served), name=f"relay-read/{served.place}")
            try:
                session.begin(how, self._clock.monotonic())
                async for event in sender.events(session):
                    yield event
            finally:
                session.close()
                await tasks.close()
        finally:
            upstream.detach(served, mirror)

    async def _sync(self, stream: StreamKind, request: pb.SyncRequest) -> AsyncIterator[pb.WatchEvent]:
        who, upstream = caller(), self._upstreams[stream]
        served, mirror, _ = await upstream.attach(_complete(request.identity), who.token, "")
        try:
            sender = self._sender(served, mirror, stream)
            session = self._session(mirror, "", sender, once=True)
            session.begin(FullSync("asked for"), self._clock.monotonic())
            try:
                async for event in sender.events(session):
                    yield event
            finally:
                session.close()
        finally:
            upstream.detach(served, mirror)

    def _sender(self, served: Served, mirror: Mirror, stream: StreamKind) -> StreamSender:
        items = self._metrics.items.labels(stream)
        return StreamSender(self._batch, served, mirror.request, PlainCounts(items, items), self._clock)

    def _session(self, mirror: Mirror, hello: str, sender: StreamSender, *, once: bool) -> RelaySession:
        config = SessionConfig(
            batch=self._config.batch,
            digest_every_s=self._config.digest_every_s,
            progress_every_s=self._config.progress_every_s,
            once=once,
        )
        return RelaySession(mirror, hello, config, wake=sender.wake, random=self._random)


async def _read(requests: AsyncIterator[pb.WatchRequest], session: RelaySession, served: Served) -> None:
    """Read the agent's requests until it ends. A lost connection ends the stream."""
    try:
        async for request in requests:
            heard = request.request
            if heard is not None and heard.field == "buckets":
                session.ask(heard.value.buckets)
            elif heard is not None and heard.field == "hello":
                raise ConnectError(Code.INVALID_ARGUMENT, "a stream has one hello, its first request")
    except ConnectError as error:
        served.end("closed" if error.code is Code.CANCELED else "failed", error)


def _complete(identity: pb.Identity | None) -> pb.Identity:
    if identity is None or not identity.cluster or not identity.shard:
        raise ConnectError(Code.INVALID_ARGUMENT, "identity: Required value")
    return identity
