"""Answers that go on: server-sent events, and text as it comes.

A stream pulls: what comes next is read once the last part was taken by the connection, so a slow client costs one part
and no other client's time. A client that takes nothing for ``SEND_S`` is disconnected. A stream ends when its client
goes away, its token stops working, or the process stops.

Events begin at once, and a comment every ``HEARTBEAT_S`` keeps proxies from ending a quiet stream; an error is the last
event. Text waits a moment for its first part, so that an error before it has its own status; a later one breaks the
answer off.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from typing import Any

import orjson

from shoal.base.asgi_common import Receive, Scope, Send
from shoal.base.clock import Clock
from shoal.base.metrics import Gauge, Value
from shoal.base.tasks import OwnedTasks, beside, cancel_all
from shoal.errors import ApiError, ServiceUnavailable, TooManyRequests

SEND_S = 30.0
HEARTBEAT_S = 15.0
CHECK_S = 15.0  # between two looks at the token of a stream of text
QUIET_S = 1.0  # a text that does not begin: the answer begins all the same
MAX_STREAMS = 256
MAX_STREAMS_PER_TOKEN = 32
_AGAIN_S = 5

Authenticated = Callable[[str], Awaitable[object | None]]
"""Return the principal of a valid token, else None."""


class BrokenOff(Exception):
    """An answer that has begun cannot go on. The server must not end it as if it were whole."""


def event(name: str, data: Any, id_: int | str = "") -> bytes:
    head = f"id: {id_}\n" if id_ != "" else ""
    return f"{head}event: {name}\ndata: ".encode() + orjson.dumps(data) + b"\n\n"


def comment(text: str) -> bytes:
    return f": {text}\n\n".encode()


class RestStreams:
    """The open streams of an API. ``owner`` is named when it stops; ``gauge`` has one label, the kind of stream."""

    def __init__(
        self,
        authenticate: Authenticated,
        clock: Clock,
        gauge: Gauge,
        *,
        owner: str,
        most: int = MAX_STREAMS,
        most_per_token: int = MAX_STREAMS_PER_TOKEN,
    ) -> None:
        self.clock = clock
        self.ending = asyncio.Event()
        self._authenticate = authenticate
        self._gauge = gauge
        self._owner = owner
        self._most = most
        self._most_per_token = most_per_token
        self._open = 0
        self._tokens: Counter[str] = Counter()  # open streams of each token

    def end(self) -> None:
        """The process stops: no stream may keep it, and clients go on at another or at the next."""
        self.ending.set()

    def enter(self, token: str) -> None:
        if self.ending.is_set():
            raise ServiceUnavailable(f"{self._owner} stops", retry_after_s=1)
        if self._open >= self._most:
            raise TooManyRequests(f"limit reached: {self._open} streams are open", retry_after_s=_AGAIN_S)
        if self._tokens[token] >= self._most_per_token:
            open_ones = f"{self._tokens[token]} of {self._most_per_token} streams of this token are open"
            raise TooManyRequests(f"limit reached: {open_ones}; end one", retry_after_s=_AGAIN_S)
        self._open += 1
        self._tokens[token] += 1

    def leave(self, token: str) -> None:
        self._open -= 1
        self._tokens[token] -= 1
        if not self._tokens[token]:
            del self._tokens[token]

    async def is_allowed(self, token: str) -> bool:
        """Whether the token still works. A stream goes on while that cannot be found out."""
        try:
            return await self._authenticate(token) is not None
        except ServiceUnavailable:
            return True

    def events(self, token: str, parts: AsyncGenerator[bytes, None], kind: str) -> StreamAnswer:
        """``parts`` yields whole events; an empty one means that there was nothing, and is a chance to look around."""
        return EventStream(self, token, parts, self._gauge.labels(kind))

    def text(
        self, token: str, parts: AsyncGenerator[bytes, None], kind: str, media: str = "text/plain; charset=utf-8"
    ) -> StreamAnswer:
        return TextStream(self, token, parts, self._gauge.labels(kind), media)


class StreamAnswer:
    """What both kinds have: the limit, the end, and the client that goes away."""

    media = ""

    def __init__(
        self, streams: RestStreams, token: str, parts: AsyncGenerator[bytes, None], open_streams: Value
    ) -> None:
        self._streams = streams
        self._token = token
        self._parts = parts
        self._open_streams = open_streams
        self._begun = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with aclosing(self._parts) as parts:
            self._streams.enter(self._token)
            self._open_streams.inc()
            try:
                await self._run(parts, receive, send)
            finally:
                self._open_streams.inc(-1)
                self._streams.leave(self._token)

    async def _run(self, parts: AsyncGenerator[bytes, None], receive: Receive, send: Send) -> None:
        tasks = OwnedTasks()
        pump = tasks.start(self._pump(parts, send), name="rest-stream/send", awaited=True)
        gone = tasks.start(until_gone(receive), name="rest-stream/receive")
        ending = tasks.start(self._streams.ending.wait(), name="rest-stream/ending")
        try:
            await asyncio.wait([pump, gone, ending], return_when=asyncio.FIRST_COMPLETED)
            if pump.done():
                pump.result()
            elif ending.done() and self._begun:
                await cancel_all(pump)
                await _sent(send, b"", more=False)
        except TimeoutError:
            raise BrokenOff(f"the client read nothing for {SEND_S:g} s") from None
        except ApiError as error:
            if not self._begun:
                raise
            raise BrokenOff(error.message) from None
        finally:
            await tasks.close()

    async def _pump(self, parts: AsyncGenerator[bytes, None], send: Send) -> None:
        raise NotImplementedError

    async def _begin(self, send: Send) -> None:
        headers = [(b"content-type", self.media.encode()), (b"x-accel-buffering", b"no")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        self._begun = True


class EventStream(StreamAnswer):
    media = "text/event-stream; charset=utf-8"

    async def _pump(self, parts: AsyncGenerator[bytes, None], send: Send) -> None:
        await self._begin(send)
        await _sent(send, comment("open"))
        clock = self._streams.clock
        quiet_since = clock.monotonic()
        async with aclosing(_with_error(parts)) as checked:
            async for part in checked:
                if not await self._streams.is_allowed(self._token):
                    error = {"code": "Unauthorized", "message": "the token was revoked or has expired"}
                    await _sent(send, event("error", error))
                    break
                if not part and clock.monotonic() - quiet_since >= HEARTBEAT_S:
                    part = comment("heartbeat")
                if part:
                    await _sent(send, part)
                    quiet_since = clock.monotonic()
        await _sent(send, b"", more=False)


class TextStream(StreamAnswer):
    def __init__(
        self, streams: RestStreams, token: str, parts: AsyncGenerator[bytes, None], open_streams: Value, media: str
    ) -> None:
        super().__init__(streams, token, parts, open_streams)
        self.media = media

    async def _pump(self, parts: AsyncGenerator[bytes, None], send: Send) -> None:
        async with beside(_next(parts), name="rest-stream/first") as first:
            await asyncio.wait([first], timeout=QUIET_S)
            if first.done():
                first.result()
            await self._begin(send)
            part = await first
        if part is not None:
            await _sent(send, part)
        clock = self._streams.clock
        checked_at = clock.monotonic()
        async for part in parts:
            if clock.monotonic() - checked_at >= CHECK_S:
                if not await self._streams.is_allowed(self._token):
                    break
                checked_at = clock.monotonic()
            await _sent(send, part)
        await _sent(send, b"", more=False)


async def _with_error(parts: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
    """An error in the middle of a stream cannot change its status any more: it is its last event."""
    try:
        async for part in parts:
            yield part
    except ApiError as error:
        yield event("error", {"code": error.reason, "message": error.message})


async def _next(parts: AsyncGenerator[bytes, None]) -> bytes | None:
    return await anext(parts, None)


async def _sent(send: Send, body: bytes, *, more: bool = True) -> None:
    async with asyncio.timeout(SEND_S):
        await send({"type": "http.response.body", "body": body, "more_body": more})


async def until_gone(receive: Receive) -> None:
    """Return when the client has gone away."""
    while True:
        message: Mapping[str, Any] = await receive()
        if message["type"] == "http.disconnect":
            return
