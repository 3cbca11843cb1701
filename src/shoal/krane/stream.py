"""The control plane over Connect: one HTTP/2 connection, calls with a time limit, streams that notice a dead peer.

What the library raises becomes an error of ``shoal.errors`` here and nowhere else, and a cancelled task gets the
``CancelledError`` that the library turns into something else. Every call carries the token (read anew each time, so
that it can be rotated), a trace of its own and the correlation id of this process.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Literal, TypeVar
from urllib.parse import urlsplit

from connectrpc.code import Code
from connectrpc.errors import ConnectError
from pyqwest import Client as HttpClient
from pyqwest import HTTPTransport, HTTPVersion, Proxy

from shoal.base import tracing
from shoal.base.clock import Clock
from shoal.client.deadline import Limit, within
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
from shoal.krane.config import JoinFile
from shoal.krane.model import Fenced
from shoal.sync.keys import Stream
from shoal.wire.fleet.v1 import cluster_pb as pb
from shoal.wire.fleet.v1.cluster_connect import ClusterServiceClient

T = TypeVar("T")

_CONNECT_TIMEOUT_S = 5.0
_KEEPALIVE_S = 5.0
_MAX_MESSAGE_BYTES = 32 << 20
_CALLS = 3000  # on one connection: our server ends one that had 4096, and with it the streams
_LOOPBACK = ("127.", "localhost", "::1")

_ERRORS: dict[Code, type[ApiError]] = {
    Code.UNAUTHENTICATED: Unauthorized,
    Code.PERMISSION_DENIED: Forbidden,
    Code.FAILED_PRECONDITION: Fenced,  # of the epoch: replaced by a newer one, or not known
    Code.NOT_FOUND: NotFound,
    Code.INVALID_ARGUMENT: BadRequest,
    Code.OUT_OF_RANGE: BadRequest,
    Code.DEADLINE_EXCEEDED: Timeout,
    Code.RESOURCE_EXHAUSTED: TooManyRequests,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """``call_s`` for one call; a stream that brings nothing for ``idle_s`` is dead."""

    call_s: float = 10.0
    idle_s: float = 100.0


class Connection:
    """Implements ``ControlPlane``. ``join_file`` is asked for each call; ``random_bytes`` is for trace ids."""

    def __init__(
        self,
        join_file: Callable[[], JoinFile],
        *,
        clock: Clock,
        random_bytes: Callable[[int], bytes],
        correlation: str,
        times: Times | None = None,
    ) -> None:
        self._join_file = join_file
        self._clock = clock
        self._random_bytes = random_bytes
        self._correlation = correlation
        self._times = times or Times()
        self._made_for: tuple[str, str] | None = None
        self._transport: HTTPTransport | None = None
        self._client: ClusterServiceClient | None = None
        self._calls = 0  # made on the connection
        self._streams: Counter[HTTPTransport] = Counter()  # open on each connection, also on older ones
        self._old: list[HTTPTransport] = []
        self._closing: set[asyncio.Task[None]] = set()
        self._heard_s = 0.0  # when anything came last
        self._waits: set[Limit] = set()  # of the streams that are being read

    async def join(self, request: pb.JoinRequest) -> pb.JoinResponse:
        client = self._connected()
        return await self._call(client.join(request, headers=self._headers(), timeout_ms=self._timeout_ms))

    async def heartbeat(self, request: pb.HeartbeatRequest) -> pb.HeartbeatResponse:
        client = self._connected()
        return await self._call(client.heartbeat(request, headers=self._headers(), timeout_ms=self._timeout_ms))

    async def get_desired(self, stream: Stream, request: pb.GetDesiredRequest) -> pb.Item:
        client = self._connected()
        ask = client.get_desired_deployment if stream is Stream.DEPLOYMENTS else client.get_desired_sentinel
        try:
            return await self._call(ask(request, headers=self._headers(), timeout_ms=self._timeout_ms))
        except NotFound as error:
            if request.key in str(error):
                raise
            # the cluster or the method is not known: that says nothing about the object
            raise ServiceUnavailable(str(error)) from None

    async def report(
        self, stream: Stream, request: pb.ReportDeploymentStatusRequest | pb.ReportSentinelStatusRequest
    ) -> pb.ReportResponse:
        client, headers, limit_ms = self._connected(), self._headers(), self._timeout_ms
        if isinstance(request, pb.ReportDeploymentStatusRequest):
            return await self._call(client.report_deployment_status(request, headers=headers, timeout_ms=limit_ms))
        return await self._call(client.report_sentinel_status(request, headers=headers, timeout_ms=limit_ms))

    async def watch(
        self, stream: Stream, requests: AsyncIterator[pb.WatchRequest]
    ) -> AsyncGenerator[pb.WatchEvent, None]:
        client = self._connected()
        transport = self._transport
        assert transport is not None
        watch = client.watch_deployments if stream is Stream.DEPLOYMENTS else client.watch_sentinels
        events = watch(requests, headers=self._headers())
        self._streams[transport] += 1
        try:
            while (event := await self._next(events)) is not None:
                yield event
        finally:
            self._streams[transport] -= 1
            close = getattr(events, "aclose", None)
            if close is not None:
                with suppress(ConnectError):
                    await close()

    def use(self, times: Times) -> None:
        """From the next call on."""
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
        for transport in old:
            await transport.aclose()

    # how

    @property
    def _timeout_ms(self) -> int:
        return round(self._times.call_s * 1000)

    def _connected(self) -> ClusterServiceClient:
        join = self._join_file()
        self._calls += 1
        if self._client is not None and self._calls > _CALLS:
            self._put_aside()  # its streams go on
        if self._client is None or self._made_for != (join.url, join.ca):
            self.reset()
            self._made_for = (join.url, join.ca)
            self._transport = _transport(join)
            self._client = ClusterServiceClient(
                join.url.rstrip("/"), http_client=HttpClient(self._transport), read_max_bytes=_MAX_MESSAGE_BYTES
            )
        return self._client

    def _put_aside(self) -> None:
        """Make no more calls on the connection. Those put aside before are closed, unless they have streams."""
        for unused in [one for one in self._old if not self._streams[one]]:
            self._old.remove(unused)
            del self._streams[unused]
            task = asyncio.get_running_loop().create_task(_close(unused), name="krane-connection/close")
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)
        if self._transport is not None:
            self._old.append(self._transport)
        self._transport = self._client = self._made_for = None
        self._calls = 0

    def _headers(self) -> dict[str, str]:
        trace = tracing.current() or f"00-{self._random_bytes(16).hex()}-{self._random_bytes(8).hex()}-01"
        return {
            "authorization": f"Bearer {self._join_file().token}",
            "traceparent": trace,
            "x-correlation-id": self._correlation,
        }

    async def _call(self, call: Awaitable[T]) -> T:
        try:
            with _translated():
                answer = await call
        except Timeout:
            # no answer here and nothing else on the connection: the peer is gone, and TCP may take minutes to notice
            if self._clock.monotonic() - self._heard_s >= self._times.call_s:
                self.reset()
            raise
        self._heard_s = self._clock.monotonic()
        return answer

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
            raise ServiceUnavailable("the control plane has stopped answering") from None


async def _close(transport: HTTPTransport) -> None:
    await transport.aclose()


def _transport(join: JoinFile) -> HTTPTransport:
    address = urlsplit(join.url)
    # Proxies of the environment are for the way out, not for this machine. They are left out when any is named, so one
    # is named for the scheme that is not used.
    unused: Literal["http", "https"] = "http" if address.scheme == "https" else "https"
    local = (address.hostname or "").startswith(_LOOPBACK)
    proxy = Proxy("http://127.0.0.1:9", scheme=unused) if local else None
    return HTTPTransport(
        tls_ca_cert=join.ca.encode() if join.ca else None,
        http_version=HTTPVersion.HTTP2,
        proxy=proxy,
        connect_timeout=_CONNECT_TIMEOUT_S,
        tcp_keepalive_interval=_KEEPALIVE_S,
        follow_redirects=False,
        enable_otel=False,
    )


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except ConnectError as error:
        task = asyncio.current_task()
        if error.code is Code.CANCELED and task is not None and task.cancelling():
            raise asyncio.CancelledError from None
        raise _ERRORS.get(error.code, ServiceUnavailable)(error.message or error.code.value) from None
