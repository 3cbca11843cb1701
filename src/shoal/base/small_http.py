"""A few answers on a port, for a process that serves nothing else: HTTP/1.1 without TLS, one request at a time.

The whole of an ASGI server costs megabytes that an agent of a small cluster does not have to have. This one takes
requests without a body that matters, reads no more of one than a few kilobytes, and asks the same applications.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, MutableMapping
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import Any, cast

import httptools

from shoal.base.asgi_common import Application, bind
from shoal.base.tasks import cancel_all

_MAX_BYTES = 16 << 10
_MAX_CONNECTIONS = 64
_BAD_REQUEST = b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"


class _Connection(asyncio.Protocol):
    def __init__(self, app: Application, open_: set[_Connection], tasks: set[asyncio.Task[None]]) -> None:
        self._app = app
        self._open = open_
        self._tasks = tasks
        self._transport: asyncio.Transport | None = None
        self._parser = httptools.HttpRequestParser(self)
        self._url = b""
        self._size = 0
        self._busy = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is one without inheriting from it
        if len(self._open) >= _MAX_CONNECTIONS:
            self._transport.abort()
            return
        self._open.add(self)

    def connection_lost(self, error: Exception | None) -> None:
        self._open.discard(self)

    def data_received(self, data: bytes) -> None:
        self._size += len(data)
        if self._busy or self._size > _MAX_BYTES:
            self.refuse()
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            self.refuse()

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_message_complete(self) -> None:
        self._busy = True
        method, keep = self._parser.get_method().decode("latin-1"), self._parser.should_keep_alive()
        task = asyncio.get_running_loop().create_task(self._answer(method, keep=keep), name="small-http")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def refuse(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(_BAD_REQUEST)
            self._transport.close()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    async def _answer(self, method: str, *, keep: bool) -> None:
        path = self._url.partition(b"?")[0].decode("latin-1")
        status, headers, parts = 500, list[tuple[bytes, bytes]](), list[bytes]()

        async def send(message: MutableMapping[str, Any]) -> None:
            nonlocal status, headers
            if message["type"] == "http.response.start":
                status, headers = message["status"], list(message.get("headers", ()))
            else:
                parts.append(message.get("body", b""))

        await self._app({"type": "http", "method": method, "path": path, "headers": []}, _nothing, send)
        lines = [f"HTTP/1.1 {status} {HTTPStatus(status).phrase}".encode()]
        lines += [name + b": " + value for name, value in headers]
        lines.append(b"connection: keep-alive" if keep else b"connection: close")
        assert self._transport is not None
        self._transport.write(b"\r\n".join([*lines, b"", b"".join(parts)]))
        self._url, self._size, self._busy = b"", 0, False
        self._parser = httptools.HttpRequestParser(self)
        if not keep:
            self._transport.close()


async def _nothing() -> MutableMapping[str, Any]:
    return {"type": "http.request", "body": b"", "more_body": False}


@asynccontextmanager
async def small_serving(app: Application, *, host: str, port: int) -> AsyncIterator[None]:
    """Entered when requests are answered; on leaving everything is closed."""
    connections: set[_Connection] = set()
    tasks: set[asyncio.Task[None]] = set()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: _Connection(app, connections, tasks), sock=bind(host, port))
    try:
        yield
    finally:
        server.close()
        await cancel_all(*tasks)
        for connection in list(connections):
            connection.abort()
        await server.wait_closed()
