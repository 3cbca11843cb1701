"""Streaming answers and bodies over HTTP/2: watches, answers of backends, bodies that are handed on."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Sequence

from tests.unit.apiserver.http2.http2_peer import Listen

from shoal.apiserver.http import SWEEP_S
from shoal.apiserver.http2.frames import (
    CANCEL,
    DATA,
    END_STREAM,
    GOAWAY,
    HTTP_1_1_REQUIRED,
    INITIAL_WINDOW,
    INTERNAL_ERROR,
    NO_ERROR,
    RST_STREAM,
    WINDOW_UPDATE,
)
from shoal.apiserver.messages import Answer, HttpLimits, Relay, Request, Response, Sink, Upgrade, Wire, frame
from shoal.base.clock import FakeClock
from shoal.testing.waiting import eventually

WORD = struct.Struct(">I").pack


class Ticks:
    """A stream that the test writes to."""

    status = 200
    content_type = b"application/json"
    headers: Sequence[tuple[bytes, bytes]] = ((b"Audit-Id", b"1"),)

    def __init__(self) -> None:
        self.sink: Sink | None = None
        self.closed = 0
        self.told = 0

    def attach(self, sink: Sink) -> None:
        self.sink = sink

    def on_writable(self) -> None:
        self.told += 1

    def on_closed(self) -> None:
        self.closed += 1

    async def open(self) -> Sink:
        await eventually(lambda: self.sink is not None)
        assert self.sink is not None
        return self.sink


class BackendTicks(Ticks, Relay):
    def __init__(self, length: int | None, headers: Sequence[tuple[bytes, bytes]] = ()) -> None:
        Relay.__init__(self, 200, b"text/plain", headers, length=length, own_headers=True)
        Ticks.__init__(self)


async def test_a_watch_sends_its_events_as_they_come_and_ends(listening: Listen) -> None:
    ticks = Ticks()

    async def handler(request: Request) -> Answer:
        return ticks

    async with listening(handler) as (connect, server):
        peer = await connect()
        peer.request(1)
        sink = await ticks.open()
        sink.write(frame(b"one\n"))
        assert await peer.body_of(1, 4) == b"one\n"
        assert peer.answers[1].headers[b"audit-id"] == b"1"
        assert b"content-length" not in peer.answers[1].headers
        sink.write(frame(b"two\n"))
        sink.end()
        assert (await peer.answer(1)).body == b"one\ntwo\n"
        assert not ticks.closed


async def test_watchers_of_one_connection_get_the_same_events_in_one_write(listening: Listen) -> None:
    watches: list[Ticks] = []

    async def handler(request: Request) -> Answer:
        watches.append(Ticks())
        return watches[-1]

    async with listening(handler) as (connect, server):
        peer = await connect()
        for stream in range(1, 101, 2):
            peer.request(stream)
        await eventually(lambda: len(watches) == 50 and all(found.sink for found in watches))
        event = frame(b"x" * 1000)
        for found in watches:
            assert found.sink is not None
            found.sink.write(event)
            assert found.sink.writable
        for stream in range(1, 101, 2):
            assert len(await peer.body_of(stream, 1000)) == 1000


async def test_a_watcher_that_does_not_read_is_not_writable_and_the_others_are(listening: Listen) -> None:
    watches = {"/a": Ticks(), "/b": Ticks()}

    async def handler(request: Request) -> Answer:
        return watches[request.path]

    async with listening(handler) as (connect, server):
        peer = await connect([(INITIAL_WINDOW, 10)])
        peer.request(1, "/a")
        peer.request(3, "/b")
        slow, other = await watches["/a"].open(), await watches["/b"].open()
        slow.write(frame(b"x" * 25))
        assert not slow.writable
        assert other.writable
        other.write(frame(b"yes"))
        assert await peer.body_of(3, 3) == b"yes"
        assert await peer.body_of(1, 10)
        slow.write(frame(b"y" * 5))
        peer.send(WINDOW_UPDATE, 0, 1, WORD(100))
        assert await peer.body_of(1, 30) == b"x" * 25 + b"y" * 5
        await eventually(lambda: watches["/a"].told)
        assert slow.writable


async def test_a_crowded_connection_makes_its_watchers_wait_and_tells_them_when_there_is_room(
    listening: Listen,
) -> None:
    ticks = Ticks()

    async def handler(request: Request) -> Answer:
        return ticks

    async with listening(handler) as (connect, server):
        peer = await connect([(INITIAL_WINDOW, 2**31 - 1)])
        peer.send(WINDOW_UPDATE, 0, 0, WORD(2**31 - 1 - 65_535))
        peer.request(1)
        sink, size = await ticks.open(), 0
        while sink.writable:
            sink.write(frame(b"x" * 10_000))
            size += 10_000
        assert size < 1_000_000
        assert len(await peer.body_of(1, size)) == size
        await eventually(lambda: ticks.told)
        assert sink.writable


async def test_a_watch_that_its_client_resets_is_closed(listening: Listen) -> None:
    ticks = Ticks()

    async def handler(request: Request) -> Answer:
        return ticks

    async with listening(handler) as (connect, server):
        peer = await connect()
        peer.request(1)
        sink = await ticks.open()
        peer.send(RST_STREAM, 0, 1, WORD(CANCEL))
        await eventually(lambda: ticks.closed == 1)
        sink.write(frame(b"late"))
        sink.end()
        peer.request(3)
        await eventually(lambda: ticks.sink is not sink)
        peer.writer.close()
        await eventually(lambda: ticks.closed == 2)


async def test_a_stream_that_breaks_off_does_not_look_complete(listening: Listen) -> None:
    ticks = Ticks()

    async def handler(request: Request) -> Answer:
        return ticks

    async with listening(handler) as (connect, server):
        peer = await connect()
        peer.request(1)
        sink = await ticks.open()
        sink.write(frame(b"x"))
        sink.abort()
        assert (await peer.until(RST_STREAM)).word == INTERNAL_ERROR


async def test_a_stop_ends_watches_cleanly_and_breaks_off_what_has_no_end(listening: Listen) -> None:
    answers = {"/watch": Ticks(), "/logs": BackendTicks(None), "/file": BackendTicks(5)}

    async def handler(request: Request) -> Answer:
        return answers[request.path]

    async with listening(handler) as (connect, server):
        peer = await connect()
        for stream, path in ((1, "/watch"), (3, "/logs"), (5, "/file")):
            peer.request(stream, path)
            await answers[path].open()
        stopping = asyncio.create_task(server.stop(grace_s=10), name="stop")
        assert (await peer.until(GOAWAY)).reason == NO_ERROR
        assert (await peer.answer(1)).status == 200
        assert (await peer.until(RST_STREAM)).stream == 3
        sink = answers["/file"].sink
        assert sink is not None
        sink.write(frame(b"12345"))
        sink.end()
        assert (await peer.answer(5)).body == b"12345"
        await peer.closed()
        await stopping


async def test_a_backends_answer_has_its_own_headers_except_those_of_its_connection(listening: Listen) -> None:
    relay = BackendTicks(3, ((b"X-Own", b"1"), (b"Connection", b"close"), (b"Keep-Alive", b"5")))

    async def handler(request: Request) -> Answer:
        return relay

    async with listening(handler) as (connect, server):
        peer = await connect()
        peer.request(1)
        sink = await relay.open()
        sink.write(frame(b"abc"))
        sink.end()
        assert (await peer.answer(1)).headers == {b"x-own": b"1", b"content-length": b"3"}


async def test_a_body_is_handed_on_as_it_comes_and_waits_for_its_consumer(listening: Listen) -> None:
    got: list[bytes] = []
    requests: list[Request] = []
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def handler(request: Request) -> Answer:
        requests.append(request)
        assert request.incoming is not None
        request.incoming.attach(got.append, lambda: done.set_result(None))
        await done
        return Response(200, b"%d" % sum(map(len, got)))

    async with listening(handler, hands_on=lambda target: target.startswith(b"/proxy")) as (connect, server):
        peer = await connect()
        peer.request(1, "/proxy/x?a=b", "POST", end=False)
        peer.send(DATA, 0, 1, b"abc")
        await eventually(lambda: got == [b"abc"])
        incoming = requests[0].incoming
        assert incoming is not None
        incoming.pause()
        for _ in range(15):
            peer.send(DATA, 0, 1, b"x" * 16_384)
        await eventually(lambda: len(got) == 16)
        assert not [found for found in peer.frames if found.kind == WINDOW_UPDATE and found.stream == 1]
        incoming.resume()
        assert (await peer.until(WINDOW_UPDATE, 1)).word == 3 + 15 * 16_384
        peer.send(DATA, END_STREAM, 1)
        assert (await peer.answer(1)).body == b"%d" % (3 + 15 * 16_384)


async def test_an_answer_before_the_end_of_the_body_tells_the_client_to_stop_sending(listening: Listen) -> None:
    async def handler(request: Request) -> Answer:
        return Response(403, b"no")

    async with listening(handler, hands_on=lambda target: True) as (connect, server):
        peer = await connect()
        peer.request(1, "/proxy", "POST", end=False)
        assert (await peer.answer(1)).status == 403
        assert (await peer.until(RST_STREAM)).word == NO_ERROR


async def test_a_client_that_waits_for_100_continue_is_told_to_send(listening: Listen) -> None:
    async def handler(request: Request) -> Answer:
        return Response(200, request.body)

    async with listening(handler) as (connect, server):
        peer = await connect()
        peer.request(1, method="POST", headers=[(b"expect", b"100-continue")], end=False)
        while 1 not in peer.answers:
            await peer.next()
        assert peer.answers[1].status == 100
        peer.send(DATA, END_STREAM, 1, b"abc")
        assert (await peer.answer(1)).body == b"abc"


async def test_an_upgrade_needs_another_connection(listening: Listen) -> None:
    closed: list[bool] = []

    class Shell(Upgrade):
        def attach(self, wire: Wire) -> None:
            raise AssertionError

        def on_closed(self) -> None:
            closed.append(True)

    async def handler(request: Request) -> Answer:
        return Shell(())

    async with listening(handler) as (connect, server):
        peer = await connect()
        peer.request(1)
        assert (await peer.until(RST_STREAM)).word == HTTP_1_1_REQUIRED
        assert closed == [True]


async def test_a_watcher_behind_for_too_long_is_reset(listening: Listen, clock: FakeClock) -> None:
    ticks = Ticks()

    async def handler(request: Request) -> Answer:
        return ticks

    async with listening(handler, HttpLimits(reader_timeout_s=5)) as (connect, server):
        peer = await connect([(INITIAL_WINDOW, 10)])
        peer.request(1)
        sink = await ticks.open()
        await clock.advance(60)  # nothing to read is no fault of the client
        sink.write(frame(b"x" * 20))
        await clock.advance(4)
        assert not ticks.closed
        await clock.advance(2 + SWEEP_S)
        assert (await peer.until(RST_STREAM)).word == CANCEL
        assert ticks.closed == 1
