"""An exchange over a byte channel instead of a socket: a runtime's connection into a pod, a port-forward's channel.

The connection class is the same; its transport only collects output, and the caller's task sends the bytes.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

from shoal.base.clock import Clock
from shoal.base.http1.connection import ClientConnection
from shoal.base.http1.limits import DEFAULT_LIMITS, AnswerLimits
from shoal.base.http1.messages import HttpReply


class ByteChannel(Protocol):
    """Bytes in both directions."""

    async def read(self) -> bytes:
        """The next bytes; empty at the end."""

    async def write(self, data: bytes) -> None: ...


class _Collecting(asyncio.Transport):
    """Keeps the connection's output until the caller sends it."""

    def __init__(self) -> None:
        super().__init__()
        self.pending: list[bytes] = []
        self._closing = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.pending.append(bytes(data))

    def is_closing(self) -> bool:
        return self._closing

    def close(self) -> None:
        self._closing = True

    abort = close

    def pause_reading(self) -> None:
        """Do nothing: data is read only when the caller asks."""

    resume_reading = pause_reading


async def fetch_over(
    channel: ByteChannel,
    data: bytes,
    *,
    peer: str,
    clock: Clock,
    limits: AnswerLimits = DEFAULT_LIMITS,
    enough_bytes: int | None = None,
) -> HttpReply:
    """The answer to one request. With ``enough_bytes`` reading ends when so much of the body is there, and the rest is
    left out. The caller opens and closes the channel, and sets the time limit."""
    connection, transport = ClientConnection(peer, clock=clock, limits=limits), _Collecting()
    connection.connection_made(transport)
    answer = connection.start(data)
    await channel.write(b"".join(transport.pending))
    while not answer.ended and (enough_bytes is None or answer.unread_bytes < enough_bytes):
        received = await channel.read()
        if received:
            connection.data_received(received)
        else:
            connection.connection_lost(None)
    if answer.error is not None:
        raise answer.error
    return HttpReply(answer.status, answer.headers, b"".join(answer.parts)[:enough_bytes])
