"""Output of a stream: messages that are ready at the same time are sent as one part of the body.

Each part costs a TLS record and a system call, which is most of the cost of a small message. The handler says when
another message follows at once.

An encoded message can also be pushed directly to the connection, without the library and without waking the stream's
task.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from contextvars import ContextVar
from struct import Struct
from typing import Any

from shoal.control.service.stream.compression import gzipped

_MOST = 8 << 10  # held back: a connection keeps buffers of this size for ever
_ENVELOPE = Struct(">BI")  # flags and length, the same in Connect and gRPC
_ENCODINGS = {b"identity": 0, b"gzip": 1}

_current: ContextVar[Outgoing | None] = ContextVar("shoal_control_outgoing", default=None)


class Outgoing:
    """Stands between a call and its connection."""

    __slots__ = ("_flags", "_held", "_rest", "_send", "_size", "more")

    def __init__(self, send: Callable[[Any], Awaitable[None]]) -> None:
        self._send = send
        self._held: list[bytes] = []
        self._size = 0
        self._flags: int | None = None  # of a message, once it is known that they are binary
        self._rest: _Rest | None = None
        self.more = False  # another message follows before anything is waited for
        _current.set(self)

    async def send(self, message: Any) -> None:
        kind = message["type"]
        if kind == "http.response.body" and message.get("more_body"):
            if self.more and self._size < _MOST:
                self._held.append(message["body"])
                self._size += len(message["body"])
                return
            if self._held:
                message = {**message, "body": b"".join((*self._take(), message["body"]))}
        elif self._held:
            await self._send({"type": "http.response.body", "body": b"".join(self._take()), "more_body": True})
        await self._send(message)
        if kind == "http.response.start":
            self._flags = _flags(dict(message.get("headers", ())))

    @property
    def direct(self) -> bool:
        """Whether messages can be pushed: the stream has begun, in binary, and nothing is under way."""
        return self._flags is not None and self._rest is None and not self._held

    def push(self, messages: list[bytes]) -> bool:
        """Send encoded messages in one piece, without waiting. False: the reader is slow, ``finish`` must be awaited
        before anything else is sent."""
        flags = self._flags
        assert flags is not None
        parts: list[bytes] = []
        for data in messages:
            body = gzipped(data) if flags else data
            parts += (_ENVELOPE.pack(flags, len(body)), body)
        sending = self._send({"type": "http.response.body", "body": b"".join(parts), "more_body": True}).__await__()
        try:
            waits_for = next(sending)
        except StopIteration:
            return True
        self._rest = _Rest(sending, waits_for)
        return False

    async def finish(self) -> None:
        """Wait until what was pushed is on its way."""
        if self._rest is not None:
            try:
                await self._rest
            finally:
                self._rest = None

    def close(self) -> None:
        """Nothing is pushed any more."""
        self._flags = None
        if self._rest is not None:
            self._rest.close()
            self._rest = None

    def _take(self) -> list[bytes]:
        held, self._held, self._size = self._held, [], 0
        return held


class _Rest:
    """A call that was begun outside of a task and has to wait: the task that awaits this takes it over."""

    __slots__ = ("_sending", "_waits_for")

    def __init__(self, sending: Generator[Any, Any, None], waits_for: Any) -> None:
        self._sending = sending
        self._waits_for = waits_for

    def __await__(self) -> Generator[Any, Any, None]:
        yield self._waits_for
        yield from self._sending

    def close(self) -> None:
        self._sending.close()


def _flags(headers: dict[bytes, bytes]) -> int | None:
    """Of the messages of a stream; None for those that only the library can write."""
    kind = headers.get(b"content-type", b"")
    if kind not in (b"application/connect+proto", b"application/grpc+proto", b"application/grpc"):
        return None
    encoding = headers.get(b"connect-content-encoding") or headers.get(b"grpc-encoding") or b"identity"
    return _ENCODINGS.get(encoding)


def outgoing() -> Outgoing:
    """Of the call under way; one that leads nowhere if it came without a connection."""
    return _current.get() or Outgoing(_nowhere)


async def _nowhere(_message: Any) -> None:
    return
