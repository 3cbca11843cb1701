"""One HTTP/1.1 connection: a protocol on the event loop's transport, one request at a time, no task of its own.

Whole answers are gathered and handed over once; streamed ones are handed over in pieces as they come, and reading
from the socket pauses while the reader is behind. A connection that is closed in the middle of an answer fails it; one
on which a request was given up is closed, never reused.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from typing import cast

import httptools

from shoal.client.errors import Disconnected, Unreachable
from shoal.client.transport import Reply

_HIGH_BYTES = 4 * 1024 * 1024  # of a stream's unread body: reading pauses until it is read
_MAX_HEADERS_BYTES = 256 * 1024


class _Answer:
    """What has arrived of one answer."""

    __slots__ = ("done", "ended", "error", "headers", "head", "parts", "size", "status", "streamed", "wake")

    def __init__(self, loop: asyncio.AbstractEventLoop, *, streamed: bool) -> None:
        self.streamed = streamed
        self.head: asyncio.Future[None] = loop.create_future()  # done when status and headers are there
        self.done: asyncio.Future[None] = loop.create_future()  # done when all is there
        self.status = 0
        self.headers: dict[str, str] = {}
        self.parts: deque[bytes] = deque()
        self.size = 0
        self.ended = False
        self.error: Exception | None = None
        self.wake = asyncio.Event()

    def finish(self, error: Exception | None) -> None:
        self.ended, self.error = True, error
        for future in (self.head, self.done):
            if not future.done():
                if error is None:
                    future.set_result(None)
                else:
                    future.set_exception(error)
                    future.exception()  # nobody may be waiting for it: it is not lost, only not looked at
        self.wake.set()


class Connection(asyncio.Protocol):
    """Made by the event loop; ``send`` starts a request when the one before it is over."""

    def __init__(self, loop: asyncio.AbstractEventLoop, on_lost: Callable[[Connection], object]) -> None:
        self._loop = loop
        self._on_lost = on_lost
        self._transport: asyncio.Transport | None = None
        self._parser: httptools.HttpResponseParser | None = None
        self._answer: _Answer | None = None
        self._fresh: dict[str, str] = {}  # headers of the message being parsed
        self._fresh_bytes = 0
        self._paused = False
        self._unframed = False  # the body ends with the connection
        self._responding = False  # a byte of the answer has arrived
        self._closed_by_server = False
        self._aborted = False
        self._lost: asyncio.Future[None] = loop.create_future()
        self.served = 0  # answers completed on this connection
        self.idle_since_s = 0.0
        self.reusable = True

    # the event loop calls these

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is one without inheriting from it

    def data_received(self, data: bytes) -> None:
        if self._answer is None:  # nothing was asked: the server is confused or says goodbye
            self.abort()
            return
        self._responding = True
        assert self._parser is not None
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._fail(Disconnected(f"the server's answer is not HTTP/1.1: {error}"))

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, error: Exception | None) -> None:
        self.reusable = False
        self._closed_by_server = not self._aborted
        if not self._lost.done():
            self._lost.set_result(None)
        self._on_lost(self)
        answer, self._answer = self._answer, None
        if answer is None:
            return
        if error is None and self._unframed and answer.head.done():
            answer.finish(None)
            return
        cut = Disconnected(f"the server closed the connection before the answer was complete: {error or 'end of file'}")
        cut.__cause__ = error
        answer.finish(cut)

    # the parser calls these

    def on_message_begin(self) -> None:
        self._fresh, self._fresh_bytes = {}, 0

    def on_header(self, name: bytes, value: bytes) -> None:
        self._fresh_bytes += len(name) + len(value)
        if self._fresh_bytes > _MAX_HEADERS_BYTES:
            self._fail(Disconnected("the headers of the server's answer are too large"))
            return
        key, text = name.decode("latin-1").lower(), value.decode("latin-1")
        self._fresh[key] = f"{self._fresh[key]}, {text}" if key in self._fresh else text

    def on_headers_complete(self) -> None:
        answer, parser = self._answer, self._parser
        if answer is None or parser is None:
            return
        status = parser.get_status_code()
        if status < 200:
            return
        answer.status, answer.headers = status, self._fresh
        framed = "content-length" in self._fresh or "chunked" in self._fresh.get("transfer-encoding", "")
        self._unframed = not framed and status not in (204, 304)
        if not answer.head.done():
            answer.head.set_result(None)

    def on_body(self, data: bytes) -> None:
        answer = self._answer
        if answer is None:
            return
        answer.parts.append(data)
        answer.size += len(data)
        if answer.streamed:
            answer.wake.set()
            if answer.size > _HIGH_BYTES and not self._paused and self._transport is not None:
                self._paused = True
                self._transport.pause_reading()

    def on_message_complete(self) -> None:
        answer, parser = self._answer, self._parser
        if answer is None or parser is None or not answer.status:  # not answer.status: it was a 1xx
            return
        self._answer = None
        self.served += 1
        self.reusable = self.reusable and parser.should_keep_alive() and not self._unframed
        answer.finish(None)

    # users call these

    @property
    def stale(self) -> bool:
        """Whether the server closed this connection, after earlier answers, without a byte of the current one."""
        return self.served > 0 and self._closed_by_server and not self._responding

    async def request(self, data: bytes) -> Reply:
        """Send and wait for the whole answer. When this is cancelled or fails the connection is closed."""
        answer = self._start(data, streamed=False)
        try:
            await answer.done
        except BaseException:
            self.abort()
            raise
        return Reply(answer.status, answer.headers, b"".join(answer.parts))

    async def stream(self, data: bytes) -> ConnectionStream:
        """Send and wait for status and headers; the body is read from the result, which owns the connection."""
        answer = self._start(data, streamed=True)
        try:
            await answer.head
        except BaseException:
            self.abort()
            raise
        return ConnectionStream(self, answer)

    def _start(self, data: bytes, *, streamed: bool) -> _Answer:
        if self._answer is not None or self._transport is None:
            raise RuntimeError("the connection is in use")
        answer = _Answer(self._loop, streamed=streamed)
        self._responding = False
        if self._lost.done() or self._transport.is_closing():
            answer.finish(Unreachable("the server has closed the connection"))
            return answer
        self._answer = answer
        self._parser = httptools.HttpResponseParser(self)
        self._transport.write(data)
        return answer

    def resume(self) -> None:
        if self._paused and self._transport is not None:
            self._paused = False
            if not self._transport.is_closing():
                self._transport.resume_reading()

    def _fail(self, error: Exception) -> None:
        answer, self._answer = self._answer, None
        if answer is not None:
            answer.finish(error)
        self.abort()

    def abort(self) -> None:
        """Drop the connection without ceremony."""
        self.reusable = False
        self._aborted = True
        if self._transport is not None:
            self._transport.abort()

    async def close(self) -> None:
        """Drop the connection and return when the event loop has let go of it."""
        self.abort()
        if self._transport is not None:
            await asyncio.wait([self._lost])


class ConnectionStream:
    """The streamed answer of a connection of its own."""

    def __init__(self, connection: Connection, answer: _Answer) -> None:
        self._connection = connection
        self._answer = answer

    @property
    def status(self) -> int:
        return self._answer.status

    @property
    def headers(self) -> Mapping[str, str]:
        return self._answer.headers

    async def chunks(self) -> AsyncIterator[bytes]:
        answer = self._answer
        while True:
            while answer.parts:
                yield self._take()  # not by a name: an idle stream would keep what it gave last
            if answer.ended:
                if answer.error is not None:
                    raise answer.error
                return
            answer.wake.clear()
            await answer.wake.wait()

    def _take(self) -> bytes:
        answer = self._answer
        data = b"".join(answer.parts) if len(answer.parts) > 1 else answer.parts[0]
        answer.parts.clear()
        answer.size = 0
        self._connection.resume()
        return data

    async def close(self) -> None:
        if not self._answer.ended:
            self._answer.finish(None)
        await self._connection.close()
