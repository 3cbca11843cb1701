"""The server of the demo application: HTTP/1.1 and WebSocket connections, with graceful shutdown.

On SIGTERM it reports so at /health and sends ``Connection: close`` with every answer, accepts requests for $DRAIN_S
(for gateways that do not know yet), and exits after the last answer.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Mapping
from http import HTTPStatus
from urllib.parse import unquote_plus

from shoal.app.demo.answers import About, DemoAnswer, DemoRequest, about_from, answer, chunk
from shoal.base.websocket import CloseCode, Decoder, Opcode, WebSocketError, accept_key, encode, encode_close, is_key

_HEAD_BYTES, _BODY_BYTES = 64 * 1024, 64 * 1024 * 1024
_PIECE_BYTES = 64 * 1024
_END_S = 25.0  # below the 30 s that pods have before they are killed
_REASONS = {status.value: status.phrase for status in HTTPStatus}
_GONE = (asyncio.IncompleteReadError, asyncio.LimitOverrunError, ConnectionError)


class MalformedRequest(Exception):
    """The bytes are not a valid request."""


class DemoServer:
    """Accepts from ``start`` to ``close``."""

    def __init__(self, about: About) -> None:
        self._about = about
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.StreamWriter] = set()
        self.under_way = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self._number = 0
        self.draining = False

    async def start(self, host: str, port: int) -> int:
        """The actual port, also if 0 was requested."""
        self._server = await asyncio.start_server(self._connection, host, port, limit=_HEAD_BYTES, backlog=1024)
        return int(self._server.sockets[0].getsockname()[1])

    async def close(self, *, drain_s: float, end_s: float = _END_S) -> None:
        self.draining = True
        await asyncio.sleep(drain_s)
        if self._server is not None:
            self._server.close()
        try:
            async with asyncio.timeout(end_s):
                await self._idle.wait()
        except TimeoutError:
            print(f"stopped with {self.under_way} unfinished requests", file=sys.stderr, flush=True)
        for writer in list(self._connections):
            writer.close()

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connections.add(writer)
        try:
            while await self._one(reader, writer):
                pass
        except MalformedRequest as error:
            writer.write(_head(400, {"content-type": "text/plain", "connection": "close"}, len(str(error))))
            writer.write(str(error).encode())
        except _GONE:
            pass
        finally:
            self._connections.discard(writer)
            writer.close()

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Answer one request; return whether the connection stays open."""
        head = await reader.readuntil(b"\r\n\r\n")
        self.under_way += 1
        self._idle.clear()
        try:
            request, version = parse_head(head)
            if request.path == "/ws":
                await self._websocket(request, reader, writer)
                return False
            if request.headers.get("expect", "").lower() == "100-continue":
                writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            body = await _body(request.headers, reader)
            request = DemoRequest(request.method, request.path, request.query, request.headers, body)
            self._number += not request.path.startswith(("/health", "/readyz", "/livez"))
            made = answer(self._about, request, number=self._number, draining=self.draining)
            if made.delay_s:
                await asyncio.sleep(made.delay_s)
            wanted = request.headers.get("connection", "").lower()
            keep = not self.draining and "close" not in wanted and version == "HTTP/1.1"
            await self._send(writer, request, made, keep)
            return keep
        finally:
            self.under_way -= 1
            if not self.under_way:
                self._idle.set()

    async def _send(self, writer: asyncio.StreamWriter, request: DemoRequest, made: DemoAnswer, keep: bool) -> None:
        headers = {"content-type": made.content_type, "server": "shoal-demo"}
        if not keep:
            headers["connection"] = "close"
        if not made.chunks:
            bodiless = made.status in (204, 304)
            body = b"" if bodiless or request.method == "HEAD" else made.body
            writer.write(_head(made.status, headers, None if bodiless else len(made.body)) + body)
            await writer.drain()
            return
        writer.write(_head(made.status, {**headers, "transfer-encoding": "chunked"}, None))
        for number in range(made.chunks if request.method != "HEAD" else 0):
            if number and made.pause_s:
                await asyncio.sleep(made.pause_s)
            piece = chunk(self._about, number)
            writer.write(b"%x\r\n%s\r\n" % (len(piece), piece))
            await writer.drain()
        if request.method != "HEAD":
            writer.write(b"0\r\n\r\n")
        await writer.drain()

    async def _websocket(
        self, request: DemoRequest, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Echo messages, after a first message that names this instance."""
        key = request.headers.get("sec-websocket-key", "")
        if request.headers.get("upgrade", "").lower() != "websocket" or not is_key(key):
            raise MalformedRequest("/ws is for WebSocket connections")
        writer.write(
            b"HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: Upgrade\r\n"
            b"sec-websocket-accept: " + accept_key(key).encode() + b"\r\n\r\n"
        )
        hello = f"{self._about.tag} {self._about.region} {self._about.instance}".rstrip()
        writer.write(encode(Opcode.TEXT, hello.encode()))
        decoder = Decoder(server=True)
        try:
            while data := await reader.read(_PIECE_BYTES):
                for message in decoder.feed(data):
                    if message.opcode == Opcode.CLOSE:
                        writer.write(encode_close())
                        return
                    if message.opcode == Opcode.PING:
                        writer.write(encode(Opcode.PONG, message.data))
                    elif message.opcode in (Opcode.TEXT, Opcode.BINARY):
                        writer.write(encode(message.opcode, message.data))
                await writer.drain()
                if self.draining:
                    writer.write(encode_close(CloseCode.GOING_AWAY, "the instance ends"))
                    return
        except WebSocketError as error:
            writer.write(encode_close(error.code, str(error)))


def parse_head(head: bytes) -> tuple[DemoRequest, str]:
    """A request without its body, and the version of HTTP."""
    lines = head.decode("latin-1").split("\r\n")
    try:
        method, target, version = lines[0].split(" ")
    except ValueError:
        raise MalformedRequest("invalid request line: expected METHOD TARGET VERSION") from None
    headers: dict[str, str] = {}
    for line in lines[1:]:
        name, colon, value = line.partition(":")
        if colon:
            headers[name.strip().lower()] = value.strip()
    path, _, text = target.partition("?")
    pairs = (pair.partition("=") for pair in text.split("&") if pair)
    query = {unquote_plus(name): unquote_plus(value) for name, _, value in pairs}
    return DemoRequest(method, path, query, headers), version


async def _body(headers: Mapping[str, str], reader: asyncio.StreamReader) -> bytes:
    if "chunked" in headers.get("transfer-encoding", "").lower():
        return await _chunked(reader)
    try:
        size = int(headers.get("content-length") or 0)
    except ValueError:
        raise MalformedRequest("invalid Content-Length: not a number") from None
    if not 0 <= size <= _BODY_BYTES:
        raise MalformedRequest(f"a body may have at most {_BODY_BYTES} bytes")
    return await reader.readexactly(size)


async def _chunked(reader: asyncio.StreamReader) -> bytes:
    pieces: list[bytes] = []
    total = 0
    while True:
        line = (await reader.readuntil(b"\r\n")).partition(b";")[0].strip()
        try:
            size = int(line, 16)
        except ValueError:
            raise MalformedRequest("invalid chunk size: not a hexadecimal number") from None
        if size == 0:
            while (await reader.readuntil(b"\r\n")) != b"\r\n":
                pass
            return b"".join(pieces)
        total += size
        if total > _BODY_BYTES:
            raise MalformedRequest(f"a body may have at most {_BODY_BYTES} bytes")
        pieces.append((await reader.readexactly(size + 2))[:-2])


def _head(status: int, headers: Mapping[str, str], length: int | None) -> bytes:
    lines = [f"HTTP/1.1 {status} {_REASONS.get(status, 'DemoAnswer')}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    if length is not None:
        lines.append(f"content-length: {length}")
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


async def run(about: About, environ: Mapping[str, str]) -> None:
    """Until SIGTERM or SIGINT."""
    ended = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    server = DemoServer(about)
    port = await server.start(environ.get("HOST", "127.0.0.1"), int(environ.get("PORT", "8080")))
    print(f"demo {about.tag} listens on {environ.get('HOST', '127.0.0.1')}:{port}", flush=True)
    await ended.wait()
    await server.close(drain_s=float(environ.get("DRAIN_S", "1")))


def main(arguments: list[str]) -> int:
    try:
        about = about_from(arguments[0] if arguments else "v1", os.environ)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    asyncio.run(run(about, os.environ))
    return 0
