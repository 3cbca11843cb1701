"""One request and its answer on an HTTP/2 connection: the body on its way in, the answer on its way out."""

from __future__ import annotations

from collections import deque
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from shoal.apiserver.exchange import Exchange, discard
from shoal.apiserver.framing import BODILESS
from shoal.apiserver.http2.frames import (
    CANCEL,
    FLOW_CONTROL_ERROR,
    FRAME_BYTES,
    HTTP_1_1_REQUIRED,
    INTERNAL_ERROR,
    LARGEST_WINDOW,
    PROTOCOL_ERROR,
    REFUSED_STREAM,
    WINDOW_UPDATE,
    word_frame,
)
from shoal.apiserver.http2.heads import declared_length
from shoal.apiserver.messages import (
    Answer,
    IncomingBody,
    LongResponse,
    Relay,
    Request,
    Response,
    ResponseStream,
    Upgrade,
    refusal,
)
from shoal.base.clock import Timer

if TYPE_CHECKING:
    from shoal.apiserver.http2.connection import Http2Connection

STREAM_WINDOW = 256 * 1024  # octets of a body that a client may send ahead
_PIECES = 64  # of a body that are kept as they came; the rest is put together


class Http2Stream:
    """Belongs to its connection until the answer is sent or either side has reset it."""

    __slots__ = (
        "_body", "_connection", "_credit", "_ending", "_exchange", "_held", "_incoming", "_left", "_long", "_moved_at",
        "_opened_at", "_pending", "_pending_in", "_room", "_size", "complete", "number", "request", "server", "source",
        "window",
    )  # fmt: skip

    def __init__(self, connection: Http2Connection, number: int, request: Request, window: int) -> None:
        self._connection = connection
        self.server = connection.server
        self.number = number
        self.request = request
        self.window = window  # octets that the client still takes
        self.complete = False  # the client has sent all of its request
        self.source: ResponseStream | None = None  # the answer, while it is a stream
        self._left: int | None = None  # octets of the body that are still to come, if the request says
        self._body: list[bytes | bytearray] = []
        self._size = 0
        self._pending_in = 0  # of the body, as counted in the server's
        self._room = STREAM_WINDOW  # octets that the client may still send
        self._credit = 0  # octets that it may send beyond, once it is told
        self._incoming: IncomingBody | None = None  # where the body goes, if the handler takes it as it comes
        self._exchange: Exchange | None = None
        self._held: Timer | None = None  # until the answer is sent to a client that ignored Retry-After
        self._long: LongResponse | None = None
        self._pending: deque[bytes | memoryview] = deque()  # of the answer
        self._ending = False  # the answer ends after what is pending
        self._opened_at = self._moved_at = self.server.tick

    # -- the request -------------------------------------------------------------------------------------------------

    def expect_body(self) -> None:
        """The head has come, and a body follows it."""
        request, server = self.request, self.server
        self._left = declared_length(request)
        if server.hands_on is not None and server.hands_on(request.raw_path):
            request.incoming = self._incoming = IncomingBody(self._room_again)
            self._connection.begin(self.number, request, self)
        elif self._left is not None and self._left > server.limits.body_bytes:
            self.refuse(413)

    def receive(self, data: bytes, size: int) -> None:
        """A part of the body, in a frame of ``size`` octets with its padding."""
        self._room -= size
        if self._room < 0:
            self._connection.reset(self, FLOW_CONTROL_ERROR)
            return
        if self._left is not None:
            self._left -= len(data)
            if self._left < 0:
                self._connection.reset(self, PROTOCOL_ERROR)
                return
        self._credit += size
        if self._incoming is not None:
            self._incoming.feed(data)
        elif not self._keep(data):
            return
        self._room_again()

    def _keep(self, data: bytes) -> bool:
        """Add to the body that is kept until it is complete; False when it is refused."""
        server, size = self.server, len(data)
        self._size += size
        self._pending_in += size
        server.pending_in += size
        if self._size > server.limits.body_bytes:
            self.refuse(413)
            return False
        if server.pending_in > server.limits.pending_in_bytes and self._size > server.limits.small_body_bytes:
            self.refuse(503)
            return False
        if len(self._body) <= _PIECES:
            self._body.append(data if len(self._body) < _PIECES else bytearray(data))
        else:
            self._body[-1] += data  # a client that sends byte by byte must not cost an object for each of them
        return True

    def _room_again(self) -> None:
        """Let the client send on, unless the body's consumer is behind."""
        if self._incoming is not None and self._incoming.full:
            return
        if self._credit >= STREAM_WINDOW // 2 and not self.complete:
            credit, self._credit = self._credit, 0
            self._room += credit
            self._connection.emit(word_frame(WINDOW_UPDATE, self.number, credit))

    def finish(self) -> None:
        """The request is complete."""
        if self._left:
            self._connection.reset(self, PROTOCOL_ERROR)  # shorter than it said
            return
        self.complete = True
        self._forget_pending()
        if self._incoming is not None:
            self._incoming.end()
            return
        self.request.body = b"".join(self._body)
        self._body = []
        self._connection.begin(self.number, self.request, self)

    def refuse(self, status: int) -> None:
        """Answer without a handler."""
        self._forget_pending()
        self._body = []
        self.answer(refusal(status)[0])

    def _forget_pending(self) -> None:
        self.server.pending_in -= self._pending_in
        self._pending_in = 0

    # -- the handler -------------------------------------------------------------------------------------------------

    def wait(self, coroutine: Coroutine[Any, Any, Answer], waiting: Any) -> None:
        """The handler waits for something."""
        self._exchange = Exchange(self, self.request, coroutine)
        self._exchange.wait_for(waiting)

    def is_http_1_0(self) -> bool:
        return False

    def flush_answers(self) -> None:
        """The handler has answered."""
        exchange, self._exchange = self._exchange, None
        if exchange is not None and exchange.answer is not None:
            self._connection.answer(self, exchange.answer)

    def hold(self, answer: Answer, hold_s: float) -> None:
        """Send the answer later. Until then the stream counts as open."""
        self._held = self.server.clock.call_later(hold_s, lambda: self.answer(answer))

    # -- the answer --------------------------------------------------------------------------------------------------

    def answer(self, answer: Answer) -> None:
        connection, bodiless = self._connection, self.request.method == "HEAD" or answer.status in BODILESS
        self._held = None
        if isinstance(answer, Upgrade):  # cannot happen: a request over HTTP/2 cannot ask for it
            discard(answer)
            connection.reset(self, HTTP_1_1_REQUIRED)
            return
        if not isinstance(answer, Response):
            length = answer.length if isinstance(answer, Relay) else None
            connection.emit_head(self.number, answer, length, end=bodiless)
            if bodiless:
                answer.on_closed()
                self._sent()
            else:
                self.source = answer
                answer.attach(self)
            return
        parts = [answer.body, answer.end] if isinstance(answer.body, bytes) else answer.body
        size = sum(map(len, parts))
        if isinstance(answer, LongResponse):
            self._long = answer
        end = bodiless or not size
        connection.emit_head(self.number, answer, size, end=end)
        if end:
            self._sent()
            return
        self._pending.extend(part for part in parts if part)
        self._ending = True
        self._moved_at = self.server.tick
        connection.queue(self)

    @property
    def writable(self) -> bool:
        """Sink: whether the client keeps up with this stream and with the connection."""
        return not self._pending and self._connection.has_room()

    def write(self, data: bytes) -> None:
        """Sink: one chunk, framed as for HTTP/1.1."""
        if self.source is None:
            return
        data = self._connection.unframed(data)
        if self._pending or len(data) > FRAME_BYTES or not self._connection.emit_data(self, data):
            if not self._pending:
                self._moved_at = self.server.tick
            self._pending.append(data)
            self._connection.queue(self)

    def end(self) -> None:
        """Sink: the stream is complete."""
        if self.source is None:
            return
        self.source = None
        self._ending = True
        if not self._pending:
            self._connection.emit_end(self)
            self._sent()

    def abort(self) -> None:
        """Sink: the stream broke off; the client must not take it for complete."""
        self._connection.reset(self, INTERNAL_ERROR)

    def take(self, room: int) -> tuple[bytes | memoryview, bool]:
        """The next part of the answer, of at most ``room`` octets, and whether it is the last."""
        pending = self._pending
        part = pending.popleft()
        if len(part) > room:
            view = memoryview(part)
            pending.appendleft(view[room:])
            part = view[:room]
        elif len(part) < room // 2 and pending:
            # lists are many small parts
            parts, size = [part], len(part)
            while pending and size + len(pending[0]) <= room:
                parts.append(pending.popleft())
                size += len(parts[-1])
            part = b"".join(parts)
        self.window -= len(part)
        self._moved_at = self.server.tick
        return part, self._ending and not pending

    @property
    def behind(self) -> bool:
        """Whether something waits for the client."""
        return bool(self._pending)

    def sent(self) -> None:
        """What was pending is on its way."""
        if self._ending:
            self._sent()
        elif self.source is not None:
            self.server.loop.call_soon(self.tell_writable)

    def tell_writable(self) -> None:
        if self.source is not None:
            self.source.on_writable()

    def _sent(self) -> None:
        """The answer is complete."""
        long, self._long = self._long, None
        if long is not None:
            long.on_sent()
        self._release()
        self._connection.ended(self)

    # -- ending ------------------------------------------------------------------------------------------------------

    def widen(self, increment: int) -> bool:
        """The client takes more; False when that is more than the protocol can count."""
        self.window += increment
        return self.window <= LARGEST_WINDOW

    def drop(self) -> None:
        """Nothing more can be sent: release what the answer holds."""
        long, self._long = self._long, None
        if long is not None:
            long.on_sent()
        source, self.source = self.source, None
        if source is not None:
            source.on_closed()
        self._release()

    def _release(self) -> None:
        self._forget_pending()
        self._body = []
        self._pending.clear()
        held, self._held = self._held, None
        if held is not None:
            held.cancel()
        exchange, self._exchange = self._exchange, None
        if exchange is not None:
            exchange.cancel()

    def begin_stop(self) -> None:
        """The server stops: end watches, keep what ends by itself."""
        source = self.source
        if isinstance(source, Relay):
            if source.length is None:  # it may last long, and must not look complete
                self._connection.reset(self, CANCEL)
        elif source is not None:
            source.on_closed()
            self.end()
        elif not self.complete and self._incoming is None:
            self._connection.reset(self, REFUSED_STREAM)  # safe to send again elsewhere

    def enforce_timeouts(self, now: float) -> None:
        limits, exchange = self.server.limits, self._exchange
        if exchange is not None and exchange.answer is None and now > exchange.deadline:
            if not self.request.unhurried:
                exchange.time_out()
        elif self._pending:
            # those of backends may be read page by page, with hours between
            if now - self._moved_at > limits.reader_timeout_s and not isinstance(self.source, Relay):
                self._connection.reset(self, CANCEL)
        elif not self.complete and self._incoming is None and now - self._opened_at > limits.header_timeout_s:
            self._connection.reset(self, CANCEL)
