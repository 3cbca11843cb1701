"""The HTTP layer over real sockets: framing, order of answers, limits, and clients that are slow or misbehave."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial

import pytest

from shoal.apiserver.http import SWEEP_S, HttpServer
from shoal.apiserver.messages import (
    Answer,
    HttpLimits,
    LongResponse,
    RefusedRequest,
    Request,
    RequestTimedOut,
    Response,
    Sink,
    duration,
    frame,
    header_lines,
    timeout_of,
)
from shoal.base.clock import FakeClock
from shoal.testing.waiting import eventually


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
Listening = AbstractAsyncContextManager[tuple[Connect, HttpServer]]
Listen = Callable[..., Listening]


@pytest.fixture
async def clock() -> FakeClock:
    found = FakeClock()
    await found.advance(1.0)  # as on a machine: an instant is never 0
    return found


@pytest.fixture
def listening(clock: FakeClock) -> Listen:
    """A server on a port, whose limits of time follow ``clock``."""
    return partial(_listening, clock)


@asynccontextmanager
async def _listening(
    clock: FakeClock, handler: Callable[[Request], Awaitable[Answer]], limits: HttpLimits | None = None
) -> AsyncIterator[tuple[Connect, HttpServer]]:
    loop = asyncio.get_running_loop()
    server = HttpServer(
        handler, lambda request, error: Response(500, repr(error).encode()), loop=loop, clock=clock, limits=limits,  # type: ignore[arg-type]
    )  # fmt: skip
    listener = await loop.create_server(server, "127.0.0.1", 0)
    port = listener.sockets[0].getsockname()[1]
    async with asyncio.timeout(10):
        yield (lambda: asyncio.open_connection("127.0.0.1", port), server)
    await server.stop(grace_s=0.1)
    listener.close()


async def echo(request: Request) -> Answer:
    return Response(200, f"{request.method} {request.path} {request.query} {len(request.body)}".encode(), b"text/plain")


async def read_answer(reader: asyncio.StreamReader) -> tuple[int, dict[bytes, bytes], bytes]:
    head = await reader.readuntil(b"\r\n\r\n")
    line, *rest = head.split(b"\r\n")
    headers = dict(part.lower().split(b": ", 1) for part in rest if part)
    body = await reader.readexactly(int(headers.get(b"content-length", b"0")))
    return int(line.split()[1]), headers, body


async def test_requests_on_one_connection_are_answered_in_order_even_when_later_ones_finish_first(
    listening: Listen,
) -> None:
    gate: asyncio.Future[None]
    fast = asyncio.Event()

    async def handler(request: Request) -> Answer:
        if request.path == "/slow":
            await gate
        else:
            fast.set()
        return Response(200, request.path.encode())

    async with listening(handler) as (connect, server):
        gate = asyncio.get_running_loop().create_future()
        reader, writer = await connect()
        writer.write(b"GET /slow HTTP/1.1\r\n\r\nGET /fast HTTP/1.1\r\n\r\n")
        await fast.wait()
        gate.set_result(None)
        assert (await read_answer(reader))[2] == b"/slow"
        assert (await read_answer(reader))[2] == b"/fast"
        writer.close()


async def test_a_percent_encoded_path_is_decoded_and_the_query_is_not(listening: Listen) -> None:
    async with listening(echo) as (connect, server):
        reader, writer = await connect()
        writer.write(b"POST /a%20b?x=%3D HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc")
        assert (await read_answer(reader))[2] == b"POST /a b x=%3D 3"
        writer.close()


async def test_a_body_over_the_limit_is_refused_and_the_connection_closed(listening: Listen) -> None:
    async with listening(echo, HttpLimits(body_bytes=10)) as (connect, server):
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


async def test_garbage_gets_400_and_a_flood_of_headers_431(listening: Listen) -> None:
    async with listening(echo, HttpLimits(header_bytes=2000)) as (connect, server):
        reader, writer = await connect()
        writer.write(b"\x00\x01\x02 not http\r\n\r\n")
        assert (await read_answer(reader))[0] == 400
        writer.close()
        reader, writer = await connect()
        writer.write(b"GET / HTTP/1.1\r\n" + b"".join(b"h%d: %b\r\n" % (i, b"v" * 100) for i in range(100)) + b"\r\n")
        assert (await read_answer(reader))[0] == 431
        writer.close()


async def test_a_long_body_arrives_whole_while_other_connections_are_served(listening: Listen) -> None:
    size = 8 * 1024 * 1024

    async def handler(request: Request) -> Answer:
        return Response(200, b"x" * size if request.path == "/long" else b"short")

    async with listening(handler) as (connect, server):
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


async def test_a_stream_sends_its_headers_at_once_and_ends_with_the_last_chunk(listening: Listen) -> None:
    async with listening(echo) as (connect, server):
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


async def _answer(answer: Answer) -> Answer:
    return answer


async def test_a_client_that_leaves_closes_its_stream(listening: Listen) -> None:
    async with listening(echo) as (connect, server):
        ticks = Ticks()
        server.handler = lambda request: _answer(ticks)  # type: ignore[assignment,return-value]
        reader, writer = await connect()
        writer.write(b"GET / HTTP/1.1\r\n\r\n")
        await ticks.attached.wait()
        writer.close()
        await ticks.closed.wait()


async def test_a_client_that_does_not_read_makes_the_stream_unwritable(listening: Listen) -> None:
    async with listening(echo) as (connect, server):
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


async def test_an_unexpected_error_is_answered_and_the_connection_goes_on(listening: Listen) -> None:
    async def handler(request: Request) -> Answer:
        if request.path == "/bad":
            raise ValueError("boom")
        return Response(200, b"fine")

    async with listening(handler) as (connect, server):
        reader, writer = await connect()
        writer.write(b"GET /bad HTTP/1.1\r\n\r\n")
        status, _, body = await read_answer(reader)
        assert status == 500 and b"boom" in body
        writer.write(b"GET / HTTP/1.1\r\n\r\n")
        assert (await read_answer(reader))[2] == b"fine"
        writer.close()


async def test_a_request_that_does_not_end_in_time_closes_its_connection(listening: Listen, clock: FakeClock) -> None:
    limits = HttpLimits(header_timeout_s=5, idle_timeout_s=3600)
    async with listening(echo, limits) as (connect, server):
        reader, writer = await connect()
        writer.write(b"GET / HTTP/1.1\r\nX-Half: ")
        closed = asyncio.create_task(reader.read())
        while not closed.done():
            await clock.advance(SWEEP_S)
        assert closed.result() == b"" and clock.monotonic() < limits.idle_timeout_s
        writer.close()


async def test_headers_that_never_end_are_refused_before_they_end(listening: Listen) -> None:
    async with listening(echo, HttpLimits(header_bytes=2000)) as (connect, server):
        reader, writer = await connect()
        writer.write(b"GET / HTTP/1.1\r\n" + b"".join(b"h%d: %b\r\n" % (i, b"v" * 100) for i in range(100)))
        assert (await read_answer(reader))[0] == 431
        assert await reader.read() == b""
        writer.close()


# -- time ------------------------------------------------------------------------------------------------------------


class Forever:
    """A handler that answers only after its time is over."""

    def __init__(self) -> None:
        self.begun: asyncio.Queue[str] = asyncio.Queue()  # targets of requests

    async def handle(self, request: Request) -> Answer:
        self.begun.put_nowait(request.query)
        try:
            await asyncio.get_running_loop().create_future()
        except RequestTimedOut:
            return Response(504, b"too late")
        raise AssertionError("unreachable")


async def test_a_handler_that_does_not_answer_in_time_is_told_so_and_the_connection_goes_on(
    listening: Listen, clock: FakeClock
) -> None:
    forever = Forever()
    async with listening(forever.handle, HttpLimits(request_timeout_s=0.01)) as (connect, server):
        reader, writer = await connect()
        for target in (b"/", b"/?timeout=1h", b"/?timeout=0s"):
            writer.write(b"GET " + target + b" HTTP/1.1\r\n\r\n")
            await forever.begun.get()
            await clock.advance(SWEEP_S)
            assert (await read_answer(reader))[::2] == (504, b"too late")
        writer.close()


async def test_a_client_may_ask_for_less_time(listening: Listen, clock: FakeClock) -> None:
    forever = Forever()
    async with listening(forever.handle) as (connect, server):
        reader, writer = await connect()
        writer.write(b"GET /?a=b&timeout=10ms HTTP/1.1\r\n\r\n")
        await forever.begun.get()
        await clock.advance(SWEEP_S)
        assert (await read_answer(reader))[0] == 504
        writer.close()


async def test_requests_that_are_in_time_are_left_alone(listening: Listen, clock: FakeClock) -> None:
    gate: asyncio.Future[None]
    begun = asyncio.Event()

    async def handler(request: Request) -> Answer:
        begun.set()
        await gate
        return Response(200, b"in time")

    async with listening(handler) as (connect, server):
        gate = asyncio.get_running_loop().create_future()
        reader, writer = await connect()
        writer.write(b"GET /?timeoutSeconds=0 HTTP/1.1\r\n\r\n")
        await begun.wait()
        await clock.advance(30 * SWEEP_S)
        gate.set_result(None)
        assert (await read_answer(reader))[0] == 200
        writer.close()


async def test_a_result_that_comes_after_the_connection_ended_is_ignored(listening: Listen, clock: FakeClock) -> None:
    gates: list[asyncio.Future[None]] = []
    errors: list[Exception] = []
    begun = asyncio.Event()

    async def handler(request: Request) -> Answer:
        gates.append(asyncio.get_running_loop().create_future())
        begun.set()
        await gates[-1]
        return Response(200, b"fine")

    async with listening(handler) as (connect, server):
        server.on_error = lambda request, error: errors.append(error) or Response(500)  # type: ignore[func-returns-value]
        _, writer = await connect()
        writer.write(b"GET / HTTP/1.1\r\n\r\n")
        await begun.wait()
        gates[0].set_result(None)  # the connection ends before the handler goes on
        next(iter(server.connections)).connection_lost(None)
        await clock.settle()
        assert not errors
        writer.transport.abort()


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("1s", 1), ("1m30s", 90), ("1.5h", 5400), ("250ms", 0.25), ("0", 0), ("1", None), ("", None), ("s", None), ("1x", None), ("1s ", None)],
)  # fmt: skip
def test_durations_are_read_as_go_writes_them(text: str, seconds: float | None) -> None:
    assert duration(text) == (None if seconds is None else pytest.approx(seconds))


def test_only_the_parameter_timeout_sets_the_timeout() -> None:
    assert timeout_of("timeoutSeconds=1&xtimeout=1s", 60) == 60
    assert timeout_of("x=y&timeout=2s", 60) == 2
    assert timeout_of("timeout=nonsense", 60) == 60


# -- slow readers ----------------------------------------------------------------------------------------------------


async def test_a_client_that_does_not_take_its_answer_is_closed(listening: Listen, clock: FakeClock) -> None:
    async def handler(request: Request) -> Answer:
        return Response(200, b"x" * 64 * 1024 * 1024)

    limits = HttpLimits(reader_timeout_s=5, idle_timeout_s=3600)
    async with listening(handler, limits) as (connect, server):
        reader, writer = await connect()
        writer.transport.pause_reading()
        writer.write(b"GET / HTTP/1.1\r\n\r\n")
        await eventually(lambda: server.connections)
        while server.connections:
            await clock.advance(SWEEP_S)
        assert clock.monotonic() < limits.idle_timeout_s
        writer.transport.abort()


async def test_a_client_that_does_not_take_its_stream_is_closed_and_one_that_does_is_not(
    listening: Listen, clock: FakeClock
) -> None:
    async with listening(echo, HttpLimits(reader_timeout_s=5)) as (connect, server):
        slow, good = Ticks(), Ticks()
        server.handler = lambda request: _answer(slow if request.path == "/slow" else good)  # type: ignore[assignment,return-value]
        _, slow_writer = await connect()
        slow_writer.transport.pause_reading()
        slow_writer.write(b"GET /slow HTTP/1.1\r\n\r\n")
        reader, writer = await connect()
        writer.write(b"GET /good HTTP/1.1\r\n\r\n")
        await asyncio.gather(slow.attached.wait(), good.attached.wait())
        assert slow.sink is not None and good.sink is not None
        while slow.sink.writable:
            slow.sink.write(frame(b"x" * 1024 * 1024))
            await asyncio.sleep(0)
        while not slow.closed.is_set():
            good.sink.write(frame(b"x" * 1024))
            await clock.advance(SWEEP_S)
            await reader.read(65536)
        assert not good.closed.is_set()
        slow_writer.transport.abort()
        writer.close()


# -- floods ----------------------------------------------------------------------------------------------------------


async def test_a_flood_in_one_packet_is_taken_in_pieces_and_answered_whole(listening: Listen) -> None:
    running = most = 0

    async def handler(request: Request) -> Answer:
        nonlocal most, running
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        running -= 1
        return Response(200, request.path.encode())

    async with listening(handler) as (connect, server):
        reader, writer = await connect()
        count = 5000
        writer.write(b"".join(b"GET /%d HTTP/1.1\r\n\r\n" % number for number in range(count)))
        for number in range(count):
            assert (await read_answer(reader))[2] == b"/%d" % number
        assert most < 1500, most
        writer.close()


class Wire(asyncio.Transport):
    """A transport whose bytes the test brings, and which keeps what is written."""

    def __init__(self) -> None:
        super().__init__()
        self.reading = True
        self.written = asyncio.StreamReader()

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def is_closing(self) -> bool:
        return False

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written.feed_data(bytes(data))

    def abort(self) -> None: ...


async def test_input_that_comes_while_earlier_input_still_waits_is_read_after_it(
    clock: FakeClock, listening: Listen
) -> None:
    """TLS hands over what it has as soon as reading goes on, before the connection came to what it had put aside."""
    loop = asyncio.get_running_loop()
    gate = loop.create_future()

    async def handler(request: Request) -> Answer:
        if request.path == "/wait":
            await gate
        return Response(200, f"{request.path} {len(request.body)}".encode())

    async with listening(handler, HttpLimits(pipelined=2)) as (_, server):
        wire, connection = Wire(), server()
        connection.connection_made(wire)
        waits = b"GET /wait HTTP/1.1\r\n\r\n" * 3
        connection.data_received(waits + b"POST /long HTTP/1.1\r\nContent-Length: 40000\r\n\r\n" + b"x" * 40000)
        assert not wire.reading
        gate.set_result(None)

        def bring() -> None:
            assert wire.reading
            connection.data_received(b"GET /last HTTP/1.1\r\n\r\n")

        loop.call_soon(bring)
        answers = [(await read_answer(wire.written))[2] for _ in range(5)]
        assert answers == [b"/wait 0"] * 3 + [b"/long 40000", b"/last 0"]
        connection.connection_lost(None)


async def test_a_large_body_in_many_pieces_arrives_whole(listening: Listen) -> None:
    async def handler(request: Request) -> Answer:
        return Response(200, b"%d %d" % (len(request.body), request.body.count(b"y")))

    async with listening(handler) as (connect, server):
        reader, writer = await connect()
        body = (b"x" * 999 + b"y") * 2000
        writer.write(b"POST / HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        assert (await read_answer(reader))[2] == b"2000000 2000"
        writer.close()


def refusing(hold_s: float) -> Callable[[Request], Awaitable[Answer]]:
    async def handler(request: Request) -> Answer:
        if request.path == "/fine":
            return Response(200, b"fine")
        answer = RefusedRequest(429, b"later")
        answer.hold_s = hold_s
        return answer

    return handler


async def test_a_client_that_ignores_retry_after_is_not_read_from_until_it_is_over(
    listening: Listen, clock: FakeClock
) -> None:
    async with listening(refusing(30.0)) as (connect, server):
        reader, writer = await connect()
        for _ in range(2):
            writer.write(b"GET / HTTP/1.1\r\n\r\n")
            assert (await read_answer(reader))[0] == 429
        writer.write(b"GET /fine HTTP/1.1\r\n\r\n")
        answer = asyncio.create_task(read_answer(reader))
        await clock.advance(29.0)
        assert not answer.done()
        await clock.advance(1.0)
        assert (await answer)[0] == 200
        writer.close()


async def test_the_first_refusal_does_not_delay_the_next_request(listening: Listen) -> None:
    async with listening(refusing(60.0)) as (connect, server):
        reader, writer = await connect()
        writer.write(b"GET / HTTP/1.1\r\n\r\nGET /fine HTTP/1.1\r\n\r\n")
        assert (await read_answer(reader))[0] == 429
        assert (await read_answer(reader))[0] == 200
        writer.close()


@pytest.mark.parametrize(
    ("limits", "status"), [(HttpLimits(connections=2), 503), (HttpLimits(connections_per_address=2), 429)]
)
async def test_a_connection_too_many_is_told_so_and_the_others_work(
    listening: Listen, limits: HttpLimits, status: int
) -> None:
    async with listening(echo, limits) as (connect, server):
        open_ones = [await connect() for _ in range(2)]
        reader, writer = await connect()
        writer.write(b"GET / HTTP/1.1\r\n\r\n")
        found, headers, body = await read_answer(reader)
        assert found == status and headers[b"retry-after"] == b"1" and b"too many connections" in body
        assert await reader.read() == b""
        writer.close()
        for reader, writer in open_ones:
            writer.write(b"GET / HTTP/1.1\r\n\r\n")
            assert (await read_answer(reader))[0] == 200
            writer.close()
        await server.drained.wait()
        assert not server.addresses
        reader, writer = await connect()
        writer.write(b"GET / HTTP/1.1\r\n\r\n")
        assert (await read_answer(reader))[0] == 200
        writer.close()


# -- old clients, headers, long answers ------------------------------------------------------------------------------


@pytest.mark.parametrize("keep_alive", [b"", b"Connection: keep-alive\r\n"])
async def test_a_client_of_http_1_0_gets_its_stream_without_chunks(listening: Listen, keep_alive: bytes) -> None:
    async with listening(echo) as (connect, server):
        ticks = Ticks()
        server.handler = lambda request: _answer(ticks)  # type: ignore[assignment,return-value]
        reader, writer = await connect()
        writer.write(b"GET / HTTP/1.0\r\n" + keep_alive + b"\r\n")
        head = await reader.readuntil(b"\r\n\r\n")
        assert b"Transfer-Encoding" not in head and b"Connection: close" in head
        assert ticks.sink is not None
        ticks.sink.write(frame(b"one\n"))
        ticks.sink.write(frame(b"two\n"))
        ticks.sink.end()
        assert await reader.read() == b"one\ntwo\n"
        writer.close()


async def test_header_lines_of_an_answer_are_sent_as_they_are(listening: Listen) -> None:
    async def handler(request: Request) -> Answer:
        answer = Response(200, b"x", headers=((b"A", b"1"),))
        answer.head = b"B: 2\r\nC: 3: 4\r\n"
        return answer

    async with listening(handler) as (connect, server):
        reader, writer = await connect()
        writer.write(b"GET / HTTP/1.1\r\n\r\n")
        headers = (await read_answer(reader))[1]
        assert (headers[b"a"], headers[b"b"], headers[b"c"]) == (b"1", b"2", b"3: 4")
        writer.close()
    assert header_lines(b"B: 2\r\nC: 3: 4\r\n") == [(b"B", b"2"), (b"C", b"3: 4")]


@pytest.mark.parametrize("leaves", [False, True])
async def test_on_sent_of_a_long_answer_is_called_once_when_it_is_sent_or_its_client_left(
    listening: Listen, clock: FakeClock, leaves: bool
) -> None:
    sent: list[str] = []
    made = 0

    async def handler(request: Request) -> Answer:
        nonlocal made
        made += 1
        answer = LongResponse(200, b"x" * 32 * 1024 * 1024)
        answer.on_sent = lambda: sent.append(request.path)
        return answer

    async with listening(handler) as (connect, server):
        reader, writer = await connect()
        writer.transport.pause_reading()
        writer.write(b"GET /a HTTP/1.1\r\n\r\n" * 2)
        await eventually(lambda: made == 2)
        await clock.settle()
        assert not sent
        if leaves:
            writer.transport.abort()
            await server.drained.wait()
            assert made and len(sent) == made
            return
        writer.transport.resume_reading()
        for _ in range(2):
            assert len((await read_answer(reader))[2]) == 32 * 1024 * 1024
        assert sent == ["/a", "/a"]
        writer.close()


async def test_a_trailer_does_not_change_the_request(listening: Listen) -> None:
    async def handler(request: Request) -> Answer:
        return Response(200, b",".join(sorted(request.headers)))

    async with listening(handler) as (connect, server):
        reader, writer = await connect()
        writer.write(
            b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\nImpersonate-User: root\r\n\r\n"
        )
        assert (await read_answer(reader))[2] == b"transfer-encoding"
        writer.close()


async def test_a_body_that_comes_byte_by_byte_is_whole(listening: Listen) -> None:
    async def handler(request: Request) -> Answer:
        return Response(200, request.body)

    async with listening(handler) as (connect, server):
        reader, writer = await connect()
        sent = bytes(range(1, 251)) * 4
        writer.write(b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n")
        writer.write(b"".join(b"1\r\n%c\r\n" % byte for byte in sent))
        await writer.drain()
        await eventually(lambda: server.pending_in == len(sent))
        writer.write(b"0\r\n\r\n")
        assert (await read_answer(reader))[2] == sent
        assert server.pending_in == 0
        writer.close()


class Piece(bytes):
    """A part of a body; ``held`` counts those that something still refers to."""

    held = 0

    def __init__(self, *_: object) -> None:
        Piece.held += 1

    def __del__(self) -> None:
        Piece.held -= 1


async def test_a_body_of_many_small_parts_is_kept_in_few_objects(listening: Listen) -> None:
    async with listening(echo) as (_, server):
        connection = server()
        connection.on_message_begin()
        for _number in range(1000):
            connection.on_body(Piece(b"ab"))
        assert server.pending_in == 2000
        assert Piece.held < 100
        connection.connection_lost(None)
        assert server.pending_in == 0


async def test_bodies_of_requests_without_authentication_yet_share_a_limit(listening: Listen) -> None:
    async with listening(echo, HttpLimits(pending_in_bytes=100, small_body_bytes=50)) as (connect, server):
        first, second = await connect(), await connect()
        head = b"POST / HTTP/1.1\r\nContent-Length: 60\r\n\r\n"
        first[1].write(head + b"x" * 59)
        await eventually(lambda: server.pending_in == 59)
        second[1].write(head + b"x" * 60)
        status, headers, _ = await read_answer(second[0])
        assert status == 503 and headers[b"retry-after"] == b"1"
        small = await connect()
        small[1].write(b"POST / HTTP/1.1\r\nContent-Length: 45\r\n\r\n" + b"x" * 45)
        assert (await read_answer(small[0]))[2] == b"POST /  45"  # large bodies of others do not block small ones
        first[1].write(b"x")
        assert (await read_answer(first[0]))[2] == b"POST /  60"
        third = await connect()
        third[1].write(head + b"x" * 10)
        await eventually(lambda: server.pending_in == 10)
        third[1].close()  # its part of the body is dropped with it
        await eventually(lambda: server.pending_in == 0)
        for _, writer in (first, second, small):
            writer.close()
