"""Calls and streams of the Connect protocol, their errors, and what a connection does when it is treated badly."""

from __future__ import annotations

import asyncio
import gc
import gzip
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from struct import pack
from typing import Self

import orjson
import pytest
from http2_server import Call, Handler, Server, serving

from shoal.base.connect import CallFailed, ConnectClient
from shoal.base.http2 import Http2Link, Http2Stream, LinkError, Peer
from shoal.base.tasks import cancel_all
from shoal.testing.waiting import eventually

MAX_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Text:
    """A message."""

    text: str

    def to_binary(self) -> bytes:
        return self.text.encode()

    @classmethod
    def from_binary(cls, data: bytes) -> Self:
        return cls(data.decode())


def frame(content: bytes, flags: int = 0) -> bytes:
    return pack(">BI", flags, len(content)) + content


END = frame(b"{}", 2)


@asynccontextmanager
async def connected(
    handler: Handler,
    *,
    acknowledges: bool = True,
    streams: int = 100,
) -> AsyncIterator[tuple[ConnectClient, list[Server]]]:
    async with asyncio.timeout(60), serving(handler, acknowledges=acknowledges, streams=streams) as (url, made):
        link = Http2Link(Peer.of(url))
        try:
            yield (ConnectClient(link, "a.B", user_agent="test/1", max_bytes=MAX_BYTES), made)
        finally:
            await link.close()


async def call(client: ConnectClient, text: str = "x", method: str = "Say") -> str:
    return (await client.call(method, Text(text), Text, {"authorization": "Bearer t"}, 5000)).text


async def failing(handler: Handler) -> CallFailed:
    """What a call fails with."""
    caught: list[CallFailed] = []

    async with connected(handler) as (client, _):
        with pytest.raises(CallFailed) as error:
            await call(client)
        caught.append(error.value)
    return caught[0]


async def never() -> AsyncIterator[Text]:
    await asyncio.Event().wait()
    yield Text("")


# unary


async def test_a_call_says_what_the_protocol_asks_for_and_gets_its_answer() -> None:
    seen: list[Call] = []

    async def handler(call: Call) -> None:
        await call.until(lambda: call.ended)
        seen.append(call)
        call.answer(content_type="application/proto")
        await call.send(b"re: " + bytes(call.body), end=True)

    async with connected(handler) as (client, _):
        assert await call(client, "hello") == "re: hello"
    headers = seen[0].headers
    assert (headers[":method"], seen[0].path) == ("POST", "/a.B/Say")
    assert headers["content-type"] == "application/proto"
    assert (headers["connect-protocol-version"], headers["connect-timeout-ms"]) == ("1", "5000")
    assert (headers["authorization"], headers["user-agent"]) == ("Bearer t", "test/1")


async def test_a_compressed_answer_is_read() -> None:
    async def handler(call: Call) -> None:
        call.answer(content_encoding="gzip")
        await call.send(gzip.compress(b"y" * 100_000), end=True)

    async with connected(handler) as (client, _):
        assert await call(client) == "y" * 100_000


@pytest.mark.parametrize("packed", [False, True])
async def test_an_answer_that_is_too_large_is_refused_also_when_it_is_small_on_the_way(packed: bool) -> None:
    async def handler(call: Call) -> None:
        call.answer(content_encoding="gzip" if packed else "identity")
        content = b"y" * (MAX_BYTES + 1)
        await call.send(gzip.compress(content) if packed else content, end=True)

    assert (await failing(handler)).code == "resource_exhausted"


async def test_an_error_of_the_service_has_its_code_and_its_text() -> None:
    async def handler(call: Call) -> None:
        call.answer(409, content_type="application/json")
        await call.send(orjson.dumps({"code": "failed_precondition", "message": "too old"}), end=True)

    error = await failing(handler)
    assert (error.code, str(error)) == ("failed_precondition", "too old")


@pytest.mark.parametrize(("status", "code"), [(502, "unavailable"), (401, "unauthenticated"), (418, "unknown")])
async def test_what_something_in_between_answers_has_a_meaning_too(status: int, code: str) -> None:
    async def handler(call: Call) -> None:
        call.answer(status, content_type="text/html")
        await call.send(b"<html>", end=True)

    assert (await failing(handler)).code == code


@pytest.mark.parametrize(("reset", "code"), [(8, "canceled"), (7, "unavailable"), (2, "internal")])
async def test_a_call_that_the_server_gives_up_fails(reset: int, code: str) -> None:
    async def handler(call: Call) -> None:
        call.give_up(reset)

    assert (await failing(handler)).code == code


