"""The control plane's end of a relay: one stream that carries the desired state of many places, and admits their
agents.

Each place that the relay follows has a session like an agent's own stream, and the hub treats each agent behind the
relay as a stream: when an agent is fenced or its token revoked, its stream ends here and the relay is told. An agent is
admitted by its own token and identity, with the usual checks. The relay's token decides which region it may follow.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, cast

from connectrpc.code import Code
from connectrpc.errors import ConnectError
from connectrpc.request import RequestContext
from protobuf import Oneof

from shoal.base.clock import Clock
from shoal.base.ids import token_digest
from shoal.base.logs import get_logger
from shoal.base.tasks import OwnedTasks
from shoal.control.database.tokens import Principal
from shoal.control.service.agents.agents import Agents
from shoal.control.service.agents.auth import Caller, Gate, caller
from shoal.control.service.config import ServiceConfig
from shoal.control.service.desired.loader import Loader
from shoal.control.service.metrics import ServiceMetrics
from shoal.control.service.stream.alarm import Alarm
from shoal.control.service.stream.counts import PlainCounts
from shoal.control.service.stream.driver import Found, SessionDriver
from shoal.control.service.stream.hub import Hub
from shoal.control.service.stream.opened import OpenStream, to_connect
from shoal.control.service.stream.outgoing import outgoing
from shoal.control.service.stream.protocol import Resume, SessionConfig, WatchSession
from shoal.errors import ShoalError
from shoal.sync import keys
from shoal.sync.keys import Place
from shoal.sync.versions import BadCursor
from shoal.wire.fleet.v1 import cluster_pb as pb
from shoal.wire.fleet.v1 import relay_pb as rpb
from shoal.wire.fleet.v1.relay_connect import RelayService

_LOADING = 64  # places that are loaded at once
_NO_EPOCH = 1 << 62  # of the relay itself: no join fences it

_log = get_logger("control.service.region")


@dataclass(frozen=True, slots=True, kw_only=True)
class RegionDeps:
    hub: Hub
    agents: Agents
    loader: Loader
    gate: Gate
    config: ServiceConfig
    metrics: ServiceMetrics
    clock: Clock
    random: Callable[[], float]


class RegionCalls(RelayService):
    def __init__(self, deps: RegionDeps) -> None:
        self._deps = deps

    def follow(
        self, request: AsyncIterator[rpb.FollowRequest], _ctx: RequestContext[Any, Any]
    ) -> AsyncIterator[rpb.FollowEvent]:
        return self._follow(request)

    async def _follow(self, requests: AsyncIterator[rpb.FollowRequest]) -> AsyncIterator[rpb.FollowEvent]:
        who, deps = caller(), self._deps
        first = await anext(aiter(requests), None)
        said = first.request if first is not None else None
        if said is None or said.field != "hello":
            raise ConnectError(Code.INVALID_ARGUMENT, "the first request of a stream must be a hello")
        if said.value.stream not in tuple(keys.StreamKind):
            raise ConnectError(Code.INVALID_ARGUMENT, f"stream is {said.value.stream!r}: use deployments or sentinels")
        stream, name = keys.StreamKind(said.value.stream), said.value.relay[:128]
        opened = OpenStream(Place("relay", name), stream, _NO_EPOCH, who.principal.token_id, who.digest)
        items = deps.metrics.items
        counts = PlainCounts(items.labels(stream, "change"), items.labels(stream, "sync"))
        served = _Relay(deps, stream, opened, who.principal, counts)
        log = _log.bind(relay=name, region=who.principal.region, stream=str(stream), correlation=who.correlation)
        deps.hub.open(opened)
        tasks = OwnedTasks()
        tasks.start(served.read(requests), name=f"relay-read/{name}")
        log.info("relay connected")
        try:
            async for event in served.events():
                yield event
        finally:
            await tasks.close()
            served.close()
            deps.hub.close(opened)
            log.info("relay disconnected", reason=opened.reason)


@dataclass(slots=True)
class _Channel:
    """One place that the relay follows; the alarm of its driver."""

    number: int
    session: WatchSession
    due: list[tuple[float, int]]  # of all channels: a heap of moments and numbers
    until: float = float("inf")

    def set(self, at: float, now: float) -> None:
        if at != self.until and at != float("inf"):
            heapq.heappush(self.due, (at, self.number))
        self.until = at


class _Served(OpenStream):
    """An agent behind a relay, among the hub's streams: when its stream ends, the relay is notified."""

    __slots__ = ("ended",)

    def __init__(self, ended: Callable[[ConnectError], None], *where: Any) -> None:
        super().__init__(*where)
        self.ended = ended

    def end(self, reason: str, error: ConnectError) -> None:
        first = self.error is None
        super().end(reason, error)
        if first:
            self.ended(error)


