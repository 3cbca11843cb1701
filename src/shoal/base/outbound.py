"""HTTP calls to addresses that users name, made by a process that can reach more than they can.

Each call goes through a *guard*, which sees the host, the port and every address of the host, and refuses the call
with a sentence. A name is resolved once per call: what the guard has seen is what is dialled, so a name server that
answers differently a moment later gains nothing. Redirects are returned and not followed, no proxy of the environment
is used, time and size are limited.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from ipaddress import ip_address

from shoal.base.clock import Clock
from shoal.base.deadline import within
from shoal.base.destinations import Address, OutboundRefused, OutboundUrl, plain_address
from shoal.base.http1.connection import ClientConnection
from shoal.base.http1.dial import HttpAddress, dial
from shoal.base.http1.errors import Disconnected, Unreachable
from shoal.base.http1.limits import AnswerLimits
from shoal.base.http1.messages import HttpReply, request_bytes

TIMEOUT_S = 5.0
ANSWER_BYTES = 64 * 1024
_IDLE_S = 30.0
_CONTEXTS = 8

Guard = Callable[[str, int, Address], str]  # host, port and one of its addresses → why not; empty: allowed
Resolve = Callable[[str, int], Awaitable[list[str]]]


class InvalidAuthority(OutboundRefused):
    """The certificates that the call must trust cannot be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OutboundCall:
    url: str
    method: str = "POST"
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes | None = None
    ca: str = ""  # PEM; empty: the system's authorities
    timeout_s: float = TIMEOUT_S  # of everything, resolving and connecting included
    answer_bytes: int = ANSWER_BYTES


@dataclass(frozen=True, slots=True)
class _Place:
    """Connections to one of these can be shared."""

    host: str  # an address
    port: int
    name: str  # that the certificate must have; empty: no TLS
    ca: str


async def resolve_host(host: str, port: int) -> list[str]:
    """The addresses of a host, as this machine resolves it."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


class OutboundCaller:
    """``kept`` is how many idle connections stay open for the next call."""

    def __init__(self, *, clock: Clock, agent: str, kept: int = 0, resolve: Resolve = resolve_host) -> None:
        self._clock = clock
        self._agent = agent
        self._kept = kept
        self._resolve = resolve
        self._idle: dict[_Place, list[ClientConnection]] = {}
        self._contexts: dict[str, ssl.SSLContext] = {}

    async def send(self, call: OutboundCall, guard: Guard) -> HttpReply:
        """The answer, whatever its status. Raises ``OutboundRefused``, ``TimeoutError`` or ``TransportError``."""
        url = OutboundUrl.parse(call.url)
        headers = [("host", url.netloc), ("accept", "*/*"), ("user-agent", self._agent), *call.headers]
        try:
            message = request_bytes(call.method, url.target, headers, call.body)
        except (ValueError, UnicodeEncodeError) as error:
            raise OutboundRefused(f"the request cannot be sent: {error}") from None
        async with within(self._clock, call.timeout_s):
            return await self._call(call, url, guard, message)

    def close(self) -> None:
        for kept in self._idle.values():
            for connection in kept:
                connection.abort()
        self._idle.clear()

    async def _call(self, call: OutboundCall, url: OutboundUrl, guard: Guard, message: bytes) -> HttpReply:
        name = url.host if url.scheme == "https" else ""
        found = await self._addresses(url, guard)
        for last, address in enumerate(found, start=1 - len(found)):
            try:
                return await self._exchange(_Place(address, url.port, name, call.ca), call, message)
            except Unreachable:
                if not last:
                    raise
        raise OutboundRefused(f"host {url.host!r} has no address")

    async def _addresses(self, url: OutboundUrl, guard: Guard) -> list[str]:
        """The addresses of a host. One that is not allowed refuses the call, also if others are allowed."""
        try:
            found = [str(ip_address(url.host))]
        except ValueError:
            try:
                found = await self._resolve(url.host, url.port)
            except (OSError, UnicodeError) as error:
                why = getattr(error, "strerror", None) or error
                raise OutboundRefused(f"host {url.host!r} not found: {why}") from error
        for text in found:
            if why := guard(url.host, url.port, plain_address(text)):
                raise OutboundRefused(why)
        return found

    async def _exchange(self, place: _Place, call: OutboundCall, message: bytes) -> HttpReply:
        while True:
            connection = self._take(place)
            kept = connection is not None
            if connection is None:
                tls = self._context(place.ca) if place.name else None
                limits = AnswerLimits(body_bytes=call.answer_bytes)
                address = HttpAddress(place.host, place.port, tls, place.name)
                connection = await dial(address, clock=self._clock, limits=limits)
            try:
                reply = await connection.request(message)
            except (Disconnected, Unreachable):
                if not kept or not connection.stale:
                    raise
            else:
                return reply
            finally:
                self._give_back(place, connection)

    def _take(self, place: _Place) -> ClientConnection | None:
        kept, now_s = self._idle.get(place), self._clock.monotonic()
        while kept:
            connection = kept.pop()
            if now_s - connection.idle_since_s < _IDLE_S:
                return connection
            connection.abort()
        self._idle.pop(place, None)
        return None

    def _give_back(self, place: _Place, connection: ClientConnection) -> None:
        if not connection.reusable or sum(map(len, self._idle.values())) >= self._kept:
            connection.abort()
            return
        connection.idle_since_s = self._clock.monotonic()
        self._idle.setdefault(place, []).append(connection)

    def _context(self, ca: str) -> ssl.SSLContext:
        context = self._contexts.get(ca)
        if context is None:
            try:
                context = ssl.create_default_context(cadata=ca or None)
            except ssl.SSLError as error:
                raise InvalidAuthority(f"{error}: use PEM certificates") from error
            if len(self._contexts) >= _CONTEXTS:
                self._contexts.pop(next(iter(self._contexts)))
            self._contexts[ca] = context
        return context