async def test_an_invalid_message_is_an_error() -> None:
    async def handler(call: Call) -> None:
        call.answer()
        await call.send(b"\xff", end=True)

    assert (await failing(handler)).code == "internal"


async def test_an_answer_that_comes_before_everything_was_sent_is_heard() -> None:
    async def handler(call: Call) -> None:
        call.answer(413, content_type="application/json")
        await call.send(orjson.dumps({"code": "resource_exhausted", "message": "too much"}), end=True)
        call.give_up(0)

    async with connected(handler, acknowledges=False) as (client, _):
        with pytest.raises(CallFailed, match="too much"):
            await call(client, "x" * 500_000)


async def test_a_long_request_waits_for_a_slow_server_and_arrives_whole() -> None:
    async def handler(call: Call) -> None:
        await call.until(lambda: call.ended)
        call.answer()
        await call.send(str(len(call.body)).encode(), end=True)

    async with connected(handler) as (client, _):
        assert await call(client, "x" * 700_000) == "700000"


async def test_a_closed_port_is_unavailable() -> None:
    link = Http2Link(Peer.of("http://127.0.0.1:1"))
    client = ConnectClient(link, "a.B", user_agent="test/1", max_bytes=MAX_BYTES)
    with pytest.raises(CallFailed, match="no connection to 127.0.0.1:1") as error:
        await call(client)
    assert error.value.code == "unavailable"
    await link.close()


# streams


async def test_a_stream_goes_both_ways_at_the_same_time() -> None:
    async def handler(call: Call) -> None:
        call.answer(content_type="application/connect+proto", connect_content_encoding="gzip")
        await call.until(lambda: bool(call.body))
        content = frame(gzip.compress(b"packed"), 1) + frame(b"plain")
        await call.send(content[:-7])  # cut anywhere
        await call.send(content[-7:])
        await call.until(lambda: call.body.endswith(b"second"))
        await call.send(END, end=True)

    async with connected(handler) as (client, _):
        heard = asyncio.Event()

        async def requests() -> AsyncIterator[Text]:
            yield Text("first")
            await heard.wait()
            yield Text("second")
            await asyncio.Event().wait()

        found = []
        async with aclosing(client.stream("Watch", requests(), Text, {})) as events:
            async for event in events:
                found.append(event.text)
                if len(found) == 2:
                    heard.set()
        assert found == ["packed", "plain"]


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (frame(orjson.dumps({"error": {"code": "unauthenticated", "message": "gone"}}), 2), "unauthenticated"),
        (frame(b"ok"), "unavailable"),  # and no end
        (frame(b"whole")[:-2], "unavailable"),
        (frame(b"x", 4), "internal"),
        (pack(">BI", 0, MAX_BYTES + 1), "resource_exhausted"),
        (frame(b"no gzip", 1), "internal"),
    ],
)
async def test_a_stream_that_ends_badly_says_why(content: bytes, code: str) -> None:
    async def handler(call: Call) -> None:
        call.answer()
        await call.send(content, end=True)

    async with connected(handler) as (client, _):
        with pytest.raises(CallFailed) as error:
            async for _event in client.stream("Watch", never(), Text, {}):
                pass
        assert error.value.code == code


async def test_a_stream_that_is_not_wanted_any_more_is_given_up() -> None:
    calls: list[Call] = []

    async def handler(call: Call) -> None:
        calls.append(call)
        call.answer()
        await call.send(frame(b"one"))
        await call.until(lambda: call.reset)

    async with connected(handler) as (client, _):
        async with aclosing(client.stream("Watch", never(), Text, {})) as events:
            assert (await anext(events)).text == "one"
        await calls[0].until(lambda: calls[0].reset)


async def test_requests_that_fail_end_the_stream() -> None:
    calls: list[Call] = []

    async def handler(call: Call) -> None:
        calls.append(call)
        call.answer()

    async def broken() -> AsyncIterator[Text]:
        yield Text("a")
        raise ValueError("the queue is gone")

    async with connected(handler) as (client, _):
        with pytest.raises(CallFailed, match="the queue is gone"):
            await anext(client.stream("Watch", broken(), Text, {}))
        await calls[0].until(lambda: calls[0].reset)


