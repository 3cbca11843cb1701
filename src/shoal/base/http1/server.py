"""A small HTTP/1.1 server, with or without TLS, for few clients: requests, streamed answers, upgrades.

It serves a node's logs and sessions, and the health and metrics of small processes; not the Kubernetes API.
A request is one object, and an answer is written through it. Bodies of requests are read and dropped: no user of
this server needs one. Pipelining is not supported: input before the end of an answer closes the connection after it.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from urllib.parse import parse_qs, unquote

import httptools

from shoal.base.clock import Clock
from shoal.base.deadline import within
from shoal.base.http1.messages import LAST_CHUNK, chunk
from shoal.base.logs import get_logger
from shoal.base.tasks import OwnedTasks
from shoal.errors import ApiError

log = get_logger("base.http1")

_BUFFER_BYTES = 64 * 1024
_ACCEPT_AGAIN_S = 1.0
_PHRASES = {status.value: status.phrase for status in HTTPStatus}


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerLimits:
    """Limits for clients of a server."""

    connections: int = 4096  # more are refused
    request_bytes: int = 256 * 1024  # head and body together
    request_s: float = 120.0  # for the next request to come in, idle time included


@dataclass(slots=True)
class ServerRequest:
    """One request with its connection."""

    method: str
    path: tuple[str, ...]  # parts, decoded
    query: Mapping[str, list[str]]
    headers: Mapping[str, str]  # names in lower case
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    rest: bytes = b""  # what came after the head of an upgrade
    keep_alive: bool = True
    upgraded: bool = False
    answered: bool = field(default=False)

    def one(self, name: str) -> str:
        return next(iter(self.query.get(name, ())), "")

    def flag(self, *names: str) -> bool:
        return any(self.one(name) in ("1", "true", "True", "t") for name in names)

    # answers

    async def answer(self, status: int, body: bytes, content_type: str = "text/plain; charset=utf-8") -> None:
        self.answered = True
        head = self._head(status, {"content-type": content_type, "content-length": str(len(body))})
        self.writer.write(head if self.method == "HEAD" else head + body)
        await self.writer.drain()

    async def stream(self, pieces: AsyncIterator[bytes], content_type: str = "text/plain; charset=utf-8") -> None:
        """Answer in pieces as they come. The head is sent with the first of them, so that an error before it still
        becomes a proper answer; a client that goes away ends it."""
        tasks = OwnedTasks()
        gone = tasks.start(self.reader.read(1), name="http1/gone", awaited=True)
        try:
            await self._stream(pieces, content_type, gone, tasks)
        finally:
            if not gone.done():
                gone.cancel()
            with suppress(asyncio.CancelledError, OSError):
                if await gone:
                    self.keep_alive = False  # a pipelined request: it is dropped

    async def _stream(
        self, pieces: AsyncIterator[bytes], content_type: str, gone: asyncio.Task[bytes], tasks: OwnedTasks
    ) -> None:
        steps = aiter(pieces)
        while True:
            step = tasks.start(_next(steps), name="http1/piece", awaited=True)
            done, _ = await asyncio.wait({step, gone}, return_when=asyncio.FIRST_COMPLETED)
            if step not in done:
                step.cancel()
                with suppress(asyncio.CancelledError):
                    await step
                self.keep_alive = False
                return
            piece = step.result()
            if not self.answered:
                self.answered = True
                self.writer.write(self._head(200, {"content-type": content_type, "transfer-encoding": "chunked"}))
            if piece is None:
                self.writer.write(LAST_CHUNK)
                await self.writer.drain()
                return
            if piece:
                self.writer.write(chunk(piece))
                await self.writer.drain()

    async def switch(self, headers: Mapping[str, str]) -> None:
        """Accept an upgrade: from now on the connection belongs to the caller."""
        self.answered = self.upgraded = True
        self.keep_alive = False
        self.writer.write(self._head(101, {"connection": "Upgrade", **headers}))
        await self.writer.drain()

    def _head(self, status: int, headers: Mapping[str, str]) -> bytes:
        lines = [f"HTTP/1.1 {status} {_PHRASES.get(status, 'Status')}", *(f"{k}: {v}" for k, v in headers.items())]
        if not self.keep_alive and status != 101:
            lines.append("connection: close")
        return "\r\n".join([*lines, "", ""]).encode()


@dataclass(frozen=True, slots=True)
class ClientIdentity:
    """The subject that a client's certificate must have: this name and this organization, and no other of either."""

    common_name: str
    organization: str

    def is_of(self, writer: asyncio.StreamWriter) -> bool:
        """Whether the client at the other end has shown such a certificate."""
        subject = (writer.get_extra_info("peercert") or {}).get("subject", ())
        pairs = [pair for part in subject for pair in part]
        names = [value for name, value in pairs if name == "commonName"]
        organizations = [value for name, value in pairs if name == "organizationName"]
        return names == [self.common_name] and organizations == [self.organization]


DEFAULT_SERVER_LIMITS = ServerLimits()

Handler = Callable[[ServerRequest], Awaitable[None]]
ContextOf = Callable[[str], ssl.SSLContext]  # by the address that was dialled


class _Parsing:
    """Callbacks of the HTTP parser, for one request."""

    def __init__(self) -> None:
        self.url = b""
        self.headers: dict[str, str] = {}
        self.complete = False
        self.surplus = False  # another request came with this one

    def on_message_begin(self) -> None:
        self.surplus = self.complete

    def on_url(self, url: bytes) -> None:
        if not self.complete:
            self.url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self.complete:
            key, text = name.decode("latin-1").lower(), value.decode("latin-1")
            self.headers[key] = f"{self.headers[key]}, {text}" if key in self.headers else text

    def on_message_complete(self) -> None:
        self.complete = True

    def keep_alive(self, version: str) -> bool:
        return version == "1.1" and "close" not in self.headers.get("connection", "").lower()


