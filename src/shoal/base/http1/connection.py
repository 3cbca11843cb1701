"""One HTTP/1.1 connection of a client: a protocol on the event loop's transport, one request at a time, no task.

Bytes of a request go in, an ``HttpAnswer`` comes out. Ambiguous answers that llhttp accepts are
rejected here: a transfer coding other than chunked, a second answer to one request, an upgrade that was not requested.
Reading from the socket pauses while the reader of a streamed body is behind. A connection that is closed in the middle
of an answer fails it. After a cancelled request, or after unexpected input, the connection is closed and never reused.
"""

from __future__ import annotations

import asyncio
import math
import socket
import sys
from collections.abc import Callable
from typing import cast

import httptools

from shoal.base.clock import Clock, Timer
from shoal.base.http1.answer import HttpAnswer
from shoal.base.http1.errors import (
    AnswerTimedOut,
    AnswerTooLarge,
    Disconnected,
    InvalidAnswer,
    TransportError,
    Unreachable,
)
from shoal.base.http1.limits import DEFAULT_LIMITS, NO_DEADLINES, AnswerLimits, Deadlines
from shoal.base.http1.messages import HttpReply

_SWITCHING = 101
_EARLY_S = 0.005  # timers of the event loop may come that much too early
_VERSIONS = ("1.1", "1.0")


