"""Logs as they come: the response, how long it may go on, and for how many.

A stream pulls: the next part is read once the last was taken, so a slow client costs one part. It ends when its client
goes away, its token stops working, the edge is done, or the process stops. The first part is waited for a moment before
the answer begins, so that what is wrong has its proper status; what goes wrong later breaks the answer off.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from typing import Any

from starlette.responses import Response

from shoal.base.asgi import Receive, Scope, Send
from shoal.base.clock import Clock
from shoal.base.tasks import cancel_all
from shoal.errors import ApiError, ServiceUnavailable, TooManyRequests

SEND_S = 30.0
CHECK_S = 15.0
QUIET_S = 1.0  # a log that says nothing: the answer begins all the same
MOST = 256
_HEADERS = [(b"content-type", b"text/plain; charset=utf-8"), (b"x-accel-buffering", b"no")]


class BrokenOff(Exception):
    """An answer that has begun cannot go on. Whoever serves it must not end it as if it were whole."""


class Streams:
    """The open streams of the process."""

    def __init__(self, clock: Clock, *, most: int = MOST) -> None:
        self.clock = clock
        self.ending = asyncio.Event()
        self.open = 0
        self._most = most

    def end(self) -> None:
        self.ending.set()

    def enter(self) -> None:
        if self.ending.is_set():
            raise ServiceUnavailable("the navigator stops", retry_after_s=1)
        if self.open >= self._most:
            raise TooManyRequests(f"{self.open} streams are open, which is the most here", retry_after_s=5)
        self.open += 1

    def leave(self) -> None:
        self.open -= 1


class TextStream(Response):
    """``allowed`` is asked now and then whether it may go on."""

    def __init__(
        self, streams: Streams, parts: AsyncGenerator[bytes, None], allowed: Callable[[], Awaitable[bool]]
    ) -> None:
        super().__init__()
        self._streams = streams
        self._parts = parts
        self._allowed = allowed
        self._begun = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with aclosing(self._parts) as parts:
            self._streams.enter()
            try:
                await self._run(parts, receive, send)
            finally:
                self._streams.leave()

    async def _run(self, parts: AsyncGenerator[bytes, None], receive: Receive, send: Send) -> None:
        pump = asyncio.create_task(self._pump(parts, send), name="logs/send")
        gone = asyncio.create_task(_until_gone(receive), name="logs/receive")
        ending = asyncio.create_task(self._streams.ending.wait(), name="logs/ending")
        try:
            await asyncio.wait([pump, gone, ending], return_when=asyncio.FIRST_COMPLETED)
            if pump.done():
                pump.result()
            elif ending.done() and self._begun:
                await cancel_all(pump)
                await _sent(send, b"", more=False)
        except TimeoutError:
            raise BrokenOff(f"the client took nothing for {SEND_S:g} s") from None
        except ApiError as error:
            if not self._begun:
                raise
            raise BrokenOff(error.message) from None
        finally:
            await cancel_all(pump, gone, ending)

    async def _pump(self, parts: AsyncGenerator[bytes, None], send: Send) -> None:
        first = asyncio.create_task(_next(parts), name="logs/first")
        try:
            await asyncio.wait([first], timeout=QUIET_S)
            if first.done():
                first.result()
            await send({"type": "http.response.start", "status": 200, "headers": list(_HEADERS)})
            self._begun = True
            part = await first
        finally:
            await cancel_all(first)
        if part is not None:
            await _sent(send, part)
        clock = self._streams.clock
        checked_at = clock.monotonic()
        async for part in parts:
            if clock.monotonic() - checked_at >= CHECK_S:
                if not await self._allowed():
                    break
                checked_at = clock.monotonic()
            await _sent(send, part)
        await _sent(send, b"", more=False)


async def _next(parts: AsyncGenerator[bytes, None]) -> bytes | None:
    return await anext(parts, None)


async def _sent(send: Send, body: bytes, *, more: bool = True) -> None:
    async with asyncio.timeout(SEND_S):
        await send({"type": "http.response.body", "body": body, "more_body": more})


async def _until_gone(receive: Receive) -> None:
    while True:
        message: Mapping[str, Any] = await receive()
        if message["type"] == "http.disconnect":
            return
