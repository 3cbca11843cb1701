"""Both HTTP fronts, the API server's and that of control plane, relay and navigator, withstand the same clients: slow ones,
floods, heads and bodies without end, and more connections than there is room for. HTTP/2 of the second has its own part.
"""

from __future__ import annotations

import asyncio
import struct
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import hpack
import pytest

from shoal.apiserver.http import HttpServer
from shoal.apiserver.messages import Answer, HttpLimits, Request, Response
from shoal.base.asgi import AsgiListener, bind
from shoal.base.asgi_common import Receive, Scope, Send, answer
from shoal.base.asgi_front import REQUESTS, RESETS
from shoal.base.clock import FakeClock
from shoal.base.front_limits import FrontLimits
from shoal.testing.waiting import eventually

Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Connect = Callable[[], Awaitable[Stream]]
Listening = Callable[..., AbstractAsyncContextManager[Connect]]
LONG = 64 * 1024 * 1024  # bytes of the answer to /long
SWEEP_S = 1.0


async def _api_server_app(request: Request) -> Answer:
    if request.path == "/long":
        return Response(200, b"x" * LONG)
    return Response(200, f"{request.method} {request.path} {request.query} {len(request.body)}".encode(), b"text/plain")


async def _asgi_app(scope: Scope, receive: Receive, send: Send) -> None:
    size, more = 0, True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            return
        size, more = size + len(message.get("body", b"")), message.get("more_body", False)
    text = f"{scope['method']} {scope['path']} {scope['query_string'].decode()} {size}".encode()
    parts = [b"x" * 65536] * (LONG // 65536) if scope["path"] == "/long" else [text]
    headers = [(b"content-length", str(sum(map(len, parts))).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    for part in parts:
        await send({"type": "http.response.body", "body": part, "more_body": True})
    await send({"type": "http.response.body", "body": b""})


@asynccontextmanager
async def api_server_front(clock: FakeClock, limits: FrontLimits) -> AsyncIterator[Connect]:
    loop = asyncio.get_running_loop()
    server = HttpServer(
        _api_server_app, lambda request, error: Response(500, repr(error).encode()), loop=loop, clock=clock,
        limits=HttpLimits(**asdict(limits)),
    )  # fmt: skip
    listener = await loop.create_server(server, "127.0.0.1", 0)
    port = listener.sockets[0].getsockname()[1]
    yield lambda: asyncio.open_connection("127.0.0.1", port)
    await server.stop(grace_s=0.1)
    listener.close()


@asynccontextmanager
async def asgi_front(clock: FakeClock, limits: FrontLimits, app: Any = _asgi_app) -> AsyncIterator[Connect]:
    listening = bind("127.0.0.1", 0)
    port = listening.getsockname()[1]
    listener = AsgiListener(app, listening, clock=clock, limits=limits)
    running = asyncio.create_task(listener.run(), name="front")
    await eventually(lambda: listener.accepting)
    try:
        yield lambda: asyncio.open_connection("127.0.0.1", port)
    finally:
        listener.stop()
        await running


@pytest.fixture
async def clock() -> FakeClock:
    found = FakeClock()
    await found.advance(1.0)  # as on a machine: an instant is never 0
    return found


@pytest.fixture(params=[api_server_front, asgi_front], ids=["api-server", "asgi"])
def front(request: pytest.FixtureRequest, clock: FakeClock) -> Listening:
    return partial(_limited, partial(request.param, clock))


@asynccontextmanager
async def _limited(make: Any, limits: FrontLimits | None = None) -> AsyncIterator[Connect]:
    async with asyncio.timeout(30), make(limits or FrontLimits()) as connect:
        yield connect


async def answer_of(reader: asyncio.StreamReader) -> tuple[int, dict[bytes, bytes], bytes]:
    head = await reader.readuntil(b"\r\n\r\n")
    line, *rest = head.split(b"\r\n")
    headers = dict(part.lower().split(b": ", 1) for part in rest if part)
    return int(line.split()[1]), headers, await reader.readexactly(int(headers.get(b"content-length", b"0")))


async def closed_after(clock: FakeClock, reader: asyncio.StreamReader) -> bytes:
    """What was sent before the connection was closed; the clock runs meanwhile."""
    reading = asyncio.create_task(reader.read(), name="reading")
    while not reading.done():
        await clock.advance(SWEEP_S)
        await asyncio.sleep(0)
    try:
        return reading.result()
    except ConnectionError:
        return b""


async def test_requests_are_answered_and_the_connection_is_kept(front: Listening) -> None:
    async with front() as connect:
        reader, writer = await connect()
        for _ in range(3):
            writer.write(b"POST /a%20b?x=%3D HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc")
            assert (await answer_of(reader))[::2] == (200, b"POST /a b x=%3D 3")
        writer.close()


@pytest.mark.parametrize(
    "request_",
    [
        b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 11\r\n\r\n" + b"x" * 11,
        b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nb\r\n" + b"x" * 11 + b"\r\n0\r\n\r\n",
    ],
    ids=["length", "chunked"],
)
async def test_a_body_over_the_limit_gets_413_and_the_connection_is_closed(front: Listening, request_: bytes) -> None:
    async with front(FrontLimits(body_bytes=10)) as connect:
        reader, writer = await connect()
        writer.write(request_)
        status, _, body = await answer_of(reader)
        assert status == 413 and b"RequestEntityTooLarge" in body
        assert await reader.read() == b""
        writer.close()


async def test_an_application_is_not_asked_for_a_body_that_is_announced_as_too_large(clock: FakeClock) -> None:
    asked: list[str] = []

    async def noting(scope: Scope, receive: Receive, send: Send) -> None:
        asked.append(scope["path"])
        await answer(send, 200, b"fine")

    async with asyncio.timeout(30), asgi_front(clock, FrontLimits(body_bytes=10), noting) as connect:
        for path, size, status in (("/fits", 10, 200), ("/large", 11, 413)):
            reader, writer = await connect()
            writer.write(f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {size}\r\n\r\n".encode() + b"x" * size)
            assert (await answer_of(reader))[0] == status
            writer.close()
    assert asked == ["/fits"]


FLOOD = b"GET / HTTP/1.1\r\nHost: x\r\n" + b"".join(b"h%d: %b\r\n" % (i, b"v" * 100) for i in range(100))


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"\x00\x01\x02 not http\r\n\r\n", 400),
        (FLOOD + b"\r\n", 431),
        (FLOOD, 431),
        (b"GET /" + b"a" * 5000 + b" HTTP/1.1\r\nHost: x\r\n\r\n", 431),
    ],
    ids=["garbage", "many headers", "headers without end", "long URL"],
)
async def test_a_head_that_is_malformed_or_too_long_is_refused(front: Listening, sent: bytes, status: int) -> None:
    async with front(FrontLimits(header_bytes=2000)) as connect:
        reader, writer = await connect()
        writer.write(sent)
        assert (await answer_of(reader))[0] == status
        assert await reader.read() == b""
        writer.close()


@pytest.mark.parametrize(
    "sent",
    [b"", b"G", b"GET / HTTP/1.1\r\nX-Half: ", b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nabc"],
    ids=["nothing", "one byte", "half a head", "half a body"],
)
async def test_a_request_that_does_not_end_in_time_closes_its_connection(
    front: Listening, clock: FakeClock, sent: bytes
) -> None:
    limits = FrontLimits(header_timeout_s=5, idle_timeout_s=50)
    async with front(limits) as connect:
        reader, writer = await connect()
        writer.write(sent)
        said = await closed_after(clock, reader)
        assert said == b"" or said.startswith(b"HTTP/1.1 408 ")
        assert clock.monotonic() < (100 if not sent else limits.idle_timeout_s)
        writer.close()


async def test_bytes_now_and_then_do_not_keep_a_request_open(front: Listening, clock: FakeClock) -> None:
    async with front(FrontLimits(header_timeout_s=5, idle_timeout_s=3600)) as connect:
        reader, writer = await connect()
        writer.write(b"GET / HTTP/1.1\r\n")
        reading = asyncio.create_task(reader.read(), name="reading")
        for number in range(200):
            if reading.done():
                break
            if not writer.is_closing():
                writer.write(b"x%d: y\r\n" % number)
            await clock.advance(SWEEP_S)
        assert reading.done(), "closed after the time for one request"
        writer.close()


async def test_an_idle_connection_is_closed(front: Listening, clock: FakeClock) -> None:
    async with front(FrontLimits(idle_timeout_s=20)) as connect:
        reader, writer = await connect()
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        await answer_of(reader)
        began = clock.monotonic()
        assert await closed_after(clock, reader) == b""
        assert 15 < clock.monotonic() - began < 1000, "by its own clock, not by timers of the libraries below"
        writer.close()


async def test_a_client_that_does_not_take_its_answer_is_closed(front: Listening, clock: FakeClock) -> None:
    async with front(FrontLimits(reader_timeout_s=5, idle_timeout_s=3600)) as connect:
        reader, writer = await connect()
        writer.transport.pause_reading()
        writer.write(b"GET /long HTTP/1.1\r\nHost: x\r\n\r\n")
        other_reader, other = await connect()
        other.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        assert (await answer_of(other_reader))[0] == 200, "others are served"
        for _ in range(100):
            await clock.advance(SWEEP_S)
        writer.transport.resume_reading()
        taken = 0
        with suppress(ConnectionError):
            while part := await reader.read(1 << 20):
                taken += len(part)
        assert taken < LONG // 2, "it was closed in the middle of its answer"
        writer.close()
        other.close()


@pytest.mark.parametrize(
    ("limits", "status"), [(FrontLimits(connections=2), 503), (FrontLimits(connections_per_address=2), 429)]
)
async def test_a_connection_too_many_is_told_so_and_the_others_work(
    front: Listening, limits: FrontLimits, status: int
) -> None:
    async with front(limits) as connect:
        open_ones = [await connect() for _ in range(2)]
        for reader, writer in open_ones:  # both are known to the front
            writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            assert (await answer_of(reader))[0] == 200
        reader, writer = await connect()
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        found, headers, body = await answer_of(reader)
        assert found == status and headers[b"retry-after"] == b"1" and b"too many connections" in body
        assert await reader.read() == b""
        writer.close()
        for reader, writer in open_ones:
            writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            assert (await answer_of(reader))[0] == 200
            writer.close()

        async def has_room() -> bool:
            reader, writer = await connect()
            writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            status = (await answer_of(reader))[0]
            writer.close()
            return status == 200

        await eventually(has_room)


async def test_a_trailer_does_not_change_the_request(front: Listening) -> None:
    async with front() as connect:
        reader, writer = await connect()
        writer.write(b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\nA: b\r\n\r\n")
        assert (await answer_of(reader))[::2] == (200, b"POST /  1")
        writer.close()


# HTTP/2 of the ASGI front

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
SETTINGS = b"\0\0\0\x04\0\0\0\0\0"


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return struct.pack(">I", len(payload))[1:] + bytes((kind, flags)) + struct.pack(">I", stream) + payload


def head(path: str = "/", **more: str) -> bytes:
    """Without the dynamic table, so that it may be sent at any time."""
    named = [(":method", "POST"), (":scheme", "http"), (":path", path), (":authority", "x"), *more.items()]
    return hpack.Encoder().encode([hpack.NeverIndexedHeaderTuple(*each) for each in named], huffman=False)


async def frames(reader: asyncio.StreamReader) -> AsyncIterator[tuple[int, int, int, bytes]]:
    """(type, flags, stream, payload) until the connection is closed."""
    while True:
        try:
            start = await reader.readexactly(9)
            payload = await reader.readexactly(int.from_bytes(start[:3]))
        except (asyncio.IncompleteReadError, ConnectionError):
            return
        yield start[3], start[4], int.from_bytes(start[5:]), payload


@asynccontextmanager
async def http2(clock: FakeClock, limits: FrontLimits | None = None, app: Any = _asgi_app) -> AsyncIterator[Stream]:
    async with asyncio.timeout(30), asgi_front(clock, limits or FrontLimits(), app) as connect:
        reader, writer = await connect()
        writer.write(PREFACE + SETTINGS)
        yield reader, writer
        writer.close()


async def last_goaway(reader: asyncio.StreamReader) -> int:
    """The error code of the GOAWAY before the connection ends; -1 without one."""
    code = -1
    async for kind, _, _, payload in frames(reader):
        code = int.from_bytes(payload[4:8]) if kind == 7 else code
    return code


async def test_http2_a_client_that_resets_its_streams_without_end_is_hung_up_on(clock: FakeClock) -> None:
    begun = 0

    async def counting(scope: Scope, receive: Receive, send: Send) -> None:
        nonlocal begun
        begun += 1

    async with http2(clock, None, counting) as (reader, writer):
        ended = asyncio.create_task(last_goaway(reader), name="reading")
        for number in range(2 * RESETS):
            if ended.done():
                break
            writer.write(frame(1, 4, 1 + 2 * number, head()) + frame(3, 0, 1 + 2 * number, b"\0\0\0\x08"))
            await eventually(lambda sent=number + 1: ended.done() or begun == sent)
        assert await ended == 11 and RESETS <= begun <= RESETS + 2


async def test_http2_a_client_has_so_many_streams_open_and_more_are_refused(clock: FakeClock) -> None:
    begun, most, asked = 0, 128, 150

    async def counting(scope: Scope, receive: Receive, send: Send) -> None:
        nonlocal begun
        begun += 1
        while (await receive())["type"] != "http.disconnect":
            pass

    async with http2(clock, None, counting) as (reader, writer):
        for number in range(asked):
            writer.write(frame(1, 4, 1 + 2 * number, head()))
        refused: list[int] = []
        async for kind, _, stream, payload in frames(reader):
            if kind == 3:
                assert int.from_bytes(payload) == 7, "refused: the client may try again"
                refused.append(stream)
            if len(refused) == asked - most:
                break
        assert refused == [1 + 2 * number for number in range(most, asked)]
        await eventually(lambda: begun == most)


@pytest.mark.parametrize(
    "flood",
    [frame(6, 0, 0, b"12345678"), SETTINGS, frame(2, 0, 1, b"\0\0\0\0\1"), frame(8, 0, 0, b"\0\0\0\1")],
    ids=["ping", "settings", "priority", "window"],
)
async def test_http2_frames_that_bring_nothing_do_not_go_on_for_ever(clock: FakeClock, flood: bytes) -> None:
    async with http2(clock) as (reader, writer):
        ended = asyncio.create_task(last_goaway(reader), name="reading")
        while not ended.done() and not writer.is_closing():
            writer.write(flood * 1000)
            await asyncio.sleep(0)
        await ended


async def test_http2_a_head_over_the_limit_gets_431_and_other_streams_go_on(clock: FakeClock) -> None:
    async with http2(clock, FrontLimits(header_bytes=2000)) as (reader, writer):
        writer.write(frame(1, 5, 1, head(x="y" * 3000)) + frame(1, 5, 3, head()))
        statuses: dict[int, str] = {}
        decoder = hpack.Decoder()
        async for kind, _, stream, payload in frames(reader):
            if kind == 1:
                statuses[stream] = dict(decoder.decode(payload))[":status"]
            if len(statuses) == 2:
                break
        assert statuses == {1: "431", 3: "200"}


async def test_http2_a_head_in_pieces_without_end_is_refused(clock: FakeClock) -> None:
    async with http2(clock) as (reader, writer):
        writer.write(frame(1, 0, 1, head()))
        ended = asyncio.create_task(last_goaway(reader), name="reading")
        while not ended.done() and not writer.is_closing():
            writer.write(frame(9, 0, 1, b"\x00\x01a\x01b"))
            await asyncio.sleep(0)
        await ended


@pytest.mark.parametrize(
    ("limits", "status"), [(FrontLimits(connections=1), "503"), (FrontLimits(connections_per_address=1), "429")]
)
async def test_http2_a_connection_too_many_is_told_so_and_closed(
    clock: FakeClock, limits: FrontLimits, status: str
) -> None:
    async with asyncio.timeout(30), asgi_front(clock, limits) as connect:
        found: list[str] = []
        kept: list[asyncio.StreamWriter] = []
        for _ in range(2):
            reader, writer = await connect()
            kept.append(writer)
            writer.write(PREFACE + SETTINGS + frame(1, 5, 1, head()))
            async for kind, _flags, _stream, payload in frames(reader):
                if kind == 1:
                    found.append(dict(hpack.Decoder().decode(payload))[":status"])
                if kind == 1 and found == ["200"]:
                    break  # the first stays open; the second is read to its end
        assert found == ["200", status]
        for writer in kept:
            writer.close()


async def test_http2_a_connection_without_a_request_is_closed(clock: FakeClock) -> None:
    async with http2(clock, FrontLimits(header_timeout_s=5)) as (reader, writer):
        reading = asyncio.create_task(last_goaway(reader), name="reading")
        while not reading.done():
            if not writer.is_closing():
                writer.write(frame(6, 0, 0, b"12345678"))  # being there is not a request
            await clock.advance(SWEEP_S)
        assert clock.monotonic() < 60


async def test_http2_a_body_that_stalls_gets_408_and_a_stream_of_messages_does_not(clock: FakeClock) -> None:
    async with http2(clock, FrontLimits(header_timeout_s=5)) as (reader, writer):
        writer.write(frame(1, 4, 1, head()) + frame(0, 0, 1, b"abc"))
        writer.write(frame(1, 4, 3, head(**{"content-type": "application/connect+proto"})) + frame(0, 0, 3, b"abc"))
        decoder, found = hpack.Decoder(), asyncio.get_running_loop().create_future()

        async def read() -> None:
            async for kind, _, stream, payload in frames(reader):
                if kind == 1 and not found.done():
                    found.set_result((stream, dict(decoder.decode(payload))[":status"]))

        reading = asyncio.create_task(read(), name="reading")
        while not found.done():
            await clock.advance(SWEEP_S)
        assert found.result() == (1, "408")
        writer.write(frame(0, 1, 3, b"de"))  # the other one still ends in order
        await eventually(lambda: True)
        reading.cancel()


async def test_http2_an_answer_waits_for_the_window_of_its_client_and_ends_when_that_stays_shut(
    clock: FakeClock,
) -> None:
    sent = 0

    async def endless(scope: Scope, receive: Receive, send: Send) -> None:
        nonlocal sent
        await send({"type": "http.response.start", "status": 200, "headers": []})
        while sent < 1 << 30:
            await send({"type": "http.response.body", "body": b"x" * 65536, "more_body": True})
            sent += 65536
            await asyncio.sleep(0)

    async with http2(clock, FrontLimits(reader_timeout_s=5), endless) as (reader, writer):
        writer.write(frame(4, 0, 0, struct.pack(">HI", 4, 0)) + frame(1, 5, 1, head()))
        reading = asyncio.create_task(last_goaway(reader), name="reading")
        await eventually(lambda: sent)
        while not reading.done():
            await clock.advance(SWEEP_S)
        assert sent < 4 << 20, "kept in memory for a client that does not read"


async def test_http2_a_client_with_many_requests_is_asked_for_a_new_connection_and_loses_none(clock: FakeClock) -> None:
    """The parser breaks a connection off at its request number 4096, whatever else is under way on it."""

    async def count(scope: Scope, receive: Receive, send: Send) -> None:
        await answer(send, 200, b"fine")

    async with asyncio.timeout(120), asgi_front(clock, FrontLimits(), count) as connect:
        _, writer = await connect()
        host, port = writer.get_extra_info("peername")
        writer.close()
        for _ in range(2):
            reader, writer = await asyncio.open_connection(host, port)
            writer.write(PREFACE + SETTINGS + frame(8, 0, 0, struct.pack(">I", 1 << 30)))
            answered, went_away = await many_requests(reader, writer)
            assert went_away == 0 and answered == REQUESTS, "all that were asked before it are answered"
            assert await reader.read() == b""
            writer.close()


async def many_requests(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> tuple[int, int]:
    """One after the other, until the server says that it goes away; returns how many were answered, and its code."""
    answered, stream, code = 0, 1, -1
    writer.write(frame(1, 5, stream, head()))
    async for kind, flags, _, payload in frames(reader):
        code = int.from_bytes(payload[4:8]) if kind == 7 else code
        if kind in (0, 1) and flags & 1:
            answered += 1
            if code >= 0:
                break
            stream += 2
            writer.write(frame(1, 5, stream, head()))
    return answered, code


def test_http2_the_parser_withstands_malformed_input() -> None:
    """A short part of ``bench/http2_fuzz.py``."""
    sys.path.insert(0, str(Path(__file__).parents[2] / "bench"))
    from http2_fuzz import run

    assert "20000 inputs, seed 7" in run(20_000, 7)
