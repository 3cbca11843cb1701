"""A small HTTPS server for few clients that keep connections: requests, streamed answers, upgrades.

The only client is the API server, known by its certificate. A request is one object, an answer is written through it;
bodies of requests are read and not used, for nothing here takes one.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from urllib.parse import parse_qs, unquote, urlsplit

import httptools

from shoal.base.clock import Clock
from shoal.base.deadline import within
from shoal.base.logs import get_logger
from shoal.base.tasks import cancel_all
from shoal.errors import ApiError

log = get_logger("node.server")

_HEAD_LIMIT = 64 * 1024
_IDLE_S = 120.0
_ACCEPT_AGAIN_S = 1.0
_REASONS = {200: "OK", 101: "Switching Protocols", 400: "Bad Request", 403: "Forbidden", 404: "Not Found"}


@dataclass(slots=True)
class Request:
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
        self.writer.write(self._head(status, {"content-type": content_type, "content-length": str(len(body))}) + body)
        await self.writer.drain()

    async def stream(self, chunks: AsyncIterator[bytes], content_type: str = "text/plain; charset=utf-8") -> None:
        """Answer in pieces as they come. The head is sent with the first of them, so that an error before it still
        becomes a proper answer; a client that goes away ends it."""
        gone = asyncio.create_task(self.reader.read(1), name="node/server/gone")
        try:
            await self._stream(chunks, content_type, gone)
        finally:
            if not gone.done():
                gone.cancel()
            with suppress(asyncio.CancelledError, OSError):
                if await gone:
                    self.keep_alive = False  # a request that came too early: it is lost

    async def _stream(self, chunks: AsyncIterator[bytes], content_type: str, gone: asyncio.Task[bytes]) -> None:
        steps = aiter(chunks)
        while True:
            step = asyncio.ensure_future(anext(steps, None))
            done, _ = await asyncio.wait({step, gone}, return_when=asyncio.FIRST_COMPLETED)
            if step not in done:
                step.cancel()
                with suppress(asyncio.CancelledError):
                    await step
                self.keep_alive = False
                return
            chunk = step.result()
            if not self.answered:
                self.answered = True
                self.writer.write(self._head(200, {"content-type": content_type, "transfer-encoding": "chunked"}))
            if chunk is None:
                self.writer.write(b"0\r\n\r\n")
                await self.writer.drain()
                return
            if chunk:
                self.writer.write(b"%x\r\n%b\r\n" % (len(chunk), chunk))
                await self.writer.drain()

    async def switch(self, headers: Mapping[str, str]) -> None:
        """Accept an upgrade: from now on the connection belongs to whoever called this."""
        self.answered = self.upgraded = True
        self.keep_alive = False
        self.writer.write(self._head(101, {"connection": "Upgrade", **headers}))
        await self.writer.drain()

    def _head(self, status: int, headers: Mapping[str, str]) -> bytes:
        lines = [f"HTTP/1.1 {status} {_REASONS.get(status, 'Status')}", *(f"{k}: {v}" for k, v in headers.items())]
        if not self.keep_alive and status != 101:
            lines.append("connection: close")
        return "\r\n".join([*lines, "", ""]).encode()


Handler = Callable[[Request], Awaitable[None]]
ContextOf = Callable[[str], ssl.SSLContext]  # by the address that was dialled


class _Parsing:
    """Callbacks of the HTTP parser."""

    def __init__(self) -> None:
        self.url = b""
        self.headers: dict[str, str] = {}
        self.complete = False

    def on_url(self, url: bytes) -> None:
        self.url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_message_complete(self) -> None:
        self.complete = True


class HttpsServer:
    """Serves one handler. Clients prove who they are with a certificate; only ``allowed`` names get further."""

    def __init__(self, handler: Handler, *, clock: Clock, allowed: frozenset[str]) -> None:
        self._handler = handler
        self._clock = clock
        self._allowed = allowed
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()

    async def listen(self, host: str, port: int, tls: ssl.SSLContext) -> int:
        """Open the port; the number of the port that was opened."""
        self._server = await asyncio.start_server(self._connected, host, port, ssl=tls, limit=_HEAD_LIMIT)
        found: int = self._server.sockets[0].getsockname()[1]
        return found

    async def serve(self, listening: socket.socket, context_of: ContextOf) -> None:
        """As ``listen``, on a socket that listens on several addresses, each with a certificate of its own; until it is
        cancelled. Connections are accepted here since asyncio's servers know one certificate."""
        loop = asyncio.get_running_loop()
        listening.setblocking(False)
        greeting: set[asyncio.Task[None]] = set()
        try:
            while True:
                try:
                    accepted, _ = await loop.sock_accept(listening)
                except OSError as error:
                    log.warning("a connection was not accepted", reason=str(error))
                    await self._clock.sleep(_ACCEPT_AGAIN_S)
                    continue
                task = loop.create_task(self._greet(accepted, context_of), name="node/server/greeting")
                greeting.add(task)
                task.add_done_callback(greeting.discard)
        finally:
            await cancel_all(*greeting)

    async def _greet(self, accepted: socket.socket, context_of: ContextOf) -> None:
        loop = asyncio.get_running_loop()
        try:
            await loop.connect_accepted_socket(
                lambda: asyncio.StreamReaderProtocol(asyncio.StreamReader(limit=_HEAD_LIMIT), self._connected),
                accepted, ssl=context_of(accepted.getsockname()[0]),
            )  # fmt: skip
        except (OSError, ValueError) as error:
            log.debug("a handshake failed", reason=str(error))
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
        rest = b""
        async with within(self._clock, _IDLE_S):
            while not parsing.complete:
                data = await reader.read(65536)
                if not data:
                    return False
                try:
                    parser.feed_data(data)
                except httptools.HttpParserUpgrade as upgrade:
                    rest = data[upgrade.args[0] :]
                    break
                except httptools.HttpParserError:
                    return False
        url = urlsplit(parsing.url.decode("latin-1"))
        request = Request(
            parser.get_method().decode("ascii"), tuple(unquote(part) for part in url.path.split("/") if part),
            parse_qs(url.query, keep_blank_values=True), parsing.headers, reader, writer, rest,
            keep_alive="close" not in parsing.headers.get("connection", "").lower(),
        )  # fmt: skip
        await self._answer(request)
        return request.keep_alive and not request.upgraded

    async def _answer(self, request: Request) -> None:
        if client_name(request.writer) not in self._allowed:
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
            log.error("a request failed", error=error, path="/".join(request.path))
            if not request.answered:
                await request.answer(500, b"Internal Server Error")
            request.keep_alive = False


def client_name(writer: asyncio.StreamWriter) -> str:
    """The common name of the client's certificate; empty without one."""
    certificate = writer.get_extra_info("peercert") or {}
    for part in certificate.get("subject", ()):
        for name, value in part:
            if name == "commonName":
                return str(value)
    return ""