async def test_a_slow_reader_of_one_stream_slows_down_that_stream_and_no_other() -> None:
    calls: list[Call] = []

    async def handler(call: Call) -> None:
        calls.append(call)
        if call.path.endswith("Say"):
            call.answer()
            await call.send(b"quick", end=True)
            return
        call.answer()
        for _ in range(64):
            await call.send(frame(b"z" * (256 << 10)))
        await call.send(END, end=True)

    async with connected(handler) as (client, _):
        async with aclosing(client.stream("Watch", never(), Text, {})) as events:
            await anext(events)
            for _time in range(20):
                assert await call(client) == "quick"
            assert calls[0].sent < 4 << 20, "of 16 MB, nobody read more than the first message"
            count = 1
            async for _event in events:
                count += 1
            assert count == 64


# the connection


async def test_after_a_broken_connection_streams_fail_and_calls_make_another() -> None:
    async def handler(call: Call) -> None:
        call.answer()
        if call.path.endswith("Say"):
            await call.send(b"yes", end=True)
        else:
            await call.send(frame(b"one"))

    async with connected(handler) as (client, made):
        async with aclosing(client.stream("Watch", never(), Text, {})) as events:
            await anext(events)
            made[0].transport.abort()
            with pytest.raises(CallFailed) as error:
                await anext(events)
            assert error.value.code == "unavailable"
        assert await call(client) == "yes"
        assert len(made) == 2


async def test_a_connection_is_replaced_after_goaway() -> None:
    async def handler(call: Call) -> None:
        call.answer()
        await call.send(b"yes", end=True)

    async with connected(handler) as (client, made):
        assert await call(client) == "yes"
        made[0].goaway()
        while len(made) < 2:  # the goodbye may come after the next call was sent
            try:
                assert await call(client) == "yes"
            except CallFailed as error:
                assert error.code == "unavailable"
        assert await call(client) == "yes"


async def test_what_came_before_a_goodbye_is_read_and_then_the_stream_fails() -> None:
    async def handler(call: Call) -> None:
        call.answer()
        await call.send(frame(b"one") + frame(b"two"))
        call.server.goaway()

    async with connected(handler) as (client, _):
        async with aclosing(client.stream("Watch", never(), Text, {})) as events:
            assert (await anext(events)).text == "one"
            assert (await anext(events)).text == "two"
            with pytest.raises(CallFailed) as error:
                await anext(events)
            assert error.value.code == "unavailable"


async def test_a_link_that_is_closed_while_it_connects_leaves_no_connection() -> None:
    async def handler(call: Call) -> None:
        call.answer()

    async with asyncio.timeout(60), serving(handler) as (url, made):
        link = Http2Link(Peer.of(url))
        opening = asyncio.create_task(link.open([(":method", "POST"), (":path", "/")]), name="opening")
        await asyncio.sleep(0)
        await link.close()
        with pytest.raises(LinkError):
            await opening
        with pytest.raises(LinkError, match="the link is closed"):
            await link.open([(":method", "POST"), (":path", "/")])
        await eventually(lambda: all(one.ended for one in made))
        assert not any(one.calls for one in made)


async def test_calls_over_the_servers_limit_of_streams_wait() -> None:
    most = 0

    async def handler(call: Call) -> None:
        nonlocal most
        under_way = [one for one in call.server.calls.values() if not one.sent]
        most = max(most, len(under_way))
        await asyncio.sleep(0)
        call.answer()
        await call.send(b"yes", end=True)

    async with connected(handler, streams=3) as (client, _):
        assert await call(client) == "yes"  # and the limit is known
        assert await asyncio.gather(*(call(client) for _ in range(30))) == ["yes"] * 30
    assert 0 < most <= 3


def open_streams() -> int:
    gc.collect()
    return sum(isinstance(each, Http2Stream) for each in gc.get_objects())


async def test_calls_that_are_cancelled_are_reset_and_leave_no_stream_behind() -> None:
    async def handler(call: Call) -> None:
        await call.until(lambda: call.reset)

    before = open_streams()
    async with connected(handler, streams=2) as (client, made):
        for number in range(20):
            calling = asyncio.create_task(call(client), name="call")
            await eventually(lambda number=number: made and len(made[0].calls) > number)
            await cancel_all(calling)
        del calling
        await eventually(lambda: all(one.reset for one in made[0].calls.values()))
        assert len(made) == 1 and len(made[0].calls) == 20
        assert open_streams() == before


async def test_a_server_without_http2_is_an_error() -> None:
    async def talk(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()
        await writer.wait_closed()

    server = await asyncio.start_server(talk, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    link = Http2Link(Peer.of(f"http://127.0.0.1:{port}"))
    async with asyncio.timeout(30):
        with pytest.raises(CallFailed) as error:
            await call(ConnectClient(link, "a.B", user_agent="t", max_bytes=10))
    assert error.value.code == "unavailable"
    await link.close()
    server.close()
    await server.wait_closed()
