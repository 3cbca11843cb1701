"""ASGI applications on the small server, for processes in which a whole ASGI server would be most of the memory.

For requests whose body is ignored: health, metrics and other short answers.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, MutableMapping
from contextlib import asynccontextmanager
from typing import Any

from shoal.base.asgi_common import Application, bind
from shoal.base.clock import Clock
from shoal.base.http1.server import Http1Server, ServerLimits, ServerRequest

_LIMITS = ServerLimits(connections=64, request_bytes=16 << 10)


@asynccontextmanager
async def small_serving(app: Application, *, host: str, port: int, clock: Clock) -> AsyncIterator[None]:
    """Serve while the block runs; close everything on exit."""

    async def handle(request: ServerRequest) -> None:
        await _answer(app, request)

    server = Http1Server(handle, clock=clock, limits=_LIMITS)
    await server.listen_on(bind(host, port))
    try:
        yield
    finally:
        await server.close()


async def _answer(app: Application, request: ServerRequest) -> None:
    status, headers, parts = 500, dict[str, str](), list[bytes]()

    async def send(message: MutableMapping[str, Any]) -> None:
        nonlocal status
        if message["type"] == "http.response.start":
            status = message["status"]
            headers.update((name.decode("latin-1"), value.decode("latin-1")) for name, value in message["headers"])
        else:
            parts.append(message.get("body", b""))

    path = "/" + "/".join(request.path)
    await app({"type": "http", "method": request.method, "path": path, "headers": []}, _nothing, send)
    await request.answer(status, b"".join(parts), headers.get("content-type", "application/octet-stream"))


async def _nothing() -> MutableMapping[str, Any]:
    return {"type": "http.request", "body": b"", "more_body": False}
