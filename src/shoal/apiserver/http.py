"""HTTP/1.1 on a bare transport: bytes in, ``Request`` out; ``Response`` in, bytes out. Knows nothing of Kubernetes.

This is the hot path's first and last step, so it is written at the level of callbacks: no task per request, no
middleware, no per-request logging. A handler is a coroutine that usually finishes without waiting (reads) or waits
for one future (a commit); ``_Exchange`` drives it directly. Code that needs a real task (timeouts, task groups)
starts one and awaits it.

Refused here, before any handler runs: malformed requests (400), bodies over the limit (413), header floods (431),
clients that are slower than ``HttpLimits`` allows (connection closed).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol
from urllib.parse import unquote

import httptools

REASONS = {
    101: "Switching Protocols", 200: "OK", 201: "Created", 202: "Accepted", 301: "Moved Permanently",
    304: "Not Modified", 400: "Bad Request", 401: "Unauthorized", 403: "Forbidden", 404: "Not Found",
    405: "Method Not Allowed", 406: "Not Acceptable", 409: "Conflict", 410: "Gone", 413: "Request Entity Too Large",
    415: "Unsupported Media Type", 422: "Unprocessable Entity", 429: "Too Many Requests",
    431: "Request Header Fields Too Large", 500: "Internal Server Error", 501: "Not Implemented",
    503: "Service Unavailable", 504: "Gateway Timeout",
}  # fmt: skip
STATUS_LINES = {code: f"HTTP/1.1 {code} {text}\r\n".encode() for code, text in REASONS.items()}
LAST_CHUNK = b"0\r\n\r\n"
SWEEP_S = 1.0
_TOO_LARGE = b"request is larger than this server accepts"
SLICE = 256 * 1024  # a long body is handed to the transport in pieces, so that other connections get their turn


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpLimits:
    """What a client may ask of a connection."""

    body_bytes: int = 3 * 1024 * 1024
    header_bytes: int = 64 * 1024
    header_timeout_s: float = 32.0  # from the first byte of a request to the end of its headers and body
    idle_timeout_s: float = 300.0  # keep-alive connections without a request
    pipelined: int = 16  # requests waiting behind one that is being answered; more pauses reading


class Request:
    """One request. ``headers`` has lower-case names; ``path`` is decoded, ``query`` is not."""

    __slots__ = ("body", "client", "headers", "keep_alive", "method", "path", "peer_certificate", "query", "raw_path")

    def __init__(self, method: str, target: bytes, headers: dict[bytes, bytes], body: bytes = b"") -> None:
        raw, _, query = target.partition(b"?")
        self.method = method
        self.raw_path = raw
        path = raw.decode("latin-1")
        self.path = unquote(path) if "%" in path else path
        self.query = query.decode("latin-1")
        self.headers = headers
        self.body = body
        self.keep_alive = True
        self.client = ""
        self.peer_certificate: bytes | None = None


class Response:
    """A complete answer. ``body`` may be in parts that are joined on the wire."""

    __slots__ = ("body", "content_type", "headers", "status")

    def __init__(
        self,
        status: int,
        body: bytes | Sequence[bytes] = b"",
        content_type: bytes = b"application/json",
        headers: Sequence[tuple[bytes, bytes]] = (),
    ) -> None:
        self.status = status
        self.body = body
        self.content_type = content_type
        self.headers = headers


class Sink(Protocol):
    """Where a streaming answer goes: a connection, or a queue in process."""

    @property
    def writable(self) -> bool:
        """False while the client reads slower than we write; ``on_writable`` is called when that ends."""

    def write(self, data: bytes) -> None: ...

    def end(self) -> None:
        """The stream is complete; the connection can serve the next request."""


class Stream(Protocol):
    """A streaming answer. ``attach`` is called once the headers are out."""

    status: int
    content_type: bytes
    headers: Sequence[tuple[bytes, bytes]]

    def attach(self, sink: Sink) -> None: ...

    def on_writable(self) -> None: ...

    def on_closed(self) -> None:
        """The client is gone or the server stops; nothing may be written any more."""


Answer = Response | Stream
Handler = Callable[[Request], Coroutine[Any, Any, Answer]]


def frame(data: bytes) -> bytes:
    """One chunk of a chunked body."""
    return b"%x\r\n%b\r\n" % (len(data), data)


class _Exchange:
    """Drives one handler coroutine and keeps its answer until it is this request's turn on the wire."""

    __slots__ = ("answer", "connection", "coroutine", "request", "waiting_for")

    def __init__(self, connection: HttpConnection, request: Request, coroutine: Coroutine[Any, Any, Answer]) -> None:
        self.connection = connection
        self.request = request
        self.answer: Answer | None = None
        self.waiting_for: asyncio.Future[Any] | None = None
        self.coroutine = coroutine

    def step(self, done: asyncio.Future[Any]) -> None:
        """What the handler waited for is there: go on until it waits again or answers."""
        try:
            waiting = self.coroutine.send(None)
        except StopIteration as stop:
            self.answer = stop.value
            self.connection.flush_answers()
        except asyncio.CancelledError:
            self.connection.abort()
        except Exception as error:
            self.answer = self.connection.server.on_error(self.request, error)
            self.connection.flush_answers()
        else:
            self.wait_for(waiting)

    def wait_for(self, waiting: Any) -> None:
        """Go on when ``waiting``, which the handler has yielded, is done."""
        if waiting is None:  # a bare yield: asyncio.sleep(0)
            self.connection.server.loop.call_soon(self.step, _DONE)
            return
        waiting._asyncio_future_blocking = False  # what a task would do: this exchange is the one that waits
        self.waiting_for = waiting
        waiting.add_done_callback(self.step)

    def cancel(self) -> None:
        """The client went away. A commit that is under way goes on; only the waiting ends."""
        if self.answer is None:
            if self.waiting_for is not None:
                self.waiting_for.remove_done_callback(self.step)
            self.coroutine.close()


