"""Server-sent events: the response, and how long and for how many it may go on.

A stream pulls: what comes next is read once the last part was taken by the connection, so a slow client costs one part
and nobody else's time; one that takes nothing for ``SEND_S`` is let go. A stream ends when its client goes away, its
token stops working, or the process stops. A comment is sent every ``HEARTBEAT_S`` so that proxies do not end what is
quiet.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Any

import orjson
from starlette.responses import Response

from shoal.base.asgi import Receive, Scope, Send
from shoal.base.clock import Clock
from shoal.base.logs import get_logger
from shoal.base.metrics import Value
from shoal.base.tasks import cancel_all
from shoal.control.api.calls import Call
from shoal.control.database.tokens import Tokens
from shoal.errors import ApiError, ServiceUnavailable, TooManyRequests

SEND_S = 30.0
HEARTBEAT_S = 15.0
MAX_STREAMS = 256
_AGAIN_S = 5

_log = get_logger("control.api")

_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"x-accel-buffering", b"no"),
]


def event(name: str, data: Any, id_: int | str = "") -> bytes:
    head = f"id: {id_}\n" if id_ != "" else ""
    return f"{head}event: {name}\ndata: ".encode() + orjson.dumps(data) + b"\n\n"


def comment(text: str) -> bytes:
    return f": {text}\n\n".encode()


class Streams:
    """The open streams of the process."""

    def __init__(self, tokens: Tokens, clock: Clock, *, most: int = MAX_STREAMS) -> None:
        self.clock = clock
        self._tokens = tokens
        self._most = most
        self._open = 0
        self.ending = asyncio.Event()

    def end(self) -> None:
        """The process stops: no stream may keep it, and clients go on at another or at the next."""
        self.ending.set()

    def enter(self) -> None:
        if self.ending.is_set():
            raise ServiceUnavailable("the control plane stops", retry_after_s=1)
        if self._open >= self._most:
            raise TooManyRequests(f"{self._open} streams are open, which is the most here", retry_after_s=_AGAIN_S)
        self._open += 1

    def leave(self) -> None:
        self._open -= 1

    async def is_allowed(self, call: Call) -> bool:
        """Whether the token still works. While the database is away nobody is sent off."""
        try:
            return await self._tokens.authenticate(call.token) is not None
        except ServiceUnavailable:
            return True

    def answer(self, call: Call, parts: AsyncGenerator[bytes, None], open_streams: Value) -> Response:
        """``parts`` yields whole events; an empty one means that there was nothing, and is a chance to look around."""
        return _Stream(self, call, parts, open_streams)


class _Stream(Response):
    def __init__(self, streams: Streams, call: Call, parts: AsyncGenerator[bytes, None], open_streams: Value) -> None:
        super().__init__()
        self._streams = streams
        self._call = call
        self._parts = parts
        self._open_streams = open_streams

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._streams.enter()
        self._open_streams.inc()
        pump = asyncio.create_task(self._pump(send), name="api-stream/send")
        gone = asyncio.create_task(_until_gone(receive), name="api-stream/receive")
        ending = asyncio.create_task(self._streams.ending.wait(), name="api-stream/ending")
        try:
            await asyncio.wait([pump, gone, ending], return_when=asyncio.FIRST_COMPLETED)
            if pump.done():
                pump.result()
            elif ending.done():
                await cancel_all(pump)
                await _sent(send, b"", more=False)
        except TimeoutError:
            _log.info("a stream was ended, since its client takes nothing", seconds=SEND_S)
        finally:
            await cancel_all(pump, gone, ending)
            self._open_streams.inc(-1)
            self._streams.leave()

    async def _pump(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": list(_HEADERS)})
        await _sent(send, comment("open"))
        clock = self._streams.clock
        quiet_since = clock.monotonic()
        async with aclosing(_checked(self._parts)) as parts:
            async for part in parts:
                if not await self._streams.is_allowed(self._call):
                    await _sent(
                        send, event("error", {"code": "Unauthorized", "message": "the token does not work any more"})
                    )
                    break
                if not part and clock.monotonic() - quiet_since >= HEARTBEAT_S:
                    part = comment("heartbeat")
                if part:
                    await _sent(send, part)
                    quiet_since = clock.monotonic()
        await _sent(send, b"", more=False)


async def _checked(parts: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
    """An error in the middle of a stream cannot change its status any more: it is its last event."""
    try:
        async with aclosing(parts) as inner:
            async for part in inner:
                yield part
    except ApiError as error:
        yield event("error", {"code": error.reason, "message": error.message})


async def _sent(send: Send, body: bytes, *, more: bool = True) -> None:
    async with asyncio.timeout(SEND_S):
        await send({"type": "http.response.body", "body": body, "more_body": more})


async def _until_gone(receive: Receive) -> None:
    while True:
        message: Mapping[str, Any] = await receive()
        if message["type"] == "http.disconnect":
            return
