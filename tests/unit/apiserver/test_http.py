"""The HTTP layer over real sockets: framing, order, limits, slow and rude clients."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from shoal.apiserver.http import Answer, HttpLimits, HttpServer, Request, Response, Sink, frame


class Ticks:
    """A stream that the test writes to."""

    status = 200
    content_type = b"application/json"
    headers: Sequence[tuple[bytes, bytes]] = ()

    def __init__(self) -> None:
        self.sink: Sink | None = None
        self.closed = asyncio.Event()
        self.attached = asyncio.Event()

    def attach(self, sink: Sink) -> None:
        self.sink = sink
        self.attached.set()

    def on_writable(self) -> None:
        """The test looks at ``sink.writable`` itself."""

    def on_closed(self) -> None:
        self.closed.set()


Connect = Callable[[], Awaitable[tuple[asyncio.StreamReader, asyncio.StreamWriter]]]


def run(handler: Callable[[Request], Awaitable[Answer]], test: Callable[[Connect, HttpServer], Awaitable[None]],
        limits: HttpLimits | None = None) -> None:  # fmt: skip
    async def main() -> None:
        loop = asyncio.get_running_loop()
        server = HttpServer(
            handler, lambda request, error: Response(500, repr(error).encode()), loop=loop, limits=limits
        )  # type: ignore[arg-type]
        listener = await loop.create_server(server, "127.0.0.1", 0)
        port = listener.sockets[0].getsockname()[1]
        async with asyncio.timeout(10):
            await test(lambda: asyncio.open_connection("127.0.0.1", port), server)
        await server.stop(grace_s=0.1)
        listener.close()

    asyncio.run(main())


async def echo(request: Request) -> Answer:
    return Response(200, f"{request.method} {request.path} {request.query} {len(request.body)}".encode(), b"text/plain")


async def read_answer(reader: asyncio.StreamReader) -> tuple[int, dict[bytes, bytes], bytes]:
    head = await reader.readuntil(b"\r\n\r\n")
    line, *rest = head.split(b"\r\n")
    headers = dict(part.lower().split(b": ", 1) for part in rest if part)
    body = await reader.readexactly(int(headers.get(b"content-length", b"0")))
    return int(line.split()[1]), headers, body


def test_requests_on_one_connection_are_answered_in_order_even_when_later_ones_finish_first() -> None:
    gate: asyncio.Future[None]

    async def handler(request: Request) -> Answer:
        if request.path == "/slow":
            await gate
        return Response(200, request.path.encode())

    async def check(connect: Connect, server: HttpServer) -> None:
        nonlocal gate
        gate = asyncio.get_running_loop().create_future()
        reader, writer = await connect()
        writer.write(b"GET /slow HTTP/1.1\r\n\r\nGET /fast HTTP/1.1\r\n\r\n")
        await asyncio.sleep(0.05)
        gate.set_result(None)
        assert (await read_answer(reader))[2] == b"/slow"
        assert (await read_answer(reader))[2] == b"/fast"
        writer.close()

    run(handler, check)


def test_a_percent_encoded_path_is_decoded_and_the_query_is_not() -> None:
    async def check(connect: Connect, server: HttpServer) -> None:
        reader, writer = await connect()
        writer.write(b"POST /a%20b?x=%3D HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc")
        assert (await read_answer(reader))[2] == b"POST /a b x=%3D 3"
        writer.close()

    run(echo, check)


def test_a_body_over_the_limit_is_refused_and_the_connection_closed() -> None:
    async def check(connect: Connect, server: HttpServer) -> None:
        for request in (
            b"POST / HTTP/1.1\r\nContent-Length: 11\r\n\r\n" + b"x" * 11,
            b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nb\r\n" + b"x" * 11 + b"\r\n0\r\n\r\n",
        ):
            reader, writer = await connect()
            writer.write(request)
            status, _, body = await read_answer(reader)
            assert status == 413 and b"RequestEntityTooLarge" in body
            assert await reader.read() == b""
            writer.close()

    run(echo, check, HttpLimits(body_bytes=10))


def test_garbage_gets_400_and_a_flood_of_headers_431() -> None:
    async def check(connect: Connect, server: HttpServer) -> None:
        reader, writer = await connect()
        writer.write(b"\x00\x01\x02 not http\r\n\r\n")
        assert (await read_answer(reader))[0] == 400
        writer.close()
        reader, writer = await connect()
        writer.write(b"GET / HTTP/1.1\r\n" + b"".join(b"h%d: %b\r\n" % (i, b"v" * 100) for i in range(100)) + b"\r\n")
        assert (await read_answer(reader))[0] == 431
        writer.close()

    run(echo, check, HttpLimits(header_bytes=2000))


def test_a_long_body_arrives_whole_while_other_connections_are_served() -> None:
    size = 8 * 1024 * 1024

    async def handler(request: Request) -> Answer:
        return Response(200, b"x" * size if request.path == "/long" else b"short")

    async def check(connect: Connect, server: HttpServer) -> None:
        reader, writer = await connect()
        writer.write(b"GET /long HTTP/1.1\r\n\r\n")
        other_reader, other_writer = await connect()
        other_writer.write(b"GET /short HTTP/1.1\r\n\r\n")
        assert (await read_answer(other_reader))[2] == b"short"
        assert len((await read_answer(reader))[2]) == size
        writer.write(b"GET /short HTTP/1.1\r\n\r\n")
        assert (await read_answer(reader))[2] == b"short"
        writer.close()
        other_writer.close()

    run(handler, check)


def test_a_stream_sends_its_headers_at_once_and_ends_with_the_last_chunk() -> None:
    async def check(connect: Connect, server: HttpServer) -> None:
        ticks = Ticks()
        server.handler = lambda request: _answer(ticks)  # type: ignore[assignment,return-value]
        reader, writer = await connect()
        writer.write(b"GET / HTTP/1.1\r\n\r\n")
        head = await reader.readuntil(b"\r\n\r\n")
        assert b"Transfer-Encoding: chunked" in head
        assert ticks.sink is not None
        ticks.sink.write(frame(b"one\n"))
        assert await reader.readuntil(b"one\n\r\n") == b"4\r\none\n\r\n"
        ticks.sink.end()
        assert await reader.readexactly(5) == b"0\r\n\r\n"
        writer.close()

    run(echo, check)


async def _answer(answer: Answer) -> Answer:
    return answer


def test_a_client_that_leaves_closes_its_stream() -> None:
    async def check(connect: Connect, server: HttpServer) -> None:
        ticks = Ticks()
        server.handler = lambda request: _answer(ticks)  # type: ignore[assignment,return-value]
        reader, writer = await connect()
        writer.write(b"GET / HTTP/1.1\r\n\r\n")
        await ticks.attached.wait()
        writer.close()
        await ticks.closed.wait()

    run(echo, check)


def test_a_client_that_does_not_read_makes_the_stream_unwritable() -> None:
    async def check(connect: Connect, server: HttpServer) -> None:
        ticks = Ticks()
        server.handler = lambda request: _answer(ticks)  # type: ignore[assignment,return-value]
        _reader, writer = await connect()
        writer.write(b"GET / HTTP/1.1\r\n\r\n")
        await ticks.attached.wait()
        assert ticks.sink is not None
        for _ in range(64):
            if not ticks.sink.writable:
                break
            ticks.sink.write(frame(b"x" * 1024 * 1024))
            await asyncio.sleep(0)
        assert not ticks.sink.writable
        writer.close()

    run(echo, check)


def test_an_unexpected_error_is_answered_and_the_connection_goes_on() -> None:
    async def handler(request: Request) -> Answer:
        if request.path == "/bad":
            raise ValueError("boom")
        return Response(200, b"fine")

    async def check(connect: Connect, server: HttpServer) -> None:
        reader, writer = await connect()
        writer.write(b"GET /bad HTTP/1.1\r\n\r\n")
        status, _, body = await read_answer(reader)
        assert status == 500 and b"boom" in body
        writer.write(b"GET / HTTP/1.1\r\n\r\n")
        assert (await read_answer(reader))[2] == b"fine"
        writer.close()

    run(handler, check)


def test_connections_that_dawdle_are_closed() -> None:
    async def check(connect: Connect, server: HttpServer) -> None:
        reader, writer = await connect()
        writer.write(b"GET / HTTP/1.1\r\nX-Half: ")
        await asyncio.sleep(0.05)
        server._sweep()
        assert await reader.read() == b""
        writer.close()

    run(echo, check, HttpLimits(header_timeout_s=0.01))


def test_headers_that_never_end_are_refused_before_they_end() -> None:
    async def check(connect: Connect, server: HttpServer) -> None:
        reader, writer = await connect()
        writer.write(b"GET / HTTP/1.1\r\n" + b"".join(b"h%d: %b\r\n" % (i, b"v" * 100) for i in range(100)))
        assert (await read_answer(reader))[0] == 431
        assert await reader.read() == b""
        writer.close()

    run(echo, check, HttpLimits(header_bytes=2000))
