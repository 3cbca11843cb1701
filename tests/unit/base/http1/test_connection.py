"""One connection against a real socket: every framing, reuse, streams, upgrades and back-pressure."""

from __future__ import annotations

import asyncio

import pytest

from shoal.base.clock import RealClock
from shoal.base.http1.dial import dial
from shoal.base.http1.errors import Disconnected, InvalidAnswer, TransportError, Unreachable
from shoal.base.http1.limits import AnswerLimits
from shoal.base.http1.messages import LAST_CHUNK, chunk, request_bytes
from shoal.testing.http_peer import GET, HEAD, OK, connected, listening, saying
from shoal.testing.waiting import eventually

UPGRADE = b"GET / HTTP/1.1\r\nhost: x\r\nconnection: Upgrade\r\nupgrade: echo\r\n\r\n"
SWITCHED = b"HTTP/1.1 101 Switching Protocols\r\nconnection: Upgrade\r\nupgrade: echo\r\n\r\n"


@pytest.mark.parametrize(
    ("answer", "status", "body"),
    [
        (OK + b"content-length: 2\r\n\r\nok", 200, b"ok"),
        (OK + b"transfer-encoding: chunked\r\n\r\n1\r\no\r\n1;name=value\r\nk\r\n0\r\n\r\n", 200, b"ok"),
        (OK + b"Transfer-Encoding: Chunked\r\n\r\n2\r\nok\r\n0\r\nx-sum: 1\r\n\r\n", 200, b"ok"),
        (b"HTTP/1.1 100 Continue\r\n\r\n" + OK + b"content-length: 2\r\n\r\nok", 200, b"ok"),
        (b"HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n" + OK + b"content-length: 2\r\n\r\nok", 200, b"ok"),
        (b"HTTP/1.1 204 No Content\r\n\r\n", 204, b""),
        (b"HTTP/1.1 304 Not Modified\r\ncontent-length: 2\r\n\r\n", 304, b""),
        (OK + b"content-length: 0\r\n\r\n", 200, b""),
    ],
)  # fmt: skip
async def test_a_connection_carries_the_next_request_after_each_framing(
    answer: bytes, status: int, body: bytes
) -> None:
    async with connected(saying(answer, OK + b"content-length: 4\r\n\r\nnext")) as connection:
        reply = await connection.request(GET)
        assert (reply.status, reply.body) == (status, body)
        assert connection.reusable
        assert (await connection.request(GET)).body == b"next"
        assert connection.served == 2


