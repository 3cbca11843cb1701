"""One stream of a relay to the control plane, always reconnected: the mirrors of its places and the agents it serves.

    connect ─▶ welcome ─▶ subscribe every mirror from its cursor, attach every agent again ─▶ events … lost ─▶ again

While there is no stream, the mirrors stay as they are and the relay serves agents from them. It also serves new agents
that the roster knows, for a limited time, because it cannot learn of revoked tokens. If a mirror turns out to have
another history than the control plane, the streams of its agents end, and each agent is admitted again.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, cast

from connectrpc.code import Code
from connectrpc.errors import ConnectError
from protobuf import Oneof

from shoal.base.backoff import Backoff
from shoal.base.clock import Clock
from shoal.base.ids import token_digest
from shoal.base.logs import get_logger
from shoal.control.relay.config import RelayConfig
from shoal.control.relay.link import Link
from shoal.control.relay.metrics import RelayMetrics
from shoal.control.relay.protocol import Ask, Complete, Mirror, Passing, Restarted, decide_alone
from shoal.control.relay.roster import Roster
from shoal.control.service.stream.opened import OpenStream, fenced
from shoal.control.service.stream.protocol import FullSync, Resume
from shoal.errors import ConfigError
from shoal.sync.keys import Place, StreamKind
from shoal.sync.versions import BadCursor, read_cursor
from shoal.wire.fleet.v1 import cluster_pb as pb
from shoal.wire.fleet.v1 import relay_pb as rpb

_PRUNE_EVERY_S = 60.0
_REFUSED = frozenset({Code.UNAUTHENTICATED, Code.PERMISSION_DENIED, Code.FAILED_PRECONDITION})

_log = get_logger("control.relay")


class Served(OpenStream):
    """An agent's stream at this relay."""

    __slots__ = ("answer", "answered", "cursor", "identity", "mirror", "number", "token")

    def __init__(self, number: int, stream: str, identity: pb.Identity, token: str, cursor: str) -> None:
        super().__init__(Place(identity.cluster, identity.shard), stream, identity.epoch, "", token_digest(token))
        self.number = number
        self.identity = identity
        self.token = token
        self.cursor = cursor
        self.answer: rpb.Attached | None = None
        self.mirror: Mirror | None = None  # that it is served from
        self.answered = asyncio.Event()

    def end(self, reason: str, error: ConnectError) -> None:
        super().end(reason, error)
        self.answered.set()


@dataclass(slots=True)
class _Channel:
    number: int
    mirror: Mirror
    complete: asyncio.Event = field(default_factory=asyncio.Event)
    agents: int = 0
    idle_since: float = float("inf")
    error: ConnectError | None = None


class _Outgoing:
    """The requests to send on one connection."""

    def __init__(self) -> None:
        self._waiting: deque[rpb.FollowRequest] = deque()
        self._changed = asyncio.Event()
        self._closed = False

    def put(self, field_: str, value: Any) -> None:
        self._waiting.append(rpb.FollowRequest(request=cast(Any, Oneof(field_, value))))
        self._changed.set()

    def close(self) -> None:
        self._closed = True
        self._changed.set()

    async def requests(self) -> AsyncIterator[rpb.FollowRequest]:
        while not self._closed:
            while self._waiting and not self._closed:
                yield self._waiting.popleft()
            self._changed.clear()
            if not self._waiting and not self._closed:
                await self._changed.wait()


