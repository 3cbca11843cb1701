"""Requests that never leave the process: the client's transport seam, served by a ``Handler`` directly.

The same handler, the same bytes, no sockets and no TLS: for tests and components in the server's own process.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass

from shoal.apiserver.handler import Handler
from shoal.apiserver.messages import (
    Answer,
    LongResponse,
    Relay,
    Request,
    Response,
    ResponseStream,
    Upgrade,
    header_lines,
    unframed,
)
from shoal.apiserver.user import User
from shoal.base.http1.errors import Disconnected

_REQUESTS = 64
_PENDING_BYTES = 1024 * 1024  # as much as a connection would buffer before the server holds back


@dataclass(frozen=True, slots=True)
class InProcessReply:
    status: int
    headers: Mapping[str, str]
    body: bytes


class InProcessStream:
    """Both ends of a stream: the ``Sink`` the server writes to and the reply the client reads from."""

    def __init__(self, stream: ResponseStream) -> None:
        self.status = stream.status
        self.headers = _headers(stream)
        self._stream = stream
        self._pending: deque[bytes] = deque()
        self._size = 0
        self._ended = False
        self.broken = False
        self._wake = asyncio.Event()

    @property
    def writable(self) -> bool:
        return self._size < _PENDING_BYTES

    def write(self, data: bytes) -> None:
        payload = unframed(data)  # the server frames chunks for HTTP/1.1
        self._pending.append(payload)
        self._size += len(payload)
        self._wake.set()

    def end(self) -> None:
        self._ended = True
        self._wake.set()

    def abort(self) -> None:
        self.broken = True
        self.end()

    async def chunks(self) -> AsyncIterator[bytes]:
        while True:
            while self._pending:
                data = self._pending.popleft()
                was_full = not self.writable
                self._size -= len(data)
                yield data
                if was_full and self.writable and not self._ended:
                    self._stream.on_writable()
            if self._ended:
                return
            self._wake.clear()
            await self._wake.wait()

    async def close(self) -> None:
        if not self._ended:
            self._ended = True
            self._wake.set()
            self._stream.on_closed()


class _Error:
    """A stream that failed to open: its body is the Status."""

    def __init__(self, answer: Response) -> None:
        self.status = answer.status
        self.headers = _headers(answer)
        self._body = _body(answer)

    async def chunks(self) -> AsyncIterator[bytes]:
        yield self._body

    async def close(self) -> None:
        """Nothing is open."""


class InProcessTransport:
    """Calls a handler as the holder of a token, or as a user: components in the server's process need no secret. As
    over a network, at most ``requests`` run at a time and others wait here: a burst would otherwise fill the server's
    queues and be rejected."""

    def __init__(
        self, handler: Handler, who: str | User, *, user_agent: str = "shoal", requests: int = _REQUESTS
    ) -> None:
        self._handler = handler
        self._headers = {b"user-agent": user_agent.encode()}
        self._user = who if isinstance(who, User) else None
        self._places = asyncio.Semaphore(requests)
        if isinstance(who, str):
            self._headers[b"authorization"] = f"Bearer {who}".encode()

    async def request(
        self, method: str, target: str, *, headers: Mapping[str, str] | None = None, body: bytes = b""
    ) -> InProcessReply:
        async with self._places:
            answer = await self._answer(method, target, headers, body)
            if isinstance(answer, Relay):  # of an aggregated server
                return await _collected(answer)
        if not isinstance(answer, Response):
            answer.on_closed()
            raise TypeError("the response is a stream: use stream()")
        return InProcessReply(answer.status, _headers(answer), _body(answer))

    async def stream(
        self, method: str, target: str, *, headers: Mapping[str, str] | None = None, body: bytes = b""
    ) -> InProcessStream | _Error:
        answer = await self._answer(method, target, headers, body)
        if isinstance(answer, Response):
            return _Error(answer)
        if isinstance(answer, Upgrade):
            answer.on_closed()
            raise TypeError("connection upgrades are not supported in process")
        reply = InProcessStream(answer)
        answer.attach(reply)
        return reply

    async def close(self) -> None:
        """Nothing is held open."""

    async def _answer(self, method: str, target: str, headers: Mapping[str, str] | None, body: bytes) -> Answer:
        sent = dict(self._headers)
        for name, value in (headers or {}).items():
            sent[name.lower().encode()] = value.encode()
        request = Request(method, target.encode(), sent, body)
        request.user = self._user
        try:
            answer = await self._handler.handle(request)
        except Exception as error:
            return self._handler.on_error(request, error)
        if isinstance(answer, LongResponse):
            answer.on_sent()
        return answer


async def _collected(answer: Relay) -> InProcessReply:
    stream = InProcessStream(answer)
    answer.attach(stream)
    try:
        body = b"".join([chunk async for chunk in stream.chunks()])
    finally:
        await stream.close()
    if stream.broken:
        raise Disconnected("the aggregated API server closed the connection before its answer was complete")
    return InProcessReply(stream.status, stream.headers, body)


def _headers(answer: Answer) -> dict[str, str]:
    found = {"content-type": answer.content_type.decode("latin-1")}
    lines = header_lines(answer.head) if isinstance(answer, Response) else ()
    for name, value in (*answer.headers, *lines):
        key, text = name.decode("latin-1").lower(), value.decode("latin-1")
        found[key] = f"{found[key]}, {text}" if key in found else text
    return found


def _body(answer: Response) -> bytes:
    return answer.body if isinstance(answer.body, bytes) else b"".join(answer.body)
