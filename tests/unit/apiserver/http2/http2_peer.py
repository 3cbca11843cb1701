"""A client of HTTP/2 that sends whatever frames a test wants, and a server for it without TLS."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from typing import NamedTuple

import hpack

from shoal.apiserver.http import HttpServer
from shoal.apiserver.http2.connection import Http2Connection
from shoal.apiserver.http2.frames import (
    ACK,
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    GOAWAY,
    HEADER_BYTES,
    HEADERS,
    PREFACE,
    RST_STREAM,
    SETTINGS,
    frame,
    read_header,
    settings,
)
from shoal.apiserver.messages import Answer, HttpLimits, Request, Response
from shoal.base.clock import FakeClock

Handler = Callable[[Request], Awaitable[Answer]]


class Frame(NamedTuple):
    kind: int
    flags: int
    stream: int
    payload: bytes

    @property
    def word(self) -> int:
        """Of RST_STREAM the reason, of WINDOW_UPDATE the increment."""
        return int.from_bytes(self.payload[:4], "big")

    @property
    def reason(self) -> int:
        """Of GOAWAY."""
        return int.from_bytes(self.payload[4:8], "big")


@dataclass
class Received:
    status: int = 0
    headers: dict[bytes, bytes] = field(default_factory=dict)
    body: bytes = b""


class Http2Peer:
    """The client's end of a connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self.encoder, self.decoder = hpack.Encoder(), hpack.Decoder()
        self.answers: dict[int, Received] = {}
        self.ended: set[int] = set()
        self.frames: list[Frame] = []  # all that were received

    def greet(self, values: Sequence[tuple[int, int]] = ()) -> None:
        self.writer.write(PREFACE + settings(values))

    def send(self, kind: int, flags: int = 0, stream: int = 0, payload: bytes = b"") -> None:
        self.writer.write(frame(kind, flags, stream, payload))

    def block(
        self, path: str = "/", method: str = "GET", headers: Sequence[tuple[bytes, bytes]] = (), *, host: str = "h"
    ) -> bytes:
        named = ((":method", method), (":scheme", "https"), (":path", path), (":authority", host))
        return self.encoder.encode([*((k.encode(), v.encode()) for k, v in named), *headers])

    def request(
        self,
        stream: int,
        path: str = "/",
        method: str = "GET",
        headers: Sequence[tuple[bytes, bytes]] = (),
        *,
        end: bool = True,
    ) -> None:
        self.send(HEADERS, END_HEADERS | (END_STREAM if end else 0), stream, self.block(path, method, headers))

    async def next(self) -> Frame:
        head = await self.reader.readexactly(HEADER_BYTES)
        word, flags, stream = read_header(head)
        found = Frame(word & 0xFF, flags, stream, await self.reader.readexactly(word >> 8))
        self.frames.append(found)
        if found.kind in (HEADERS, CONTINUATION):
            answer = self.answers.setdefault(stream, Received())
            headers = dict(self.decoder.decode(found.payload, raw=True))
            answer.status = int(headers.pop(b":status"))
            answer.headers = headers
        elif found.kind == DATA:
            self.answers[stream].body += found.payload
        elif found.kind == SETTINGS and not flags & ACK:
            self.send(SETTINGS, ACK)
        if found.kind in (HEADERS, DATA) and flags & END_STREAM:
            self.ended.add(stream)
        return found

    async def until(self, kind: int, stream: int | None = None) -> Frame:
        while True:
            found = await self.next()
            if found.kind == kind and stream in (None, found.stream) and not (kind == SETTINGS and found.flags & ACK):
                return found

    async def answer(self, stream: int) -> Received:
        """The whole answer to a request."""
        while stream not in self.ended:
            found = await self.next()
            assert not (found.kind == RST_STREAM and found.stream == stream), f"reset: {found.word}"
            assert found.kind != GOAWAY or not found.reason, found.payload
        return self.answers[stream]

    async def body_of(self, stream: int, size: int) -> bytes:
        """The body so far, once it has ``size`` octets."""
        while stream not in self.answers or len(self.answers[stream].body) < size:
            await self.next()
        return self.answers[stream].body

    async def goodbye(self) -> int:
        """The reason of the server's GOAWAY, after which it closes."""
        found = await self.until(GOAWAY)
        await self.closed()
        return found.reason

    async def closed(self) -> None:
        try:
            while await self.reader.read(65536):
                pass
        except ConnectionError:
            pass

    async def is_served(self, stream: int) -> bool:
        self.request(stream, "/alive")
        return (await self.answer(stream)).status == 200


Connect = Callable[..., Awaitable[Http2Peer]]
Listen = Callable[..., AbstractAsyncContextManager[tuple[Connect, HttpServer]]]


@asynccontextmanager
async def http2_server(
    clock: FakeClock,
    handler: Handler,
    limits: HttpLimits | None = None,
    hands_on: Callable[[bytes], bool] | None = None,
) -> AsyncIterator[tuple[Connect, HttpServer]]:
    """A server on a port, whose limits of time follow ``clock``."""
    loop = asyncio.get_running_loop()
    server = HttpServer(
        handler, lambda request, error: Response(500, repr(error).encode()), loop=loop, clock=clock, limits=limits,  # type: ignore[arg-type]
        common_headers=((b"Cache-Control", b"no-cache"),), hands_on=hands_on,
    )  # fmt: skip
    listener = await loop.create_server(lambda: Http2Connection(server), "127.0.0.1", 0)
    port = listener.sockets[0].getsockname()[1]

    peers: list[Http2Peer] = []

    async def connect(values: Sequence[tuple[int, int]] = (), *, greet: bool = True) -> Http2Peer:
        peer = Http2Peer(*await asyncio.open_connection("127.0.0.1", port))
        peers.append(peer)
        if greet:
            peer.greet(values)
        return peer

    try:
        async with asyncio.timeout(20):
            yield connect, server
    finally:
        for peer in peers:
            peer.writer.close()
        await server.stop(grace_s=0.1)
        listener.close()


async def echo(request: Request) -> Answer:
    return Response(200, f"{request.method} {request.path} {request.query} {len(request.body)}".encode(), b"text/plain")
