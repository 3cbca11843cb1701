"""A TCP server that sends exactly the bytes that a test gives it, for tests of HTTP clients.

async with connected(saying(b"HTTP/1.1 200 OK\\r\\nContent-Length: 2\\r\\n\\r\\nok")) as connection:
    ...
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from shoal.base.clock import Clock, RealClock
from shoal.base.http1.connection import ClientConnection
from shoal.base.http1.dial import HttpAddress, dial
from shoal.base.http1.limits import DEFAULT_LIMITS, AnswerLimits
from shoal.base.tasks import cancel_all

GET = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"
HEAD = b"HEAD / HTTP/1.1\r\nhost: x\r\n\r\n"
OK = b"HTTP/1.1 200 OK\r\n"

Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class HttpPeer:
    """The server's side: calls ``talk`` for each connection, and closes it when ``talk`` returns."""

    def __init__(self, talk: Talk) -> None:
        self._talk = talk
        self.tasks: list[asyncio.Task[None]] = []

    def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.tasks.append(asyncio.create_task(self._serve(reader, writer), name="peer"))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await self._talk(reader, writer)
            await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


def saying(*answers: bytes, stay: bool = True, heard: list[bytes] | None = None) -> Talk:
    """Answer each request of a connection with the next of ``answers``, then keep it open, or close it if not ``stay``.
    The heads of the requests are appended to ``heard``."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for answer in answers:
            head = await reader.readuntil(b"\r\n\r\n")
            if heard is not None:
                heard.append(head)
            writer.write(answer)
            await writer.drain()
        if stay:
            await reader.read()

    return talk


@asynccontextmanager
async def listening(
    talk: Talk, *, path: Path | None = None, tls: ssl.SSLContext | None = None
) -> AsyncIterator[HttpAddress]:
    peer = HttpPeer(talk)
    if path is not None:
        server = await asyncio.start_unix_server(peer.accept, path)
        address = HttpAddress(socket_path=str(path))
    else:
        server = await asyncio.start_server(peer.accept, "127.0.0.1", 0, ssl=tls)
        address = HttpAddress("127.0.0.1", server.sockets[0].getsockname()[1])
    try:
        async with asyncio.timeout(20):
            yield address
    finally:
        server.close()
        await cancel_all(*peer.tasks)


@asynccontextmanager
async def connected(
    talk: Talk, *, clock: Clock | None = None, limits: AnswerLimits = DEFAULT_LIMITS
) -> AsyncIterator[ClientConnection]:
    """A client's connection to a server that runs ``talk``."""
    async with listening(talk) as address:
        connection = await dial(address, clock=clock or RealClock(), limits=limits)
        try:
            yield connection
        finally:
            await connection.close()
