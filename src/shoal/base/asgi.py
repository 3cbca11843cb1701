"""An ASGI application on a port of this event loop: HTTP/1.1 and HTTP/2, with TLS where a certificate is given.

Granian does the work in native threads and calls the application in this loop. It binds with SO_REUSEPORT, so a port
that another of our processes has is no error to it: whoever calls decides the port and knows that it is free.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shoal.base.clock import Clock
from shoal.base.tasks import cancel_all
from shoal.errors import ConfigError

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]

_BACKLOG = 4096  # a thousand agents come back at once
_STREAMS = 2000  # of one HTTP/2 connection
_PING_MS = 10_000  # connections whose other end is gone are noticed
_PING_TIMEOUT_S = 10
_STOP_S = 5.0
_LOOK_AGAIN_S = 0.01
_LISTENING_S = 10.0


@dataclass(frozen=True, slots=True)
class Tls:
    certificate: Path
    key: Path


@asynccontextmanager
async def serving(
    application: Application, *, host: str, port: int, clock: Clock, tls: Tls | None = None
) -> AsyncIterator[None]:
    """Entered when connections are accepted; on leaving, requests that are under way have a moment to end."""
    from granian.constants import HTTPModes, Interfaces, SSLProtocols
    from granian.http import HTTP2Settings
    from granian.server.embed import Server

    server = Server(
        application,
        address=host,
        port=port,
        interface=Interfaces.ASGI,
        http=HTTPModes.auto,
        websockets=True,
        backlog=_BACKLOG,
        log_enabled=False,
        http2_settings=HTTP2Settings(
            max_concurrent_streams=_STREAMS, keep_alive_interval=_PING_MS, keep_alive_timeout=_PING_TIMEOUT_S
        ),
        ssl_cert=tls.certificate if tls else None,
        ssl_key=tls.key if tls else None,
        ssl_protocol_min=SSLProtocols.tls12,
    )
    running = asyncio.create_task(server.serve(), name=f"asgi/{port}")
    try:
        await _until_listening(running, host, port, clock)
        yield
    finally:
        if not running.done():
            server.stop()  # type: ignore[no-untyped-call]
        await asyncio.wait([running], timeout=_STOP_S)
        await cancel_all(running)


async def _until_listening(running: asyncio.Task[None], host: str, port: int, clock: Clock) -> None:
    deadline = clock.monotonic() + _LISTENING_S
    while True:
        if running.done():
            raise ConfigError(f"port is {port}: cannot listen on {host}: {running.exception() or 'it stopped'}")
        try:
            _, writer = await asyncio.open_connection(host, port)
        except OSError:
            if clock.monotonic() > deadline:
                raise ConfigError(f"port is {port}: nothing listens on {host} after {_LISTENING_S:.0f} s") from None
            await clock.sleep(_LOOK_AGAIN_S)
        else:
            writer.close()
            return


async def answer(send: Send, status: int, body: bytes, content_type: str = "application/json") -> None:
    """A whole answer."""
    headers = [(b"content-type", content_type.encode()), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
