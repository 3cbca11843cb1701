"""An application is reachable once ``serving`` has been entered, and not after it."""

from __future__ import annotations

import asyncio

import pytest

from shoal.app.ports import any_free
from shoal.base.asgi import Receive, Scope, Send, answer, serving
from shoal.base.clock import RealClock


async def hello(scope: Scope, receive: Receive, send: Send) -> None:
    await answer(send, 200, b'{"hello": "world"}')


async def get(port: int) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
    body = await reader.read()
    writer.close()
    return body


async def test_it_answers_while_inside_and_refuses_afterwards() -> None:
    port = any_free("127.0.0.1")
    async with serving(hello, host="127.0.0.1", port=port, clock=RealClock()):
        body = await get(port)
        assert body.startswith(b"HTTP/1.1 200")
        assert body.endswith(b'{"hello": "world"}')
    with pytest.raises(OSError):
        await get(port)
