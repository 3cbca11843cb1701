"""Connections that stop being HTTP, and bodies that are handed on while they come in."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from shoal.apiserver.http import Answer, HttpLimits, HttpServer, Request, Response
from shoal.apiserver.messages import Relay, Sink, Upgrade, Wire, frame
from shoal.base.clock import Clock, FakeClock, RealClock
from shoal.testing.waiting import eventually

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
_ASK = b"GET /up HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n"


class Echo(Upgrade):
    def __init__(self) -> None:
        super().__init__(((b"Upgrade", b"echo"), (b"Connection", b"Upgrade")))
        self.wire: Wire | None = None
        self.got = b""
        self.closed = asyncio.Event()

    def attach(self, wire: Wire) -> None:
        self.wire = wire

    def on_data(self, data: bytes) -> None:
        assert self.wire is not None
        self.got += data
        self.wire.write(data.upper())

    def on_writable(self) -> None:
        """Nothing waits."""

    def on_closed(self) -> None:
        self.closed.set()
        self.ended()


class Piecewise(Relay):
    def attach(self, sink: Sink) -> None:
        for data in (b"abc", b"de"):
            sink.write(frame(data))
        sink.end()

    def on_writable(self) -> None:
        """Nothing waits."""

    def on_closed(self) -> None:
        self.ended()


class Place:
    """A server whose handler the test decides about."""

    def __init__(self) -> None:
        self.echo = Echo()
        self.received: list[bytes] = []
        self.ended = asyncio.Event()
        self.request: Request | None = None
        self.wait: asyncio.Future[None] | None = None

    async def handle(self, request: Request) -> Answer:
        self.request = request
        if request.path == "/up":
            if self.wait is not None:
                await self.wait
            return self.echo
        if request.path == "/relay":
            return Piecewise(200, headers=((b"X-Own", b"1"),), length=5, own_headers=True)
        if request.path.startswith("/proxy") and request.incoming is not None:
            if request.path == "/proxy/no":
                return Response(403, b"no")
            request.incoming.attach(self.received.append, self.ended.set)
            await self.ended.wait()
            return Response(200, b"%d" % len(b"".join(self.received)))
        return Response(200, b"plain")


@asynccontextmanager
async def serving(
    limits: HttpLimits | None = None, clock: Clock | None = None
) -> AsyncIterator[tuple[Place, HttpServer, Streams]]:
    loop = asyncio.get_running_loop()
    place = Place()
    server = HttpServer(
        place.handle, lambda request, error: Response(500, str(error).encode()), loop=loop, clock=clock or RealClock(), limits=limits,
        common_headers=((b"X-Common", b"1"),), hands_on=lambda target: target.startswith(b"/proxy"),
    )  # fmt: skip
    listener = await loop.create_server(server, "127.0.0.1", 0)
    reader, writer = await asyncio.open_connection(*listener.sockets[0].getsockname())
    try:
        async with asyncio.timeout(10):
            yield place, server, (reader, writer)
    finally:
        writer.close()
        listener.close()
        await server.stop(0.1)


async def _answer(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    head = await reader.readuntil(b"\r\n\r\n")
    size = next((int(line[15:]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")), 0)
    return head, await reader.readexactly(size)


async def test_after_an_upgrade_every_byte_goes_to_the_new_owner() -> None:
    async with serving() as (place, _, (reader, writer)):
        writer.write(_ASK + b"early ")  # before it was told that it may
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: echo")
        writer.write(b"GET / HTTP/1.1\r\n\r\n")  # no longer HTTP
        assert await reader.readexactly(24) == b"EARLY GET / HTTP/1.1\r\n\r\n"
        writer.close()
        await place.echo.closed.wait()


async def test_what_comes_before_the_answer_waits_for_it_in_order() -> None:
    async with serving() as (place, _, (reader, writer)):
        place.wait = asyncio.get_running_loop().create_future()
        writer.write(_ASK)
        await eventually(lambda: place.request)
        sent = bytes(range(256)) * 1000
        writer.write(sent)
        await FakeClock().settle()  # the server reads some of it
        place.wait.set_result(None)
        await reader.readuntil(b"\r\n\r\n")
        assert await reader.readexactly(len(sent)) == sent.upper()
        assert place.echo.got == sent


async def test_a_client_that_goes_away_before_the_answer_leaves_nothing_behind() -> None:
    async with serving() as (place, server, (_, writer)):
        place.wait = asyncio.get_running_loop().create_future()
        writer.write(_ASK)
        await eventually(lambda: place.request)
        writer.transport.abort()
        await server.drained.wait()
        assert place.echo.wire is None


async def test_an_upgrade_that_is_refused_ends_the_connection() -> None:
    async with serving() as (_, _, (reader, writer)):
        writer.write(_ASK.replace(b"/up", b"/other"))
        head, body = await _answer(reader)
        assert b"Connection: close" in head and body == b"plain"
        assert await reader.read() == b""


async def test_a_stopping_server_ends_sessions() -> None:
    async with serving() as (place, server, (reader, writer)):
        writer.write(_ASK)
        await reader.readuntil(b"\r\n\r\n")
        await server.stop(1)
        assert await reader.read() == b"" and place.echo.closed.is_set()


async def test_a_relayed_answer_has_its_own_headers_and_length() -> None:
    async with serving() as (_, _, (reader, writer)):
        writer.write(
            b"GET /relay HTTP/1.1\r\nHost: h\r\n\r\nHEAD /relay HTTP/1.1\r\nHost: h\r\n\r\nGET / HTTP/1.1\r\n\r\n"
        )
        head, body = await _answer(reader)
        assert b"X-Common" not in head and b"chunked" not in head and b"X-Own: 1" in head
        assert body == b"abcde"
        head = await reader.readuntil(b"\r\n\r\n")
        assert b"Content-Length: 5" in head
        assert (await _answer(reader))[1] == b"plain"


async def test_a_body_is_handed_on_in_pieces_past_the_limit_for_bodies() -> None:
    async with serving(HttpLimits(body_bytes=1000)) as (place, _, (reader, writer)):
        writer.write(b"POST /proxy/x HTTP/1.1\r\nHost: h\r\nContent-Length: 300000\r\n\r\n")
        for _ in range(30):
            writer.write(b"x" * 10_000)
            await writer.drain()
        head, body = await _answer(reader)
        assert body == b"300000" and b"Connection: close" not in head
        assert len(place.received) > 1
        writer.write(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
        assert (await _answer(reader))[1] == b"plain"
        writer.write(b"POST /other HTTP/1.1\r\nHost: h\r\nContent-Length: 3000\r\n\r\n" + b"x" * 3000)
        assert (await _answer(reader))[0].startswith(b"HTTP/1.1 413 ")


async def test_a_body_that_the_handler_does_not_read_ends_the_connection() -> None:
    async with serving() as (_, _, (reader, writer)):
        writer.write(b"POST /proxy/no HTTP/1.1\r\nHost: h\r\nContent-Length: 300000\r\n\r\npart")
        head, _ = await _answer(reader)
        assert head.startswith(b"HTTP/1.1 403 ") and b"Connection: close" in head
        assert await reader.read() == b""


async def test_a_session_on_which_nothing_moves_ends_and_one_that_is_used_does_not(clock: FakeClock) -> None:
    async with serving(HttpLimits(session_idle_s=3600), clock) as (place, _, (reader, writer)):
        writer.write(_ASK)
        await reader.readuntil(b"\r\n\r\n")
        for _ in range(3):
            await clock.advance(3000)
            writer.write(b"still here")
            assert await reader.readexactly(10) == b"STILL HERE"
        assert not place.echo.closed.is_set()
        await clock.advance(3700)
        await place.echo.closed.wait()


async def test_a_session_whose_client_does_not_read_ends(clock: FakeClock) -> None:
    async with serving(HttpLimits(session_idle_s=3600), clock) as (place, _, (reader, writer)):
        writer.write(_ASK)
        await reader.readuntil(b"\r\n\r\n")
        assert place.echo.wire is not None
        writer.transport.pause_reading()  # type: ignore[attr-defined]  # the client
        while place.echo.wire.writable:
            place.echo.wire.write(b"x" * 100_000)
            await asyncio.sleep(0)
        await clock.advance(3700)
        await place.echo.closed.wait()
