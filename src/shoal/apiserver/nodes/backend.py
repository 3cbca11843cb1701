"""One request to a kubelet or a pod: a connection of its own, the request, and its answer piece by piece.

Callbacks all the way, since whatever comes in is only passed on: ``Consumer`` gets the answer, ``pause`` and ``resume``
hold the other side back while the consumer cannot keep up, and ``writable`` says whether it keeps up itself.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import httptools

from shoal.apiserver.messages import IncomingBody, frame
from shoal.base.clock import Clock
from shoal.base.deadline import run_within
from shoal.errors import ShoalError

Headers = Sequence[tuple[bytes, bytes]]
_BUFFERED_BYTES = 256 * 1024
_EOF = "EOF"


class Unreachable(ShoalError):
    """No answer came; the text says why, in the words of Go's network library."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where to connect. Without ``tls`` it is plain HTTP."""

    host: str
    port: int
    tls: ssl.SSLContext | None = None

    @property
    def authority(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    @property
    def scheme(self) -> str:
        return "http" if self.tls is None else "https"


@dataclass(frozen=True, slots=True)
class Head:
    """The beginning of an answer."""

    status: int
    headers: Headers  # as they came
    length: int | None  # of the body, if it says

    def get(self, name: bytes) -> bytes:
        return next((value for key, value in self.headers if key.lower() == name), b"")


class Consumer(Protocol):
    """Who gets an answer."""

    def on_answer(self, data: bytes) -> None: ...

    def on_answered(self, problem: str) -> None:
        """That was all; ``problem`` is not empty when it broke off."""

    def on_room(self) -> None:
        """The other side keeps up again with what it is sent."""


class Backend(asyncio.Protocol):
    """The connection. ``head`` is there when the answer has begun; then somebody must ``attach``, or ``abort``."""

    def __init__(self, method: str) -> None:
        self.head: asyncio.Future[Head] = asyncio.get_running_loop().create_future()
        self.writable = True
        self._transport: asyncio.Transport | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._headers: list[tuple[bytes, bytes]] = []
        self._method = method
        self._consumer: Consumer | None = None
        self._incoming: IncomingBody | None = None
        self._early: list[bytes] = []  # of the answer, before anybody wanted it
        self._ended: str | None = None  # why nothing more comes, if so
        self._raw = False  # the protocol has changed
        self._framed = False  # the answer says where it ends
        self._complete = False
        self._reading = True

    # -- sending -----------------------------------------------------------------------------------------------------

    def send(
        self, head: bytes, body: bytes = b"", incoming: IncomingBody | None = None, *, chunked: bool = False
    ) -> None:
        """Send the request; ``incoming`` is passed on while it comes in."""
        self.write(head + body)
        if incoming is None:
            return
        self._incoming = incoming
        if chunked:
            incoming.attach(lambda data: self.write(frame(data)), lambda: self.write(b"0\r\n\r\n"))
        else:
            incoming.attach(self.write, _nothing)

    def write(self, data: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    # -- receiving ---------------------------------------------------------------------------------------------------

    def attach(self, consumer: Consumer) -> None:
        self._consumer = consumer
        early, self._early = self._early, []
        for data in early:
            consumer.on_answer(data)
        if self._ended is not None:
            consumer.on_answered(self._ended)
        elif self._complete:
            self._finish("")
        else:
            self.resume()

    def pause(self) -> None:
        if self._reading and self._transport is not None and not self._transport.is_closing():
            self._reading = False
            self._transport.pause_reading()

    def resume(self) -> None:
        if not self._reading and self._transport is not None and not self._transport.is_closing():
            self._reading = True
            self._transport.resume_reading()

    def abort(self) -> None:
        """Nobody wants the rest."""
        self._consumer = None
        if self._ended is None:
            self._ended = _EOF
        if self._transport is not None:
            self._transport.abort()

    def close(self) -> None:
        """End the connection once everything is sent."""
        if self._transport is not None:
            self._transport.close()

    def _finish(self, problem: str) -> None:
        if self._ended is not None:
            return
        self._ended = problem
        if self._incoming is not None:
            self._incoming.resume()
        if self._transport is not None:
            self._transport.close()
        if not self.head.done():
            self.head.set_exception(Unreachable(problem or _EOF))
            self.head.exception()  # whoever waits is told; nobody may be waiting any more
        elif self._consumer is not None:
            self._consumer.on_answered(problem)

    # -- transport ---------------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]
        transport.set_write_buffer_limits(high=_BUFFERED_BYTES)  # type: ignore[attr-defined]
        raw = transport.get_extra_info("socket")
        if raw is not None:
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)

    def data_received(self, data: bytes) -> None:
        if self._raw:
            self._deliver(data)
            return
        if self._complete:
            return  # the connection is not used again
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._raw, self._complete = True, False
            rest = data[upgrade.args[0] :]
            if rest:
                self._deliver(rest)
        except httptools.HttpParserError:
            if not self._complete:
                shown = data[:40].decode("latin-1")
                self._finish(f'net/http: HTTP/1.x transport connection broken: malformed HTTP response "{shown}"')
        if self._complete and self.head.done() and self._consumer is not None:
            self._finish("")

    def connection_lost(self, exc: Exception | None) -> None:
        if self._complete or self._raw or (self.head.done() and not self._framed and exc is None):
            self._finish("")
        else:
            self._finish("unexpected EOF" if self.head.done() else _EOF if exc is None else _text_of("read tcp", exc))

    def pause_writing(self) -> None:
        self.writable = False
        if self._incoming is not None:
            self._incoming.pause()

    def resume_writing(self) -> None:
        self.writable = True
        if self._incoming is not None:
            self._incoming.resume()
        if self._consumer is not None:
            self._consumer.on_room()

    # -- parser ------------------------------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        self._headers = []
        self._complete = False

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers.append((name, value))

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        if status < 200 and status != 101:
            return  # a preliminary answer; the real one follows
        length: int | None = None
        for name, value in self._headers:
            key = name.lower()
            if key == b"content-length" and value.isdigit():
                length, self._framed = int(value), True
            elif key == b"transfer-encoding":
                length, self._framed = None, True
        if self._method == "HEAD":
            self._complete = True
        if not self.head.done():
            self.head.set_result(Head(status, self._headers, length))
        self.pause()

    def on_body(self, data: bytes) -> None:
        if self._method != "HEAD":
            self._deliver(data)

    def on_message_complete(self) -> None:
        self._complete = self.head.done()

    def _deliver(self, data: bytes) -> None:
        if self._consumer is not None:
            self._consumer.on_answer(data)
        else:
            self._early.append(data)


def _nothing() -> None:
    """Of a body whose length was told beforehand."""


class Collected:
    """A short answer, read to its end. More than ``limit`` bytes are left out."""

    def __init__(self, backend: Backend, limit: int) -> None:
        self._done: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._backend = backend
        self._parts: list[bytes] = []
        self._left = limit

    async def read(self) -> bytes:
        self._backend.attach(self)
        try:
            return await self._done
        finally:
            self._backend.abort()

    def on_answer(self, data: bytes) -> None:
        self._parts.append(data[: self._left])
        self._left -= len(data)
        if self._left <= 0:
            self.on_answered("")

    def on_answered(self, problem: str) -> None:
        if not self._done.done():
            if problem:
                self._done.set_exception(Unreachable(problem))
            else:
                self._done.set_result(b"".join(self._parts))

    def on_room(self) -> None:
        """Nothing is sent."""


async def connect(clock: Clock, endpoint: Endpoint, method: str, dial_s: float) -> Backend:
    """A connection for one request of this method."""
    try:
        return await run_within(clock, dial_s, _dial(endpoint, method), name="nodes/dial")
    except TimeoutError:
        raise Unreachable(f"dial tcp {endpoint.authority}: i/o timeout") from None


async def _dial(endpoint: Endpoint, method: str) -> Backend:
    loop = asyncio.get_running_loop()
    tls = endpoint.tls
    try:
        _, backend = await loop.create_connection(
            lambda: Backend(method), endpoint.host, endpoint.port, ssl=tls,
            server_hostname=None if tls is None else endpoint.host,
            ssl_shutdown_timeout=None if tls is None else 0.5,
        )  # fmt: skip
    except ssl.SSLCertVerificationError as error:
        raise Unreachable(f"tls: failed to verify certificate: x509: {_untrusted(error, endpoint.host)}") from error
    except ssl.SSLError as error:
        raise Unreachable(f"remote error: tls: {(error.reason or str(error)).lower().replace('_', ' ')}") from error
    except socket.gaierror as error:
        raise Unreachable(f"dial tcp: lookup {endpoint.host}: no such host") from error
    except OSError as error:
        raise Unreachable(_text_of(f"dial tcp {endpoint.authority}: connect", error)) from error
    return backend


def _untrusted(error: ssl.SSLCertVerificationError, host: str) -> str:
    if error.verify_code in (18, 19, 20, 21):
        return "certificate signed by unknown authority"
    if error.verify_code in (62, 64):
        return f"certificate is not valid for {host}"
    return error.verify_message


def _text_of(what: str, error: Exception) -> str:
    if isinstance(error, ConnectionRefusedError):
        return f"{what}: connection refused"
    if isinstance(error, ConnectionResetError):
        return f"{what}: connection reset by peer"
    text = error.strerror if isinstance(error, OSError) else None
    return f"{what}: {(text or str(error)).lower()}"
