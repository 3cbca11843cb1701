"""The connections of the ASGI front: HTTP/1.1 parsed by httptools, HTTP/2 by zttp, with limits for clients that have
not proven who they are (``FrontLimits``).

Refused here, before the application sees anything: connections over the limit (503, 429), heads over the limit (431),
bodies over the limit (413), requests that come in too slowly (408). Closed without an answer: clients that do not read,
idle connections, and HTTP/2 clients that open and reset streams, or send frames that bring nothing, without end.
Uvicorn runs the application; its own timers stay behind these.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, cast

import zttp
from uvicorn import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.protocols.http.zttp_h2_impl import RequestResponseCycle, ZttpH2Protocol
from uvicorn.server import ServerState

from shoal.base.clock import Clock, Timer
from shoal.base.coalescing import CoalescingTransport
from shoal.base.front_limits import FrontLimits
from shoal.base.progress import Progress

SWEEP_S = 1.0
LEAST_RATE = 1024  # bytes a second of a body that takes longer than the time for a head
REQUESTS = 3500  # on one HTTP/2 connection; then its client is asked to open another. zttp breaks off at 4096
RESETS = 200  # streams that a client may reset, or have refused, in a minute
QUIET_FRAMES_BYTES = 64 * 1024  # of HTTP/2 frames a second that bring no request, body or credit
WINDOW_BYTES = 256 * 1024  # of an answer that wait for the client's window; more makes the application wait

_OVERFLOW = 256  # connections over the limit that stay open until their error is sent
_OVERFLOW_S = 2.0
_MINUTE_S = 60.0
_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_ENHANCE_YOUR_CALM = 11
_STREAMING = (b"application/connect+", b"application/grpc")  # bodies that come for as long as the stream is open
_TEXTS = {
    400: ("Bad Request", "malformed HTTP request"),
    408: ("Request Timeout", "the request came in too slowly"),
    413: ("Request Entity Too Large", "request is larger than this server accepts"),
    429: ("Too Many Requests", "too many connections from this address: close some, or try again later"),
    431: ("Request Header Fields Too Large", "request is larger than this server accepts"),
    503: ("Service Unavailable", "the server has too many connections: try again later"),
}


def refusal(status: int) -> bytes:
    """An answer that no application produces, after which the connection is closed."""
    reason, text = _TEXTS[status]
    retry = "retry-after: 1\r\n" if status in (429, 503) else ""
    body = f'{{"error":{{"code":{status},"reason":"{reason.replace(" ", "")}","message":"{text}"}}}}\n'
    head = f"HTTP/1.1 {status} {reason}\r\ncontent-type: application/json\r\n{retry}connection: close\r\n"
    return f"{head}content-length: {len(body)}\r\n\r\n{body}".encode()


@dataclass(eq=False, slots=True)
class Slot:
    """A place among the connections, from the moment of the accept."""

    address: str
    at: float
    refused: int = 0  # error status of all its requests
    given_back: bool = False


class _Connection(Protocol):
    def enforce(self, now: float) -> None:
        """Close what exceeds a limit of time; called every ``SWEEP_S``."""


class Front:
    """What all connections of a listener share."""

    def __init__(self, limits: FrontLimits, clock: Clock) -> None:
        self.limits = limits
        self.tick = clock.monotonic()  # about now: good enough for timeouts, and free to read
        self.open: set[_Connection] = set()
        self.addresses: dict[str, int] = {}
        self.room = asyncio.Event()  # cleared while no further connection is accepted
        self.room.set()
        self._clock = clock
        self._slots = 0
        self._sweeper: Timer | None = None

    def start(self) -> None:
        self._sweeper = self._clock.call_later(SWEEP_S, self.start)  # first: an error must not end the series
        self.tick = self._clock.monotonic()
        for connection in list(self.open):
            connection.enforce(self.tick)

    def stop(self) -> None:
        if self._sweeper is not None:
            self._sweeper.cancel()

    def take(self, address: str) -> Slot:
        """For a connection that was accepted."""
        self._slots += 1
        count = self.addresses[address] = self.addresses.get(address, 0) + 1
        slot = Slot(address, self._clock.monotonic())
        if self._slots > self.limits.connections:
            slot.refused = 503
        elif count > self.limits.connections_per_address:
            slot.refused = 429
        if self._slots >= self.limits.connections + _OVERFLOW:
            self.room.clear()
        return slot

    def give_back(self, slot: Slot) -> None:
        """When the connection or its handshake has ended; of several who notice, the first counts."""
        if slot.given_back:
            return
        slot.given_back = True
        self._slots -= 1
        left = self.addresses[slot.address] - 1
        if left:
            self.addresses[slot.address] = left
        else:
            del self.addresses[slot.address]
        if self._slots < self.limits.connections + _OVERFLOW:
            self.room.set()


class FrontProtocol(asyncio.Protocol):
    """A new connection: becomes one of HTTP/1.1 or HTTP/2, by ALPN or by its first bytes."""

    alpn_protocols: ClassVar[list[str]] = ["h2", "http/1.1"]

    def __init__(self, config: Config, state: ServerState, front: Front, slot: Slot) -> None:
        self._config = config
        self._state = state
        self._front = front
        self._slot = slot
        self._buffer = b""
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        tls = transport.get_extra_info("ssl_object")
        if tls is not None:
            self._switch(http2=tls.selected_alpn_protocol() == "h2")
            return
        self._state.connections.add(cast(Any, self))
        self._front.open.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._leave()
        self._front.give_back(self._slot)

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        if len(self._buffer) < len(_PREFACE) and _PREFACE.startswith(self._buffer):
            return
        self._leave()
        self._switch(http2=self._buffer.startswith(_PREFACE))

    def enforce(self, now: float) -> None:
        if now - self._slot.at > self._front.limits.header_timeout_s and self.transport is not None:
            self.transport.abort()

    def shutdown(self) -> None:
        if self.transport is not None:
            self.transport.close()

    def _leave(self) -> None:
        self._state.connections.discard(cast(Any, self))
        self._front.open.discard(self)

    def _switch(self, *, http2: bool) -> None:
        assert self.transport is not None
        kind = Http2Connection if http2 else Http1Connection
        protocol = kind(self._config, self._state, self._front, self._slot)
        self.transport.set_protocol(protocol)
        protocol.connection_made(self.transport)
        if self._buffer:
            protocol.data_received(self._buffer)


class Http1Connection(HttpToolsProtocol):
    def __init__(self, config: Config, state: ServerState, front: Front, slot: Slot) -> None:
        super().__init__(config, state, {}, asyncio.get_running_loop())
        self.parser.set_dangerous_leniencies(lenient_data_after_close=False)
        self._front = front
        self._slot = slot
        self._refused = 0  # error status of the current request
        self._in_head = False
        self._in_body = False
        self._size = 0  # of the current head or body
        self._since = slot.at  # when the head or the body began, or idling
        self._fresh = True  # no request has come yet
        self._progress = Progress()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._front.open.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._front.open.discard(self)
        self._front.give_back(self._slot)

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        if not self._in_head and not self._in_body and not self._fresh:
            self._since = self._front.tick
        super().data_received(data)
        if self._in_head and not self.transport.is_closing():
            self._size += len(data)
            if self._size > self._front.limits.header_bytes:
                self._refuse(431)  # do not wait for a head that never ends

    def send_400_response(self, msg: str) -> None:
        self._refuse(400)

    # parser

    def on_message_begin(self) -> None:
        self._in_head, self._size, self._refused = True, 0, self._slot.refused
        self._head_size = 0
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        self._head_size += len(url)
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._in_head:  # else a trailer: headers after the body must not change the request
            self._head_size += len(name) + len(value)
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._in_head, self._in_body, self._size, self._since = False, True, 0, self._front.tick
        limits = self._front.limits
        length = next((value for name, value in self.headers if name == b"content-length"), b"")
        if self._head_size > limits.header_bytes:
            self._refused = self._refused or 431
        elif length.isdigit() and int(length) > limits.body_bytes:
            self._refused = self._refused or 413
        if not self._refused:
            self._fresh = False
            super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        if self._refused:
            return
        self._size += len(body)
        if self._size > self._front.limits.body_bytes:
            self._refused = 413
            self._abandon()
            return
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._in_body = False
        if self._refused:
            self._refuse(self._refused)
            return
        super().on_message_complete()

    def on_response_complete(self) -> None:
        self._since = self._front.tick
        super().on_response_complete()

    # limits

    def enforce(self, now: float) -> None:
        limits, late_s = self._front.limits, now - self._since
        if self._slot.refused and now - self._slot.at > _OVERFLOW_S:
            self.transport.abort()
        elif self.flow.write_paused:
            if self._progress.stalled_s(self.transport.get_write_buffer_size(), now) > limits.reader_timeout_s:
                self.transport.abort()
        elif self._in_body:
            if self.flow.read_paused:  # the application takes its time
                self._since, self._size = now, 0
            elif late_s > limits.header_timeout_s and self._size < late_s * LEAST_RATE:
                self._abandon()
                self._refuse(408)
        elif self._in_head or self._fresh:
            if late_s > limits.header_timeout_s:
                self._refuse(408)
        elif self.cycle.response_complete and late_s > limits.idle_timeout_s:
            self.transport.close()

    def _abandon(self) -> None:
        """The application is not to answer a request that is refused now."""
        if self.cycle is not None and not self.cycle.response_complete:
            self.cycle.disconnected = True
            self.cycle.message_event.set()

    def _refuse(self, status: int) -> None:
        if not self.transport.is_closing():
            if self.cycle is None or self.cycle.response_complete or not self.cycle.response_started:
                self.transport.write(refusal(status))
            self._abandon()
            self.transport.close()


class Http2Connection(ZttpH2Protocol):
    """zttp bounds streams (128), headers (64 KiB) and empty frames; the limits of time and memory are here."""

    def __init__(self, config: Config, state: ServerState, front: Front, slot: Slot) -> None:
        super().__init__(config, state, {}, asyncio.get_running_loop())
        self._front = front
        self._slot = slot
        self._since = slot.at  # of the accept, or of the end of the last request
        self._began: dict[int, _Body] = {}  # bodies that are still coming in
        self._requests = 0
        self._resets = 0
        self._resets_since = slot.at
        self._quiet = 0  # bytes that brought nothing
        self._quiet_since = slot.at
        self._credit = asyncio.Event()
        self._progress = Progress()
        self._raw: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._raw = transport
        self._front.open.add(self)
        super().connection_made(cast(asyncio.Transport, CoalescingTransport(transport, self.loop)))

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._credit.set()
        self._front.open.discard(self)
        self._front.give_back(self._slot)

    def data_received(self, data: bytes) -> None:
        self._quiet += len(data)
        super().data_received(data)
        self._credit.set()
        now = self._front.tick
        if now - self._quiet_since > SWEEP_S:
            self._quiet, self._quiet_since = min(self._quiet, len(data)), now
        if self._quiet > QUIET_FRAMES_BYTES + self._front.limits.header_bytes:
            self._hang_up()

    def handle_request(self, event: zttp.Request) -> None:
        self._quiet = 0
        self._requests += 1
        if self._requests == REQUESTS:
            self.conn.close(0, event.stream_id)  # GOAWAY: what runs goes on, and no more comes
        if self._slot.refused or self._size(event) > self._front.limits.header_bytes:
            status = self._slot.refused or 431
            stream = self.conn.stream(event.stream_id)
            stream.send_response(status, [(b"content-length", b"0")], True)
            if self._slot.refused:
                self._close_connection()
            return
        super().handle_request(event)
        cycle = self.cycles[event.stream_id]
        self._keep_within_window(cycle)
        if event.end_stream:
            # zttp tells the end of a request without a body here and sends no further event, for which uvicorn waits
            cycle.more_body = False
            cycle.message_event.set()
        elif not _is_streaming(cycle):
            self._began[event.stream_id] = _Body(self._front.tick)

    def events(self) -> Generator[zttp.Event, None, None]:
        for event in super().events():
            if isinstance(event, zttp.Data):
                self._quiet = 0 if event.data else self._quiet
                if event.stream_id in self._began:
                    self._began[event.stream_id].size += len(event.data)
            elif isinstance(event, zttp.EndOfMessage | zttp.RstStream):
                self._began.pop(event.stream_id, None)
            yield event

    def handle_rst_stream(self, event: zttp.RstStream) -> None:
        now = self._front.tick
        if now - self._resets_since > _MINUTE_S:
            self._resets, self._resets_since = 0, now
        self._resets += 1
        super().handle_rst_stream(event)
        if self._resets > RESETS:
            self._hang_up()

    def on_response_complete(self, stream_id: int) -> None:
        self._began.pop(stream_id, None)
        super().on_response_complete(stream_id)

    def on_stream_closed(self) -> None:
        self._since = self._front.tick
        super().on_stream_closed()
        if self._requests >= REQUESTS and not self.cycles:
            self.transport.close()

    @staticmethod
    def _size(event: zttp.Request) -> int:
        return len(event.target) + sum(len(name) + len(value) for name, value in event.headers)

    def _keep_within_window(self, cycle: RequestResponseCycle) -> None:
        """zttp keeps what the client's window does not allow yet: the application waits once that is much."""
        send = cycle.send

        async def waiting(message: Any) -> None:
            await send(message)
            while not cycle.disconnected and not cycle.response_complete and self._pending(cycle) > WINDOW_BYTES:
                self._credit.clear()
                await self._credit.wait()

        cycle.send = waiting  # type: ignore[method-assign]

    @staticmethod
    def _pending(cycle: RequestResponseCycle) -> int:
        return cycle.stream.pending_bytes or 0

    def enforce(self, now: float) -> None:
        limits = self._front.limits
        assert self._raw is not None
        waiting = self._raw.get_write_buffer_size() + sum(map(self._pending, self.cycles.values()))
        if self._slot.refused and now - self._slot.at > _OVERFLOW_S:
            self.transport.abort()
        elif waiting:
            if self._progress.stalled_s(waiting, now) > limits.reader_timeout_s:
                self.transport.abort()
        elif not self.cycles:
            fresh = self._since == self._slot.at
            if now - self._since > (limits.header_timeout_s if fresh else limits.idle_timeout_s):
                self._close_connection()
        for stream_id, body in list(self._began.items()):
            late_s = now - body.since
            if late_s > limits.header_timeout_s and body.size < late_s * LEAST_RATE and not self.flow.read_paused:
                self._too_slow(stream_id)

    def _too_slow(self, stream_id: int) -> None:
        del self._began[stream_id]
        cycle = self.cycles.pop(stream_id, None)
        if cycle is None or cycle.response_started:
            return
        cycle.disconnected = True
        cycle.message_event.set()
        cycle.stream.send_response(408, [(b"content-length", b"0")], True)
        cycle.stream.reset(0)
        self.flush()
        self.on_stream_closed()

    def _hang_up(self) -> None:
        if not self.transport.is_closing():
            self.conn.close(_ENHANCE_YOUR_CALM)
            self.flush()
            self.transport.close()


@dataclass(slots=True)
class _Body:
    """The body of a request that is coming in."""

    since: float
    size: int = 0


def _is_streaming(cycle: RequestResponseCycle) -> bool:
    kind = next((value for name, value in cycle.scope["headers"] if name == b"content-type"), b"")
    return kind.startswith(_STREAMING)