_DONE: Any = object()  # stands for a finished future where there was none


class HttpServer:
    """What all connections of a listener share."""

    def __init__(
        self,
        handler: Handler,
        on_error: Callable[[Request, Exception], Response],
        *,
        loop: asyncio.AbstractEventLoop,
        limits: HttpLimits | None = None,
        common_headers: Sequence[tuple[bytes, bytes]] = (),
    ) -> None:
        self.handler = handler
        self.on_error = on_error
        self.loop = loop
        self.limits = limits or HttpLimits()
        self.connections: set[HttpConnection] = set()
        self.stopping = False
        self.tick = loop.time()  # about now: good enough for timeouts, and free to read
        self.drained = asyncio.Event()  # set while nobody is connected
        self.drained.set()
        self._common = b"".join(name + b": " + value + b"\r\n" for name, value in common_headers)
        self._heads: dict[tuple[int, bytes], bytes] = {}
        self._sweeper: asyncio.TimerHandle | None = None
        self._sweep()

    def __call__(self) -> HttpConnection:
        return HttpConnection(self)

    def head(self, answer: Answer) -> bytes:
        """Status line and headers up to the framing ones; cached, since a server sends few distinct ones."""
        key = (answer.status, answer.content_type)
        head = self._heads.get(key)
        if head is None:
            line = STATUS_LINES.get(answer.status) or b"HTTP/1.1 %d Status\r\n" % answer.status
            kind = b"Content-Type: " + answer.content_type + b"\r\n" if answer.content_type else b""
            head = self._heads[key] = line + kind + self._common
        if answer.headers:
            head += b"".join(name + b": " + value + b"\r\n" for name, value in answer.headers)
        return head

    def _sweep(self) -> None:
        """Close connections that idle or dawdle: one timer for all of them, not one each."""
        self.tick = self.loop.time()
        for connection in list(self.connections):
            connection.enforce_timeouts(self.tick)
        self._sweeper = self.loop.call_later(SWEEP_S, self._sweep)

    async def stop(self, grace_s: float = 5.0) -> None:
        """End streams, let running requests finish, then close what is left."""
        self.stopping = True
        if self._sweeper is not None:
            self._sweeper.cancel()
        for connection in list(self.connections):
            connection.begin_stop()
        with suppress(TimeoutError):
            async with asyncio.timeout(grace_s):
                await self.drained.wait()
        for connection in list(self.connections):
            connection.abort()


