"""A few answers on a port: what is asked properly is answered, everything else ends the connection."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from shoal.app.ports import any_free
from shoal.base.asgi_common import Receive, Scope, Send, answer
from shoal.base.clock import RealClock
from shoal.base.http1.asgi import small_serving

HOST = "127.0.0.1"
ASK = b"GET /livez?x=1 HTTP/1.1\r\nhost: h\r\n\r\n"


async def app(scope: Scope, _receive: Receive, send: Send) -> None:
    await answer(send, 200 if scope["path"] == "/livez" else 404, f"{scope['method']} {scope['path']}".encode())


async def serve(talk: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[Any]]) -> Any:
    port = any_free(HOST)
    async with small_serving(app, host=HOST, port=port, clock=RealClock()), asyncio.timeout(10):
        reader, writer = await asyncio.open_connection(HOST, port)
        try:
            return await talk(reader, writer)
        finally:
            writer.close()


async def test_requests_on_one_connection_are_answered_in_turn() -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for _ in range(3):
            writer.write(ASK)
            head = await reader.readuntil(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 200 OK\r\n") and b"content-length: 10" in head
            assert await reader.readexactly(10) == b"GET /livez"

    await serve(talk)


async def test_an_unknown_path_says_so_and_close_is_heeded() -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
        writer.write(b"GET /x HTTP/1.1\r\nhost: h\r\nconnection: close\r\n\r\n")
        return await reader.read()

    assert (await serve(talk)).startswith(b"HTTP/1.1 404 Not Found\r\n")


async def test_invalid_or_too_large_requests_end_the_connection() -> None:
    async def garbage(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
        writer.write(b"\x16\x03\x01 hello\r\n\r\n")
        return await reader.read()

    async def large(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
        writer.write(b"GET / HTTP/1.1\r\n" + b"x: " + b"y" * 100_000)
        return await reader.read()

    assert (await serve(garbage)).startswith(b"HTTP/1.1 400")
    assert b"200" not in await serve(large)