@dataclass(slots=True)
class _Relay:
    """One relay's stream. ``events`` says what to send until it is ended."""

    deps: RegionDeps
    stream: keys.StreamKind
    opened: OpenStream
    principal: Principal
    counts: PlainCounts
    _channels: dict[int, _Channel] = field(default_factory=dict)
    _drivers: dict[int, SessionDriver] = field(default_factory=dict)
    _agents: dict[int, _Served] = field(default_factory=dict)
    _ready: dict[int, None] = field(default_factory=dict)  # channels to look at, in turn
    _due: list[tuple[float, int]] = field(default_factory=list)
    _out: deque[rpb.FollowEvent] = field(default_factory=deque)
    _busy: int = 0  # channels that load

    # what the relay says

    async def read(self, requests: AsyncIterator[rpb.FollowRequest]) -> None:
        try:
            async for request in requests:
                said = request.request
                if said is None:
                    continue
                match said.field:
                    case "subscribe":
                        await self._subscribe(said.value)
                    case "unsubscribe":
                        self._unsubscribe(said.value.channel)
                    case "buckets":
                        if (channel := self._channels.get(said.value.channel)) is not None:
                            channel.session.ask(said.value.buckets)
                    case "attach":
                        await self._attach(said.value)
                    case "detach":
                        self._detach(said.value.session)
                    case "hello":
                        raise ConnectError(Code.INVALID_ARGUMENT, "a stream has one hello, its first request")
        except ConnectError as error:
            self.opened.end("closed" if error.code is Code.CANCELED else "failed", error)
        except ShoalError as error:
            self.opened.end("failed", to_connect(error))
        except Exception as error:
            _log.error("a relay's request failed", error=error, stream=str(self.stream))
            self.opened.end("failed", ConnectError(Code.INTERNAL, "the request failed"))

    async def _subscribe(self, said: rpb.Subscribe) -> None:
        deps = self.deps
        try:
            region = self.principal.region
            identity = pb.Identity(cluster=said.cluster, region=region, shard=said.shard, agent="relay")
            _, place, _ = await deps.agents.locate(Caller(self.principal, "", ""), identity)
            how = await self._begin(said.cursor)
        except ConnectError as error:
            if error.code is Code.UNAVAILABLE:
                raise
            ended = rpb.ChannelEnded(channel=said.channel, code=error.code.value, message=error.message)
            self._say("channel_ended", ended)
            return
        self._unsubscribe(said.channel)
        number = said.channel
        config = SessionConfig(
            batch=deps.config.batch, digest_every_s=deps.config.digest_every_s,
            progress_every_s=deps.config.progress_every_s, retry_base_s=deps.config.retry_base_s,
            retry_cap_s=deps.config.retry_cap_s,
        )  # fmt: skip
        place_index = deps.hub.index.of(place, self.stream)
        session = WatchSession(deps.hub.index, place_index, config, wake=lambda: self._look(number), random=deps.random)
        channel = self._channels[number] = _Channel(number, session, self._due)
        self._drivers[number] = SessionDriver(
            session, load=self._load, send=partial(self._tell, number), alarm=channel, wake=partial(self._look, number),
            done=lambda _failed: None, counts=self.counts, clock=deps.clock,
        )  # fmt: skip
        session.begin(how, deps.clock.monotonic())
        self._look(number)

    async def _begin(self, cursor: str) -> Any:
        try:
            return await self.deps.hub.begin(cursor)
        except BadCursor as error:
            raise ConnectError(Code.INVALID_ARGUMENT, str(error)) from None
        except TimeoutError:
            raise ConnectError(Code.UNAVAILABLE, "this control plane is behind the cursor: try again") from None

    def _unsubscribe(self, number: int) -> None:
        self._drivers.pop(number, None)
        channel = self._channels.pop(number, None)
        if channel is not None:
            channel.session.close()

    async def _attach(self, said: rpb.Attach) -> None:
        """An agent's hello, judged as if it had come by itself."""
        deps, number = self.deps, said.session
        try:
            principal = await deps.gate.agent_of(self.principal, said.token)
            member = await deps.agents.member(Caller(principal, "", ""), said.identity)
            how = None if said.going_on else await self._begin(said.cursor)
        except ConnectError as error:
            self._ended(number, error)
            return
        except ShoalError as error:
            self._ended(number, to_connect(error))
            return
        self._detach(number)
        served = _Served(
            lambda error: self._ended(number, error), member.place, self.stream, member.epoch, principal.token_id,
            token_digest(said.token),
        )  # fmt: skip
        self._agents[number] = served
        deps.hub.open(served)
        answer = rpb.Attached(session=number, resumed=how is None or isinstance(how, Resume))
        if how is not None and not isinstance(how, Resume):
            answer.reason, answer.observe_only = how.reason, how.observe_only
        if how is not None:
            result = "resumed" if isinstance(how, Resume) else "observe_only" if how.observe_only else "synced"
            deps.metrics.hellos.labels(self.stream, result).inc()
        self._say("attached", answer)

    def _detach(self, number: int) -> None:
        served = self._agents.pop(number, None)
        if served is not None:
            self.deps.hub.close(served)

    def _ended(self, number: int, error: ConnectError) -> None:
        self._detach(number)
        self._say("ended", rpb.Ended(session=number, code=error.code.value, message=error.message))

    # what it is told

    async def events(self) -> AsyncIterator[rpb.FollowEvent]:
        clock, alarm, out = self.deps.clock, Alarm(self.deps.clock, self.opened.wake.set), outgoing()
        yield _event("welcome", rpb.RelayWelcome(region=self.principal.region))
        try:
            while self.opened.error is None:
                self.opened.wake.clear()
                while self._out:
                    event = self._out.popleft()
                    out.more = bool(self._out)
                    yield event
                if self.opened.error is None and not self._out:
                    now = clock.monotonic()
                    self._run_ready(now)
                    if not self._out and not self.opened.wake.is_set():
                        alarm.set(self._due[0][0] if self._due else float("inf"), now)
                        await self.opened.wake.wait()
            raise self.opened.error
        finally:
            out.more = False
            alarm.cancel()

    def _run_ready(self, now: float) -> None:
        """Run every channel that may have something to send; one that must load continues later."""
        while self._due and self._due[0][0] <= now:
            self._ready[heapq.heappop(self._due)[1]] = None
        waiting: list[int] = []
        while self._ready:
            number = next(iter(self._ready))
            del self._ready[number]
            driver = self._drivers.get(number)
            if driver is None or driver.loading:
                continue
            if self._busy >= _LOADING:
                waiting.append(number)
                continue
            driver.resume()
            try:
                driver.run()
            except Exception as error:
                self._failed(number, error)
        self._ready.update(dict.fromkeys(waiting))

    def _failed(self, number: int, error: Exception) -> None:
        """End one channel, as a stream of its own would end; the relay's other places go on."""
        place = self._channels[number].session.place
        _log.error("the stream of a place behind a relay failed", place=str(place), error=error)
        self._unsubscribe(number)
        ended = rpb.ChannelEnded(channel=number, code=Code.INTERNAL.value, message="the stream failed: connect again")
        self._say("channel_ended", ended)

    def _load(
        self, place: Place, keys: tuple[str, ...], done: Callable[[Found], None], *, urgent: bool
    ) -> Found | None:
        def arrived(found: Found) -> None:
            self._busy -= 1
            done(found)

        found = self.deps.loader.request(place, keys, arrived, urgent=urgent)
        self._busy += found is None
        return found

    def _tell(self, number: int, messages: list[bytes]) -> bool:
        """Let other channels run before this one continues."""
        for data in messages:
            self._say("channel", rpb.ChannelEvent(channel=number, event=data))
        self._look(number)
        return False

    def _say(self, field_: str, value: Any) -> None:
        self._out.append(_event(field_, value))
        self.opened.wake.set()

    def _look(self, number: int) -> None:
        self._ready[number] = None
        self.opened.wake.set()

    def close(self) -> None:
        for number in list(self._channels):
            self._unsubscribe(number)
        for number in list(self._agents):
            self._detach(number)


def _event(field_: str, value: Any) -> rpb.FollowEvent:
    return rpb.FollowEvent(event=cast(Any, Oneof(field_, value)))
