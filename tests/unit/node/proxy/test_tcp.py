"""TCP relays: bytes that arrive before the pod is connected, on asyncio and uvloop."""

from __future__ import annotations

import asyncio
import socket

import pytest

from shoal.app.ports import any_free
from shoal.node.proxy.model import ListenAddress, ProxyBackend, ProxyListener
from shoal.node.proxy.tcp import TcpRelay


async def asked_at_once(*, and_no_more: bool) -> bytes:
    """The pod's answer to a client that sends, and perhaps half-closes, before the relay accepts the connection."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"got " + (await reader.read() if and_no_more else await reader.readexactly(5)))
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = any_free("127.0.0.1")
    listener = ProxyListener(
        place=ListenAddress("TCP", "127.0.0.1", port),
        backends=(ProxyBackend("127.0.0.1", server.sockets[0].getsockname()[1]),),
    )
    relay = TcpRelay(listener)
    await relay.open(port)
    try:
        with socket.create_connection(("127.0.0.1", port)) as client:
            client.sendall(b"hello")
            if and_no_more:
                client.shutdown(socket.SHUT_WR)
            client.setblocking(False)
            answer = b""
            async with asyncio.timeout(5):
                while chunk := await asyncio.get_running_loop().sock_recv(client, 100):
                    answer += chunk
    finally:
        await relay.close()
        server.close()
    return answer


@pytest.mark.parametrize("and_no_more", [False, True], ids=["open", "half closed"])
@pytest.mark.parametrize("anyio_backend", ["asyncio", ("asyncio", {"use_uvloop": True})], ids=["asyncio", "uvloop"])
async def test_early_bytes_are_not_lost(and_no_more: bool) -> None:
    assert await asked_at_once(and_no_more=and_no_more) == b"got hello"
