"""What a stream sends: messages that are ready together leave together, as one piece of the body.

Each piece costs a record of TLS and a call of the system, which is most of what a small message costs. The handler
says when more follows at once; the messages are the same, only their packing differs.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import Any

_MOST = 8 << 10  # held back: a connection keeps buffers of this size for ever

_current: ContextVar[Outgoing | None] = ContextVar("shoal_control_outgoing", default=None)


class Outgoing:
    """Stands between a call and its connection."""

    __slots__ = ("_held", "_send", "_size", "more")

    def __init__(self, send: Callable[[Any], Awaitable[None]]) -> None:
        self._send = send
        self._held: list[bytes] = []
        self._size = 0
        self.more = False  # another message follows before anything is waited for
        _current.set(self)

    async def send(self, message: Any) -> None:
        if message["type"] == "http.response.body" and message.get("more_body"):
            if self.more and self._size < _MOST:
                self._held.append(message["body"])
                self._size += len(message["body"])
                return
            if self._held:
                message = {**message, "body": b"".join((*self._take(), message["body"]))}
        elif self._held:
            await self._send({"type": "http.response.body", "body": b"".join(self._take()), "more_body": True})
        await self._send(message)

    def _take(self) -> list[bytes]:
        held, self._held, self._size = self._held, [], 0
        return held


def outgoing() -> Outgoing:
    """Of the call under way; one that leads nowhere if it came without a connection."""
    return _current.get() or Outgoing(_nowhere)


async def _nowhere(_message: Any) -> None:
    return