class Upstream:
    """``run`` keeps the stream up until cancelled."""

    def __init__(
        self,
        stream: StreamKind,
        link: Link,
        roster: Roster,
        config: RelayConfig,
        metrics: RelayMetrics,
        *,
        name: str,
        software: str,
        clock: Clock,
        random: Callable[[], float],
    ) -> None:
        self._stream = stream
        self._link = link
        self._roster = roster
        self._config = config
        self._metrics = metrics
        self._hello = rpb.RelayHello(relay=name, stream=stream, software=software)
        self._clock = clock
        self._random = random
        self._numbers = 0
        self._alone_since_s = clock.monotonic()
        self._outgoing: _Outgoing | None = None
        self._channels: dict[int, _Channel] = {}
        self._of_place: dict[Place, _Channel] = {}
        self._served: dict[int, Served] = {}
        self.region = ""
        self.reason = "not connected yet"
        self.changed: Callable[[], None] = lambda: None  # called when the connection comes or goes

    @property
    def connected(self) -> bool:
        return self._outgoing is not None

    @property
    def counts(self) -> dict[str, int]:
        objects = sum(len(channel.mirror) for channel in self._channels.values())
        return {"places": len(self._channels), "agents": len(self._served), "objects": objects}

    # agents

    async def attach(self, identity: pb.Identity, token: str, cursor: str) -> tuple[Served, Mirror, Resume | FullSync]:
        """Let an agent's stream begin; raises why not. ``detach`` must follow."""
        self._numbers += 1
        served = Served(self._numbers, self._stream, identity, token, cursor)
        connected = self.connected
        if connected:
            await self._ask(served)
        else:
            self._check_alone()
            self._roster.check(served.place, identity.epoch, served.digest)
            self._served[served.number] = served
        try:
            channel = self._channel(served.place, self._roster.owner(served.place, identity.epoch))
            channel.agents += 1
            served.mirror = channel.mirror
            try:
                await self._until_complete(channel, served)
            except BaseException:
                self._left(channel)
                raise
            how = _how(served.answer, cursor) if connected else _alone(cursor, channel.mirror)
        except BaseException:
            self._forget(served)
            raise
        return served, channel.mirror, how

    def detach(self, served: Served, mirror: Mirror) -> None:
        self._forget(served)
        channel = self._of_place.get(served.place)
        if channel is not None and channel.mirror is mirror:
            self._left(channel)

    def fence(self, place: Place, epoch: int) -> None:
        """A newer agent has joined: streams of older epochs end."""
        for served in [one for one in self._served.values() if one.place == place and one.identity.epoch < epoch]:
            served.end("fenced", fenced(place, served.epoch, epoch))

    def _check_alone(self) -> None:
        alone_s = self._clock.monotonic() - self._alone_since_s
        if alone_s > self._config.alone_s:
            why = f"the control plane has been unreachable for {alone_s:.0f} s: the relay can no longer check tokens"
            raise ConnectError(Code.UNAVAILABLE, why)

    async def _ask(self, served: Served) -> None:
        self._served[served.number] = served
        self._attach(served, going_on=False)
        try:
            async with asyncio.timeout(self._config.call_s):
                await served.answered.wait()
        except TimeoutError:
            self._forget(served)
            raise ConnectError(Code.UNAVAILABLE, "the control plane does not answer") from None
        except BaseException:
            self._forget(served)
            raise
        if served.error is not None:
            self._served.pop(served.number, None)
            raise served.error

    def _attach(self, served: Served, *, going_on: bool) -> None:
        said = rpb.Attach(session=served.number, identity=served.identity, token=served.token, going_on=going_on)
        if not going_on:
            said.cursor = served.cursor
        self._say("attach", said)

    def _forget(self, served: Served) -> None:
        if self._served.pop(served.number, None) is not None:
            self._say("detach", rpb.Detach(session=served.number))

    # places

    def _channel(self, place: Place, owner: str) -> _Channel:
        channel = self._of_place.get(place)
        if channel is not None and channel.mirror.owner == owner:
            return channel
        if channel is not None:
            self._drop(channel, ConnectError(Code.ABORTED, "the place has another agent now: connect again"))
        self._numbers += 1
        channel = _Channel(self._numbers, Mirror(place, self._stream, owner))
        self._channels[channel.number] = self._of_place[place] = channel
        self._subscribe(channel)
        return channel

    def _subscribe(self, channel: _Channel) -> None:
        place, cursor = channel.mirror.index.place, channel.mirror.cursor
        said = rpb.Subscribe(channel=channel.number, cluster=place.cluster, shard=place.shard, cursor=cursor)
        self._say("subscribe", said)

    async def _until_complete(self, channel: _Channel, served: Served) -> None:
        try:
            async with asyncio.timeout(self._config.sync_s if self.connected else 0.001):
                await channel.complete.wait()
        except TimeoutError:
            raise ConnectError(Code.UNAVAILABLE, "the relay does not know this place yet: try again") from None
        if channel.error is not None or served.error is not None:
            raise channel.error or served.error or AssertionError

    def _drop(self, channel: _Channel, error: ConnectError) -> None:
        """Nothing is known of the place any more; agents served from it must begin anew."""
        self._channels.pop(channel.number, None)
        if self._of_place.get(channel.mirror.index.place) is channel:
            del self._of_place[channel.mirror.index.place]
        self._say("unsubscribe", rpb.Unsubscribe(channel=channel.number))
        channel.error = error
        channel.complete.set()
        self._end_agents(channel, error)

    def _end_agents(self, channel: _Channel, error: ConnectError) -> None:
        for served in [one for one in self._served.values() if one.mirror is channel.mirror]:
            served.end("ended", error)

    def _left(self, channel: _Channel) -> None:
        channel.agents -= 1
        channel.idle_since = self._clock.monotonic()

    async def prune(self) -> None:
        """Let go of places whose agents have left long ago. Until cancelled."""
        while True:
            await self._clock.sleep(min(_PRUNE_EVERY_S, self._config.linger_s))
            before = self._clock.monotonic() - self._config.linger_s
            for channel in [one for one in self._channels.values() if not one.agents and one.idle_since < before]:
                self._drop(channel, ConnectError(Code.ABORTED, "connect again"))

    # the stream

    async def run(self) -> None:
        backoff = Backoff(base_s=self._config.reconnect_base_s, cap_s=self._config.reconnect_cap_s, floor_s=0.02)
        failures = 0
        while True:
            welcomed, why = False, "the control plane ended the stream"
            try:
                async with aclosing(self._events()) as events:
                    async for event in events:
                        welcomed = True
                        self._receive(event)
            except ConnectError as error:
                why = f"{error.code.value}: {error.message}"
            except ConfigError as error:
                why = str(error)
            except Exception as error:
                self._lost(f"an internal error: {error!r}")
                raise
            self._lost(why)
            failures = 1 if welcomed else failures + 1
            await self._clock.sleep(backoff.delay_s(failures, self._random))

    async def _events(self) -> AsyncGenerator[rpb.FollowEvent, None]:
        outgoing = _Outgoing()
        outgoing.put("hello", self._hello)
        events = self._link.follow(outgoing.requests())
        try:
            async with aclosing(events):
                first = await self._heard(events)
                if first is None or first.event is None or first.event.field != "welcome":
                    raise ConnectError(Code.UNKNOWN, "the control plane did not say hello")
                self._welcomed(outgoing, first.event.value)
                while (event := await self._heard(events)) is not None:
                    yield event
        finally:
            outgoing.close()

    async def _heard(self, events: AsyncIterator[rpb.FollowEvent]) -> rpb.FollowEvent | None:
        """A stream with places on it brings digests all the time; silence means that the connection is dead."""
        try:
            async with asyncio.timeout(self._config.idle_s if self._channels else None):
                return await anext(events, None)
        except TimeoutError:
            self._link.reset()
            raise ConnectError(Code.UNAVAILABLE, "the control plane has stopped answering") from None

    def _welcomed(self, outgoing: _Outgoing, welcome: rpb.RelayWelcome) -> None:
        self._outgoing, self.region, self.reason = outgoing, welcome.region, ""
        _log.info("connected to the control plane", stream=str(self._stream), region=welcome.region)
        self._metrics.connected.labels(self._stream).set(1)
        self._metrics.connections.labels(self._stream, "ok").inc()
        for served in self._served.values():
            self._attach(served, going_on=True)
        for channel in self._channels.values():
            channel.complete.clear()  # until it is known to be of the same history
            self._subscribe(channel)
        self.changed()

    def _lost(self, why: str) -> None:
        if why != self.reason:
            _log.warning("not connected to the control plane", stream=str(self._stream), reason=why)
        if self.connected:
            self._alone_since_s = self._clock.monotonic()
        self._outgoing, self.reason = None, why
        self._metrics.connected.labels(self._stream).set(0)
        self._metrics.connections.labels(self._stream, "lost").inc()
        for served in [one for one in self._served.values() if not one.answered.is_set()]:
            served.end("away", ConnectError(Code.UNAVAILABLE, "the control plane is unreachable"))
        for channel in self._channels.values():
            channel.mirror.disconnect()
            if channel.mirror.complete:
                channel.complete.set()  # the best that is known
        self.changed()

    def _receive(self, event: rpb.FollowEvent) -> None:
        said = event.event
        if said is None:
            return
        match said.field:
            case "channel":
                self._mirrored(said.value)
            case "channel_ended":
                channel = self._channels.get(said.value.channel)
                if channel is not None:
                    self._drop(channel, _error(said.value.code, said.value.message))
            case "attached":
                self._attached(said.value)
            case "ended":
                self._ended(said.value)
            case "welcome":
                pass

    def _mirrored(self, event: rpb.ChannelEvent) -> None:
        channel = self._channels.get(event.channel)
        if channel is None:
            return
        self._metrics.events.labels(self._stream).inc()
        for command in channel.mirror.receive(event.event):
            match command:
                case Ask(buckets):
                    self._say("buckets", rpb.ChannelBuckets(channel=channel.number, buckets=list(buckets)))
                case Complete():
                    channel.complete.set()
                case Passing(key, version, correlation):
                    place = str(channel.mirror.index.place)
                    _log.info("change passed on", correlation=correlation, key=key, version=str(version), place=place)
                case Restarted(reason):
                    channel.complete.clear()
                    self._end_agents(channel, ConnectError(Code.ABORTED, f"{reason}: connect again"))

    def _attached(self, answer: rpb.Attached) -> None:
        served = self._served.get(answer.session)
        if served is not None:
            self._roster.admitted(served.place, served.identity.epoch, served.digest)
            if not served.answered.is_set():
                served.answer = answer
                served.answered.set()

    def _ended(self, said: rpb.Ended) -> None:
        served = self._served.get(said.session)
        if served is None:
            return
        error = _error(said.code, said.message)
        if error.code in _REFUSED:
            self._roster.refused(served.place, served.digest)
        self._metrics.ended.labels(self._stream).inc()
        served.end("ended", error)

    def _say(self, field_: str, value: Any) -> None:
        if self._outgoing is not None:
            self._outgoing.put(field_, value)


def _how(answer: rpb.Attached | None, cursor: str) -> Resume | FullSync:
    if answer is None:
        raise ConnectError(Code.UNAVAILABLE, "the connection to the control plane was lost: try again")
    return Resume(read_cursor(cursor)) if answer.resumed else FullSync(answer.reason, answer.observe_only)


def _alone(cursor: str, mirror: Mirror) -> Resume | FullSync:
    try:
        how = decide_alone(cursor, mirror)
    except BadCursor as error:
        raise ConnectError(Code.INVALID_ARGUMENT, str(error)) from None
    if how is None:
        raise ConnectError(
            Code.UNAVAILABLE, "the control plane is unreachable, and the relay is behind the cursor: try again"
        )
    return how


def _error(code: str, message: str) -> ConnectError:
    try:
        return ConnectError(Code(code), message)
    except ValueError:
        return ConnectError(Code.UNKNOWN, message)
