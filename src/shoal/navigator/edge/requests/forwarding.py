"""A port of a pod through the API server: WebSocket with the channels of Kubernetes' port-forward.

It reaches what listens on the pod's own loopback, as the administration of a sidecar does, and needs no program in the
pod. One connection per call, closed at its end.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Callable
from contextlib import suppress
from urllib.parse import urlsplit

import httptools

from shoal.base import websocket
from shoal.base.clock import Clock
from shoal.base.deadline import within
from shoal.base.websocket import Decoder, Opcode, WebSocketError, decode_channel, encode, encode_channel
from shoal.client import AccessConfig, Unreachable, builtin
from shoal.client.client import error_of
from shoal.client.credentials import credentials_of, tls_context
from shoal.errors import BadRequest, ServiceUnavailable, TooLarge

_SUBPROTOCOL = websocket.V4
_DATA, _ERROR = 0, 1  # of the first port
_READ_BYTES = 64 * 1024
_HEAD_BYTES = 64 * 1024
_LARGEST_BYTES = 256 * 1024 * 1024
_CONNECT_S = 10.0


class PortForward:
    """Ports of pods of one cluster, as one user. ``random_bytes`` is for keys and masks."""

    def __init__(self, access: AccessConfig, *, clock: Clock, random_bytes: Callable[[int], bytes]) -> None:
        self._access = access
        self._clock = clock
        self._random_bytes = random_bytes
        self._credentials = credentials_of(access, clock=clock)

    async def get(self, namespace: str, pod: str, port: int, path: str) -> bytes:
        """The body of an HTTP answer of that port."""
        reader, writer = await self._dial()
        try:
            await self._switch(reader, writer, namespace, pod, port)
            request = f"GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n".encode()
            writer.write(encode_channel(_DATA, request, _SUBPROTOCOL, mask=self._random_bytes(4)))
            return await self._answer(reader, writer, f"port {port} of {namespace}/{pod}")
        finally:
            writer.close()
            with suppress(OSError, TimeoutError):
                await writer.wait_closed()

    async def _dial(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        parts = urlsplit(self._access.url)
        secure = parts.scheme == "https"
        identity = await self._credentials.identity()
        context = tls_context(self._access, identity) if secure else None
        host = parts.hostname or ""
        try:
            async with within(self._clock, _CONNECT_S):
                return await asyncio.open_connection(
                    host,
                    parts.port or (443 if secure else 80),
                    ssl=context,
                    server_hostname=(self._access.tls_server_name or host) if secure else None,
                )
        except (OSError, TimeoutError) as error:
            raise Unreachable(f"no connection to {self._access.url}: {error}") from error

    async def _switch(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, namespace: str, pod: str, port: int
    ) -> None:
        parts = urlsplit(self._access.url)
        identity = await self._credentials.identity()
        path = parts.path.rstrip("/") + builtin("pods").path(namespace, pod, "portforward")
        key = base64.b64encode(self._random_bytes(16)).decode()
        headers = [
            ("host", parts.netloc.rpartition("@")[2]),
            ("connection", "Upgrade"),
            ("upgrade", "websocket"),
            ("sec-websocket-version", "13"),
            ("sec-websocket-key", key),
            ("sec-websocket-protocol", _SUBPROTOCOL),
            *self._access.headers,
        ]
        if identity.authorization:
            headers.append(("authorization", identity.authorization))
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers)
        writer.write(f"GET {path}?ports={port} HTTP/1.1\r\n{lines}\r\n".encode("latin-1"))
        status, found = await _head(reader)
        if status != 101:
            raise error_of(status, found, _body(await reader.read(_HEAD_BYTES), found))
        if found.get("sec-websocket-accept") != websocket.accept_key(key):
            raise ServiceUnavailable("the API server's answer to the upgrade is not for us")

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, what: str) -> bytes:
        decoder, response = Decoder(server=False), _Response()
        greeted: set[int] = set()  # the first message of a channel names its port
        while not response.complete:
            try:
                data = await reader.read(_READ_BYTES)
            except OSError as error:
                raise ServiceUnavailable(f"{what}: {error}") from error
            if not data:
                break
            for message in _messages(decoder, data):
                if message.opcode is Opcode.CLOSE:
                    return response.end(what)
                if message.opcode is Opcode.PING:
                    writer.write(encode(Opcode.PONG, message.data, mask=self._random_bytes(4)))
                if message.opcode not in (Opcode.BINARY, Opcode.TEXT):
                    continue
                channel, content = decode_channel(message, _SUBPROTOCOL)
                if channel not in greeted:
                    greeted.add(channel)
                    content = content[2:]
                if channel == _ERROR and content:
                    raise ServiceUnavailable(f"{what}: {content.decode(errors='replace').strip()}")
                if channel == _DATA and content:
                    response.feed(content)
        return response.end(what)


def _messages(decoder: Decoder, data: bytes) -> list[websocket.Message]:
    try:
        return decoder.feed(data)
    except WebSocketError as error:
        raise ServiceUnavailable(f"the API server does not keep to WebSocket: {error}") from error


class _Response:
    """Gathers one HTTP answer."""

    def __init__(self) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self._parts: list[bytes] = []
        self._size = 0
        self._headed = False
        self.complete = False

    def on_headers_complete(self) -> None:
        self._headed = True

    def on_body(self, data: bytes) -> None:
        self._parts.append(data)
        self._size += len(data)
        if self._size > _LARGEST_BYTES:
            raise TooLarge("the answer is too large")

    def on_message_complete(self) -> None:
        self.complete = True

    def feed(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserCallbackError as error:
            raise TooLarge("the answer is too large") from error
        except httptools.HttpParserError as error:
            raise BadRequest(f"what listens there does not speak HTTP: {error}") from error

    def end(self, what: str) -> bytes:
        if not self._headed:
            raise ServiceUnavailable(f"{what} did not answer")
        status = self._parser.get_status_code()
        if status != 200:
            raise ServiceUnavailable(f"{what} answered {status}")
        return b"".join(self._parts)


async def _head(reader: asyncio.StreamReader) -> tuple[int, dict[str, str]]:
    """Status and headers."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, OSError) as error:
        raise Unreachable(f"the API server ended the connection: {error}") from error
    first, *lines = head.decode("latin-1").split("\r\n")
    status = first.split(" ", 2)[1] if first.startswith("HTTP/1.") and first.count(" ") >= 1 else "0"
    headers = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if colon:
            headers[name.strip().lower()] = value.strip()
    return int(status) if status.isdigit() else 0, headers


def _body(data: bytes, headers: dict[str, str]) -> bytes:
    """Of a refusal: the first chunk when it comes in chunks."""
    if "chunked" in headers.get("transfer-encoding", ""):
        size, _, rest = data.partition(b"\r\n")
        return rest[: int(size, 16)] if size else b""
    return data
