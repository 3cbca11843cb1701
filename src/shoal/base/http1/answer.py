"""One answer as it arrives: waited for as a whole, read in pieces, or handed to callbacks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING

from shoal.base.http1.errors import TransportError
from shoal.base.http1.messages import HttpReply

if TYPE_CHECKING:
    from shoal.base.http1.connection import ClientConnection

OnData = Callable[[bytes], object]
OnEnd = Callable[[TransportError | None], object]
Headers = list[tuple[bytes, bytes]]


class HttpAnswer:
    """An answer on a connection. ``whole``: it is returned only when complete.

    Otherwise the answer is there with its status and headers, and the body is read with ``read`` or ``chunks``, or
    given to callbacks with ``attach``. After an upgrade the body is whatever the peer sends.
    """

    __slots__ = (
        "connection", "ended", "error", "has_body", "header_list", "headers", "on_data", "on_end", "parts", "ready",
        "received_bytes", "status", "taken_bytes", "trailers", "upgrade", "waiter", "whole",
    )  # fmt: skip

    def __init__(
        self, connection: ClientConnection, ready: asyncio.Future[None], *, whole: bool, upgrade: bool, has_body: bool
    ) -> None:
        self.connection = connection
        self.ready = ready  # done when the answer can be handed over, or has failed
        self.whole = whole
        self.upgrade = upgrade  # the request asked for another protocol
        self.has_body = has_body  # False: it answers HEAD
        self.status = 0
        self.headers: dict[str, str] = {}  # names in lower case, values of repeated ones joined by ", "
        self.header_list: Headers = []  # as they came
        self.trailers: Headers = []
        self.parts: list[bytes] = []  # arrived and not read
        self.received_bytes = 0  # of the body
        self.taken_bytes = 0
        self.ended = False  # complete, failed or given up
        self.error: TransportError | None = None
        self.on_data: OnData | None = None
        self.on_end: OnEnd | None = None
        self.waiter: asyncio.Future[None] | None = None  # of ``read``

    # the connection calls these

    def wake(self) -> None:
        waiter = self.waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    def finish(self, error: TransportError | None) -> None:
        self.ended, self.error = True, error
        ready = self.ready
        if not ready.done():
            if error is None:
                ready.set_result(None)
            else:
                ready.set_exception(error)
                ready.exception()  # the request may have been cancelled: mark the error as retrieved
        if self.waiter is not None:
            self.wake()
        if self.on_end is not None:
            self.on_end(error)

    # users call these

    @property
    def unread_bytes(self) -> int:
        """How much of the body has arrived and was not read."""
        return self.received_bytes - self.taken_bytes

    def reply(self) -> HttpReply:
        """The whole answer; to be called once it has ended."""
        return HttpReply(self.status, self.headers, b"".join(self.parts))

    async def read(self) -> bytes:
        """The next bytes of the body, as many as have arrived; empty at its end."""
        while not self.parts:
            if self.ended:
                if self.error is not None:
                    raise self.error
                return b""
            await self._arrival()
        return self._take()

    async def chunks(self) -> AsyncIterator[bytes]:
        """The body as it arrives."""
        while True:
            while self.parts:
                yield self._take()  # no variable: an idle stream would keep the last chunk in memory
            if self.ended:
                if self.error is not None:
                    raise self.error
                return
            await self._arrival()

    async def body(self) -> bytes:
        """The rest of the body."""
        pieces = []
        while piece := await self.read():
            pieces.append(piece)
        return b"".join(pieces)

    def unread(self, data: bytes) -> None:
        """Put bytes back to be read again."""
        if data:
            self.parts.insert(0, data)

    def attach(self, on_data: OnData, on_end: OnEnd) -> None:
        """Give the body to callbacks, first the part that has already arrived. ``pause`` and ``resume`` of the
        connection say how fast."""
        self.on_data = on_data
        while self.parts:
            on_data(self._take())
        if self.ended:
            on_end(self.error)
        else:
            self.on_end = on_end

    async def close(self) -> None:
        """Close the answer and its connection; safe to call more than once and while it is being read."""
        if not self.ended:
            self.finish(None)
        await self.connection.close()

    async def _arrival(self) -> None:
        if self.waiter is not None:
            raise RuntimeError("the answer is being read already")
        self.waiter = asyncio.get_running_loop().create_future()
        try:
            await self.waiter
        finally:
            self.waiter = None

    def _take(self) -> bytes:
        parts = self.parts
        data = b"".join(parts) if len(parts) > 1 else parts[0]
        parts.clear()
        self.taken_bytes = self.received_bytes
        self.connection.take_more()
        return data