class ClientConnection(asyncio.Protocol):
    """A connection to ``peer``, made by ``shoal.base.http1.dial``."""

    def __init__(
        self,
        peer: str,
        *,
        clock: Clock,
        limits: AnswerLimits = DEFAULT_LIMITS,
        on_lost: Callable[[ClientConnection], object] | None = None,
    ) -> None:
        self.peer = peer  # for messages
        self.served = 0  # answers completed on this connection
        self.idle_since_s = 0.0  # a pool keeps it here
        self.reusable = True
        self.writable = True  # the peer keeps up with what it is sent
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._on_lost = on_lost
        self._on_writable: Callable[[bool], object] | None = None
        self._head_limit_bytes = limits.head_bytes
        self._headers_limit = limits.headers
        self._body_limit_bytes = sys.maxsize if limits.body_bytes is None else limits.body_bytes
        self._buffer_limit_bytes = limits.buffered_bytes
        self._transport: asyncio.Transport | None = None
        self._parser: httptools.HttpResponseParser | None = None
        self._answer: HttpAnswer | None = None  # the one under way
        self._header_list: list[tuple[bytes, bytes]] = []  # of the message being parsed
        self._header_bytes = 0
        self._silent_bytes = 0  # since the last that brought body: bounds 1xx answers and extensions of chunks
        self._paused = False
        self._held = False  # paused by ``pause``
        self._unframed = False  # the body ends with the connection
        self._switched = False  # HTTP is over, after an upgrade
        self._responding = False  # a byte of the answer has arrived
        self._closed_by_server = False
        self._aborted = False
        self._lost: asyncio.Future[None] | None = None  # waiters for the end
        self._is_lost = False
        self._room: asyncio.Future[None] | None = None  # of ``drain``
        self._timer: Timer | None = None
        self._deadlines = NO_DEADLINES
        self._sent_at_s = self._last_at_s = 0.0

    # -- users ---------------------------------------------------------------------------------------------------------

    @property
    def stale(self) -> bool:
        """Whether the server closed this connection, after earlier answers, without a byte of the current one."""
        return self.served > 0 and self._closed_by_server and not self._responding

    async def request(self, data: bytes, deadlines: Deadlines = NO_DEADLINES) -> HttpReply:
        """Send and wait for the whole answer. When this is cancelled or fails the connection is closed."""
        answer = self.start(data, deadlines, whole=True)
        try:
            await answer.ready
        except BaseException:
            self.abort()
            raise
        return answer.reply()

    async def stream(self, data: bytes, deadlines: Deadlines = NO_DEADLINES, *, upgrade: bool = False) -> HttpAnswer:
        """Send and wait for status and headers; the body is read from the result, which owns the connection.
        ``upgrade``: the answer may be 101, and then the connection carries another protocol."""
        answer = self.start(data, deadlines, upgrade=upgrade)
        try:
            await answer.ready
        except BaseException:
            self.abort()
            raise
        return answer

    def start(
        self, data: bytes, deadlines: Deadlines = NO_DEADLINES, *, whole: bool = False, upgrade: bool = False
    ) -> HttpAnswer:
        """Send a request, or its beginning, and return at once. The rest of its body goes out with ``write``."""
        transport = self._transport
        if self._answer is not None or transport is None or self._switched:
            raise RuntimeError("the connection is in use")
        answer = HttpAnswer(
            self, self._loop.create_future(), whole=whole, upgrade=upgrade, has_body=not data.startswith(b"HEAD ")
        )
        self._responding = False
        if self._is_lost or transport.is_closing():
            answer.finish(Unreachable(f"{self.peer} has closed the connection"))
            return answer
        self._answer = answer
        self._parser = httptools.HttpResponseParser(self)
        self._silent_bytes = 0
        if deadlines is not NO_DEADLINES:
            self._watch(deadlines)
        transport.write(data)
        return answer

    def write(self, data: bytes) -> None:
        """Send more: of a request's body, or of the protocol after an upgrade."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    async def send(self, data: bytes) -> None:
        """As ``write``, and wait while the peer does not keep up; ``Disconnected`` when it is gone."""
        if self._is_lost:
            raise Disconnected(f"{self.peer} has closed the connection")
        self.write(data)
        await self.drain()

    async def drain(self) -> None:
        """Wait until the peer keeps up with reading; ``Disconnected`` when it is gone."""
        while not self.writable and not self._is_lost:
            if self._room is None:
                self._room = self._loop.create_future()
            await asyncio.shield(self._room)
        if self._is_lost:
            raise Disconnected(f"{self.peer} has closed the connection")

    def write_eof(self) -> None:
        """Signal the end of sending, if the transport supports it."""
        transport = self._transport
        if transport is not None and not transport.is_closing() and transport.can_write_eof():
            transport.write_eof()

    def pause(self) -> None:
        """Stop reading from the peer until ``resume``."""
        self._held = True
        self._pause()

    def resume(self) -> None:
        self._held = False
        self.take_more()

    def tune(self, *, write_buffer_bytes: int, on_writable: Callable[[bool], object]) -> None:
        """For connections that carry much or live long: how much may wait to be sent before ``writable`` is False, a
        call whenever that changes, and a system that notices when the peer has vanished."""
        self._on_writable = on_writable
        if self._transport is not None:
            self._transport.set_write_buffer_limits(high=write_buffer_bytes)
            raw = self._transport.get_extra_info("socket")
            if raw is not None:
                raw.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)

    def finish(self) -> None:
        """Close the connection once everything is sent."""
        self.reusable = False
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Drop the connection at once."""
        self.reusable = False
        self._aborted = True
        self._unwatch()
        if self._transport is not None:
            self._transport.abort()

    async def close(self) -> None:
        """Drop the connection and return when the event loop has let go of it."""
        self.abort()
        if self._transport is not None and not self._is_lost:
            if self._lost is None:
                self._lost = self._loop.create_future()
            await asyncio.wait([self._lost])

    # -- back-pressure -------------------------------------------------------------------------------------------------

    def _pause(self) -> None:
        if not self._paused and self._transport is not None and not self._transport.is_closing():
            self._paused = True
            self._transport.pause_reading()

    def take_more(self) -> None:
        """There is room for more of the answer."""
        if self._paused and not self._held and self._transport is not None:
            self._paused = False
            if self._deadlines.idle_s is not None:
                self._last_at_s = self._clock.monotonic()
            if not self._transport.is_closing():
                self._transport.resume_reading()

    def pause_writing(self) -> None:
        self.writable = False
        if self._on_writable is not None:
            self._on_writable(False)

    def resume_writing(self) -> None:
        self.writable = True
        self._release()
        if self._on_writable is not None:
            self._on_writable(True)

    def _release(self) -> None:
        room, self._room = self._room, None
        if room is not None and not room.done():
            room.set_result(None)

    # -- deadlines -----------------------------------------------------------------------------------------------------

    def _watch(self, deadlines: Deadlines) -> None:
        self._deadlines = deadlines
        self._sent_at_s = self._last_at_s = self._clock.monotonic()
        self._arm(self._sent_at_s)

    def _unwatch(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._deadlines = NO_DEADLINES

    def _due_s(self) -> float:
        """When the next deadline passes, as things are now."""
        deadlines, answer = self._deadlines, self._answer
        due_s = math.inf if deadlines.total_s is None else self._sent_at_s + deadlines.total_s
        if answer is None or not answer.status:
            return due_s if deadlines.head_s is None else min(due_s, self._sent_at_s + deadlines.head_s)
        if deadlines.idle_s is None:
            return due_s
        last_at_s = self._clock.monotonic() if self._paused else self._last_at_s
        return min(due_s, last_at_s + deadlines.idle_s)

    def _arm(self, now_s: float) -> None:
        due_s = self._due_s()
        self._timer = None if due_s == math.inf else self._clock.call_later(due_s - now_s, self._look)

    def _head_came(self, answer: HttpAnswer) -> None:
        if not answer.whole or self._deadlines.idle_s is not None:  # else the time for all of it still runs
            if self._timer is not None:
                self._timer.cancel()
            self._last_at_s = self._clock.monotonic()
            self._arm(self._last_at_s)

    def _look(self) -> None:
        """Check whether a deadline has passed; it may have moved."""
        now_s, deadlines = self._clock.monotonic(), self._deadlines
        if now_s < self._due_s() - _EARLY_S:
            self._arm(now_s)
            return
        self._timer = None
        passed_s = now_s - self._sent_at_s + _EARLY_S
        if self._answer is None or not self._answer.status:
            limit_s = min(each for each in (deadlines.head_s, deadlines.total_s) if each is not None)
            text = f"did not answer within {limit_s:g} s"
        elif deadlines.total_s is not None and passed_s >= deadlines.total_s:
            text = f"did not complete its answer within {deadlines.total_s:g} s"
        else:
            text = f"sent nothing more of its answer for {deadlines.idle_s:g} s"
        self._fail(AnswerTimedOut(f"{self.peer} {text}"))

    # -- the event loop calls these ------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is one without inheriting from it

    def data_received(self, data: bytes) -> None:
        answer = self._answer
        if answer is None:  # data without a request: the server is faulty or closes
            self.abort()
            return
        if self._deadlines is not NO_DEADLINES:
            self._last_at_s = self._clock.monotonic()
        parser = self._parser
        if parser is None:  # HTTP is over
            self._after_switch(answer, data)
            return
        self._responding = True
        received_bytes, headed = answer.received_bytes, answer.status
        try:
            parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._switch(answer, data[upgrade.args[0] :])
        except httptools.HttpParserCallbackError as error:
            self._fail(InvalidAnswer(f"the answer of {self.peer} could not be handled: {error.__context__!r}"))
            raise
        except httptools.HttpParserError as error:
            self._fail(InvalidAnswer(f"the answer of {self.peer} is not valid HTTP/1.1: {error}: {_shown(data)}"))
        else:
            if answer.received_bytes != received_bytes:
                self._silent_bytes = 0
                if answer.waiter is not None:
                    answer.wake()
                if answer.received_bytes - answer.taken_bytes > self._buffer_limit_bytes:
                    self._full(answer)
            elif self._answer is not None:
                self._silent_bytes = self._silent_bytes + len(data) if headed or not answer.status else 0
                if self._silent_bytes > self._head_limit_bytes:
                    self._too_large(f"more than {self._head_limit_bytes} bytes without body content")

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, error: Exception | None) -> None:
        self.reusable = False
        self._is_lost = True
        self._closed_by_server = not self._aborted
        self._unwatch()
        if self._lost is not None and not self._lost.done():
            self._lost.set_result(None)
        self._release()
        if self._on_lost is not None:
            self._on_lost(self)
        answer, self._answer = self._answer, None
        if answer is None or answer.ended:
            return
        if error is None and (self._switched or (self._unframed and answer.status)):
            answer.finish(None)
            return
        cut = Disconnected(f"{self.peer} closed the connection before its answer was complete{_because(error)}")
        cut.head_arrived = answer.status > 0
        cut.__cause__ = error
        answer.finish(cut)

    # -- the parser calls these ----------------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        self._header_list, self._header_bytes = [], 0
        if self._answer is None:  # a second answer to one request
            self.reusable = False

    def on_header(self, name: bytes, value: bytes) -> None:
        lines = self._header_list
        lines.append((name, value))
        self._header_bytes += len(name) + len(value)
        if self._header_bytes > self._head_limit_bytes:
            self._too_large(f"more than {self._head_limit_bytes} bytes of headers")
        elif len(lines) > self._headers_limit:
            self._too_large(f"more than {self._headers_limit} headers")

    def on_headers_complete(self) -> None:
        answer, parser = self._answer, self._parser
        if answer is None or parser is None:
            return
        status = parser.get_status_code()
        if status < 200 and status != _SWITCHING:
            return  # a preliminary answer: the real one follows
        lines = self._header_list
        headers = answer.headers
        for name, value in lines:
            key, text = name.decode("latin-1").lower(), value.decode("latin-1")
            headers[key] = f"{headers[key]}, {text}" if key in headers else text
        length, coding = headers.get("content-length"), headers.get("transfer-encoding")
        wrong = self._ambiguous(status, coding, answer, parser)
        if wrong:
            self._fail(InvalidAnswer(f"the answer of {self.peer} is invalid: {wrong}"))
            return
        if length is not None and answer.has_body and int(length) > self._body_limit_bytes:
            self._too_large(f"a body of {length} bytes; the limit is {self._body_limit_bytes}")
            return
        answer.status, answer.header_list = status, lines
        self._header_list = []  # what follows are trailers
        self._unframed = length is None and coding is None and status not in (204, 304, _SWITCHING)
        if not answer.has_body:
            self._complete(answer, parser)
            return
        if self._deadlines is not NO_DEADLINES:
            self._head_came(answer)
        if not answer.whole and not answer.ready.done():
            answer.ready.set_result(None)

    def _ambiguous(
        self, status: int, coding: str | None, answer: HttpAnswer, parser: httptools.HttpResponseParser
    ) -> str:
        """Why an answer that the parser accepts is ambiguous; empty when it is not."""
        if coding is not None and coding.strip().lower() != "chunked":
            return f'transfer coding "{coding[:40]}": only chunked is supported'
        if status == _SWITCHING and not answer.upgrade:
            return "status 101 without a request to change the protocol"
        if (version := parser.get_http_version()) not in _VERSIONS:
            return f"its version is HTTP/{version}"
        return ""

    def on_body(self, data: bytes) -> None:
        answer = self._answer
        if answer is None:
            self.reusable = False  # a body that an answer to HEAD must not have, or one of a second answer
            return
        answer.received_bytes += len(data)
        if answer.received_bytes > self._body_limit_bytes:
            self._too_large(f"a body of more than {self._body_limit_bytes} bytes")
        elif answer.on_data is None:
            answer.parts.append(data)
        else:
            answer.on_data(data)

    def on_message_complete(self) -> None:
        answer, parser = self._answer, self._parser
        if answer is None or parser is None or not answer.status:  # not answer.status: it was a 1xx
            return
        if answer.status == _SWITCHING:
            return  # the parser says next what belongs to the other protocol
        answer.trailers = self._header_list
        self._complete(answer, parser)

    # -- the course of an answer ---------------------------------------------------------------------------------------

    def _full(self, answer: HttpAnswer) -> None:
        """The reader of a streamed body is behind."""
        if not answer.whole and answer.on_data is None:
            self._pause()

    def _switch(self, answer: HttpAnswer, rest: bytes) -> None:
        if self._answer is None:
            return  # it was refused
        self._switched, self.reusable, self._parser = True, False, None
        if rest:
            self._after_switch(answer, rest)

    def _after_switch(self, answer: HttpAnswer, data: bytes) -> None:
        if answer.on_data is not None:
            answer.on_data(data)
            return
        answer.received_bytes += len(data)
        answer.parts.append(data)
        answer.wake()
        if answer.unread_bytes > self._buffer_limit_bytes:
            self._pause()

    def _complete(self, answer: HttpAnswer, parser: httptools.HttpResponseParser) -> None:
        self._answer = None
        self.served += 1
        self.reusable = self.reusable and parser.should_keep_alive() and not self._unframed
        self._unwatch()
        answer.finish(None)

    def _too_large(self, text: str) -> None:
        self._fail(AnswerTooLarge(f"the answer of {self.peer} is too large: {text}"))

    def _fail(self, error: TransportError) -> None:
        answer, self._answer = self._answer, None
        if isinstance(error, Disconnected):
            error.head_arrived = answer is not None and answer.status > 0
        self.abort()
        if answer is not None:
            answer.finish(error)


def _because(error: Exception | None) -> str:
    return "" if error is None else f": {error}"


def _shown(data: bytes) -> str:
    return repr(data[:40].decode("latin-1"))
