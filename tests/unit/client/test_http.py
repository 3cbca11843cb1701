"""The network transport against servers that misbehave: pooling, stale connections, cuts, timeouts, cancellation."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from shoal.base.clock import FakeClock, RealClock
from shoal.base.tasks import cancel_all
from shoal.client.config import AccessConfig
from shoal.client.errors import Disconnected, Unreachable
from shoal.client.http import HttpLimits, HttpTransport
from shoal.client.reach import Reach
from shoal.testing.waiting import eventually

OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"


class Server:
    """Answers each request with ``answer(connection number, request number, head)``; None cuts the connection."""

    def __init__(self, answer: Callable[[int, int, str], Awaitable[bytes | None]]) -> None:
        self.answer = answer
        self.port = 0
        self.connections = 0
        self.requests: list[str] = []
        self.asked = asyncio.Event()
        self.open: set[asyncio.StreamWriter] = set()
        self.tasks: list[asyncio.Task[None]] = []

    def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.tasks.append(asyncio.create_task(self.handle(reader, writer), name="connection"))

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        number = self.connections
        self.open.add(writer)
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                length = next((int(x[15:]) for x in head.lower().split("\r\n") if x.startswith("content-length:")), 0)
                head += (await reader.readexactly(length)).decode()
                self.requests.append(head)
                self.asked.set()
                data = await self.answer(number, len(self.requests), head)
                if data is None:
                    return
                writer.write(data)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self.open.discard(writer)
            writer.close()


@asynccontextmanager
async def connected(
    answer: Callable[[int, int, str], Awaitable[bytes | None]],
    clock: FakeClock | None = None,
    **limits: float,
) -> AsyncIterator[tuple[HttpTransport, Server]]:
    async with asyncio.timeout(20):
        server = Server(answer)
        listener = await asyncio.start_server(server.accept, "127.0.0.1", 0)
        server.port = listener.sockets[0].getsockname()[1]
        config = AccessConfig(url=f"http://127.0.0.1:{server.port}", token="t")
        transport = HttpTransport(config, clock=clock or RealClock(), limits=HttpLimits(**limits))  # type: ignore[arg-type]
        try:
            yield (transport, server)
        finally:
            await transport.close()
            listener.close()
            await cancel_all(*server.tasks)


async def always_ok(connection: int, number: int, head: str) -> bytes | None:
    return OK


async def test_requests_one_after_another_share_a_connection() -> None:
    async with connected(always_ok) as (transport, server):
        for _ in range(5):
            assert (await transport.request("GET", "/x")).body == b"ok"
        await transport.request("POST", "/y", body=b"abc", headers={"content-type": "text/plain"})
        assert server.connections == 1
        assert "authorization: Bearer t\r\n" in server.requests[0]
        assert server.requests[-1].endswith("content-length: 3\r\n\r\nabc")


async def test_at_most_so_many_requests_are_under_way() -> None:
    busy = most = 0
    full = asyncio.Event()

    async def answer(connection: int, number: int, head: str) -> bytes | None:
        nonlocal busy, most
        busy += 1
        most = max(most, busy)
        if busy == 3:
            full.set()
        await full.wait()
        await FakeClock().settle()  # more requests would come now
        busy -= 1
        return OK

    async with connected(answer, connections=3) as (transport, server):
        await asyncio.gather(*(transport.request("GET", "/x") for _ in range(20)))
        assert most == 3
        assert server.connections == 3


async def test_after_a_busy_moment_one_connection_is_kept() -> None:
    clock = FakeClock()

    async with connected(always_ok, clock=clock) as (transport, server):
        together = asyncio.Event()

        async def answer(connection: int, number: int, head: str) -> bytes | None:
            if connection == 4:
                together.set()
            await together.wait()
            return OK

        server.answer = answer
        await asyncio.gather(*(transport.request("GET", "/x") for _ in range(4)))
        assert server.connections == len(server.open) == 4
        await clock.advance(2.0)
        await transport.request("GET", "/x")
        await clock.advance(1.5)  # the others were not used for longer than that
        await eventually(lambda: len(server.open) == 1)
        await transport.request("GET", "/x")
        assert server.connections == 4


async def second_request_of_a_connection_is_cut(connection: int, number: int, head: str) -> bytes | None:
    return None if connection == 1 and number > 1 else OK


async def test_a_repeatable_request_on_a_stale_connection_is_sent_again() -> None:
    async with connected(second_request_of_a_connection_is_cut) as (transport, server):
        await transport.request("GET", "/first")
        assert (await transport.request("PUT", "/second", body=b"x")).body == b"ok"
        assert [head.split()[1] for head in server.requests] == ["/first", "/second", "/second"]


async def test_a_request_that_is_not_repeatable_is_not_sent_again() -> None:
    async with connected(second_request_of_a_connection_is_cut) as (transport, server):
        await transport.request("GET", "/first")
        with pytest.raises(Disconnected):
            await transport.request("POST", "/second", body=b"x")
        assert len(server.requests) == 2


async def test_a_fresh_connection_that_is_cut_is_not_tried_again() -> None:
    async def cut(connection: int, number: int, head: str) -> bytes | None:
        return None

    async with connected(cut) as (transport, server):
        with pytest.raises(Disconnected):
            await transport.request("GET", "/x")
        assert len(server.requests) == 1


async def test_a_connection_that_idled_too_long_is_not_used(clock: FakeClock) -> None:
    async with connected(always_ok, clock, idle_s=50.0) as (transport, server):
        await transport.request("GET", "/x")
        await clock.advance(60)
        await transport.request("POST", "/x")
        assert server.connections == 2


async def test_an_answer_that_ends_too_early_is_an_error() -> None:
    async def half(connection: int, number: int, head: str) -> bytes | None:
        next(iter(server_box[0].open)).write(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf")
        return None

    server_box: list[Server] = []

    async with connected(half) as (transport, server):
        server_box.append(server)
        with pytest.raises(Disconnected):
            await transport.request("GET", "/x")


async def test_a_body_without_a_length_ends_with_the_connection() -> None:
    async def unframed(connection: int, number: int, head: str) -> bytes | None:
        server_box[0].open.copy().pop().write(b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\nall of it")
        return None

    server_box: list[Server] = []

    async with connected(unframed) as (transport, server):
        server_box.append(server)
        assert (await transport.request("GET", "/x")).body == b"all of it"


async def test_no_answer_in_time_is_an_error_and_the_connection_goes(clock: FakeClock) -> None:
    async def never(connection: int, number: int, head: str) -> bytes | None:
        await asyncio.Event().wait()
        return None

    async with connected(never, clock, request_s=30.0) as (transport, server):
        asking = asyncio.create_task(transport.request("GET", "/x"), name="asking")
        await server.asked.wait()
        await clock.advance(30)
        with pytest.raises(Disconnected, match="did not answer within 30 s"):
            await asking


async def test_a_cancelled_request_takes_its_connection_with_it_and_frees_its_place() -> None:
    async def slow_first(connection: int, number: int, head: str) -> bytes | None:
        if number == 1:
            await asyncio.Event().wait()
        return OK

    async with connected(slow_first, connections=1) as (transport, server):
        asking = asyncio.create_task(transport.request("GET", "/slow"), name="asking")
        await server.asked.wait()
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        assert (await transport.request("GET", "/next")).body == b"ok"
        assert server.connections == 2


async def test_a_closed_port_is_unreachable() -> None:
    listener = await asyncio.start_server(lambda r, w: None, "127.0.0.1", 0)
    port = listener.sockets[0].getsockname()[1]
    listener.close()
    await listener.wait_closed()
    transport = HttpTransport(AccessConfig(url=f"http://127.0.0.1:{port}"), clock=RealClock())
    with pytest.raises(Unreachable):
        await transport.request("POST", "/x")
    await transport.close()


async def test_a_stream_has_its_own_connection_and_hands_over_pieces_as_they_come() -> None:
    more = asyncio.Event()

    async def streaming(connection: int, number: int, head: str) -> bytes | None:
        if "/watch" not in head:
            return OK
        writer = next(iter(server_box[0].open))
        writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\none\r\n")
        await more.wait()
        return b"3\r\ntwo\r\n0\r\n\r\n"

    server_box: list[Server] = []

    async with connected(streaming, connections=1) as (transport, server):
        server_box.append(server)
        stream = await transport.stream("GET", "/watch")
        pieces = stream.chunks()
        assert await anext(pieces) == b"one"
        assert (await transport.request("GET", "/x")).body == b"ok"  # with one place only, and a stream open
        more.set()
        assert [piece async for piece in pieces] == [b"two"]
        await stream.close()
        assert server.connections == 2


async def test_a_stream_that_was_cut_between_chunks_is_distinguished_from_one_that_ended() -> None:
    async def cut(connection: int, number: int, head: str) -> bytes | None:
        next(iter(server_box[0].open)).write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\none\r\n")
        return None

    server_box: list[Server] = []

    async with connected(cut) as (transport, server):
        server_box.append(server)
        stream = await transport.stream("GET", "/watch")
        with pytest.raises(Disconnected):
            assert [piece async for piece in stream.chunks()] == [b"one"]
        await stream.close()


async def test_closing_a_stream_wakes_its_reader() -> None:
    async def endless(connection: int, number: int, head: str) -> bytes | None:
        next(iter(server_box[0].open)).write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
        await asyncio.Event().wait()
        return None

    server_box: list[Server] = []

    async with connected(endless) as (transport, server):
        server_box.append(server)
        stream = await transport.stream("GET", "/watch")

        async def read() -> list[bytes]:
            return [piece async for piece in stream.chunks()]

        reading = asyncio.create_task(read(), name="reading")
        await asyncio.sleep(0)
        await stream.close()
        await stream.close()
        assert await reading == []


async def test_a_refused_credential_is_renewed_once(tmp_path) -> None:
    path = tmp_path / "token"
    path.write_text("old")

    async def only_new(connection: int, number: int, head: str) -> bytes | None:
        return OK if "Bearer new" in head else b"HTTP/1.1 401 Unauthorized\r\ncontent-length: 0\r\n\r\n"

    async with connected(only_new) as (_, server):
        config = AccessConfig(url=f"http://127.0.0.1:{server.port}", token_file=str(path))
        transport = HttpTransport(config, clock=RealClock())
        assert (await transport.request("GET", "/x")).status == 401
        path.write_text("new")
        assert (await transport.request("GET", "/x")).status == 200
        await transport.close()


async def test_a_header_cannot_smuggle_a_line_break() -> None:
    async with connected(always_ok) as (transport, server):
        with pytest.raises(ValueError, match="line break"):
            await transport.request("GET", "/x", headers={"a": "b\r\nc: d"})
        with pytest.raises(ValueError, match="line break"):
            await transport.request("GET", "/x\r\nc: d")


async def test_a_connection_that_the_server_will_close_is_not_used_again() -> None:
    async def closing(connection: int, number: int, head: str) -> bytes | None:
        return b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\nok"

    async with connected(closing) as (transport, server):
        await transport.request("POST", "/x")
        await transport.request("POST", "/x")
        assert server.connections == 2


async def test_what_a_transport_learns_of_its_server_is_kept_for_all_of_them(tmp_path) -> None:
    path = tmp_path / "token"
    path.write_text("old")

    async def only_new(connection: int, number: int, head: str) -> bytes | None:
        refusal = b'{"kind":"Status","message":"token has expired"}'
        head_of = b"HTTP/1.1 401 Unauthorized\r\ncontent-length: %d\r\n\r\n" % len(refusal)
        return OK if "Bearer new" in head else head_of + refusal

    reach = Reach("http://a", clock=RealClock())
    async with connected(only_new) as (_, server):
        config = AccessConfig(url=f"http://127.0.0.1:{server.port}", token_file=str(path))
        transport = HttpTransport(config, clock=RealClock(), reach=reach)
        assert (await transport.request("GET", "/x")).status == 401
        assert reach.problem() == "it refuses the credentials: token has expired"
        path.write_text("new")
        assert (await transport.request("GET", "/x")).status == 200
        assert not reach.problem()
    with pytest.raises(Unreachable) as raised:
        await transport.request("GET", "/x")
    assert raised.value.told and reach.problem() == str(raised.value)
    await transport.close()