class Http1Server:
    """Serves one handler. With ``allowed``, only the client whose certificate has these names is accepted."""

    def __init__(
        self,
        handler: Handler,
        *,
        clock: Clock,
        allowed: ClientIdentity | None = None,
        limits: ServerLimits = DEFAULT_SERVER_LIMITS,
    ) -> None:
        self._handler = handler
        self._clock = clock
        self._allowed = allowed
        self._limits = limits
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()

    async def listen(self, host: str, port: int, tls: ssl.SSLContext | None = None) -> int:
        """Open the port; the number of the port that was opened."""
        self._server = await asyncio.start_server(self._connected, host, port, ssl=tls, limit=_BUFFER_BYTES)
        found: int = self._server.sockets[0].getsockname()[1]
        return found

    async def listen_on(self, listening: socket.socket) -> None:
        """As ``listen``, on a socket that is bound already; it is closed with the server."""
        self._server = await asyncio.start_server(self._connected, sock=listening, limit=_BUFFER_BYTES)

    async def serve(self, listening: socket.socket, context_of: ContextOf) -> None:
        """As ``listen``, on a socket that listens on several addresses, each with a certificate of its own; until it is
        cancelled. Connections are accepted here since asyncio's servers know one certificate."""
        loop = asyncio.get_running_loop()
        listening.setblocking(False)
        handshakes = OwnedTasks()
        try:
            while True:
                try:
                    accepted, _ = await loop.sock_accept(listening)
                except OSError as error:
                    log.warning("connection not accepted", reason=str(error))
                    await self._clock.sleep(_ACCEPT_AGAIN_S)
                    continue
                handshakes.start(self._handshake(accepted, context_of), name="http1/handshake")
        finally:
            await handshakes.close()

    async def _handshake(self, accepted: socket.socket, context_of: ContextOf) -> None:
        loop = asyncio.get_running_loop()
        try:
            await loop.connect_accepted_socket(
                lambda: asyncio.StreamReaderProtocol(asyncio.StreamReader(limit=_BUFFER_BYTES), self._connected),
                accepted, ssl=context_of(accepted.getsockname()[0]),
            )  # fmt: skip
        except (OSError, ValueError) as error:
            log.debug("TLS handshake failed", reason=str(error))
            accepted.close()

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        for task in tuple(self._connections):
            task.cancel()
        if self._connections:
            await asyncio.wait(self._connections)
        if self._server is not None:
            await self._server.wait_closed()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        if len(self._connections) >= self._limits.connections:
            writer.transport.abort()
            return
        self._connections.add(task)
        try:
            while await self._request(reader, writer):
                pass
        except (ConnectionError, ssl.SSLError, TimeoutError, asyncio.IncompleteReadError):
            pass  # the client went away
        except asyncio.CancelledError:
            pass  # the server closes: asyncio would report the cancellation of a connection as an error
        finally:
            self._connections.discard(task)
            writer.close()
            with suppress(OSError, ssl.SSLError, asyncio.CancelledError):
                await writer.wait_closed()

    async def _request(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Answer one request; whether another may follow."""
        parsing = _Parsing()
        parser = httptools.HttpRequestParser(parsing)
        async with within(self._clock, self._limits.request_s):
            rest = await self._receive(reader, writer, parsing, parser)
        if rest is None:
            return False
        path, _, query = parsing.url.decode("latin-1").partition("?")
        request = ServerRequest(
            parser.get_method().decode("ascii"), tuple(unquote(part) for part in path.split("/") if part),
            parse_qs(query, keep_blank_values=True), parsing.headers, reader, writer, rest,
            keep_alive=parsing.keep_alive(parser.get_http_version()) and not parsing.surplus,
        )  # fmt: skip
        await self._answer(request)
        return request.keep_alive and not request.upgraded

    async def _receive(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        parsing: _Parsing,
        parser: httptools.HttpRequestParser,
    ) -> bytes | None:
        """Read one request; return the input after the head of an upgrade, or None when there is no request."""
        size = 0
        while True:
            data = await reader.read(_BUFFER_BYTES)
            if not data:
                return None
            size += len(data)
            if size > self._limits.request_bytes:
                await _refuse(writer, HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
                return None
            try:
                parser.feed_data(data)
            except httptools.HttpParserUpgrade as upgrade:
                return data[upgrade.args[0] :]
            except httptools.HttpParserError:
                if not parsing.complete:
                    await _refuse(writer, HTTPStatus.BAD_REQUEST)
                    return None
                parsing.surplus = True
            if parsing.complete:
                return b""

    async def _answer(self, request: ServerRequest) -> None:
        if self._allowed is not None and not self._allowed.is_of(request.writer):
            await request.answer(403, b"Forbidden")
            return
        try:
            await self._handler(request)
        except ApiError as error:
            if request.answered:
                request.keep_alive = False
            else:
                await request.answer(error.code, error.message.encode())
        except (ConnectionError, ssl.SSLError):
            raise
        except Exception as error:
            log.error("request failed", error=error, path="/".join(request.path))
            if not request.answered:
                await request.answer(500, b"Internal Server Error")
            request.keep_alive = False


async def _refuse(writer: asyncio.StreamWriter, status: HTTPStatus) -> None:
    writer.write(f"HTTP/1.1 {status.value} {status.phrase}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n".encode())
    await writer.drain()


async def _next(pieces: AsyncIterator[bytes]) -> bytes | None:
    return await anext(pieces, None)
