"""HTTP/1.1 on a bare transport: bytes in, ``Request`` out; ``Response`` in, bytes out. Knows nothing of Kubernetes.

This is the hot path's first and last step, so it is written at the level of callbacks: no task per request, no
middleware, no per-request logging. A handler is a coroutine that usually finishes without waiting (reads) or waits
for one future (a commit); ``Exchange`` drives it directly. Code that needs a real task (timeouts, task groups)
starts one and awaits it.

Refused here, before any handler runs: malformed requests (400), bodies over the limit (413), header floods (431),
connections over the limit (503, 429), clients that send or read slower than ``HttpLimits`` allows (connection closed).
A handler that does not answer in time gets ``RequestTimedOut`` thrown into it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress

import httptools

from shoal.apiserver.connection import OVERFLOW_S, SLICE, ClientConnection
from shoal.apiserver.exchange import Exchange, discard
from shoal.apiserver.framing import Handover, Heads, framing
from shoal.apiserver.http2.connection import Http2Connection
from shoal.apiserver.messages import (
    Answer,
    Handler,
    HttpLimits,
    IncomingBody,
    LongResponse,
    RefusedRequest,
    Relay,
    Request,
    Response,
    ResponseStream,
    Upgrade,
    refusal,
    unframed,
)
from shoal.base.clock import Clock, Timer
from shoal.base.progress import Progress

__all__ = ("Answer", "Handler", "HttpLimits", "HttpServer", "Request", "Response", "ResponseStream")

LAST_CHUNK = b"0\r\n\r\n"
SWEEP_S = 1.0
PIECE = 16 * 1024  # input is parsed in pieces of this size: between them a connection can be made to wait
_PIECES = 64  # of a body that are kept as they came; the rest is put together


class HttpServer:
    """The state that all connections of a listener share."""

    def __init__(
        self,
        handler: Handler,
        on_error: Callable[[Request, Exception], Response],
        *,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        limits: HttpLimits | None = None,
        common_headers: Sequence[tuple[bytes, bytes]] = (),
        hands_on: Callable[[bytes], bool] | None = None,
    ) -> None:
        """``hands_on`` decides by the target of a request whether its body is streamed to the handler."""
        self.handler = handler
        self.on_error = on_error
        self.loop = loop
        self.clock = clock
        self.limits = limits or HttpLimits()
        self.hands_on = hands_on
        self.connections: set[ClientConnection] = set()
        self.addresses: dict[str, int] = {}  # connections of each client address
        self.pending_in = 0  # bytes of unfinished request bodies, whose senders are not authenticated yet
        self.stopping = False
        self.tick = clock.monotonic()  # about now: good enough for timeouts, and free to read
        self.drained = asyncio.Event()  # set while there are no connections
        self.drained.set()
        self.head = Heads(common_headers).of
        self.common_headers = tuple((name.lower(), value) for name, value in common_headers)
        self.last_chunk = self.last_data = b""  # a chunk that was written to a stream of HTTP/2, and its data
        self._sweeper: Timer | None = None
        self._sweep()

    def __call__(self) -> HttpConnection:
        return HttpConnection(self)

    def overflow(self, address: str) -> int:
        """The error status for a new connection over a limit; 0 when there is room."""
        if len(self.connections) > self.limits.connections:
            return 503
        return 429 if self.addresses.get(address, 0) > self.limits.connections_per_address else 0

    def _sweep(self) -> None:
        """Close connections that exceed a time limit: one timer for all of them, not one each."""
        self._sweeper = self.clock.call_later(SWEEP_S, self._sweep)  # first: an error must not end the series
        self.tick = self.clock.monotonic()
        for connection in list(self.connections):
            connection.enforce_timeouts(self.tick)

    async def stop(self, grace_s: float = 5.0) -> None:
        """End streams, let running requests finish, then close the remaining connections."""
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


class HttpConnection(ClientConnection):
    """One client connection. Requests are answered in order; a stream holds the connection until it ends."""

    __slots__ = (
        "_body", "_busy_since", "_closes_after_stream", "_closing", "_exchanges", "_handover", "_headers",
        "_held", "_in_headers", "_incoming", "_long", "_parser", "_pending_body", "_pending_in", "_progress",
        "_reading", "_refused_at", "_size", "_stream", "_target", "_too_large", "_unframed", "_unread", "_upgrading",
    )  # fmt: skip

    def __init__(self, server: HttpServer) -> None:
        super().__init__(server)
        self._parser = httptools.HttpRequestParser(self)
        self._exchanges: deque[Exchange] = deque()
        self._stream: ResponseStream | None = None
        self._closes_after_stream = False
        self._closing = False  # once the pending body is out
        self._unframed = False  # the stream goes to a client that knows no chunks
        self._pending_body: deque[bytes | memoryview] = deque()  # of an answer, not yet handed to the transport
        self._long: LongResponse | None = None  # the answer to notify when its body is sent, if any
        self._unread: deque[bytes] = deque()  # came in while this connection had to wait
        self._target = b""
        self._headers: dict[bytes, bytes] = {}
        self._body: list[bytes | bytearray] = []
        self._pending_in = 0  # of the body, as counted in the server's
        self._size = 0
        self._too_large = 0  # error status of the current request
        self._in_headers = False
        self._reading = True
        self._busy_since = 0.0  # start of an unfinished request, or of idling when negative
        self._held = False  # not read from for a while: its client ignored Retry-After
        self._refused_at = -1e9
        self._progress = Progress()
        self._incoming: IncomingBody | None = None  # of the request that is being read, if its body is handed on
        self._upgrading = False  # input after the last request is not HTTP
        self._handover: Handover | None = None  # the owner of this connection after an upgrade

    # -- transport callbacks -------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        ssl_object = transport.get_extra_info("ssl_object")
        if ssl_object is not None and ssl_object.selected_alpn_protocol() == "h2":
            other = Http2Connection(self.server)
            transport.set_protocol(other)
            other.connection_made(transport)
            return
        self._busy_since = -self.server.tick
        super().connection_made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.on_closed()
        handover, self._handover = self._handover, None
        if handover is not None:
            handover.upgrade.on_closed()
        for exchange in self._exchanges:
            exchange.cancel()
        self._exchanges.clear()
        self._pending_body.clear()
        self._unread.clear()
        self._body = []
        self._forget_pending()
        self._sent()

    def data_received(self, data: bytes) -> None:
        if self._handover is not None:
            self._handover.on_data(data)
            return
        if self._upgrading:  # the client must wait for the answer to its upgrade
            self._unread.append(data)
            self._stop_reading()
            return
        if self._busy_since <= 0:
            self._busy_since = self.server.tick
        if self._reading and not self._unread and len(data) <= PIECE:
            self._feed(data)
        else:  # TLS may bring more before what had to wait was read
            self._unread.append(data)
            self._feed_unread()

    def _feed_unread(self) -> None:
        """Parse unread input until this connection has to wait."""
        unread = self._unread
        while unread and self._reading and self.transport is not None and not self.transport.is_closing():
            data = unread.popleft()
            if len(data) > PIECE:
                unread.appendleft(data[PIECE:])
                data = data[:PIECE]
            self._feed(data)

    def _feed(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
            if self._in_headers and self._size > self.server.limits.header_bytes:
                self._refuse(431)  # do not wait for headers that never end
        except httptools.HttpParserUpgrade as upgrade:
            rest = data[upgrade.args[0] :]  # for the new owner of the connection
            if self._handover is not None:
                self._handover.on_data(rest)
            elif rest:
                self._unread.appendleft(rest)
        except httptools.HttpParserError:
            self._refuse(400)

    def pause_writing(self) -> None:
        self.writable = False

    def resume_writing(self) -> None:
        self.writable = True
        self._progress.restart()
        self._write_pending()
        if self._stream is not None:
            self._stream.on_writable()
        if self._handover is not None:
            self._handover.upgrade.on_writable()
        self._read_on()

    # -- parser callbacks ----------------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        self._target = b""
        self._headers = {}
        self._body = []
        self._size = 0
        self._too_large = self._unwanted
        self._in_headers = True

    def on_url(self, url: bytes) -> None:
        self._target += url
        self._size += len(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._size += len(name) + len(value)
        if not self._in_headers:
            return  # a trailer: headers after the body must not change the request
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
        length, hands_on = self._headers.get(b"content-length"), self.server.hands_on
        early = (length or b"transfer-encoding" in self._headers) and hands_on is not None and hands_on(self._target)
        if length is not None and not early and length.isdigit() and int(length) > self.server.limits.body_bytes:
            self._too_large = self._too_large or 413
        if self._too_large:
            return
        if self._headers.get(b"expect", b"").lower() == b"100-continue" and self.transport is not None:
            self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        self._size = 0
        if early and not self._parser.should_upgrade():  # the body is streamed to the handler
            request = self._request(b"")
            request.incoming = self._incoming = IncomingBody(self._read_on)
            self._begin(request)

    def on_body(self, body: bytes) -> None:
        if self._incoming is not None:
            self._incoming.feed(body)
            if self._incoming.full:
                self._stop_reading()
            return
        if self._too_large:
            return  # it will be refused
        server, size = self.server, len(body)
        self._size += size
        self._pending_in += size
        server.pending_in += size
        if self._size > server.limits.body_bytes:
            self._drop_body(413)
        elif server.pending_in > server.limits.pending_in_bytes and self._size > server.limits.small_body_bytes:
            self._drop_body(503)
        elif len(self._body) <= _PIECES:
            self._body.append(body if len(self._body) < _PIECES else bytearray(body))
        else:
            self._body[-1] += body  # a client that sends byte by byte must not cost an object for each of them

    def _drop_body(self, status: int) -> None:
        self._too_large = self._too_large or status
        self._body = []
        self._forget_pending()

    def _forget_pending(self) -> None:
        self.server.pending_in -= self._pending_in
        self._pending_in = 0

    def on_message_complete(self) -> None:
        self._forget_pending()
        if self._too_large:
            self._refuse(self._too_large)
            return
        incoming, self._incoming = self._incoming, None
        if incoming is not None:
            self._busy_since = 0.0 if self._exchanges or self._stream is not None else -self.server.tick
            incoming.end()
            return
        request = self._request(b"".join(self._body))
        self._busy_since = 0.0
        if self._parser.should_upgrade():
            request.keep_alive = False  # unless the handler accepts the upgrade, no request can follow
            self._upgrading = True
        self._begin(request)
        if len(self._exchanges) > self.server.limits.pipelined or self._pending_body or not self.writable:
            self._stop_reading()

    def _request(self, body: bytes) -> Request:
        parser = self._parser
        request = Request(parser.get_method().decode("ascii"), self._target, self._headers, body)
        request.keep_alive = parser.should_keep_alive() and not self.server.stopping
        request.client = self.client
        request.peer_certificate = self.peer_certificate
        return request

    def is_http_1_0(self) -> bool:
        """Whether the request that has just been parsed is HTTP/1.0."""
        return bool(self._parser.get_http_version() == "1.0")

    # -- backpressure --------------------------------------------------------------------------------------------

    def _stop_reading(self) -> None:
        """Stop reading, so that the client's data stays in its own buffers."""
        if self._reading and self.transport is not None:
            self._reading = False
            self.transport.pause_reading()

    def _read_on(self) -> None:
        """Resume reading if nothing blocks it any more."""
        if self._reading or self._held or self.transport is None or self._pending_body or not self.writable:
            return
        if self._upgrading or (self._incoming is not None and self._incoming.full):
            return
        if len(self._exchanges) <= 1:
            self._reading = True
            self.transport.resume_reading()
            if self._unread:
                self.server.loop.call_soon(self._feed_unread)

    def _hold(self, hold_s: float) -> None:
        """The request was rejected. If the client ignored the last Retry-After, stop reading from it for a while."""
        now = self.server.clock.monotonic()
        early, self._refused_at = now - self._refused_at < hold_s, now
        if early and not self._held:
            self._held = True
            self._stop_reading()
            self.server.clock.call_later(hold_s, self._end_hold)

    def _end_hold(self) -> None:
        self._held = False
        self._read_on()

    def _begin(self, request: Request) -> None:
        """Run the handler as far as it goes; most reads are answered here."""
        coroutine = self.server.handler(request)
        answer: Answer
        try:
            waiting = coroutine.send(None)
        except StopIteration as stop:
            answer = stop.value
        except Exception as error:
            answer = self.server.on_error(request, error)
        else:
            exchange = Exchange(self, request, coroutine)
            self._exchanges.append(exchange)
            exchange.wait_for(waiting)
            return
        if self._exchanges or self._stream is not None or self._pending_body:  # earlier answers come first
            exchange = Exchange(self, request, coroutine)
            exchange.answer = answer
            self._exchanges.append(exchange)
        elif self.transport is not None:
            self._answer(answer, request)
            if self._busy_since == 0.0:
                self._busy_since = -self.server.tick
        else:
            discard(answer)

    # -- answering -----------------------------------------------------------------------------------------------

    def _answer(self, answer: Answer, request: Request, exchange: Exchange | None = None) -> None:
        if request.incoming is not None and not request.incoming.complete:
            request.keep_alive = False  # the rest of its body would be read as the next request
        if isinstance(answer, Upgrade):
            self._hand_over(answer)
            return
        if not isinstance(answer, Response):
            old = self.is_http_1_0() if exchange is None else exchange.old
            self._begin_stream(answer, request, old)
            return
        if isinstance(answer, LongResponse):
            self._long = answer
        self._send(answer, request)
        if not self._pending_body:
            self._sent()
        if isinstance(answer, RefusedRequest):
            self._hold(answer.hold_s)

    def _sent(self) -> None:
        """The body of the last answer is out, or never will be."""
        answer, self._long = self._long, None
        if answer is not None:
            answer.on_sent()

    def flush_answers(self) -> None:
        """Send the answers that are ready, in the order of their requests."""
        while self._exchanges and self.transport is not None and self._stream is None and not self._pending_body:
            exchange = self._exchanges[0]
            answer = exchange.answer
            if answer is None:
                return
            self._exchanges.popleft()
            self._answer(answer, exchange.request, exchange)
        if not self._reading:
            self._read_on()
        if not self._exchanges and self._busy_since == 0.0:
            self._busy_since = -self.server.tick

    def _send(self, answer: Response, request: Request) -> None:
        transport = self.transport
        assert transport is not None
        body = answer.body
        head = self.server.head(answer) + answer.head
        closing = b"" if request.keep_alive else b"Connection: close\r\n"
        if isinstance(body, bytes) and len(body) <= SLICE:
            length = b"Content-Length: %d\r\n\r\n" % (len(body) + len(answer.end))
            transport.write(head + closing + length + (b"" if request.method == "HEAD" else body + answer.end))
        else:
            parts = [body, answer.end] if isinstance(body, bytes) else body
            length = b"Content-Length: %d\r\n" % sum(map(len, parts))
            transport.write(head + closing + length + b"\r\n")
            if request.method != "HEAD":
                self._pending_body.extend(parts)
                self._write_pending()
        if not request.keep_alive:
            self._close_when_sent()

    def _close_when_sent(self) -> None:
        self._closing = True
        if not self._pending_body and self.transport is not None:
            self.transport.close()

    def _write_pending(self) -> None:
        """Hand long bodies over slice by slice while the client keeps up."""
        pending, transport = self._pending_body, self.transport
        if not pending:
            return
        while pending and self.writable and transport is not None:
            part = pending.popleft()
            if len(part) > SLICE:
                view = memoryview(part)
                pending.appendleft(view[SLICE:])
                part = view[:SLICE]
            transport.write(part)
        if not pending:
            self._sent()
            if self._closing and transport is not None:
                transport.close()
            else:
                self.server.loop.call_soon(self.flush_answers)

    def _begin_stream(self, stream: ResponseStream, request: Request, old: bool) -> None:
        transport = self.transport
        assert transport is not None
        line, self._unframed, has_body = framing(stream, request.method, old=old)
        self._closes_after_stream = old or not request.keep_alive
        closing = b"Connection: close\r\n" if self._closes_after_stream else b""
        transport.write(self.server.head(stream) + closing + line + b"\r\n")
        self._stream = stream
        if has_body:
            stream.attach(self)
        else:
            stream.on_closed()
            self.end()

    def _hand_over(self, upgrade: Upgrade) -> None:
        """Give the connection to its new owner after an upgrade."""
        unread, self._unread = self._unread, deque()
        self._reading = True
        self._handover = Handover(self, upgrade)
        self._handover.begin(self.server.head(upgrade), unread)

    def write(self, data: bytes) -> None:
        """Sink: one already framed piece of the current stream. A client that is behind costs no copy of it: all
        watchers of a group are given the same bytes."""
        if self._unframed:
            data = unframed(data)
        if len(data) <= SLICE and self.writable:
            if self.transport is not None:
                self.transport.write(data)
        else:
            self._pending_body.append(data)
            self._write_pending()

    def end(self) -> None:
        """Sink: the current stream is complete."""
        if self._stream is None or self.transport is None:
            return
        if not self._unframed:
            self.write(LAST_CHUNK)
        self._stream = None
        if self.server.stopping or self._closes_after_stream:
            self._close_when_sent()
        else:
            self._busy_since = 0.0
            self.server.loop.call_soon(self.flush_answers)

    # -- ending --------------------------------------------------------------------------------------------------

    def _refuse(self, status: int) -> None:
        """Answer a request that is malformed or over a limit, and close: the rest of the input cannot be trusted."""
        if self.transport is None:
            return
        self._unread.clear()
        answer, body = refusal(status)
        head = self.server.head(answer) + b"Connection: close\r\nContent-Length: %d\r\n\r\n" % len(body)
        self.transport.write(head + body)
        self.transport.close()

    def begin_stop(self) -> None:
        stream = self._stream
        if isinstance(stream, Relay):
            if stream.length is None:  # it may last long, and must not look complete
                self.abort()
        elif stream is not None:
            stream.on_closed()
            self.end()
        elif self._handover is not None:
            self._handover.hang_up()
        elif not self._exchanges:
            self._close_when_sent()

    def _idle_s(self, now: float) -> float:
        """For how long nothing has moved on a connection that may wait for people."""
        waiting = 0 if self.transport is None else self.transport.get_write_buffer_size()
        stalled_s = self._progress.stalled_s(waiting, now)
        return stalled_s if self._handover is None else max(stalled_s, self._handover.quiet_s(now))

    def enforce_timeouts(self, now: float) -> None:
        if self._unwanted and now + self._busy_since > OVERFLOW_S:
            self.abort()
            return
        for exchange in tuple(self._exchanges):
            if exchange.answer is None and now > exchange.deadline and not exchange.request.unhurried:
                exchange.time_out()
        if self._handover is not None or isinstance(self._stream, Relay):
            if self._idle_s(now) > self.server.limits.session_idle_s:
                self.abort()
            return
        if self._stream is not None or self._pending_body or not self.writable:
            waiting = 0 if self.transport is None else self.transport.get_write_buffer_size()
            if self._progress.stalled_s(waiting, now) > self.server.limits.reader_timeout_s:
                self.abort()
        elif not self._exchanges and self._busy_since != 0.0 and self._reading:
            since, limits = self._busy_since, self.server.limits
            late = now - since > limits.header_timeout_s if since > 0 else now + since > limits.idle_timeout_s
            if late:
                self.abort()
