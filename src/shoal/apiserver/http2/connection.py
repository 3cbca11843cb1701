"""A connection of HTTP/2: frames in, requests out; answers in, frames out, within the client's windows.

Most requests are answered in the turn of the loop in which they come, and never become a stream.

Refused here: what breaks the protocol (GOAWAY, the connection ends), requests over a limit (413, 431, 503 and 429, as
over HTTP/1.1), more streams than were offered (REFUSED_STREAM). Frames that cost the server and bring nothing (resets,
pings, settings, priorities, empty ones) have an allowance; a client that uses it up is disconnected. A client that does
not read is not read from, so nothing that it asks for can pile up.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from shoal.apiserver.connection import OVERFLOW_S
from shoal.apiserver.http2.frames import (
    ACK,
    COMPRESSION_ERROR,
    CONCURRENT_STREAMS,
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    ENHANCE_YOUR_CALM,
    FIRST_WINDOW,
    FLOW_CONTROL_ERROR,
    FRAME_BYTES,
    FRAME_SIZE_ERROR,
    GOAWAY,
    HAS_PRIORITY,
    HEADER_BYTES,
    HEADER_LIST_SIZE,
    HEADERS,
    INITIAL_WINDOW,
    LARGEST_WINDOW,
    NO_ERROR,
    PING,
    PREFACE,
    PRIORITY,
    PROTOCOL_ERROR,
    PUSH_PROMISE,
    REFUSED_STREAM,
    RST_STREAM,
    SETTINGS,
    STREAM_CLOSED,
    TABLE_SIZE,
    WINDOW_UPDATE,
    Fault,
    frame,
    goaway,
    read_header,
    read_settings,
    settings,
    unpadded,
    word,
    word_frame,
)
from shoal.apiserver.http2.heads import declared_length, mark, request_of
from shoal.apiserver.http2.output import Http2Output
from shoal.apiserver.http2.stream import STREAM_WINDOW, Http2Stream
from shoal.apiserver.messages import Answer, RefusedRequest, Request, refusal
from shoal.base.hpack import BlockTooLarge, Decoder, HpackError, literal
from shoal.base.progress import Progress

if TYPE_CHECKING:
    from shoal.apiserver.http import HttpServer

STREAMS = 100  # at once; what Kubernetes allows
CONNECTION_WINDOW = 1024 * 1024  # octets of bodies that a client may send ahead on all streams
ALLOWANCE, ALLOWANCE_PER_S = 1000.0, 33.0  # frames that only cost; nghttp2's numbers for resets
TURN = 32  # requests that are answered before other connections have their turn
_CONTINUATIONS = 32  # frames of one header block
_WAITING = 64 * 1024  # octets of input that wait for their turn; then the client waits
_FAULTS = (PROTOCOL_ERROR, FLOW_CONTROL_ERROR, STREAM_CLOSED)  # of the client, found while its frames are read
_OPTIONS = settings(
    ((CONCURRENT_STREAMS, STREAMS), (INITIAL_WINDOW, STREAM_WINDOW), (HEADER_LIST_SIZE, 64 * 1024))
) + word_frame(WINDOW_UPDATE, 0, CONNECTION_WINDOW - FIRST_WINDOW)


class Http2Connection(Http2Output):
    """One client connection. Streams are answered in any order."""

    __slots__ = (
        "_allowance", "_allowed_at", "_answered", "_block", "_block_flags", "_block_frames", "_block_size",
        "_block_stream", "_credit", "_decoder", "_greeted", "_input", "_last", "_partial_since", "_progress",
        "_reading", "_refused_at", "_turn_due",
    )  # fmt: skip

    def __init__(self, server: HttpServer) -> None:
        super().__init__(server)
        self._input = b""
        self._greeted = 0  # 1: the preface has come, 2: the client's settings too
        self._decoder = Decoder(server.limits.header_bytes, mark)
        self._last = 0  # the newest stream of the client
        self._answered = LARGEST_WINDOW  # the newest stream that will be answered
        self._block: list[bytes] | None = None  # of headers that go on in CONTINUATION
        self._block_stream = self._block_flags = self._block_frames = self._block_size = 0
        self._credit = 0  # octets that the client may send beyond its window, once it is told
        self._turn_due = False
        self._reading = True
        self._allowance = ALLOWANCE
        self._allowed_at = server.tick
        self._partial_since = 0.0  # a frame or a header block is not complete
        self._refused_at = -1e9
        self._progress = Progress()

    # -- transport callbacks -----------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.emit(_OPTIONS)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._closed = True
        self._drop_all()
        self._out.clear()
        self._input = b""

    def data_received(self, data: bytes) -> None:
        self._input = self._input + data if self._input else data
        if not self._turn_due:
            self._read()

    def pause_writing(self) -> None:
        self.writable = False

    def resume_writing(self) -> None:
        self.writable = True
        self._progress.restart()
        self._flush()
        self._later()

    # -- input -------------------------------------------------------------------------------------------------------

    def _later(self) -> None:
        """Go on with the input in a turn of its own."""
        if not self._turn_due and not self._closed:
            self._turn_due = True
            self.server.loop.call_soon(self._next_turn)

    def _next_turn(self) -> None:
        self._turn_due = False
        self._read()

    def _read(self) -> None:
        """Take frames until none is complete, the turn is over, or the client has to read first."""
        data, at, turn = self._input, 0, TURN
        try:
            if self._greeted == 0 and not self._closed:
                if not PREFACE.startswith(data[: len(PREFACE)]):
                    raise Fault(PROTOCOL_ERROR, "the connection does not begin as HTTP/2 does")
                if len(data) >= len(PREFACE):
                    at, self._greeted = len(PREFACE), 1
            while self._greeted and turn and self.writable and len(data) - at >= HEADER_BYTES and not self._closed:
                length_and_kind, flags, number = read_header(data, at)
                length, kind, number = length_and_kind >> 8, length_and_kind & 0xFF, number & LARGEST_WINDOW
                if length > FRAME_BYTES:
                    raise Fault(FRAME_SIZE_ERROR, "the frame is too large")
                begin, end = at + HEADER_BYTES, at + HEADER_BYTES + length
                if end > len(data):
                    break
                at = end
                if kind == HEADERS:
                    turn -= 1
                self._frame(kind, flags, number, data[begin:end])
        except Fault as fault:
            self._fail(fault)
        self._input = b"" if self._closed else data[at:] if at else data
        self._note_progress(at)
        self._flush()
        self._balance(turn)

    def _note_progress(self, read: int) -> None:
        if self._block is None and (read or not self._input):
            self._partial_since = self.server.tick if self._input else 0.0
        elif not self._partial_since:
            self._partial_since = self.server.tick

    def _balance(self, turn: int) -> None:
        """Decide whether to read on: now, later, or when the client has read."""
        transport = self.transport
        if transport is None or transport.is_closing():
            return
        if not turn and self._input:
            self._later()
        wanted = self.writable and len(self._input) < _WAITING
        if wanted is not self._reading:
            self._reading = wanted
            if wanted:
                transport.resume_reading()
            else:
                transport.pause_reading()

    def _flushed(self) -> None:
        if self._reading is not self.writable and not self._closed:
            self._balance(1)

    def _frame(self, kind: int, flags: int, number: int, payload: bytes) -> None:
        if self._greeted == 1:
            if kind != SETTINGS or flags & ACK:
                raise Fault(PROTOCOL_ERROR, "the first frame is not SETTINGS")
            self._greeted = 2
        if self._block is not None:
            if kind != CONTINUATION or number != self._block_stream:
                raise Fault(PROTOCOL_ERROR, "another frame inside a header block")
            self._continue(flags, payload)
        elif kind == HEADERS:
            self._begin_head(flags, number, payload)
        elif kind == DATA:
            self._take_body(flags, number, payload)
        elif kind == WINDOW_UPDATE:
            self._widen(number, payload)
        elif kind == RST_STREAM:
            self._reset_by_client(number, payload)
        elif kind == SETTINGS:
            self._configure(flags, number, payload)
        elif kind == PING:
            self._ping(flags, number, payload)
        elif kind in (PUSH_PROMISE, CONTINUATION):
            raise Fault(PROTOCOL_ERROR, "a client does not send such a frame here")
        elif kind == PRIORITY:
            self._charge()
            self._check_opened(number, idle=True)
            if len(payload) != 5:
                raise Fault(FRAME_SIZE_ERROR, "PRIORITY has five octets")
            self._check_dependency(number, payload)
        elif kind != GOAWAY:  # unknown ones are ignored
            self._charge()
        elif number:
            raise Fault(PROTOCOL_ERROR, "GOAWAY belongs to no stream")

    def _charge(self) -> None:
        """Count a frame that only costs."""
        tick = self.server.tick
        self._allowance = min(ALLOWANCE, self._allowance + (tick - self._allowed_at) * ALLOWANCE_PER_S) - 1
        self._allowed_at = tick
        if self._allowance < 0:
            raise Fault(ENHANCE_YOUR_CALM, "too many resets, pings, settings or empty frames")

    def _check_opened(self, number: int, *, idle: bool = False) -> None:
        """Frames for streams belong to one that was opened."""
        if not number or (not idle and (number > self._last or not number & 1)):
            raise Fault(PROTOCOL_ERROR, "a frame for a stream that was never opened")

    @staticmethod
    def _check_dependency(number: int, priority: bytes) -> None:
        if int.from_bytes(priority[:4], "big") & LARGEST_WINDOW == number:
            raise Fault(PROTOCOL_ERROR, "a stream depends on itself")

    # -- requests ----------------------------------------------------------------------------------------------------

    def _begin_head(self, flags: int, number: int, payload: bytes) -> None:
        block = unpadded(flags, payload)
        if flags & HAS_PRIORITY:
            if len(block) < 5:
                raise Fault(FRAME_SIZE_ERROR, "HEADERS is cut off")
            self._check_dependency(number, block)
            block = block[5:]
        if flags & END_HEADERS:
            self._head(flags, number, block)
        else:
            self._block, self._block_size, self._block_frames = [block], len(block), 0
            self._block_stream, self._block_flags = number, flags

    def _continue(self, flags: int, payload: bytes) -> None:
        assert self._block is not None
        self._block.append(payload)
        self._block_size += len(payload)
        self._block_frames += 1
        if self._block_size > self.server.limits.header_bytes or self._block_frames > _CONTINUATIONS:
            self._refuse_for_good(self._block_stream, 431)
        elif flags & END_HEADERS:
            block, self._block = b"".join(self._block), None
            self._head(self._block_flags, self._block_stream, block)

    def _head(self, flags: int, number: int, block: bytes) -> None:
        try:
            fields = self._decoder.decode(block)
        except BlockTooLarge:
            self._refuse_for_good(number, 431)
            return
        except HpackError as error:
            raise Fault(COMPRESSION_ERROR, str(error)) from error
        if number <= self._last:
            self._trailers(flags, number)
            return
        if not number & 1:
            raise Fault(PROTOCOL_ERROR, "streams of clients have odd numbers")
        self._last = number
        if self._leaving:
            return  # the client was told that this one will not be answered
        if self._unwanted:
            self._refuse_for_good(number, self._unwanted)
            return
        if len(self._streams) >= STREAMS:
            self._refuse_stream(number, REFUSED_STREAM)
            return
        request = request_of(fields)
        if request is None or (flags & END_STREAM and declared_length(request)) or declared_length(request) == -1:
            self._refuse_stream(number, PROTOCOL_ERROR)
            return
        request.client, request.peer_certificate = self.client, self.peer_certificate
        if flags & END_STREAM:
            self.begin(number, request)
            return
        if request.headers.get(b"expect", b"").lower() == b"100-continue":
            self._emit_block(number, literal(b":status", b"100"), end=False)
        self._open(number, request).expect_body()

    def _trailers(self, flags: int, number: int) -> None:
        """Headers after the body must not change the request, they only end it."""
        stream = self._streams.get(number)
        if stream is None:
            raise Fault(STREAM_CLOSED, "headers for a stream that is closed")
        if stream.complete:
            self.reset(stream, STREAM_CLOSED)
        elif not flags & END_STREAM:
            self.reset(stream, PROTOCOL_ERROR)
        else:
            stream.finish()

    def _take_body(self, flags: int, number: int, payload: bytes) -> None:
        self._check_opened(number)
        size = len(payload)
        self._credit += size
        if self._credit >= CONNECTION_WINDOW // 2:  # streams have windows of their own
            self.emit(word_frame(WINDOW_UPDATE, 0, self._credit))
            self._credit = 0
        data = unpadded(flags, payload)
        stream = self._streams.get(number)
        if stream is None:
            self._refuse_stream(number, STREAM_CLOSED)
            return
        if stream.complete:
            self.reset(stream, STREAM_CLOSED)
            return
        if data:
            stream.receive(data, size)
        elif not flags & END_STREAM:
            self._charge()
        if flags & END_STREAM and number in self._streams:
            stream.finish()

    def begin(self, number: int, request: Request, stream: Http2Stream | None = None) -> None:
        """Run the handler as far as it goes; most reads are answered here."""
        server = self.server
        coroutine = server.handler(request)
        answer: Answer
        try:
            waiting = coroutine.send(None)
        except StopIteration as stop:
            answer = stop.value
        except Exception as error:
            answer = server.on_error(request, error)
        else:
            (stream or self._open(number, request, complete=True)).wait(coroutine, waiting)
            return
        if stream is None:
            if self.answered_at_once(number, request, answer):
                return
            stream = self._open(number, request, complete=True)
        self.answer(stream, answer)

    def answer(self, stream: Http2Stream, answer: Answer) -> None:
        """Send an answer, at once unless the client asks again too early."""
        if isinstance(answer, RefusedRequest):
            now = self.server.clock.monotonic()
            early, self._refused_at = now - self._refused_at < answer.hold_s, now
            if early:
                stream.hold(answer, answer.hold_s)
                return
        stream.answer(answer)

    # -- streams -----------------------------------------------------------------------------------------------------

    def _open(self, number: int, request: Request, *, complete: bool = False) -> Http2Stream:
        stream = self._streams[number] = Http2Stream(self, number, request, self._initial_window)
        stream.complete = complete
        return stream

    def ended(self, stream: Http2Stream) -> None:
        """The answer of a stream is sent."""
        self._forget(stream)
        if not stream.complete and not self._closed:  # the rest of the body is of no use
            self.emit(word_frame(RST_STREAM, stream.number, NO_ERROR))

    def reset(self, stream: Http2Stream, reason: int) -> None:
        """End a stream without an answer."""
        if self._streams.get(stream.number) is stream:
            self._forget(stream)
            stream.drop()
            self.emit(word_frame(RST_STREAM, stream.number, reason))
            if reason in _FAULTS:
                self._charge()

    def _refuse_stream(self, number: int, reason: int) -> None:
        self.emit(word_frame(RST_STREAM, number, reason))
        self._charge()

    def _forget(self, stream: Http2Stream) -> None:
        self._streams.pop(stream.number, None)
        self._sending.pop(stream.number, None)
        self._since = self.server.tick
        if self._leaving and not self._streams:
            self._flush_later()

    def _reset_by_client(self, number: int, payload: bytes) -> None:
        word(payload)
        self._check_opened(number)
        self._charge()
        stream = self._streams.get(number)
        if stream is not None:
            self._forget(stream)
            stream.drop()

    def _widen(self, number: int, payload: bytes) -> None:
        increment = word(payload) & LARGEST_WINDOW
        if not number:
            self._window += increment
            if not increment or self._window > LARGEST_WINDOW:
                raise Fault(FLOW_CONTROL_ERROR if increment else PROTOCOL_ERROR, "invalid WINDOW_UPDATE")
            return
        self._check_opened(number)
        stream = self._streams.get(number)
        if stream is None:
            if not increment:
                self._charge()
            return
        if not increment:
            self.reset(stream, PROTOCOL_ERROR)
        elif not stream.widen(increment):
            self.reset(stream, FLOW_CONTROL_ERROR)
        elif stream.behind:
            self._sending[number] = stream

    def _configure(self, flags: int, number: int, payload: bytes) -> None:
        if number:
            raise Fault(PROTOCOL_ERROR, "SETTINGS belongs to no stream")
        self._charge()
        if flags & ACK:
            if payload:
                raise Fault(FRAME_SIZE_ERROR, "the acknowledgement of SETTINGS is empty")
            return
        values = dict(read_settings(payload))  # of repeated ones the last counts
        if TABLE_SIZE in values:
            self._heads.encoder.resize(values[TABLE_SIZE])
        if INITIAL_WINDOW in values:
            change, self._initial_window = values[INITIAL_WINDOW] - self._initial_window, values[INITIAL_WINDOW]
            for stream in list(self._streams.values()):
                if not stream.widen(change):
                    raise Fault(FLOW_CONTROL_ERROR, "INITIAL_WINDOW_SIZE makes a stream's window too large")
                if stream.behind:
                    self._sending[stream.number] = stream
        self.emit(frame(SETTINGS, ACK, 0, b""))

    def _ping(self, flags: int, number: int, payload: bytes) -> None:
        if number:
            raise Fault(PROTOCOL_ERROR, "PING belongs to no stream")
        if len(payload) != 8:
            raise Fault(FRAME_SIZE_ERROR, "PING has eight octets")
        self._charge()
        if not flags & ACK:
            self.emit(frame(PING, ACK, 0, payload))

    # -- ending ------------------------------------------------------------------------------------------------------

    def _fail(self, fault: Fault) -> None:
        """Say why, and close."""
        self._close(fault.reason, str(fault))

    def _refuse_for_good(self, number: int, status: int) -> None:
        """Answer a request that is over a limit, and close: the rest of the input cannot be trusted."""
        answer, body = refusal(status)
        self._last = max(self._last, number)
        self.emit_head(number, answer, len(body), end=False)
        self.emit(frame(DATA, END_STREAM, number, body))
        self._close(ENHANCE_YOUR_CALM, "over a limit of the server")

    def _close(self, reason: int, text: str) -> None:
        if not self._closed:
            self._closed = True
            self._drop_all()
            self._say_goaway(reason, text)

    def _say_goaway(self, reason: int, text: str = "") -> None:
        """The client may send again elsewhere what came after the last stream that is named here."""
        self._answered = min(self._answered, self._last)
        self.emit(goaway(self._answered, reason, text))

    def _drop_all(self) -> None:
        streams, self._streams = list(self._streams.values()), {}
        self._sending.clear()
        for stream in streams:
            stream.drop()

    def _leave(self) -> None:
        """Take no further requests; close when those that there are have been answered."""
        if not self._leaving:
            self._leaving = True
            self._say_goaway(NO_ERROR)

    def begin_stop(self) -> None:
        self._leave()
        for stream in list(self._streams.values()):
            stream.begin_stop()

    def enforce_timeouts(self, now: float) -> None:
        limits = self.server.limits
        if self._unwanted and now - self._since > OVERFLOW_S:
            self.abort()
            return
        for stream in list(self._streams.values()):
            stream.enforce_timeouts(now)
        if not self.writable or self._closed:
            waiting = 0 if self.transport is None else self.transport.get_write_buffer_size()
            if self._progress.stalled_s(waiting, now) > limits.reader_timeout_s:
                self.abort()
        elif self._partial_since and not self._turn_due:
            if now - self._partial_since > limits.header_timeout_s:
                self.abort()
        elif not self._streams and now - self._since > limits.idle_timeout_s:
            self._leave()
