"""Servers that are slow on purpose: each deadline ends the exchange at its own instant, and none too early."""

from __future__ import annotations

import asyncio

import pytest

from shoal.base.clock import FakeClock
from shoal.base.http1.connection import ClientConnection
from shoal.base.http1.errors import AnswerTimedOut
from shoal.base.http1.limits import AnswerLimits, Deadlines
from shoal.errors import ConfigError
from shoal.testing.http_peer import GET, OK, connected, saying
from shoal.testing.waiting import eventually


class Dribble:
    """Sends the next byte whenever it is told to, and waits until the client has seen it."""

    def __init__(self, data: bytes) -> None:
        self._data = iter(data)
        self._writer: asyncio.StreamWriter | None = None
        self.asked = asyncio.Event()

    async def talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        self._writer = writer
        self.asked.set()
        await reader.read()

    async def send(self, count: int = 1) -> None:
        assert self._writer is not None
        self._writer.write(bytes(next(self._data) for _ in range(count)))
        await self._writer.drain()
        for _ in range(50):  # loopback: the event loop hands it over in a few iterations
            await asyncio.sleep(0)


async def test_no_answer_ends_at_the_deadline_for_the_head(clock: FakeClock) -> None:
    peer = Dribble(b"")
    async with connected(peer.talk, clock=clock) as connection:
        asking = asyncio.create_task(connection.stream(GET, Deadlines(head_s=5)), name="asking")
        await peer.asked.wait()
        await clock.advance(4.9)
        assert not asking.done()
        await clock.advance(0.1)
        with pytest.raises(AnswerTimedOut, match=r"127\.0\.0\.1:\d+ did not answer within 5 s"):
            await asking
        assert not connection.reusable
        assert clock.pending == 0


async def test_a_head_that_dribbles_does_not_move_its_deadline(clock: FakeClock) -> None:
    peer = Dribble(OK + b"x: " + b"y" * 100)
    async with connected(peer.talk, clock=clock) as connection:
        asking = asyncio.create_task(connection.stream(GET, Deadlines(head_s=5, idle_s=2)), name="asking")
        await peer.asked.wait()
        for _ in range(5):
            assert not asking.done()
            await peer.send()
            await clock.advance(1)
        with pytest.raises(AnswerTimedOut, match="did not answer within 5 s"):
            await asking


async def test_preliminary_answers_do_not_move_the_deadline(clock: FakeClock) -> None:
    again = b"HTTP/1.1 102 Processing\r\n\r\n"
    peer = Dribble(again * 5)
    async with connected(peer.talk, clock=clock) as connection:
        asking = asyncio.create_task(connection.stream(GET, Deadlines(head_s=5)), name="asking")
        await peer.asked.wait()
        for _ in range(5):
            await peer.send(len(again))
            await clock.advance(1)
        with pytest.raises(AnswerTimedOut):
            await asking


async def test_a_body_that_stalls_ends_after_the_idle_time_and_one_that_moves_does_not(clock: FakeClock) -> None:
    peer = Dribble(OK + b"content-length: 9\r\n\r\n" + b"123456789")
    head = len(OK + b"content-length: 9\r\n\r\n")
    async with connected(peer.talk, clock=clock) as connection:
        asking = asyncio.create_task(connection.stream(GET, Deadlines(head_s=5, idle_s=2)), name="asking")
        await peer.asked.wait()
        await peer.send(head)
        answer = await asking
        for _ in range(6):
            await clock.advance(1.5)
            await peer.send()
        assert await answer.read() == b"123456"
        reading = asyncio.create_task(answer.read(), name="reading")
        await clock.advance(1.9)
        assert not reading.done()
        await clock.advance(0.1)
        with pytest.raises(AnswerTimedOut, match="sent nothing more of its answer for 2 s") as caught:
            await reading
        assert caught.value.head_arrived


