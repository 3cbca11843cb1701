"""The calls of the cluster service. Each one authenticates the caller, checks its epoch, and calls the component that
does the work.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import Any

from connectrpc.code import Code
from connectrpc.errors import ConnectError
from connectrpc.request import RequestContext

from shoal.base import tracing
from shoal.base.clock import Clock
from shoal.base.logs import correlated, get_logger
from shoal.base.tasks import OwnedTasks
from shoal.control.service.agents.admission import HelloLimiter
from shoal.control.service.agents.agents import Agents, Member
from shoal.control.service.agents.auth import Caller, caller
from shoal.control.service.config import ServiceConfig
from shoal.control.service.desired.loader import Loader, LoadFailed
from shoal.control.service.desired.model import Failure
from shoal.control.service.metrics import ServiceMetrics
from shoal.control.service.reports.reports import Reports
from shoal.control.service.stream.counts import StreamCounts
from shoal.control.service.stream.hub import Hub
from shoal.control.service.stream.opened import OpenStream, to_connect
from shoal.control.service.stream.protocol import FullSync, Resume, SessionConfig, WatchSession
from shoal.control.service.stream.sender import BatchSender, StreamSender
from shoal.errors import ShoalError
from shoal.sync import keys
from shoal.sync.versions import BadCursor
from shoal.wire.fleet.v1 import cluster_pb as pb
from shoal.wire.fleet.v1.cluster_connect import ClusterService

_MAX_BUCKETS = 256

_log = get_logger("control.service")


class ClusterCalls(ClusterService):
    """Every call of the service."""

    def __init__(
        self,
        hub: Hub,
        agents: Agents,
        loader: Loader,
        reports: Reports,
        config: ServiceConfig,
        metrics: ServiceMetrics,
        *,
        clock: Clock,
        random: Callable[[], float],
    ) -> None:
        self._hub = hub
        self._agents = agents
        self._loader = loader
        self._reports = reports
        self._config = config
        self._metrics = metrics
        self._clock = clock
        self._random = random
        self._hellos = HelloLimiter(config.hello_rate, config.hello_burst)
        self._batch = BatchSender()
        self._counts = {
            stream: StreamCounts(
                changes=metrics.items.labels(stream, "change"), syncs=metrics.items.labels(stream, "sync"),
                sent=metrics.hops.labels(stream, "sent"), sync_s=metrics.sync_s.labels(stream),
            )
            for stream in keys.StreamKind
        }  # fmt: skip

    def use(self, config: ServiceConfig) -> None:
        """Replace the settings."""
        self._config = config
        self._hellos = HelloLimiter(config.hello_rate, config.hello_burst)

    async def join(self, request: pb.JoinRequest, _ctx: RequestContext[Any, Any]) -> pb.JoinResponse:
        try:
            return await self._agents.join(caller(), request)
        except ShoalError as error:
            raise to_connect(error) from error

    async def heartbeat(self, request: pb.HeartbeatRequest, _ctx: RequestContext[Any, Any]) -> pb.HeartbeatResponse:
        try:
            return await self._agents.heartbeat(caller(), request)
        except ShoalError as error:
            raise to_connect(error) from error

    async def report_deployment_status(
        self,
        request: pb.ReportDeploymentStatusRequest | pb.ReportSentinelStatusRequest,
        _ctx: RequestContext[Any, Any],
    ) -> pb.ReportResponse:
        who = caller()
        is_deployments = isinstance(request, pb.ReportDeploymentStatusRequest)
        stream = keys.StreamKind.DEPLOYMENTS if is_deployments else keys.StreamKind.SENTINELS
        try:
            member = await self._agents.member(who, request.identity)
            if request.sequence == 0:
                raise ConnectError(Code.INVALID_ARGUMENT, "sequence: Required value: reports are numbered from 1")
            with (
                correlated(correlation=who.correlation),
                tracing.span("control.report", parent=who.trace, reports=len(request.reports)),
            ):
                return await self._reports.take(
                    who, member, stream, request.sequence, request.reports, times=request.times
                )
        except ShoalError as error:
            raise to_connect(error) from error

    report_sentinel_status = report_deployment_status

    async def get_desired_deployment(self, request: pb.GetDesiredRequest, _ctx: RequestContext[Any, Any]) -> pb.Item:
        return await self._get(keys.StreamKind.DEPLOYMENTS, request)

    async def get_desired_sentinel(self, request: pb.GetDesiredRequest, _ctx: RequestContext[Any, Any]) -> pb.Item:
        return await self._get(keys.StreamKind.SENTINELS, request)

    def watch_deployments(
        self, request: AsyncIterator[pb.WatchRequest], _ctx: RequestContext[Any, Any]
    ) -> AsyncIterator[pb.WatchEvent]:
        return self._watch(keys.StreamKind.DEPLOYMENTS, request)

    def watch_sentinels(
        self, request: AsyncIterator[pb.WatchRequest], _ctx: RequestContext[Any, Any]
    ) -> AsyncIterator[pb.WatchEvent]:
        return self._watch(keys.StreamKind.SENTINELS, request)

    def sync_deployments(self, request: pb.SyncRequest, _ctx: RequestContext[Any, Any]) -> AsyncIterator[pb.WatchEvent]:
        return self._sync(keys.StreamKind.DEPLOYMENTS, request)

    def sync_sentinels(self, request: pb.SyncRequest, _ctx: RequestContext[Any, Any]) -> AsyncIterator[pb.WatchEvent]:
        return self._sync(keys.StreamKind.SENTINELS, request)

    # unary

    async def _get(self, stream: keys.StreamKind, request: pb.GetDesiredRequest) -> pb.Item:
        try:
            member = await self._agents.member(caller(), request.identity)
            if _stream_of(request.key) != stream:
                raise ConnectError(Code.INVALID_ARGUMENT, f"key: {request.key!r} does not belong to {stream}")
            await self._hub.ready()
            item = await self._loader.item(member.place, request.key)
        except LoadFailed as error:
            code = Code.DATA_LOSS if error.failure is Failure.BROKEN else Code.UNAVAILABLE
            raise ConnectError(code, str(error)) from error
        except ShoalError as error:
            raise to_connect(error) from error
        if item is None:
            raise ConnectError(Code.NOT_FOUND, f"{request.key} not found")
        return item

    # streams

    async def _watch(
        self, stream: keys.StreamKind, requests: AsyncIterator[pb.WatchRequest]
    ) -> AsyncIterator[pb.WatchEvent]:
        who = caller()
        try:
            member, hello = await self._hello(who, stream, requests)
            opened = OpenStream(member.place, stream, member.epoch, who.principal.token_id, who.digest)
            how = await self._begin(stream, hello.cursor)
        except ShoalError as error:
            raise to_connect(error) from error
        sender = self._sender(opened, stream)
        session = self._session(member, stream, sender.wake, once=False)
        log = _log.bind(place=str(member.place), stream=str(stream), epoch=member.epoch, agent=member.agent,
                        trace=who.trace, correlation=who.correlation)  # fmt: skip
        self._hub.open(opened)
        self._agents.heard(member)
        # The library notices a lost client only during a read, so a read is always pending.
        tasks = OwnedTasks()
        tasks.start(self._read(requests, session, opened, stream, member), name=f"control-read/{member.place}")
        try:
            session.begin(how, self._clock.monotonic())
            log.info("stream opened", resumed=isinstance(how, Resume), reason=getattr(how, "reason", ""))
            async for event in sender.events(session):
                yield event
        except ConnectError:
            raise
        except ShoalError as error:
            opened.reason = "failed"
            raise to_connect(error) from error
        finally:
            session.close()
            self._hub.close(opened)
            log.info("stream closed", reason=opened.reason)
            await tasks.close()

    async def _answer_heartbeat(self, member: Member, request: pb.HeartbeatRequest) -> pb.HeartbeatResponse:
        """It was heard, also when its reports cannot be compared now: that is done again with the next."""
        try:
            return await self._agents.take_heartbeat(member, request)
        except ShoalError as error:
            _log.warning("reports cannot be compared now", place=str(member.place), error=str(error))
            return pb.HeartbeatResponse()

    async def _hello(
        self, who: Caller, stream: keys.StreamKind, requests: AsyncIterator[pb.WatchRequest]
    ) -> tuple[Member, pb.Hello]:
        first = await anext(aiter(requests), None)
        said = first.request if first is not None else None
        if said is None or said.field != "hello":
            raise ConnectError(Code.INVALID_ARGUMENT, "the first request of a stream must be a hello")
        hello: pb.Hello = said.value
        try:
            member = await self._agents.member(who, hello.identity)
        except ConnectError as error:
            result = "fenced" if error.message.startswith("fenced") else "refused"
            self._metrics.hellos.labels(stream, result).inc()
            raise
        wait_s = self._hellos.take(self._clock.monotonic(), self._config.hello_wait_s)
        if wait_s is None:
            self._metrics.hellos.labels(stream, "busy").inc()
            raise ConnectError(Code.RESOURCE_EXHAUSTED, "too many agents connect at once: try again later")
        if wait_s > 0:
            await self._clock.sleep(wait_s)
        return member, hello

    async def _begin(self, stream: keys.StreamKind, cursor: str) -> Resume | FullSync:
        try:
            how = await self._hub.begin(cursor)
        except BadCursor as error:
            self._metrics.hellos.labels(stream, "bad_cursor").inc()
            raise ConnectError(Code.INVALID_ARGUMENT, str(error)) from None
        except TimeoutError:
            raise ConnectError(Code.UNAVAILABLE, "this control plane is behind the cursor: try again") from None
        result = "resumed" if isinstance(how, Resume) else "observe_only" if how.observe_only else "synced"
        self._metrics.hellos.labels(stream, result).inc()
        return how

    def _session(
        self, member: Member, stream: keys.StreamKind, wake: Callable[[], None], *, once: bool
    ) -> WatchSession:
        config = SessionConfig(
            batch=self._config.batch,
            digest_every_s=self._config.digest_every_s,
            progress_every_s=self._config.progress_every_s,
            retry_base_s=self._config.retry_base_s,
            retry_cap_s=self._config.retry_cap_s,
            once=once,
            heartbeats=True,
        )
        place_index = self._hub.index.of(member.place, stream)
        return WatchSession(self._hub.index, place_index, config, wake=wake, random=self._random)

    async def _read(
        self,
        requests: AsyncIterator[pb.WatchRequest],
        session: WatchSession,
        opened: OpenStream,
        stream: keys.StreamKind,
        member: Member,
    ) -> None:
        """Read the agent's requests until it ends. A lost connection ends the stream."""
        try:
            async for request in requests:
                said = request.request
                if said is not None and said.field == "heartbeat":
                    session.answer(await self._answer_heartbeat(member, said.value))
                    continue
                self._agents.heard(member)
                if said is not None and said.field == "buckets":
                    buckets: pb.BucketRequest = said.value
                    self._metrics.buckets.labels(stream).inc(min(len(buckets.buckets), _MAX_BUCKETS))
                    session.ask(buckets.buckets)
                elif said is not None and said.field == "hello":
                    raise ConnectError(Code.INVALID_ARGUMENT, "a stream has one hello, its first request")
        except ConnectError as error:
            opened.end("closed" if error.code is Code.CANCELED else "failed", error)

    def _sender(self, opened: OpenStream, stream: keys.StreamKind) -> StreamSender:
        return StreamSender(self._batch, opened, self._loader.request, self._counts[stream], self._clock)

    async def _sync(self, stream: keys.StreamKind, request: pb.SyncRequest) -> AsyncIterator[pb.WatchEvent]:
        who = caller()
        result = "failed"
        try:
            member = await self._agents.member(who, request.identity)
            await self._hub.catch_up()
            opened = OpenStream(member.place, stream, member.epoch, who.principal.token_id, who.digest)
            self._hub.open(opened)
            sender = self._sender(opened, stream)
            session = self._session(member, stream, sender.wake, once=True)
            try:
                session.begin(FullSync("asked for"), self._clock.monotonic())
                async for event in sender.events(session):
                    yield event
                result = "ok"
            finally:
                self._hub.close(opened)
        except ConnectError:
            raise
        except ShoalError as error:
            raise to_connect(error) from error
        finally:
            self._metrics.syncs.labels(stream, result).inc()


def _stream_of(key: str) -> keys.StreamKind | None:
    with suppress(ValueError):
        return keys.stream_of(key)
    return None
