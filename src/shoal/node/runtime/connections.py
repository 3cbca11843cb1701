"""Connections to pods: over a socket, and TLS over another connection."""

from __future__ import annotations

import asyncio
import ssl
from contextlib import suppress

from shoal.node.runtime.model import PodConnection


class SocketConnection:
    """A connection over asyncio's streams."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def read(self, limit: int = 65536) -> bytes:
        return await self._reader.read(limit)

    async def write(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    async def write_eof(self) -> None:
        if self._writer.can_write_eof():
            self._writer.write_eof()

    async def close(self) -> None:
        self._writer.close()
        with suppress(OSError, ssl.SSLError):
            await self._writer.wait_closed()


class TlsConnection:
    """TLS inside another connection."""

    def __init__(
        self, inner: PodConnection, tls: ssl.SSLObject, incoming: ssl.MemoryBIO, outgoing: ssl.MemoryBIO
    ) -> None:
        self._inner = inner
        self._tls = tls
        self._incoming = incoming
        self._outgoing = outgoing

    async def handshake(self) -> None:
        while True:
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                await self._flush()
                await self._fill()
            else:
                await self._flush()
                return

    async def read(self, limit: int = 65536) -> bytes:
        while True:
            try:
                return self._tls.read(limit)
            except ssl.SSLWantReadError:
                await self._flush()
                await self._fill()
            except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
                return b""

    async def write(self, data: bytes) -> None:
        self._tls.write(data)
        await self._flush()

    async def write_eof(self) -> None:
        await self._inner.write_eof()

    async def close(self) -> None:
        await self._inner.close()

    async def _fill(self) -> None:
        data = await self._inner.read()
        if data:
            self._incoming.write(data)
        else:
            self._incoming.write_eof()

    async def _flush(self) -> None:
        if self._outgoing.pending:
            await self._inner.write(self._outgoing.read())


async def over_tls(inner: PodConnection, host: str) -> PodConnection:
    """Start TLS on a connection. The certificate is not checked, because this is for probes."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = context.wrap_bio(incoming, outgoing, server_hostname=host)
    connection = TlsConnection(inner, tls, incoming, outgoing)
    await connection.handshake()
    return connection
