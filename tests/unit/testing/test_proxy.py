"""A proxy's faults, seen by a client of a server that answers with what it gets."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from shoal.testing.proxy import TcpProxy

Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@asynccontextmanager
async def proxied() -> AsyncIterator[tuple[TcpProxy, list[bytes]]]:
    """A proxy before an echo server, and what reached the server."""
    heard: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(1000):
            heard.append(data)
            writer.write(data)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with TcpProxy(server.sockets[0].getsockname()[1]) as proxy:
        yield proxy, heard
    server.close()


async def connect(proxy: TcpProxy) -> Stream:
    reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
    assert await asked(reader, writer, b"first") == b"first"
    return reader, writer


async def ended(reader: asyncio.StreamReader) -> bool:
    try:
        return await reader.read(1000) == b""
    except ConnectionError:
        return True


async def asked(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, data: bytes) -> bytes:
    writer.write(data)
    async with asyncio.timeout(10):
        return await reader.read(1000)


async def test_half_open_the_client_is_not_told_and_new_connections_work() -> None:
    async with proxied() as (proxy, heard):
        reader, writer = await connect(proxy)
        proxy.half_open()
        writer.write(b"into nothing")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await reader.read(1000)
        assert heard == [b"first"]
        _, other = await connect(proxy)
        proxy.cut()
        async with asyncio.timeout(10):
            assert await ended(reader), "a cut tells the client"
        writer.transport.abort()
        other.transport.abort()


async def test_dropped_bytes_are_missing_and_later_ones_arrive() -> None:
    async with proxied() as (proxy, heard):
        reader, writer = await connect(proxy)
        proxy.drop()
        writer.write(b"lost")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await reader.read(1000)
        proxy.heal()
        assert await asked(reader, writer, b"later") == b"later"
        assert heard == [b"first", b"later"]
        writer.transport.abort()


async def test_duplicated_bytes_arrive_twice_once() -> None:
    async with proxied() as (proxy, heard):
        reader, writer = await connect(proxy)
        proxy.duplicate()
        writer.write(b"twice")
        async with asyncio.timeout(10):
            assert await reader.readexactly(20) == b"twice" * 4  # on its way there, and on its way back
        assert b"".join(heard[1:]) == b"twicetwice"
        assert await asked(reader, writer, b"once") == b"once"
        writer.transport.abort()
