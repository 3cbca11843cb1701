"""The control plane over Connect: one HTTP/2 connection, calls with a time limit, streams that notice a dead peer. The
connection is to one of the URLs in the join file; when that one does not answer, to the next.

What the protocol calls an error becomes one of ``shoal.errors`` here and nowhere else. Every call carries the token
(read anew each time, so that it can be rotated), the trace that it is in, and the correlation id
of the change that it is about or of this process.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from contextlib import aclosing, contextmanager
from dataclasses import dataclass

from shoal import __version__
from shoal.base import logs, tracing
from shoal.base.clock import Clock
from shoal.base.connect import Answer, CallFailed, ConnectClient, Message, NoAnswer
from shoal.base.deadline import Limit, within
from shoal.base.http2 import Http2Link, Peer
from shoal.base.logs import get_logger
from shoal.base.tasks import OwnedTasks
from shoal.errors import (
    ApiError,
    BadRequest,
    Forbidden,
    NotFound,
    ServiceUnavailable,
    Timeout,
    TooManyRequests,
    Unauthorized,
)
from shoal.krane.addresses import Addresses
from shoal.krane.config import JoinFile
from shoal.krane.heartbeats import Heartbeats
from shoal.krane.model import Fenced, NextAddress, ReportRequest
from shoal.sync.keys import StreamKind
from shoal.wire.fleet.v1 import cluster_pb as pb

log = get_logger("krane.stream")

_SERVICE = "shoal.fleet.v1.ClusterService"
_WATCH = {StreamKind.DEPLOYMENTS: "WatchDeployments", StreamKind.SENTINELS: "WatchSentinels"}
_GET = {StreamKind.DEPLOYMENTS: "GetDesiredDeployment", StreamKind.SENTINELS: "GetDesiredSentinel"}
_REPORT = {StreamKind.DEPLOYMENTS: "ReportDeploymentStatus", StreamKind.SENTINELS: "ReportSentinelStatus"}
_MAX_MESSAGE_BYTES = 32 << 20
_MAX_CALLS = 3000  # on one connection: our server ends one that had 4096, and with it the streams

_ERRORS: dict[str, type[ApiError]] = {
    "unauthenticated": Unauthorized,
    "permission_denied": Forbidden,
    "failed_precondition": Fenced,  # of the epoch: replaced by a newer one, or not known
    "not_found": NotFound,
    "invalid_argument": BadRequest,
    "out_of_range": BadRequest,
    "deadline_exceeded": Timeout,
    "resource_exhausted": TooManyRequests,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """``call_s`` for one call; a stream that brings nothing for ``idle_s`` is dead; the first URL is tried again every
    ``return_s``."""

    call_s: float = 10.0
    idle_s: float = 100.0
    return_s: float = 300.0


class _Silent(ServiceUnavailable):
    """No answer at all: the peer cannot be reached, the connection broke, or nothing came in time."""


class Connection:
    """Implements ``ControlPlane``. ``join_file`` is asked for each call."""

    def __init__(
        self,
        join_file: Callable[[], JoinFile],
        *,
        clock: Clock,
        correlation: str,
        times: Times | None = None,
        max_calls: int = _MAX_CALLS,
    ) -> None:
        self._max_calls = max_calls
        self._join_file = join_file
        self._clock = clock
        self._correlation = correlation
        self._times = times or Times()
        self._made_for: tuple[str, str] | None = None
        self._link: Http2Link | None = None
        self._client: ConnectClient | None = None
        self._calls = 0  # made on the connection
        self._streams: Counter[Http2Link] = Counter()  # open on each connection, also on older ones
        self._old: list[Http2Link] = []
        self._tasks = OwnedTasks()
        self._closing: set[asyncio.Task[None]] = set()
        self._heard_s = 0.0  # when anything came last
        self._waits: set[Limit] = set()  # of the streams that are being read
        self._heartbeats = Heartbeats(clock)
        self._addresses = Addresses(clock)
        self._tried: dict[StreamKind, set[str]] = {stream: set() for stream in StreamKind}  # without an answer

    async def join(self, request: pb.JoinRequest) -> pb.JoinResponse:
        return await self._call("Join", request, pb.JoinResponse)

    async def heartbeat(self, request: pb.HeartbeatRequest) -> pb.HeartbeatResponse:
        if (preferred := self._addresses.to_return_to(self._times.return_s)) and (
            found := await self._return_to(preferred, request)
        ) is not None:
            return found
        answer = await self._heartbeats.send(request, self._times.call_s / 2)
        return answer if answer is not None else await self._call("Heartbeat", request, pb.HeartbeatResponse)

    async def get_desired(self, stream: StreamKind, request: pb.GetDesiredRequest) -> pb.Item:
        try:
            return await self._call(_GET[stream], request, pb.Item)
        except NotFound as error:
            if request.key in str(error):
                raise
            # the cluster or the method is not known: that says nothing about the object
            raise ServiceUnavailable(str(error)) from None

    async def report(self, stream: StreamKind, request: ReportRequest) -> pb.ReportResponse:
        return await self._call(_REPORT[stream], request, pb.ReportResponse)

    async def watch(
        self, stream: StreamKind, requests: AsyncIterator[pb.WatchRequest]
    ) -> AsyncGenerator[pb.WatchEvent, None]:
        client, link, url = self._connected()
        self._streams[link] += 1
        outgoing = self._heartbeats.open(requests)
        try:
            async with (
                aclosing(outgoing.requests()) as said,
                aclosing(client.stream(_WATCH[stream], said, pb.WatchEvent, self._headers())) as events,
            ):
                while (event := await self._next(events)) is not None:
                    self._answered(url, self._tried[stream])
                    if not outgoing.handle(event):
                        yield event
        except ServiceUnavailable as error:
            if self._left(url, error, self._tried[stream]):
                raise NextAddress(str(error)) from None
            raise
        finally:
            self._heartbeats.close(outgoing)
            self._streams[link] -= 1

    def use(self, times: Times) -> None:
        """Replace the time limits, from the next call on."""
        self._times = times

    def reset(self) -> None:
        """Give the connection up: streams on it end, the next call makes another one."""
        self._put_aside()
        for limit in list(self._waits):
            limit.restart(0.0)

    async def close(self) -> None:
        self.reset()
        await asyncio.gather(*self._closing)
        old, self._old = self._old, []
        for link in old:
            await link.close()

    # how

    def _connected(self) -> tuple[ConnectClient, Http2Link, str]:
        join = self._join_file()
        url = self._addresses.choose(join.addresses)
        self._calls += 1
        if self._client is not None and self._calls > self._max_calls:
            self._put_aside()  # its streams go on
        if self._client is None or self._link is None or self._made_for != (url, join.ca):
            self.reset()
            self._made_for = (url, join.ca)
            self._link = Http2Link(Peer.of(url, join.ca))
            self._client = _client(self._link)
        return self._client, self._link, url

    def _answered(self, url: str, tried: set[str]) -> None:
        tried.clear()
        self._addresses.answered(url)

    def _left(self, url: str, error: ServiceUnavailable, tried: set[str]) -> bool:
        """Whether to go on at another URL."""
        left = self._addresses.silent if isinstance(error, _Silent) else self._addresses.refused
        if not left(url, tried):
            return False
        log.warning("the control plane does not answer; trying the next", url=url, reason=str(error))
        return True

    async def _return_to(self, url: str, request: pb.HeartbeatRequest) -> pb.HeartbeatResponse | None:
        """Try the preferred URL with a heartbeat, while the one in use works, and change to it if it answers."""
        ca, call_s = self._join_file().ca, self._times.call_s
        link = Http2Link(Peer.of(url, ca))
        client = _client(link)
        try:
            async with within(self._clock, call_s):
                found = await client.call("Heartbeat", request, pb.HeartbeatResponse, self._headers())
        except (CallFailed, TimeoutError):
            await link.close()
            return None
        except BaseException:
            await link.close()
            raise
        log.info("going back to the preferred control plane", url=url)
        self.reset()
        self._made_for, self._link, self._client, self._calls = (url, ca), link, client, 1
        self._addresses.returned()
        self._heard_s = self._clock.monotonic()
        return found

    def _put_aside(self) -> None:
        """Make no more calls on the connection. Those put aside before are closed, unless they have streams."""
        for unused in [one for one in self._old if not self._streams[one]]:
            self._old.remove(unused)
            del self._streams[unused]
            task = self._tasks.start(unused.close(), name="krane-connection/close", awaited=True)
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)
        if self._link is not None:
            self._old.append(self._link)
        self._link = self._client = self._made_for = None
        self._calls = 0

    def _headers(self) -> dict[str, str]:
        trace = tracing.current()
        return {
            "authorization": f"Bearer {self._join_file().token}",
            "x-correlation-id": logs.bound("correlation") or self._correlation,
            **({"traceparent": trace} if trace else {}),
        }

    async def _call(self, method: str, request: Message, answer: type[Answer]) -> Answer:
        tried: set[str] = set()
        while True:
            client, _, url = self._connected()
            try:
                found = await self._call_at(client, method, request, answer)
            except ServiceUnavailable as error:
                if not self._left(url, error, tried):
                    raise
            else:
                self._answered(url, tried)
                return found

    async def _call_at(self, client: ConnectClient, method: str, request: Message, answer: type[Answer]) -> Answer:
        call_s = self._times.call_s
        try:
            async with within(self._clock, call_s):
                with _translated():
                    found = await client.call(method, request, answer, self._headers(), round(call_s * 1000))
        except (TimeoutError, Timeout) as error:
            # no answer here and nothing else on the connection: the peer is gone, and TCP may take minutes to notice
            if self._clock.monotonic() - self._heard_s >= call_s:
                self.reset()
                raise _Silent(f"no answer within {call_s:g} s") from None
            raise Timeout(str(error) or f"no answer within {call_s:g} s") from None
        self._heard_s = self._clock.monotonic()
        return found

    async def _next(self, events: AsyncIterator[pb.WatchEvent]) -> pb.WatchEvent | None:
        """The next message, None at the end."""
        try:
            async with within(self._clock, self._times.idle_s) as limit:
                self._waits.add(limit)
                try:
                    with _translated():
                        event = await anext(events, None)
                    self._heard_s = self._clock.monotonic()
                    return event
                finally:
                    self._waits.discard(limit)
        except TimeoutError:
            raise _Silent("the control plane has stopped answering") from None


def _client(link: Http2Link) -> ConnectClient:
    return ConnectClient(link, _SERVICE, user_agent=f"krane/{__version__}", max_bytes=_MAX_MESSAGE_BYTES)


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except NoAnswer as error:
        raise _Silent(str(error)) from None
    except CallFailed as error:
        raise _ERRORS.get(error.code, ServiceUnavailable)(str(error)) from None
