"""The network transport: HTTP/1.1 over TLS with a pool of kept connections, for any Kubernetes API server.

Requests share a bounded pool; each stream has a connection of its own, so that a hundred watches hold up no request.
The server may close a kept connection just when it is reused: a request that can be repeated is then sent
once more on a new one. Nothing else is retried here; the client handles answers. Cancelling a request closes
its connection.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from urllib.parse import urlsplit

import orjson

from shoal.base.clock import Clock, Timer
from shoal.base.http1.answer import HttpAnswer
from shoal.base.http1.connection import ClientConnection
from shoal.base.http1.dial import HttpAddress, dial
from shoal.base.http1.limits import Deadlines
from shoal.base.http1.messages import checked, header_lines
from shoal.client.config import AccessConfig
from shoal.client.credentials import Credentials, Identity, credentials_of, tls_context
from shoal.client.errors import Disconnected, Unreachable
from shoal.client.reach import Reach
from shoal.client.transport import Reply
from shoal.errors import ConfigError, ShoalError

# Methods that may be sent twice: reads, and writes that name the object they replace or remove.
_REPEATABLE = frozenset({"GET", "HEAD", "OPTIONS", "PUT", "DELETE"})


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpLimits:
    """Bounds of a transport."""

    connections: int = 64  # for requests; streams come on top
    connect_s: float = 10.0
    request_s: float = 60.0  # from sending to the last byte; for streams to the headers
    idle_s: float = 50.0  # a kept connection older than this is not trusted
    spare_s: float = 3.0  # after a busy moment the connections that were not used for this long are closed, but for one

    def __post_init__(self) -> None:
        if self.connections < 1:
            raise ConfigError(f"http.connections is {self.connections}: use 1 or more")
        if min(self.connect_s, self.request_s) <= 0:
            raise ConfigError("http.connect_s and http.request_s must be more than 0")


class HttpTransport:
    """Implements the ``Transport`` seam. Make it and use it in one event loop; ``close`` it in the end."""

    def __init__(
        self,
        config: AccessConfig,
        *,
        clock: Clock,
        limits: HttpLimits | None = None,
        user_agent: str = "shoal",
        credentials: Credentials | None = None,
        reach: Reach | None = None,
    ) -> None:
        parts = urlsplit(config.url)
        self._config = config
        self._clock = clock
        self._limits = limits or HttpLimits()
        self._credentials = credentials or credentials_of(config, clock=clock)
        self._reach = reach
        self._secure = parts.scheme == "https"
        self._host = parts.hostname or ""
        self._port = parts.port or (443 if self._secure else 80)
        self._prefix = parts.path.rstrip("/")  # some servers are mounted below a path
        fixed = [("host", parts.netloc.rpartition("@")[2]), ("user-agent", user_agent), *config.headers]
        self._fixed = header_lines(fixed)
        self._request_time = Deadlines(total_s=self._limits.request_s)
        self._stream_time = Deadlines(head_s=self._limits.request_s)
        self._places = asyncio.Semaphore(self._limits.connections)
        self._idle: list[ClientConnection] = []  # the one used last comes last
        self._open: set[ClientConnection] = set()  # every connection that was not closed
        self._tls: ssl.SSLContext | None = None
        self._tls_identity = Identity()  # the identity of the context and the pooled connections
        self._sparing: Timer | None = None
        self._closed = False

    async def request(
        self, method: str, target: str, *, headers: Mapping[str, str] | None = None, body: bytes = b""
    ) -> Reply:
        with self._noting():
            identity = await self._credentials.identity()
            reply = await self._request(method, target, headers, body, identity)
            if reply.status == 401 and (fresh := await self._renewed(identity)) != identity:
                reply = await self._request(method, target, headers, body, fresh)
        if self._reach is not None:
            self._reach.answered(reply.status, _said(reply.body) if reply.status >= 400 else "")
        return reply

    async def stream(
        self, method: str, target: str, *, headers: Mapping[str, str] | None = None, body: bytes = b""
    ) -> HttpAnswer:
        with self._noting():
            identity = await self._credentials.identity()
            reply = await self._stream(method, target, headers, body, identity)
            if reply.status == 401 and (fresh := await self._renewed(identity)) != identity:
                await reply.close()
                reply = await self._stream(method, target, headers, body, fresh)
        if self._reach is not None:
            self._reach.answered(reply.status)
        return reply

    async def _renewed(self, refused: Identity) -> Identity:
        self._credentials.renew(refused)
        return await self._credentials.identity()

    @contextmanager
    def _noting(self) -> Iterator[None]:
        """Around a request: no answer, or no credentials, is an outage."""
        try:
            yield
        except ShoalError as error:
            if self._reach is not None and not self._closed:
                self._reach.failed(error)
            raise

    async def close(self) -> None:
        """Drop every connection; requests under way fail."""
        self._closed = True
        if self._sparing is not None:
            self._sparing.cancel()
        self._idle.clear()
        for connection in list(self._open):
            await connection.close()
        self._open.clear()

    async def _request(
        self, method: str, target: str, headers: Mapping[str, str] | None, body: bytes, identity: Identity
    ) -> Reply:
        data = self._message(method, target, headers, body, identity)
        async with self._places:
            kept = self._take(identity)
            if kept is not None:
                try:
                    return await self._exchange(kept, data)
                except Unreachable:
                    pass  # it was closed before anything was sent
                except Disconnected:
                    if method not in _REPEATABLE or not kept.stale:
                        raise
            return await self._exchange(await self._connect(identity), data)

    async def _exchange(self, connection: ClientConnection, data: bytes) -> Reply:
        try:
            return await connection.request(data, self._request_time)
        finally:
            self._give_back(connection)

    async def _stream(
        self, method: str, target: str, headers: Mapping[str, str] | None, body: bytes, identity: Identity
    ) -> HttpAnswer:
        data = self._message(method, target, headers, body, identity)
        connection = await self._connect(identity)
        return await connection.stream(data, self._stream_time)

    def _message(
        self, method: str, target: str, headers: Mapping[str, str] | None, body: bytes, identity: Identity
    ) -> bytes:
        lines = [f"{checked(method)} {self._prefix}{checked(target)} HTTP/1.1\r\n{self._fixed}"]
        if identity.authorization:
            lines.append(f"authorization: {checked(identity.authorization)}\r\n")
        for name, value in (headers or {}).items():
            lines.append(f"{checked(name)}: {checked(value)}\r\n")
        if body or method in ("POST", "PUT", "PATCH"):
            lines.append(f"content-length: {len(body)}\r\n")
        lines.append("\r\n")
        return "".join(lines).encode("latin-1") + body

    # the pool

    def _take(self, identity: Identity) -> ClientConnection | None:
        """A kept connection that looks alive."""
        now = self._clock.monotonic()
        if self._changed(identity):
            for connection in self._idle:
                connection.abort()
            self._idle.clear()
        while self._idle:
            connection = self._idle.pop()
            if connection.reusable and now - connection.idle_since_s < self._limits.idle_s:
                return connection
            connection.abort()
        return None

    def _give_back(self, connection: ClientConnection) -> None:
        if connection.reusable and not self._closed:
            connection.idle_since_s = self._clock.monotonic()
            self._idle.append(connection)
            if len(self._idle) > 1 and self._sparing is None:
                self._sparing = self._clock.call_later(self._limits.spare_s, self._spare)
        else:
            connection.abort()

    def _spare(self) -> None:
        """Close connections that were not used recently: an idle process keeps one."""
        self._sparing = None
        before = self._clock.monotonic() - self._limits.spare_s
        while len(self._idle) > 1 and self._idle[0].idle_since_s <= before:
            self._idle.pop(0).abort()
        if len(self._idle) > 1 and not self._closed:
            self._sparing = self._clock.call_later(self._limits.spare_s, self._spare)

    def _changed(self, identity: Identity) -> bool:
        kept = self._tls_identity
        return self._secure and (kept.certificate, kept.key) != (identity.certificate, identity.key)

    async def _connect(self, identity: Identity) -> ClientConnection:
        if self._closed:
            raise Unreachable("the transport is closed")
        try:
            proxy = self._config.proxy()
        except OSError as error:
            raise Unreachable(str(error)) from None
        tls, name = self._context(identity), self._config.tls_server_name
        connection = await dial(
            HttpAddress(self._host, self._port, tls, name, proxy=proxy),
            clock=self._clock,
            connect_s=self._limits.connect_s,
            peer=self._config.url,
            on_lost=self._open.discard,
        )
        self._open.add(connection)
        return connection

    def _context(self, identity: Identity) -> ssl.SSLContext | None:
        if not self._secure:
            return None
        if self._tls is None or self._changed(identity):
            self._tls = tls_context(self._config, identity)
            self._tls_identity = identity
        return self._tls


def _said(body: bytes) -> str:
    """The message of an error, also when it is no Status."""
    try:
        message = orjson.loads(body)["message"]
    except (ValueError, TypeError, KeyError):
        message = body[:200].decode(errors="replace").strip()
    return str(message)[:200]