async def test_a_whole_answer_that_stalls_ends_after_the_idle_time(clock: FakeClock) -> None:
    peer = Dribble(OK + b"content-length: 9\r\n\r\n" + b"123456789")
    async with connected(peer.talk, clock=clock) as connection:
        asking = asyncio.create_task(connection.request(GET, Deadlines(idle_s=2)), name="asking")
        await peer.asked.wait()
        await peer.send(45 - len("content-length: 9"))
        await peer.send(12)
        await clock.advance(2)
        with pytest.raises(AnswerTimedOut, match="nothing more"):
            await asking


async def test_a_body_that_dribbles_ends_at_the_deadline_for_the_whole(clock: FakeClock) -> None:
    peer = Dribble(OK + b"content-length: 99\r\n\r\n" + b"x" * 99)
    async with connected(peer.talk, clock=clock) as connection:
        asking = asyncio.create_task(connection.request(GET, Deadlines(total_s=10, idle_s=3)), name="asking")
        await peer.asked.wait()
        await peer.send(len(OK + b"content-length: 99\r\n\r\n"))
        for _ in range(10):
            assert not asking.done()
            await peer.send()
            await clock.advance(1)
        with pytest.raises(AnswerTimedOut, match="did not complete its answer within 10 s"):
            await asking


async def test_a_stream_outlives_the_deadline_of_its_head(clock: FakeClock) -> None:
    peer = Dribble(OK + b"transfer-encoding: chunked\r\n\r\n" + b"1\r\nx\r\n")
    async with connected(peer.talk, clock=clock) as connection:
        asking = asyncio.create_task(connection.stream(GET, Deadlines(head_s=5)), name="asking")
        await peer.asked.wait()
        await peer.send(len(OK + b"transfer-encoding: chunked\r\n\r\n"))
        answer = await asking
        await clock.advance(3600)
        await peer.send(6)
        assert await answer.read() == b"x"
        assert clock.pending == 0


async def test_time_in_which_the_reader_holds_the_peer_back_does_not_count(clock: FakeClock) -> None:
    async with connected(
        saying(OK + b"content-length: 100\r\n\r\n" + b"x" * 50), clock=clock, limits=AnswerLimits(buffered_bytes=10)
    ) as connection:
        answer = await connection.stream(GET, Deadlines(idle_s=2))
        await eventually(lambda: answer.unread_bytes == 50)
        await clock.advance(60)
        assert not answer.ended
        assert await answer.read() == b"x" * 50
        reading = asyncio.create_task(answer.read(), name="reading")
        await clock.advance(2)
        with pytest.raises(AnswerTimedOut):
            await reading


async def test_a_finished_exchange_leaves_no_timer_behind(clock: FakeClock) -> None:
    async def ask(connection: ClientConnection) -> None:
        await connection.request(GET, Deadlines(head_s=5, total_s=10, idle_s=1))
        assert clock.pending == 0

    ok = OK + b"content-length: 2\r\n\r\nok"
    async with connected(saying(ok, ok), clock=clock) as connection:
        await ask(connection)
        await clock.advance(60)
        await ask(connection)


async def test_a_chunk_extension_that_never_ends_is_cut_off_by_the_idle_time_or_by_its_size(clock: FakeClock) -> None:
    peer = Dribble(OK + b"transfer-encoding: chunked\r\n\r\n" + b"1;" + b"a" * 1000)
    async with connected(peer.talk, clock=clock, limits=AnswerLimits(head_bytes=100)) as connection:
        asking = asyncio.create_task(connection.request(GET, Deadlines(total_s=5, idle_s=2)), name="asking")
        await peer.asked.wait()
        await peer.send(len(OK + b"transfer-encoding: chunked\r\n\r\n") + 4)
        await clock.advance(2)
        with pytest.raises(AnswerTimedOut):
            await asking


@pytest.mark.parametrize("name", ["head_s", "total_s", "idle_s"])
def test_a_deadline_of_no_time_is_a_mistake(name: str) -> None:
    with pytest.raises(ConfigError):
        Deadlines(**{name: 0.0})
