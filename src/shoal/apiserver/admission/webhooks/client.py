"""Calls hooks: one POST of JSON over TLS, on connections that are kept for the next call.

Everything that can go wrong becomes ``CallFailed`` with the text that users of Kubernetes know from its API server. A
call is a task of its own, since request handlers are not run in one; whoever stops waiting for it ends it. Redirects
are not followed, answers have a limit.
"""

from __future__ import annotations

import asyncio
import math
import socket
import ssl
from dataclasses import dataclass
from typing import Any

import httptools
import orjson

from shoal.apiserver.admission.webhooks.target import HookTarget, Resolver, Unresolved
from shoal.base.clock import Clock
from shoal.base.deadline import run_within
from shoal.errors import ConfigError, ShoalError
from shoal.store import Store

_READ_BYTES = 256 * 1024
_MAX_CONTEXTS = 256
_EXPIRED = "context deadline exceeded"
_UNKNOWN_ISSUER = frozenset({2, 18, 19, 20, 21, 27})  # OpenSSL's codes of chains that end nowhere we trust
_EXPIRED_CERTIFICATE, _EARLY_CERTIFICATE = 10, 9
_WRONG_NAME = frozenset({62, 64})
_TEXTS = {
    401: "the server has asked for the client to provide credentials",
    404: "the server could not find the requested resource",
    405: "the server does not allow this method on the requested resource",
    409: "the server reported a conflict",
    410: "the server has gone away",
    413: "Request entity too large",
    422: "the server rejected our request due to an error in our request",
    429: "the server has received too many requests and has asked us to try again later",
    503: "the server is currently unable to handle the request",
    504: "the server was unable to return a response in the time allotted, but may still be processing the request",
}


class CallFailed(ShoalError):
    """No usable answer came; the text says why."""


class TimedOut(CallFailed):
    """The time for the call was over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HookLimits:
    """Bounds of calls to hooks."""

    answer_bytes: int = 16 * 1024 * 1024
    kept: int = 16  # idle connections per address
    idle_s: float = 30.0  # a kept connection older than this is not trusted
    request_s: float = 60.0  # for all the hooks of one write together
    conversion_s: float = 30.0

    def __post_init__(self) -> None:
        if min(self.answer_bytes, self.idle_s, self.request_s, self.conversion_s) <= 0 or self.kept < 0:
            raise ConfigError("limits of webhook calls must be more than 0")


class _Answer:
    """What the parser has seen of one answer."""

    def __init__(self, limit: int) -> None:
        self.parts: list[bytes] = []
        self.size = 0
        self.limit = limit
        self.head = False
        self.framed = False  # it says how long it is
        self.last = False  # the connection ends with it
        self.complete = False

    def on_header(self, name: bytes, value: bytes) -> None:
        name = name.lower()
        if name in (b"content-length", b"transfer-encoding"):
            self.framed = True
        elif name == b"connection":
            self.last = value.strip().lower() == b"close"

    def on_headers_complete(self) -> None:
        self.head = True

    def on_body(self, data: bytes) -> None:
        self.size += len(data)
        if self.size > self.limit:
            raise CallFailed(f"the answer is larger than {self.limit} bytes")
        self.parts.append(data)

    def on_message_complete(self) -> None:
        self.complete = True

    def settle(self, status: int) -> None:
        """After a 1xx the real answer is yet to come."""
        if status < 200:
            self.complete = self.head = False


class _Stale(Exception):
    """The other side closed a kept connection before it said anything."""


class _Connection:
    """A TLS connection that carries one exchange at a time."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self.used = False
        self.reusable = False
        self.idle_since_s = 0.0

    async def exchange(self, head: bytes, body: bytes, limit: int) -> tuple[int, bytes]:
        """Status and body of the answer."""
        self.reusable = False
        answer = _Answer(limit)
        parser = httptools.HttpResponseParser(answer)
        silent = True
        try:
            self._writer.write(head)
            self._writer.write(body)
            while not answer.complete:
                data = await self._reader.read(_READ_BYTES)
                if not data:
                    break
                silent = False
                parser.feed_data(data)
                answer.settle(parser.get_status_code())
        except (ConnectionError, ssl.SSLError) as error:
            if self.used and silent:
                raise _Stale from None
            raise CallFailed(_system_error("read tcp", error)) from error
        except httptools.HttpParserCallbackError as error:
            raise error.__context__ or error from None
        except httptools.HttpParserError as error:
            raise CallFailed(f"net/http: HTTP/1.x transport connection broken: {error}") from error
        if silent and self.used:
            raise _Stale
        if not answer.head:
            raise CallFailed("EOF")
        if not answer.complete and answer.framed:
            raise CallFailed("unexpected EOF")
        self.used = True
        self.reusable = answer.complete and not answer.last and parser.get_http_version() == "1.1"
        return parser.get_status_code(), b"".join(answer.parts)

    def close(self) -> None:
        transport = self._writer.transport
        if transport is not None:
            transport.abort()