class HttpConnection(asyncio.Protocol):
    """One client connection. Requests are answered in order; a stream holds the connection until it ends."""

    __slots__ = (
        "_body", "_busy_since", "_closes_after_stream", "_exchanges", "_headers", "_in_headers", "_parser",
        "_pending_body", "_reading", "_size", "_stream", "_target", "_too_large", "client", "peer_certificate",
        "server", "transport", "writable",
    )  # fmt: skip

    def __init__(self, server: HttpServer) -> None:
        self.server = server
        self.transport: asyncio.Transport | None = None
        self.writable = True
        self._parser = httptools.HttpRequestParser(self)
        self._exchanges: deque[_Exchange] = deque()
        self._stream: Stream | None = None
        self._closes_after_stream = False
        self._pending_body: deque[bytes] = deque()  # slices of a long body not yet handed to the transport
        self._target = b""
        self._headers: dict[bytes, bytes] = {}
        self._body: list[bytes] = []
        self._size = 0
        self._too_large = 0
        self._in_headers = False
        self._reading = True
        self._busy_since = 0.0  # start of an unfinished request, or of idling when negative
        self.client = ""
        self.peer_certificate: bytes | None = None

    # -- transport callbacks -------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport) or hasattr(transport, "write")
        self.transport = transport  # type: ignore[assignment]
        transport.set_write_buffer_limits(high=1024 * 1024)  # type: ignore[attr-defined]
        peer = transport.get_extra_info("peername")
        self.client = f"{peer[0]}:{peer[1]}" if isinstance(peer, tuple) else ""
        ssl_object = transport.get_extra_info("ssl_object")
        if ssl_object is not None:
            self.peer_certificate = ssl_object.getpeercert(binary_form=True)
        self.server.connections.add(self)
        self.server.drained.clear()
        self._busy_since = -self.server.tick
        if self.server.stopping:
            self.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self.server.connections.discard(self)
        if not self.server.connections:
            self.server.drained.set()
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.on_closed()
        for exchange in self._exchanges:
            exchange.cancel()
        self._exchanges.clear()
        self._pending_body.clear()
        self.transport = None

    def data_received(self, data: bytes) -> None:
        if self._busy_since <= 0:
            self._busy_since = self.server.tick
        try:
            self._parser.feed_data(data)
            if self._in_headers and self._size > self.server.limits.header_bytes:
                self._refuse(431, _TOO_LARGE)  # do not wait for headers that never end
        except httptools.HttpParserUpgrade:
            return  # the handler of the upgrade request has the connection
        except httptools.HttpParserError:
            self._refuse(400, b"malformed HTTP request")

    def pause_writing(self) -> None:
        self.writable = False

    def resume_writing(self) -> None:
        self.writable = True
        self._write_pending()
        if self._stream is not None:
            self._stream.on_writable()

    def eof_received(self) -> bool:
        return False

    # -- parser callbacks ----------------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        self._target = b""
        self._headers = {}
        self._body = []
        self._size = 0
        self._too_large = 0
        self._in_headers = True

    def on_url(self, url: bytes) -> None:
        self._target += url
        self._size += len(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._size += len(name) + len(value)
        name = name.lower()
        headers = self._headers
        if name in headers:
            # repeated headers are joined as HTTP says, except where a value may contain a comma itself
            joint = b"\x00" if name.startswith(b"impersonate-") else b", "
            value = headers[name] + joint + value
        headers[name] = value

    def on_headers_complete(self) -> None:
        self._in_headers = False
        if self._size > self.server.limits.header_bytes:
            self._too_large = 431
        length = self._headers.get(b"content-length")
        if length is not None and length.isdigit() and int(length) > self.server.limits.body_bytes:
            self._too_large = self._too_large or 413
        if self._too_large:
            return
        if self._headers.get(b"expect", b"").lower() == b"100-continue" and self.transport is not None:
            self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        self._size = 0

    def on_body(self, body: bytes) -> None:
        self._size += len(body)
        if self._size > self.server.limits.body_bytes:
            self._too_large = self._too_large or 413
            self._body = []
        else:
            self._body.append(body)

    def on_message_complete(self) -> None:
        if self._too_large:
            self._refuse(self._too_large, _TOO_LARGE)
            return
        parser = self._parser
        body = self._body
        request = Request(
            parser.get_method().decode("ascii"),
            self._target,
            self._headers,
            body[0] if len(body) == 1 else b"".join(body),
        )
        request.keep_alive = parser.should_keep_alive() and not self.server.stopping
        request.client = self.client
        request.peer_certificate = self.peer_certificate
        self._busy_since = 0.0
        self._begin(request)
        if len(self._exchanges) > self.server.limits.pipelined and self._reading and self.transport is not None:
            self._reading = False
            self.transport.pause_reading()

    def _begin(self, request: Request) -> None:
        """Run the handler as far as it goes; most reads are answered here and now."""
        coroutine = self.server.handler(request)
        answer: Answer
        try:
            waiting = coroutine.send(None)
        except StopIteration as stop:
            answer = stop.value
        except Exception as error:
            answer = self.server.on_error(request, error)
        else:
            exchange = _Exchange(self, request, coroutine)
            self._exchanges.append(exchange)
            exchange.wait_for(waiting)
            return
        if self._exchanges or self._stream is not None or self._pending_body:  # not its turn yet
            exchange = _Exchange(self, request, coroutine)
            exchange.answer = answer
            self._exchanges.append(exchange)
        elif self.transport is not None:
            self._answer(answer, request)
            if self._busy_since == 0.0:
                self._busy_since = -self.server.tick

    # -- answering -----------------------------------------------------------------------------------------------

    def _answer(self, answer: Answer, request: Request) -> None:
        if isinstance(answer, Response):
            self._send(answer, request)
        else:
            self._begin_stream(answer, request)

    def flush_answers(self) -> None:
        """Send every answer whose turn has come."""
        while self._exchanges and self.transport is not None and self._stream is None and not self._pending_body:
            exchange = self._exchanges[0]
            answer = exchange.answer
            if answer is None:
                return
            self._exchanges.popleft()
            self._answer(answer, exchange.request)
        if not self._reading and self.transport is not None and len(self._exchanges) <= 1:
            self._reading = True
            self.transport.resume_reading()
        if not self._exchanges and self._busy_since == 0.0:
            self._busy_since = -self.server.tick

    def _send(self, answer: Response, request: Request) -> None:
        transport = self.transport
        assert transport is not None
        body = answer.body
        head = self.server.head(answer)
        closing = b"" if request.keep_alive else b"Connection: close\r\n"
        if isinstance(body, bytes) and len(body) <= SLICE:
            length = b"Content-Length: %d\r\n" % len(body)
            transport.write(head + closing + length + b"\r\n" + (b"" if request.method == "HEAD" else body))
        else:
            parts = [body] if isinstance(body, bytes) else body
            length = b"Content-Length: %d\r\n" % sum(map(len, parts))
            transport.write(head + closing + length + b"\r\n")
            if request.method != "HEAD":
                self._pending_body.extend(parts)
                self._write_pending()
        if not request.keep_alive and not self._pending_body:
            transport.close()

    def _write_pending(self) -> None:
        """Hand long bodies over slice by slice while the client keeps up."""
        pending = self._pending_body
        if not pending:
            return
        transport = self.transport
        while pending and self.writable and transport is not None:
            part = pending.popleft()
            if len(part) > SLICE:
                view = memoryview(part)
                for start in range(len(part), 0, -SLICE):
                    pending.appendleft(bytes(view[max(0, start - SLICE) : start]))
                continue
            transport.write(part)
        if not pending:
            self.server.loop.call_soon(self.flush_answers)

    def _begin_stream(self, stream: Stream, request: Request) -> None:
        transport = self.transport
        assert transport is not None
        head = self.server.head(stream)
        self._closes_after_stream = not request.keep_alive
        closing = b"" if request.keep_alive else b"Connection: close\r\n"
        transport.write(head + closing + b"Transfer-Encoding: chunked\r\n\r\n")
        self._stream = stream
        stream.attach(self)

    def write(self, data: bytes) -> None:
        """Sink: one already framed piece of the current stream."""
        if self.transport is not None:
            self.transport.write(data)

    def end(self) -> None:
        """Sink: the current stream is complete."""
        if self._stream is None or self.transport is None:
            return
        self._stream = None
        self.transport.write(LAST_CHUNK)
        if self.server.stopping or self._closes_after_stream:
            self.transport.close()
        else:
            self._busy_since = 0.0
            self.server.loop.call_soon(self.flush_answers)

    # -- ending --------------------------------------------------------------------------------------------------

    def _refuse(self, status: int, text: bytes) -> None:
        """Answer what cannot be parsed or is too large, and hang up: the rest of the input cannot be trusted."""
        if self.transport is None:
            return
        reason = {413: b"RequestEntityTooLarge", 431: b"RequestHeaderFieldsTooLarge"}.get(status, b"BadRequest")
        body = (
            b'{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"%b","reason":"%b","code":%d}'
            % (text, reason, status)
        )
        answer = Response(status, body)
        self.transport.write(
            self.server.head(answer) + b"Connection: close\r\nContent-Length: %d\r\n\r\n" % len(body) + body
        )
        self.transport.close()

    def begin_stop(self) -> None:
        """End the stream cleanly; close at once when nothing is under way."""
        stream = self._stream
        if stream is not None:
            stream.on_closed()
            self.end()
        elif not self._exchanges and not self._pending_body and self.transport is not None:
            self.transport.close()

    def abort(self) -> None:
        if self.transport is not None:
            self.transport.abort()

    def enforce_timeouts(self, now: float) -> None:
        since = self._busy_since
        if self._stream is not None or self._exchanges or self._pending_body or since == 0.0:
            return
        limits = self.server.limits
        if (since > 0 and now - since > limits.header_timeout_s) or (since < 0 and now + since > limits.idle_timeout_s):
            self.abort()
