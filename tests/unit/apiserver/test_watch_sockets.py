"""Watches over real sockets: framing to the last byte, resuming, slow readers, many on one listener, and the stop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import orjson
import pytest

from shoal.apiserver.watch import WatchGroup
from shoal.testing.servers import ADMIN_TOKEN, LocalServer, local_server, take
from shoal.testing.waiting import eventually

CONFIGMAPS = "/api/v1/namespaces/default/configmaps"


class Stream:
    """One connection that reads chunked answers as they come, and nothing it is not asked to."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    def send(self, method: str, target: str, body: bytes = b"") -> None:
        head = f"{method} {target} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {ADMIN_TOKEN}\r\n"
        self.writer.write(
            f"{head}Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body
        )

    async def head(self) -> tuple[int, bytes]:
        head = await self.reader.readuntil(b"\r\n\r\n")
        return int(head.split(b" ", 2)[1]), head

    async def answer(self) -> tuple[int, Any]:
        status, head = await self.head()
        length = next(int(line[16:]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length: "))
        return status, orjson.loads(await self.reader.readexactly(length))

    async def chunk(self) -> bytes:
        """The next chunk; empty for the last one."""
        size = int(await self.reader.readuntil(b"\r\n"), 16)
        data = await self.reader.readexactly(size + 2)
        assert data.endswith(b"\r\n")
        return data[:-2]

    async def events(self) -> AsyncIterator[Any]:
        while chunk := await self.chunk():
            assert chunk.endswith(b"\n")
            for line in chunk.splitlines():
                yield orjson.loads(line)

    async def close(self) -> None:
        self.writer.close()


Connect = Callable[[], Awaitable[Stream]]


@asynccontextmanager
async def listening() -> AsyncIterator[tuple[LocalServer, Connect]]:
    async with local_server() as server:
        port = await server.server.listen("127.0.0.1", 0)

        async def connect() -> Stream:
            return Stream(*await asyncio.open_connection("127.0.0.1", port))

        async with asyncio.timeout(30):
            yield server, connect


async def create(server: LocalServer, name: str, size: int = 1) -> int:
    made = await server.post(CONFIGMAPS, {"metadata": {"name": name}, "data": {"a": "x" * size}})
    return int(made["metadata"]["resourceVersion"])


async def test_headers_and_events_arrive_at_once_and_a_timeout_ends_with_the_last_chunk() -> None:
    async with listening() as (server, connect):
        stream = await connect()
        stream.send("GET", f"{CONFIGMAPS}?watch=1&timeoutSeconds=1&resourceVersion={server.store.revision}")
        status, head = await stream.head()  # long before the first event
        assert status == 200 and b"Transfer-Encoding: chunked" in head
        assert b"Content-Type: application/json\r\n" in head
        revision = await create(server, "a")
        events = [event async for event in stream.events()]
        assert [(e["type"], int(e["object"]["metadata"]["resourceVersion"])) for e in events] == [("ADDED", revision)]
        stream.send("GET", f"{CONFIGMAPS}/a")  # the connection goes on
        assert (await stream.answer())[0] == 200
        await stream.close()


async def test_stopping_the_server_ends_every_stream_with_its_last_chunk() -> None:
    streams: list[Stream] = []
    async with listening() as (server, connect):
        for number in range(20):
            stream = await connect()
            stream.send("GET", f"/api/v1/{('pods', 'configmaps', 'secrets')[number % 3]}?watch=1&resourceVersion=1")
            await stream.head()
            streams.append(stream)
        await create(server, "a")
        async for event in streams[1].events():
            if event["object"]["metadata"]["name"] == "a":
                break
        began = time.monotonic()
        await server.server.stop()
        assert time.monotonic() - began < 2
        for stream in streams:
            async for _ in stream.events():  # returns at the last chunk, raises when it is missing
                pass
            assert await stream.reader.read() == b""
            await stream.close()


async def test_stopping_while_writes_are_answered_does_not_wait_for_idle_clients() -> None:
    async with listening() as (server, connect):
        streams = [await connect() for _ in range(8)]
        for number, stream in enumerate(streams):
            stream.send("POST", CONFIGMAPS, orjson.dumps({"metadata": {"name": f"c{number}"}}))
        await asyncio.sleep(0)
        began = time.monotonic()
        await server.server.stop()
        assert time.monotonic() - began < 2
        for stream in streams:
            await stream.close()


async def test_a_watch_behind_a_slow_request_on_its_connection_takes_nothing_from_others() -> None:
    """Three connections ask for the same watch; on one of them it waits behind a create."""

    async with listening() as (server, connect):
        target = f"{CONFIGMAPS}?watch=1&resourceVersion={server.store.revision}"
        behind, plain, third = await connect(), await connect(), await connect()
        behind.send("POST", CONFIGMAPS, orjson.dumps({"metadata": {"name": "first"}}))
        behind.send("GET", target)
        plain.send("GET", target)
        third.send("GET", target)
        assert (await behind.answer())[0] == 201
        for stream in (behind, plain, third):
            assert (await stream.head())[0] == 200
        await create(server, "second")
        for stream in (behind, plain, third):
            names = []
            async with asyncio.timeout(2):
                async for event in stream.events():
                    names.append(event["object"]["metadata"]["name"])
                    if names[-1] == "second":
                        break
            assert names == ["first", "second"]
            await stream.close()


async def test_a_reader_that_stops_reading_catches_up_without_loss_when_it_goes_on() -> None:
    async with listening() as (server, connect):
        slow, fast = await connect(), await connect()
        for stream in (slow, fast):
            stream.send("GET", f"{CONFIGMAPS}?watch=1&resourceVersion={server.store.revision}")
            await stream.head()
        wanted = []
        for number in range(60):  # more than sockets and buffers hold
            wanted.append(await create(server, f"c{number}", 500_000))
            async for event in fast.events():
                assert int(event["object"]["metadata"]["resourceVersion"]) == wanted[-1]
                break
        found: list[int] = []
        async for event in slow.events():
            found.append(int(event["object"]["metadata"]["resourceVersion"]))
            if len(found) == len(wanted):
                break
        assert found == wanted
        await slow.close()
        await fast.close()


async def test_head_of_a_watch_has_no_body_and_close_is_honoured() -> None:
    async with listening() as (_, connect):
        stream = await connect()
        stream.send("HEAD", f"{CONFIGMAPS}?watch=1")
        assert (await stream.head())[0] == 200
        stream.send("GET", f"{CONFIGMAPS}/kube-root-ca.crt")  # in step: nothing of a body is in between
        assert (await stream.answer())[1]["kind"] == "ConfigMap"
        await stream.close()
        stream = await connect()
        stream.writer.write(
            f"GET {CONFIGMAPS}?watch=1&timeoutSeconds=1 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
            f"Authorization: Bearer {ADMIN_TOKEN}\r\n\r\n".encode()
        )
        async with asyncio.timeout(5):
            assert (await stream.reader.read()).endswith(b"\r\n0\r\n\r\n")
        await stream.close()


async def test_watches_of_clients_that_vanish_end_their_subscription(monkeypatch: pytest.MonkeyPatch) -> None:
    async with listening() as (server, connect):
        active: list[str] = []
        subscribe = server.store.subscribe

        def counted(resource: str, *callbacks: Any) -> Callable[[], None]:
            unsubscribe = subscribe(resource, *callbacks)
            active.append(resource)

            def end() -> None:
                active.remove(resource)
                unsubscribe()

            return end

        monkeypatch.setattr(server.store, "subscribe", counted)
        for _ in range(30):
            stream = await connect()
            stream.send("GET", f"{CONFIGMAPS}?watch=1")
            await stream.head()
            assert active == ["configmaps"]
            stream.writer.transport.abort()
        await eventually(lambda: not active)
        await create(server, "a")


async def test_a_watch_whose_events_cannot_be_encoded_ends_and_the_others_get_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with local_server() as server:
        url = f"{CONFIGMAPS}?watch=true&resourceVersion={server.store.revision}"
        async with server.watch(f"{url}&labelSelector=a") as broken, server.watch(url) as fine:
            await eventually(lambda: len(list(server.server.hub.counts())) == 2, what="both watch")
            lines = WatchGroup.lines

            def failing(group: WatchGroup, events: Any) -> bytes:
                if group.selection.where is not None:
                    raise RuntimeError("a fault of this representation")
                return lines(group, events)

            monkeypatch.setattr(WatchGroup, "lines", failing)
            await server.post(CONFIGMAPS, {"metadata": {"name": "a"}})
            assert (await take(fine, 1))[0]["object"]["metadata"]["name"] == "a"
            [error] = await take(broken, 1)
            assert (error["type"], error["object"]["code"]) == ("ERROR", 500)
