"""The small server against clients over real sockets: proper, slow, greedy and wrong ones."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from shoal.base.clock import Clock, FakeClock, RealClock
from shoal.base.http1.server import ClientIdentity, Http1Server, ServerLimits, ServerRequest
from shoal.errors import NotFound
from shoal.testing.waiting import eventually

HOST = "127.0.0.1"
ASK = b"GET /a%20b/c?x=1&x=2&y= HTTP/1.1\r\nhost: h\r\n\r\n"


async def handle(request: ServerRequest) -> None:
    match request.path:
        case ("missing",):
            raise NotFound("not here")
        case ("broken",):
            raise RuntimeError("a mistake in the handler")
        case ("stream",):
            await request.stream(_pieces())
        case ("echo",):
            await request.switch({"upgrade": "echo"})
            request.writer.write(request.rest)
            await request.writer.drain()
        case _:
            await request.answer(200, f"{request.method} {request.path} {dict(request.query)}".encode())


async def _pieces() -> AsyncIterator[bytes]:
    for piece in (b"one", b"", b"two"):
        yield piece


@asynccontextmanager
async def serving(
    *, clock: Clock | None = None, limits: ServerLimits | None = None, allowed: ClientIdentity | None = None
) -> AsyncIterator[int]:
    server = Http1Server(handle, clock=clock or RealClock(), allowed=allowed, limits=limits or ServerLimits())
    port = await server.listen(HOST, 0)
    try:
        async with asyncio.timeout(20):
            yield port
    finally:
        await server.close()


async def ask(port: int, data: bytes) -> bytes:
    """Everything that a server says to these bytes until it closes the connection."""
    reader, writer = await asyncio.open_connection(HOST, port)
    try:
        writer.write(data)
        return await reader.read()
    finally:
        writer.close()
        await writer.wait_closed()


def closing(path: str, method: str = "GET") -> bytes:
    return f"{method} {path} HTTP/1.1\r\nhost: h\r\nconnection: close\r\n\r\n".encode()


async def test_requests_on_one_connection_are_answered_in_turn() -> None:
    async with serving() as port:
        reader, writer = await asyncio.open_connection(HOST, port)
        for _ in range(3):
            writer.write(ASK)
            head = await reader.readuntil(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 200 OK\r\n")
            body = b"GET ('a b', 'c') {'x': ['1', '2'], 'y': ['']}"
            assert await reader.readexactly(len(body)) == body
        writer.close()


async def test_streams_are_sent_in_chunks() -> None:
    async with serving() as port:
        assert (await ask(port, closing("/stream"))).endswith(b"\r\n\r\n3\r\none\r\n3\r\ntwo\r\n0\r\n\r\n")


async def test_errors_of_the_handler_become_answers() -> None:
    async with serving() as port:
        assert (await ask(port, closing("/missing"))).startswith(b"HTTP/1.1 404 Not Found\r\n")
        assert (await ask(port, closing("/broken"))).startswith(b"HTTP/1.1 500 Internal Server Error\r\n")


async def test_an_answer_to_head_has_no_body() -> None:
    async with serving() as port:
        said = await ask(port, closing("/x", "HEAD"))
        assert b"content-length: 14\r\n" in said and said.endswith(b"\r\n\r\n")


async def test_an_upgrade_hands_the_connection_over_with_what_came_early() -> None:
    async with serving() as port:
        said = await ask(port, b"GET /echo HTTP/1.1\r\nhost: h\r\nconnection: Upgrade\r\nupgrade: echo\r\n\r\nearly")
        head, _, rest = said.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 101 Switching Protocols\r\n") and rest == b"early"


REFUSED = {
    "no HTTP": b"\x16\x03\x01 hello\r\n\r\n",
    "a length and chunks": b"POST /x HTTP/1.1\r\nhost: h\r\ncontent-length: 5\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
    "two lengths": b"POST /x HTTP/1.1\r\nhost: h\r\ncontent-length: 2\r\ncontent-length: 3\r\n\r\nok",
    "a bare LF": b"GET /x HTTP/1.1\nhost: h\r\n\r\n",
    "a folded header": b"GET /x HTTP/1.1\r\nhost: h\r\nx: a\r\n b\r\n\r\n",
    "a space before the colon": b"GET /x HTTP/1.1\r\nhost : h\r\n\r\n",
    "a negative length": b"POST /x HTTP/1.1\r\nhost: h\r\ncontent-length: -1\r\n\r\n",
    "a coding that is not chunked": b"POST /x HTTP/1.1\r\nhost: h\r\ntransfer-encoding: xchunked\r\n\r\n",
    "NUL": b"GET /x HTTP/1.1\r\nhost: h\r\nx: a\0b\r\n\r\n",
}  # fmt: skip


@pytest.mark.parametrize("data", REFUSED.values(), ids=REFUSED.keys())
async def test_an_ambiguous_request_is_refused_and_ends_the_connection(data: bytes) -> None:
    async with serving() as port:
        assert (await ask(port, data)).startswith(b"HTTP/1.1 400 Bad Request\r\n")


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\nx: " + b"y" * 5000,
        b"POST / HTTP/1.1\r\nhost: h\r\ncontent-length: 5000\r\n\r\n" + b"y" * 5000,
    ],
    ids=["head", "body"],
)
async def test_a_request_that_is_too_large_is_refused(data: bytes) -> None:
    async with serving(limits=ServerLimits(request_bytes=1000)) as port:
        assert (await ask(port, data)).startswith(b"HTTP/1.1 413 ")


async def test_a_request_that_came_with_another_is_not_answered_and_changes_nothing() -> None:
    async with serving() as port:
        said = await ask(port, ASK + b"GET /smuggled HTTP/1.1\r\nhost: other\r\n\r\n")
        assert said.count(b"HTTP/1.1 ") == 1 and b"smuggled" not in said and b"connection: close" in said


async def test_a_client_that_sends_nothing_is_disconnected(clock: FakeClock) -> None:
    async with serving(clock=clock, limits=ServerLimits(request_s=30)) as port:
        asking = asyncio.create_task(ask(port, b"GET / HT"), name="asking")
        await eventually(lambda: clock.pending)
        await clock.advance(30)
        assert await asking == b""


async def test_more_connections_than_allowed_are_refused() -> None:
    async with serving(limits=ServerLimits(connections=1)) as port:
        reader, writer = await asyncio.open_connection(HOST, port)
        writer.write(ASK)
        await reader.readuntil(b"\r\n\r\n")
        with pytest.raises(ConnectionError):
            assert await ask(port, closing("/x")) == b""
            raise ConnectionResetError
        writer.close()


async def test_only_a_client_with_the_allowed_names_gets_further() -> None:
    async with serving(allowed=ClientIdentity("kube-apiserver", "masters")) as port:
        assert (await ask(port, closing("/x"))).startswith(b"HTTP/1.1 403 Forbidden\r\n")