class HookClient:
    """Calls hooks. Make it and use it in one event loop; ``close`` it in the end."""

    def __init__(self, store: Store, clock: Clock, limits: HookLimits | None = None) -> None:
        self.clock = clock
        self.limits = limits or HookLimits()
        self._resolver = Resolver(store)
        self._idle: dict[tuple[tuple[str, int], str, bytes], list[_Connection]] = {}
        self._contexts: dict[bytes, ssl.SSLContext] = {}
        self._closed = False

    async def post(self, target: HookTarget, body: Any, timeout_s: float, *, tell: bool = True) -> Any:
        """Send ``body`` and return the answer, both decoded. ``tell``: the hook learns how much time it has."""
        query = f"?timeout={math.ceil(timeout_s)}s" if tell else ""
        head = (
            f"POST {target.path}{query} HTTP/1.1\r\nHost: {target.host}\r\nUser-Agent: kube-apiserver-admission\r\n"
            "Accept: application/json, */*\r\nContent-Type: application/json\r\nContent-Length: "
        )
        data = orjson.dumps(body)
        message = f"{head}{len(data)}\r\n\r\n".encode("latin-1", "replace")
        try:
            status, answer = await run_within(
                self.clock, timeout_s, self._call(target, message, data), name="webhook/call"
            )
        except TimeoutError:
            raise TimedOut(f'Post "{target.url}{query}": {_EXPIRED}') from None
        except CallFailed as failed:
            raise CallFailed(f'Post "{target.url}{query}": {failed}') from failed
        return _decoded(status, answer)

    async def _call(self, target: HookTarget, head: bytes, body: bytes) -> tuple[int, bytes]:
        try:
            address = self._resolver.address(target)
        except Unresolved as missing:
            raise CallFailed(str(missing)) from None
        place = (address, target.server_name, target.ca_digest)
        while True:
            connection = self._take(place)
            kept = connection is not None
            if connection is None:
                connection = await self._connect(address, target)
            try:
                return await connection.exchange(head, body, self.limits.answer_bytes)
            except _Stale:
                assert kept
            finally:
                self._give_back(place, connection)

    def _take(self, place: tuple[tuple[str, int], str, bytes]) -> _Connection | None:
        kept = self._idle.get(place)
        now = self.clock.monotonic()
        while kept:
            connection = kept.pop()
            if now - connection.idle_since_s < self.limits.idle_s:
                return connection
            connection.close()
        self._idle.pop(place, None)
        return None

    def _give_back(self, place: tuple[tuple[str, int], str, bytes], connection: _Connection) -> None:
        kept = self._idle.setdefault(place, []) if connection.reusable and not self._closed else None
        if kept is None or len(kept) >= self.limits.kept:
            connection.close()
            return
        connection.idle_since_s = self.clock.monotonic()
        kept.append(connection)

    async def _connect(self, address: tuple[str, int], target: HookTarget) -> _Connection:
        host, port = address
        try:
            context = self._context(target)
            reader, writer = await asyncio.open_connection(
                host, port, ssl=context, server_hostname=target.server_name, ssl_shutdown_timeout=0.5
            )
        except ssl.SSLCertVerificationError as error:
            raise CallFailed(_untrusted(error, target.server_name)) from error
        except ssl.SSLError as error:
            raise CallFailed(f"tls: {(error.reason or str(error)).lower().replace('_', ' ')}") from error
        except socket.gaierror as error:
            raise CallFailed(f"dial tcp: lookup {host}: no such host") from error
        except OSError as error:
            shown = f"[{host}]" if ":" in host else host
            raise CallFailed(_system_error(f"dial tcp {shown}:{port}: connect", error)) from error
        return _Connection(reader, writer)

    def _context(self, target: HookTarget) -> ssl.SSLContext:
        """Made once for each set of roots: loading them takes longer than a call."""
        context = self._contexts.get(target.ca_digest)
        if context is None:
            if len(self._contexts) > _MAX_CONTEXTS:
                self._contexts.clear()
            try:
                context = ssl.create_default_context(cadata=target.ca or None)
            except ssl.SSLError:
                raise CallFailed("unable to load root certificates: unable to parse bytes as PEM block") from None
            context.minimum_version = ssl.TLSVersion.TLSv1_2
            # what a bundle names is trusted, be it an intermediate authority or the hook's own certificate
            context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
            context.verify_flags &= ~ssl.VERIFY_X509_STRICT
            context.set_alpn_protocols(["http/1.1"])
            self._contexts[target.ca_digest] = context
        return context

    def close(self) -> None:
        self._closed = True
        for kept in self._idle.values():
            for connection in kept:
                connection.close()
        self._idle.clear()


def _decoded(status: int, body: bytes) -> Any:
    try:
        found = orjson.loads(body)
    except orjson.JSONDecodeError:
        found = None
    if 200 <= status <= 206:
        if found is None:
            raise CallFailed("couldn't get version/kind; json parse error: the answer is not JSON")
        return found
    if isinstance(found, dict) and found.get("kind") == "Status" and found.get("message"):
        raise CallFailed(str(found["message"]))
    shown = body[:2048].decode("utf-8", "replace").strip()
    text = _TEXTS.get(status)
    if text is None and status in (403, 406, 415) and shown:
        text = shown
    if text is None and status >= 500:
        quoted = orjson.dumps(shown or "unknown").decode()
        text = f"an error on the server ({quoted}) has prevented the request from succeeding"
    raise CallFailed(text or f"the server responded with the status code {status} but did not return more details")


def _untrusted(error: ssl.SSLCertVerificationError, name: str) -> str:
    code = error.verify_code
    if code in _UNKNOWN_ISSUER:
        why = "certificate signed by unknown authority"
    elif code in _WRONG_NAME:
        why = f"certificate is not valid for {name}"
    elif code in (_EXPIRED_CERTIFICATE, _EARLY_CERTIFICATE):
        why = "certificate has expired or is not yet valid"
    else:
        why = error.verify_message
    return f"tls: failed to verify certificate: x509: {why}"


def _system_error(what: str, error: OSError) -> str:
    if isinstance(error, ConnectionRefusedError):
        return f"{what}: connection refused"
    if isinstance(error, ConnectionResetError):
        return f"{what}: connection reset by peer"
    return f"{what}: {(error.strerror or str(error)).lower()}"