async def test_an_answer_may_come_one_byte_at_a_time() -> None:
    async def dribble(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        for byte in OK + b"transfer-encoding: chunked\r\n\r\n3\r\none\r\n3\r\ntwo\r\n0\r\n\r\n":
            writer.write(bytes((byte,)))
            await writer.drain()
            await asyncio.sleep(0)
        await reader.read()

    async with connected(dribble) as connection:
        assert (await connection.request(GET)).body == b"onetwo"


async def test_the_answer_to_head_has_no_body_whatever_length_it_declares() -> None:
    async with connected(saying(OK + b"content-length: 10\r\n\r\n", OK + b"content-length: 2\r\n\r\nok")) as connection:
        reply = await connection.request(HEAD)
        assert (reply.status, reply.headers["content-length"], reply.body) == (200, "10", b"")
        assert (await connection.request(GET)).body == b"ok"


@pytest.mark.parametrize(
    "answer",
    [
        OK + b"connection: close\r\ncontent-length: 2\r\n\r\nok",
        b"HTTP/1.0 200 OK\r\ncontent-length: 2\r\n\r\nok",
    ],
)
async def test_a_connection_that_the_server_will_close_is_not_reusable(answer: bytes) -> None:
    async with connected(saying(answer)) as connection:
        assert (await connection.request(GET)).body == b"ok"
        assert not connection.reusable


async def test_a_body_without_a_length_ends_with_the_connection() -> None:
    async with connected(saying(OK + b"\r\nall of it", stay=False)) as connection:
        assert (await connection.request(GET)).body == b"all of it"
        assert not connection.reusable


@pytest.mark.parametrize(
    ("answer", "head_arrived"),
    [
        (b"", False),
        (b"HTTP/1.1 200 OK\r\ncontent-le", False),
        (OK + b"content-length: 10\r\n\r\nhalf", True),
        (OK + b"transfer-encoding: chunked\r\n\r\n3\r\none\r\n", True),
    ],
)
async def test_an_answer_that_is_cut_off_is_an_error(answer: bytes, head_arrived: bool) -> None:
    async with connected(saying(answer, stay=False)) as connection:
        with pytest.raises(Disconnected, match=r"127\.0\.0\.1:\d+ closed the connection before") as caught:
            await connection.request(GET)
        assert caught.value.head_arrived is head_arrived


async def test_headers_keep_their_order_and_repeated_ones_are_joined() -> None:
    head = OK + b"X-A: 1\r\nB: 2\r\nx-a: 3\r\ntransfer-encoding: chunked\r\n\r\n"
    async with connected(saying(head + b"0\r\nX-Sum: 9\r\nB: other\r\n\r\n")) as connection:
        answer = await connection.stream(GET)
        assert answer.header_list[:3] == [(b"X-A", b"1"), (b"B", b"2"), (b"x-a", b"3")]
        assert answer.headers["x-a"] == "1, 3"
        assert await answer.body() == b""
        assert answer.trailers == [(b"X-Sum", b"9"), (b"B", b"other")]
        assert answer.headers["b"] == "2", "a trailer changes no header"


async def test_a_request_on_a_connection_that_was_closed_meanwhile_is_known_not_to_be_sent() -> None:
    async with connected(saying(OK + b"content-length: 2\r\n\r\nok", stay=False)) as connection:
        await connection.request(GET)
        await eventually(lambda: not connection.reusable)
        with pytest.raises(Unreachable):
            await connection.request(GET)


async def test_a_kept_connection_that_closes_without_a_byte_is_stale() -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(OK + b"content-length: 2\r\n\r\nok")
        await reader.readuntil(b"\r\n\r\n")

    async with connected(talk) as connection:
        await connection.request(GET)
        with pytest.raises(Disconnected):
            await connection.request(GET)
        assert connection.stale


async def test_a_cancelled_request_closes_its_connection() -> None:
    async with connected(saying(b"")) as connection:
        asking = asyncio.create_task(connection.request(GET), name="asking")
        await asyncio.sleep(0)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        assert not connection.reusable


async def test_unsolicited_bytes_close_the_connection() -> None:
    async with connected(saying(OK + b"content-length: 2\r\n\r\nok" + b"HTTP/1.1 500 Second\r\n")) as connection:
        assert (await connection.request(GET)).status == 200
        assert not connection.reusable


# streams


async def test_a_streamed_body_is_read_as_it_arrives() -> None:
    more = asyncio.Event()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(OK + b"transfer-encoding: chunked\r\n\r\n3\r\none\r\n")
        await more.wait()
        writer.write(b"3\r\ntwo\r\n0\r\n\r\n")
        await reader.read()

    async with connected(talk) as connection:
        answer = await connection.stream(GET)
        pieces = answer.chunks()
        assert await anext(pieces) == b"one"
        more.set()
        assert [piece async for piece in pieces] == [b"two"]
        assert await answer.read() == b""


async def test_a_stream_that_was_cut_is_distinguished_from_one_that_ended() -> None:
    async with connected(saying(OK + b"transfer-encoding: chunked\r\n\r\n3\r\none\r\n", stay=False)) as connection:
        answer = await connection.stream(GET)
        assert await answer.read() == b"one"
        with pytest.raises(Disconnected):
            await answer.read()


async def test_closing_a_stream_wakes_its_reader() -> None:
    async with connected(saying(OK + b"transfer-encoding: chunked\r\n\r\n")) as connection:
        answer = await connection.stream(GET)
        reading = asyncio.create_task(answer.read(), name="reading")
        await asyncio.sleep(0)
        await answer.close()
        await answer.close()
        assert await reading == b""


async def test_what_was_put_back_is_read_again() -> None:
    async with connected(saying(OK + b"content-length: 6\r\n\r\nonetwo")) as connection:
        answer = await connection.stream(GET)
        data = await answer.read()
        answer.unread(data)
        assert await answer.body() == b"onetwo"


async def test_reading_pauses_while_the_reader_of_a_stream_is_behind() -> None:
    sent = 0
    size = 64 * 1024 * 1024

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        await reader.readuntil(b"\r\n\r\n")
        writer.write(OK + b"content-length: %d\r\n\r\n" % size)
        piece = b"x" * 262144
        while sent < size:
            writer.write(piece)
            await writer.drain()
            sent += len(piece)
        await reader.read()

    async with connected(talk, limits=AnswerLimits(buffered_bytes=65536)) as connection:
        answer = await connection.stream(GET)
        before = -1
        while sent != before:  # until the sockets are full
            before = sent
            for _ in range(200):
                await asyncio.sleep(0)
        assert sent < size
        assert answer.unread_bytes < 2 * 1024 * 1024
        received = 0
        async for piece in answer.chunks():
            received += len(piece)
        assert received == size


async def test_a_body_given_to_callbacks_can_be_held_back() -> None:
    ended: asyncio.Future[TransportError | None] = asyncio.get_running_loop().create_future()
    async with connected(saying(OK + b"content-length: 6\r\n\r\nonetwo")) as connection:
        answer = await connection.stream(GET)
        connection.pause()
        got: list[bytes] = []
        answer.attach(got.append, ended.set_result)
        connection.resume()
        assert await ended is None
        assert b"".join(got) == b"onetwo"
        late: list[object] = []
        answer.attach(late.append, late.append)
        assert late == [None], "an answer that has ended says so at once"


# requests


async def test_a_request_body_can_be_sent_in_pieces() -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        body = await reader.readuntil(b"0\r\n\r\n")
        writer.write(OK + b"content-length: %d\r\n\r\n%b" % (len(body), body))
        await reader.read()

    head = request_bytes("POST", "/", [("host", "x"), ("transfer-encoding", "chunked")])
    async with connected(talk) as connection:
        answer = connection.start(head, whole=True)
        for piece in (b"one", b"", b"three"):
            await connection.send(chunk(piece))
        connection.write(LAST_CHUNK)
        await answer.ready
        assert answer.reply().body == b"3\r\none\r\n5\r\nthree\r\n0\r\n\r\n"


async def test_sending_waits_while_the_peer_does_not_read_and_fails_when_it_goes() -> None:
    leave = asyncio.Event()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        await leave.wait()

    async with connected(talk) as connection:
        changes: list[bool] = []
        connection.tune(write_buffer_bytes=65536, on_writable=changes.append)
        connection.start(request_bytes("POST", "/", [("host", "x"), ("content-length", "99999999999")]))

        async def upload() -> None:
            while True:
                await connection.send(b"x" * 1_000_000)

        uploading = asyncio.create_task(upload(), name="upload")
        await eventually(lambda: not connection.writable)
        assert changes == [False]
        assert not uploading.done()
        leave.set()
        with pytest.raises(Disconnected):
            await uploading


async def test_an_answer_that_comes_before_the_request_is_complete_counts() -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 413 Too Large\r\nconnection: close\r\ncontent-length: 2\r\n\r\nno")

    async with connected(talk) as connection:
        head = request_bytes("POST", "/", [("host", "x"), ("content-length", "1000000")])
        answer = connection.start(head + b"x" * 1000, whole=True)
        await answer.ready
        assert answer.reply().status == 413
        assert not connection.reusable


async def test_a_connection_carries_one_request_at_a_time() -> None:
    async with connected(saying(b"")) as connection:
        connection.start(GET)
        with pytest.raises(RuntimeError, match="in use"):
            connection.start(GET)


# upgrades


async def test_after_an_upgrade_bytes_pass_both_ways_as_they_are() -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(SWITCHED + b"HTTP/1.1 is over")
        writer.write(b":" + await reader.read())

    async with connected(talk) as connection:
        answer = await connection.stream(UPGRADE, upgrade=True)
        assert (answer.status, answer.headers["upgrade"]) == (101, "echo")
        assert await answer.read() == b"HTTP/1.1 is over"
        await connection.send(b"raw\0bytes")
        connection.write_eof()
        assert await answer.body() == b":raw\0bytes"
        assert not connection.reusable


async def test_a_refused_upgrade_is_an_ordinary_answer() -> None:
    async with connected(saying(b"HTTP/1.1 403 Forbidden\r\ncontent-length: 2\r\n\r\nno")) as connection:
        answer = await connection.stream(UPGRADE, upgrade=True)
        assert (answer.status, await answer.body()) == (403, b"no")


@pytest.mark.parametrize("answer", [SWITCHED, b"HTTP/1.1 101 Switching Protocols\r\n\r\n"])
async def test_a_change_of_protocol_that_was_not_asked_for_is_refused(answer: bytes) -> None:
    async with connected(saying(answer)) as connection:
        with pytest.raises(InvalidAnswer, match="status 101"):
            await connection.request(GET)


async def test_an_upgrade_that_names_no_protocol_is_refused() -> None:
    async with connected(saying(b"HTTP/1.1 101 Switching Protocols\r\n\r\nraw")) as connection:
        answer = await connection.stream(UPGRADE, upgrade=True)
        with pytest.raises(InvalidAnswer):
            await answer.read()


async def test_two_connections_to_one_server_do_not_share_anything() -> None:
    async with listening(saying(OK + b"content-length: 2\r\n\r\nok")) as address:
        first, second = [await dial(address, clock=RealClock()) for _ in range(2)]
        assert [reply.body for reply in await asyncio.gather(first.request(GET), second.request(GET))] == [b"ok"] * 2
        await first.close()
        await second.close()
