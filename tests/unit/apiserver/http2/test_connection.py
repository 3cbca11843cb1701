"""HTTP/2 over real sockets: order of answers, windows, limits, stops, and clients that are slow or misbehave."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable

import pytest
from tests.unit.apiserver.http2.http2_peer import Http2Peer, Listen, echo

from shoal.apiserver.http import SWEEP_S
from shoal.apiserver.http2.connection import ALLOWANCE, STREAMS, TURN
from shoal.apiserver.http2.frames import (
    COMPRESSION_ERROR,
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    ENHANCE_YOUR_CALM,
    FLOW_CONTROL_ERROR,
    FRAME_SIZE_ERROR,
    GOAWAY,
    HAS_PRIORITY,
    HEADERS,
    INITIAL_WINDOW,
    LARGEST_FRAME,
    NO_ERROR,
    PADDED,
    PING,
    PREFACE,
    PRIORITY,
    PROTOCOL_ERROR,
    PUSH_PROMISE,
    REFUSED_STREAM,
    RST_STREAM,
    SETTINGS,
    STREAM_CLOSED,
    TABLE_SIZE,
    WINDOW_UPDATE,
    frame,
    head,
)
from shoal.apiserver.messages import Answer, HttpLimits, LongResponse, RefusedRequest, Request, Response
from shoal.base.clock import FakeClock
from shoal.testing.waiting import eventually

WORD = struct.Struct(">I").pack


# -- requests and answers --------------------------------------------------------------------------------------------


async def test_a_slow_request_does_not_delay_later_ones_on_its_connection(listening: Listen) -> None:
    gate: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def handler(request: Request) -> Answer:
        if request.path == "/slow":
            await gate
        return Response(200, request.path.encode())

    async with listening(handler) as (connect, server):
        peer = await connect()
        peer.request(1, "/slow")
        peer.request(3, "/fast")
        assert (await peer.answer(3)).body == b"/fast"
        assert 1 not in peer.answers
        gate.set_result(None)
        assert (await peer.answer(1)).body == b"/slow"


async def test_a_request_has_its_target_headers_and_body(listening: Listen) -> None:
    seen: list[Request] = []

    async def handler(request: Request) -> Answer:
        seen.append(request)
        return Response(201, b"made", b"text/plain", ((b"Warning", b"299"),))

    async with listening(handler) as (connect, server):
        peer = await connect()
        peer.request(1, "/a%20b?x=%3D", "POST", [(b"accept", b"a"), (b"accept", b"b"), (b"cookie", b"1"),
                     (b"cookie", b"2"), (b"impersonate-group", b"x"), (b"impersonate-group", b"y")], end=False)  # fmt: skip
        peer.send(DATA, 0, 1, b"abc")
        peer.send(DATA, PADDED | END_STREAM, 1, b"\x02defxx")
        answer = await peer.answer(1)
        (request,) = seen
        assert (request.method, request.path, request.query, request.body) == ("POST", "/a b", "x=%3D", b"abcdef")
        assert request.headers == {
            b"accept": b"a, b", b"cookie": b"1; 2", b"impersonate-group": b"x\x00y", b"host": b"h"
        }  # fmt: skip
        assert answer.headers == {
            b"content-type": b"text/plain", b"cache-control": b"no-cache", b"warning": b"299", b"content-length": b"4"
        }  # fmt: skip
        assert (answer.status, answer.body) == (201, b"made")


async def test_answers_without_a_body_end_with_their_headers(listening: Listen) -> None:
    async def handler(request: Request) -> Answer:
        return Response(200, b"body" if request.method == "HEAD" else b"")

    async with listening(handler) as (connect, server):
        peer = await connect()
        peer.request(1, method="HEAD")
        assert (await peer.answer(1)).headers[b"content-length"] == b"4"
        peer.request(3)
        assert (await peer.answer(3)).headers[b"content-length"] == b"0"
        assert not [found for found in peer.frames if found.kind == DATA]


async def test_headers_that_repeat_take_one_octet_and_a_client_may_have_no_table(listening: Listen) -> None:
    async with listening(echo) as (connect, server):
        peer = await connect()
        sizes = []
        for stream in (1, 3, 5):
            peer.request(stream)
            await peer.answer(stream)
            sizes.append(len(next(f for f in peer.frames if f.kind == HEADERS and f.stream == stream).payload))
        assert sizes[0] > 25
        assert sizes[1] < 10
        peer.decoder.max_allowed_table_size = 0
        peer.send(SETTINGS, 0, 0, struct.pack(">HI", TABLE_SIZE, 0))
        for stream in (7, 9):
            peer.request(stream)
            assert (await peer.answer(stream)).headers[b"cache-control"] == b"no-cache"


async def test_a_handler_that_fails_or_takes_too_long_gets_an_error(listening: Listen, clock: FakeClock) -> None:
    async def handler(request: Request) -> Answer:
        if request.path == "/broken":
            raise ValueError("broken")
        await asyncio.get_running_loop().create_future()
        raise AssertionError

    async with listening(handler, HttpLimits(request_timeout_s=5)) as (connect, server):
        peer = await connect()
        peer.request(1, "/broken")
        assert (await peer.answer(1)).status == 500
        peer.request(3, "/slow")
        await eventually(lambda: server.connections)
        await clock.advance(5 + 2 * SWEEP_S)
        assert (await peer.answer(3)).body == b"RequestTimedOut()"


async def test_many_requests_at_once_leave_room_for_other_connections(listening: Listen) -> None:
    turns: list[int] = [0]

    async def handler(request: Request) -> Answer:
        turns[-1] += 1
        return Response(200, b"x")

    async with listening(handler) as (connect, server):
        peer = await connect()
        await peer.until(SETTINGS)

        def count() -> None:
            if turns[-1]:
                turns.append(0)
            if sum(turns) < 500:
                asyncio.get_running_loop().call_soon(count)

        count()
        peer.writer.write(b"".join(frame(HEADERS, 5, 2 * n + 1, peer.block()) for n in range(500)))
        await peer.answer(999)
        assert max(turns) <= TURN


# -- windows ---------------------------------------------------------------------------------------------------------


async def test_an_answer_is_sent_as_far_as_the_clients_windows_allow(listening: Listen) -> None:
    async def handler(request: Request) -> Answer:
        return Response(200, b"0123456789" * 10)

    async with listening(handler) as (connect, server):
        peer = await connect([(INITIAL_WINDOW, 30)])
        peer.request(1)
        assert len(await peer.body_of(1, 30)) == 30
        peer.send(WINDOW_UPDATE, 0, 1, WORD(25))
        assert len(await peer.body_of(1, 55)) == 55
        peer.send(SETTINGS, 0, 0, struct.pack(">HI", INITIAL_WINDOW, 35))
        assert len(await peer.body_of(1, 60)) == 60
        peer.send(SETTINGS, 0, 0, struct.pack(">HI", INITIAL_WINDOW, 0))  # the window is negative now
        peer.send(WINDOW_UPDATE, 0, 1, WORD(35 + 40))
        assert (await peer.answer(1)).body == b"0123456789" * 10


async def test_a_window_of_the_connection_holds_for_all_streams_together(listening: Listen) -> None:
    async def handler(request: Request) -> Answer:
        return Response(200, b"x" * 50_000)

    async with listening(handler) as (connect, server):
        peer = await connect()
        peer.request(1)
        peer.request(3)

        def received() -> int:
            return sum(len(answer.body) for answer in peer.answers.values())

        while received() < 65_535:
            await peer.next()
        assert received() == 65_535
        peer.send(WINDOW_UPDATE, 0, 0, WORD(100_000))
        assert len((await peer.answer(1)).body) == len((await peer.answer(3)).body) == 50_000


async def test_long_answers_take_turns(listening: Listen) -> None:
    async def handler(request: Request) -> Answer:
        return Response(200, [b"x" * 10_000] * 40)

    async with listening(handler) as (connect, server):
        peer = await connect([(INITIAL_WINDOW, 10**6)])
        peer.send(WINDOW_UPDATE, 0, 0, WORD(10**7))
        peer.request(1)
        peer.request(3)
        await peer.answer(1)
        assert len(peer.answers[3].body) > 300_000
        await peer.answer(3)
        sizes = [len(found.payload) for found in peer.frames if found.kind == DATA]
        assert max(sizes) <= 16_384


async def test_a_large_body_is_taken_and_the_client_may_send_on(listening: Listen) -> None:
    async with listening(echo, HttpLimits(body_bytes=3_000_000)) as (connect, server):
        peer = await connect()
        peer.request(1, method="POST", end=False)
        left, window, of_stream = 2_000_000, 65_535, 0
        await peer.until(SETTINGS)
        of_stream += 256 * 1024
        while left:
            while min(window, of_stream) < 16_384:
                found = await peer.until(WINDOW_UPDATE)
                if found.stream:
                    of_stream += found.word
                else:
                    window += found.word
            size = min(left, 16_384)
            left, window, of_stream = left - size, window - size, of_stream - size
            peer.send(DATA, 0 if left else END_STREAM, 1, b"x" * size)
        assert (await peer.answer(1)).body.endswith(b" 2000000")
        assert server.pending_in == 0


# -- limits ----------------------------------------------------------------------------------------------------------


async def test_a_body_over_the_limit_is_refused_and_the_connection_goes_on(listening: Listen) -> None:
    async with listening(echo, HttpLimits(body_bytes=1000)) as (connect, server):
        peer = await connect()
        peer.request(1, method="POST", headers=[(b"content-length", b"1001")], end=False)
        assert (await peer.answer(1)).status == 413
        assert (await peer.until(RST_STREAM)).word == NO_ERROR
        peer.request(3, method="POST", end=False)
        peer.send(DATA, 0, 3, b"x" * 600)
        peer.send(DATA, 0, 3, b"x" * 600)
        assert (await peer.answer(3)).status == 413
        assert await peer.is_served(5)
        assert server.pending_in == 0


async def test_unfinished_bodies_of_all_connections_have_a_limit(listening: Listen) -> None:
    limits = HttpLimits(pending_in_bytes=1000, small_body_bytes=100)
    async with listening(echo, limits) as (connect, server):
        peer = await connect()
        peer.request(1, method="POST", end=False)
        peer.send(DATA, 0, 1, b"x" * 990)
        peer.request(3, method="POST", end=False)
        peer.send(DATA, 0, 3, b"x" * 101)
        assert (await peer.answer(3)).status == 503
        peer.request(5, method="POST", end=False)
        peer.send(DATA, END_STREAM, 5, b"x" * 100)
        assert (await peer.answer(5)).status == 200
        peer.send(RST_STREAM, 0, 1, WORD(8))
        await eventually(lambda: server.pending_in == 0)


@pytest.mark.parametrize(
    "blocks",
    [
        [b"\x00\x01a\x7f\xb0\x20" + b"x" * 4143] * 20,  # large as they stand
        [b"\x40\x01a\x7f\xf0\x1d" + b"x" * 3951 + b"\xbe" * 200],  # grows when it is decoded
        [b""] * 100,  # nothing, again and again
    ],
)
async def test_a_header_flood_is_answered_431_and_ends_the_connection(listening: Listen, blocks: list[bytes]) -> None:
    """CONTINUATION frames without end, and fields that are repeated out of the table."""
    async with listening(echo) as (connect, server):
        peer = await connect()
        first, *rest = blocks
        begun = peer.block() + first
        peer.send(HEADERS, END_STREAM | (0 if rest else END_HEADERS), 1, begun)
        for block in rest:
            peer.send(CONTINUATION, 0, 1, block)
        assert (await peer.answer(1)).status == 431
        assert (await peer.until(GOAWAY)).reason == ENHANCE_YOUR_CALM
        await peer.closed()


async def test_more_streams_than_offered_are_refused_and_the_others_go_on(listening: Listen) -> None:
    gate: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def handler(request: Request) -> Answer:
        await asyncio.shield(gate)
        return Response(200, b"x")

    async with listening(handler) as (connect, server):
        peer = await connect()
        for number in range(STREAMS + 1):
            peer.request(2 * number + 1)
        assert await peer.until(RST_STREAM) == (RST_STREAM, 0, 2 * STREAMS + 1, WORD(REFUSED_STREAM))
        gate.set_result(None)
        assert (await peer.answer(2 * STREAMS - 1)).status == 200


@pytest.mark.parametrize(("limits", "status"), [({"connections": 1}, 503), ({"connections_per_address": 1}, 429)])
async def test_a_connection_over_the_limit_is_told_so(listening: Listen, limits: dict[str, int], status: int) -> None:
    async with listening(echo, HttpLimits(**limits)) as (connect, server):
        first = await connect()
        assert await first.is_served(1)
        second = await connect()
        second.request(1)
        while 1 not in second.ended:
            await second.next()
        assert second.answers[1].status == status
        assert second.answers[1].headers[b"retry-after"] == b"1"
        await second.closed()
        assert await first.is_served(3)


async def test_a_client_that_ignores_retry_after_waits_for_its_next_refusal_and_other_requests_do_not(
    listening: Listen, clock: FakeClock
) -> None:
    async def handler(request: Request) -> Answer:
        if request.path == "/alive":
            return Response(200, b"x")
        refused = RefusedRequest(429, b"busy")
        refused.hold_s = 1.0
        return refused

    async with listening(handler) as (connect, server):
        peer = await connect()
        peer.request(1, "/busy")
        assert (await peer.answer(1)).status == 429
        peer.request(3, "/busy")
        assert await peer.is_served(5)
        assert 3 not in peer.answers
        await clock.advance(1.0)
        assert (await peer.answer(3)).status == 429


# -- attacks ---------------------------------------------------------------------------------------------------------

Attack = Callable[[Http2Peer, int], None]


def rapid_reset(peer: Http2Peer, number: int) -> None:
    peer.request(2 * number + 1, "/wait")
    peer.send(RST_STREAM, 0, 2 * number + 1, WORD(8))


def made_to_reset(peer: Http2Peer, number: int) -> None:
    """The client makes the server reset the stream."""
    peer.request(2 * number + 1, "/wait")
    peer.send(WINDOW_UPDATE, 0, 2 * number + 1, WORD(0))


def malformed(peer: Http2Peer, number: int) -> None:
    peer.request(2 * number + 1, headers=[(b"connection", b"close")])


def after_the_end(peer: Http2Peer, number: int) -> None:
    if not number:
        peer.request(1)
    peer.send(DATA, 0, 1, b"x")


def empty_data(peer: Http2Peer, number: int) -> None:
    if not number:
        peer.request(1, method="POST", end=False)
    peer.send(DATA, 0, 1)


def pings(peer: Http2Peer, number: int) -> None:
    peer.send(PING, 0, 0, b"12345678")


def changing_settings(peer: Http2Peer, number: int) -> None:
    peer.send(SETTINGS, 0, 0, struct.pack(">HI", INITIAL_WINDOW, number))


def priorities(peer: Http2Peer, number: int) -> None:
    peer.send(PRIORITY, 0, 2 * number + 3, b"\x00\x00\x00\x01\x10")


def unknown_frames(peer: Http2Peer, number: int) -> None:
    peer.send(99, 0, 0, b"x")


@pytest.mark.parametrize(
    "attack",
    [
        rapid_reset,
        made_to_reset,
        malformed,
        after_the_end,
        empty_data,
        pings,
        changing_settings,
        priorities,
        unknown_frames,
    ],
)
async def test_a_flood_of_frames_that_only_cost_ends_the_connection(
    listening: Listen, attack: Attack, clock: FakeClock
) -> None:
    begun: list[Request] = []

    async def handler(request: Request) -> Answer:
        begun.append(request)
        if request.path == "/wait":
            await asyncio.get_running_loop().create_future()
        return Response(200, b"x")

    async with listening(handler) as (connect, server):
        peer, other = await connect(), await connect()
        number = 0
        for _ in range(3):  # within the allowance, and it grows again with time
            for _ in range(300):
                attack(peer, number)
                number += 1
            await clock.advance(10.0)
        for _ in range(int(ALLOWANCE) + 300):
            attack(peer, number)
            number += 1
        assert await peer.goodbye() == ENHANCE_YOUR_CALM
        assert len(begun) < ALLOWANCE + 3 * 330 + 10
        await eventually(lambda: len(server.connections) == 1)
        assert await other.is_served(1)


async def test_a_client_that_does_not_read_is_not_read_from(listening: Listen, clock: FakeClock) -> None:
    answered = 0

    async def handler(request: Request) -> Answer:
        nonlocal answered
        answered += 1
        return Response(200, b"x" * 16_000)

    async with listening(handler, HttpLimits(reader_timeout_s=5, idle_timeout_s=3600)) as (connect, server):
        peer = await connect([(INITIAL_WINDOW, 2**31 - 1)])
        peer.send(WINDOW_UPDATE, 0, 0, WORD(2**31 - 1 - 65_535))
        peer.writer.transport.pause_reading()  # type: ignore[attr-defined]
        for number in range(5000):
            peer.request(2 * number + 1)
        last = -1
        while answered != last:
            last = answered
            for _ in range(200):
                await asyncio.sleep(0)
        assert 0 < answered < 2500
        peer.writer.write(b"x" * 20_000_000)
        for _ in range(200):
            await asyncio.sleep(0)
        assert peer.writer.transport.get_write_buffer_size() > 10_000_000
        await clock.advance(5 + 3 * SWEEP_S)
        await eventually(lambda: not server.connections)


async def test_a_stream_that_is_not_read_is_reset_and_the_others_go_on(listening: Listen, clock: FakeClock) -> None:
    released: list[str] = []

    async def handler(request: Request) -> Answer:
        if request.path == "/alive":
            return Response(200, b"x")
        answer = LongResponse(200, b"x" * 1000)
        answer.on_sent = lambda: released.append("sent")
        return answer

    async with listening(handler, HttpLimits(reader_timeout_s=5)) as (connect, server):
        peer = await connect([(INITIAL_WINDOW, 10)])
        peer.request(1, "/long")
        await peer.body_of(1, 10)
        await clock.advance(3)
        peer.send(WINDOW_UPDATE, 0, 1, WORD(10))  # it reads, if slowly
        await peer.body_of(1, 20)
        await clock.advance(4)
        assert await peer.is_served(3)
        assert not released
        await clock.advance(5 + SWEEP_S)
        assert (await peer.until(RST_STREAM)).stream == 1
        assert released == ["sent"]
        assert await peer.is_served(5)


async def test_requests_frames_and_greetings_that_never_end_are_given_up(listening: Listen, clock: FakeClock) -> None:
    async with listening(echo, HttpLimits(header_timeout_s=5, idle_timeout_s=3600)) as (connect, server):
        slow = await connect()
        slow.request(1, method="POST", end=False)
        slow.send(DATA, 0, 1, b"x")
        half = await connect()
        half.writer.write(head(HEADERS, 5, 1, 100) + b"abc")
        block = await connect()
        block.send(HEADERS, 0, 1, b"\x82")
        silent = await connect(greet=False)
        silent.writer.write(PREFACE[:5])
        for peer in (slow, half, block, silent):
            await peer.until(SETTINGS)
        await eventually(lambda: server.pending_in == 1)
        await clock.advance(5 + 2 * SWEEP_S)
        assert (await slow.until(RST_STREAM)).stream == 1
        await half.closed()
        await block.closed()
        await silent.closed()
        assert server.pending_in == 0
        assert await slow.is_served(3)


async def test_an_idle_connection_is_told_before_it_is_closed(listening: Listen, clock: FakeClock) -> None:
    async with listening(echo, HttpLimits(idle_timeout_s=30)) as (connect, server):
        peer = await connect()
        assert await peer.is_served(1)
        await clock.advance(20)
        assert await peer.is_served(3)
        await clock.advance(20)
        assert await peer.is_served(5)
        await clock.advance(30 + 2 * SWEEP_S)
        assert await peer.goodbye() == NO_ERROR


# -- what breaks the protocol ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "headers",
    [
        [(b":method", b"GET"), (b":scheme", b"https")],  # no path
        [(b":method", b"GET"), (b":path", b"/"), (b":scheme", b"https"), (b":path", b"/")],
        [(b":method", b"GET"), (b":path", b"/"), (b"a", b"b"), (b":scheme", b"https")],
        [(b":method", b"GET"), (b":path", b""), (b":scheme", b"https")],
        [(b":method", b"GET"), (b":path", b"a b"), (b":scheme", b"https")],
        [(b":method", b"GET "), (b":path", b"/"), (b":scheme", b"https")],
        [(b":method", b"CONNECT"), (b":authority", b"h")],
        [(b":method", b"GET"), (b":path", b"/"), (b":scheme", b"https"), (b":status", b"200")],
        *(
            [(b":method", b"GET"), (b":path", b"/"), (b":scheme", b"https"), field]
            for field in [
                (b"Accept", b"x"), (b"", b"x"), (b"a b", b"x"), (b"a", b"x\r\nb: c"), (b"a", b"x\x00"), (b"a", b" x"),
                (b"connection", b"upgrade"), (b"upgrade", b"websocket"), (b"transfer-encoding", b"chunked"),
                (b"te", b"gzip"), (b"content-length", b"5"), (b"content-length", b"0, 5"), (b"content-length", b"-1"),
            ]
        ),
    ],
)  # fmt: skip
async def test_a_malformed_request_is_reset_before_a_handler_sees_it(
    listening: Listen, headers: list[tuple[bytes, bytes]]
) -> None:
    seen: list[str] = []

    async def handler(request: Request) -> Answer:
        seen.append(request.path)
        return Response(200, b"x")

    async with listening(handler) as (connect, server):
        peer = await connect()
        for stream in (1, 3):  # also out of the table
            peer.send(HEADERS, END_STREAM | END_HEADERS, stream, peer.encoder.encode(headers))
            assert (await peer.until(RST_STREAM)).word == PROTOCOL_ERROR
        assert await peer.is_served(5)
        assert seen == ["/alive"]


@pytest.mark.parametrize("sent", [b"12", b"123456"])
async def test_a_body_of_another_length_than_the_request_says_is_no_request(listening: Listen, sent: bytes) -> None:
    seen: list[bytes] = []

    async def handler(request: Request) -> Answer:
        seen.append(request.body)
        return Response(200, b"x")

    async with listening(handler) as (connect, server):
        peer = await connect()
        peer.request(1, method="POST", headers=[(b"content-length", b"5")], end=False)
        peer.send(DATA, END_STREAM, 1, sent)
        assert (await peer.until(RST_STREAM)).word == PROTOCOL_ERROR
        assert await peer.is_served(3)
        assert seen == [b""]
        assert server.pending_in == 0


Breach = Callable[[Http2Peer], None]


@pytest.mark.parametrize(
    ("breach", "reason"),
    [
        (lambda peer: peer.send(DATA, 0, 1, b"x"), PROTOCOL_ERROR),
        (lambda peer: peer.send(DATA, 0, 0, b"x"), PROTOCOL_ERROR),
        (lambda peer: peer.send(RST_STREAM, 0, 1, WORD(8)), PROTOCOL_ERROR),
        (lambda peer: peer.send(RST_STREAM, 0, 1, b"abc"), FRAME_SIZE_ERROR),
        (lambda peer: peer.send(WINDOW_UPDATE, 0, 1, WORD(8)), PROTOCOL_ERROR),
        (lambda peer: peer.send(WINDOW_UPDATE, 0, 0, WORD(0)), PROTOCOL_ERROR),
        (lambda peer: peer.send(WINDOW_UPDATE, 0, 0, WORD(2**31 - 1)), FLOW_CONTROL_ERROR),
        (lambda peer: peer.send(HEADERS, 5, 2, peer.block()), PROTOCOL_ERROR),
        (lambda peer: peer.send(HEADERS, 5, 0, peer.block()), STREAM_CLOSED),
        (lambda peer: peer.send(HEADERS, 5, 1, b"\xbf"), COMPRESSION_ERROR),
        (lambda peer: peer.send(HEADERS, 5 | PADDED, 1, b"\x09abc"), PROTOCOL_ERROR),
        (lambda peer: peer.send(HEADERS, 5 | HAS_PRIORITY, 1, b"abc"), FRAME_SIZE_ERROR),
        (lambda peer: peer.send(HEADERS, 5 | HAS_PRIORITY, 1, WORD(1) + b"x" + peer.block()), PROTOCOL_ERROR),
        (lambda peer: (peer.send(HEADERS, 1, 1, peer.block()), peer.send(PING, 0, 0, b"x" * 8)), PROTOCOL_ERROR),
        (lambda peer: peer.send(CONTINUATION, 4, 1, b""), PROTOCOL_ERROR),
        (lambda peer: peer.send(PUSH_PROMISE, 4, 1, b"abcd"), PROTOCOL_ERROR),
        (lambda peer: peer.send(SETTINGS, 0, 1), PROTOCOL_ERROR),
        (lambda peer: peer.send(SETTINGS, 1, 0, b"abcdef"), FRAME_SIZE_ERROR),
        (lambda peer: peer.send(SETTINGS, 0, 0, b"abc"), FRAME_SIZE_ERROR),
        (lambda peer: peer.send(SETTINGS, 0, 0, struct.pack(">HI", INITIAL_WINDOW, 2**31)), FLOW_CONTROL_ERROR),
        (lambda peer: peer.send(SETTINGS, 0, 0, struct.pack(">HI", LARGEST_FRAME, 5)), PROTOCOL_ERROR),
        (lambda peer: peer.send(SETTINGS, 0, 0, struct.pack(">HI", 2, 2)), PROTOCOL_ERROR),
        (lambda peer: peer.send(PING, 0, 0, b"abc"), FRAME_SIZE_ERROR),
        (lambda peer: peer.send(PING, 0, 3, b"x" * 8), PROTOCOL_ERROR),
        (lambda peer: peer.send(GOAWAY, 0, 1, b"x" * 8), PROTOCOL_ERROR),
        (lambda peer: peer.send(PRIORITY, 0, 1, b"abc"), FRAME_SIZE_ERROR),
        (lambda peer: peer.send(PRIORITY, 0, 1, WORD(1) + b"x"), PROTOCOL_ERROR),
        (lambda peer: peer.writer.write(head(DATA, 0, 1, 16_385)), FRAME_SIZE_ERROR),
    ],
)
async def test_a_breach_of_the_protocol_ends_the_connection_with_its_reason(
    listening: Listen, breach: Breach, reason: int
) -> None:
    async with listening(echo) as (connect, server):
        peer = await connect()
        breach(peer)
        assert await peer.goodbye() == reason
        assert not server.connections


async def test_a_client_that_does_not_speak_http2_is_told_so(listening: Listen) -> None:
    async with listening(echo) as (connect, server):
        peer = await connect(greet=False)
        peer.writer.write(b"GET / HTTP/1.1\r\n\r\n")
        assert await peer.goodbye() == PROTOCOL_ERROR
        other = await connect(greet=False)
        other.writer.write(PREFACE + frame(PING, 0, 0, b"x" * 8))
        assert await other.goodbye() == PROTOCOL_ERROR


async def test_a_client_that_ignores_a_streams_window_loses_the_stream(listening: Listen) -> None:
    async def handler(request: Request) -> Answer:
        await asyncio.get_running_loop().create_future()
        raise AssertionError

    # the body is handed on and nobody takes it: no stream gives room back
    async with listening(handler, hands_on=lambda target: True) as (connect, server):
        peer = await connect()
        peer.request(1, method="POST", end=False)
        for _ in range(40):
            peer.send(DATA, 0, 1, b"x" * 16_384)
        assert (await peer.until(RST_STREAM)).word == FLOW_CONTROL_ERROR


# -- stopping --------------------------------------------------------------------------------------------------------


async def test_a_stop_finishes_running_requests_and_refuses_new_ones(listening: Listen) -> None:
    gate: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    begun: list[str] = []

    async def handler(request: Request) -> Answer:
        begun.append(request.path)
        await asyncio.shield(gate)
        return Response(200, b"done")

    async with listening(handler) as (connect, server):
        peer, idle = await connect(), await connect()
        await idle.until(SETTINGS)
        peer.request(1, "/running")
        peer.request(3, "/unfinished", "POST", end=False)
        await eventually(lambda: begun)
        stopping = asyncio.create_task(server.stop(grace_s=10), name="stop")
        assert await idle.goodbye() == NO_ERROR
        farewell = await peer.until(GOAWAY)
        assert (farewell.reason, farewell.word) == (NO_ERROR, 3)
        assert (await peer.until(RST_STREAM)) == (RST_STREAM, 0, 3, WORD(REFUSED_STREAM))
        peer.request(5, "/late")
        gate.set_result(None)
        assert (await peer.answer(1)).body == b"done"
        await peer.closed()
        await stopping
        assert begun == ["/running"]


async def test_a_client_that_goes_away_ends_its_handlers(listening: Listen) -> None:
    ended: list[str] = []

    async def handler(request: Request) -> Answer:
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            ended.append(request.path)
        raise AssertionError

    async with listening(handler) as (connect, server):
        peer = await connect()
        peer.request(1, "/a")
        peer.request(3, "/b")
        peer.send(RST_STREAM, 0, 1, WORD(8))
        await eventually(lambda: ended == ["/a"])
        peer.writer.close()
        await eventually(lambda: ended == ["/a", "/b"])
