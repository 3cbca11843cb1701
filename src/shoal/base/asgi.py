"""An ASGI application on a port of this event loop: HTTP/1.1 and HTTP/2, with TLS where a certificate is given.

The server must send HTTP trailers, without which there is no gRPC, must let a slow reader slow its sender down, and
must run in our loop: uvicorn with zttp does all three. Granian was quicker by little and has no trailers.

Uvicorn writes each part of an answer separately, and each costs a TLS record and a system call. Here all writes to an
HTTP/2 connection in one iteration of the loop are sent together (``shoal.base.coalescing``).
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import uvicorn
import zttp
from uvicorn.protocols.http.auto_zttp_impl import AutoZttpProtocol
from uvicorn.protocols.http.zttp_h2_impl import ZttpH2Protocol

from shoal.base.asgi_common import BACKLOG, Application, Receive, Scope, Send, answer, bind
from shoal.base.clock import Clock
from shoal.base.coalescing import CoalescingTransport
from shoal.base.tasks import cancel_all
from shoal.errors import ConfigError

__all__ = ["Application", "AsgiListener", "Receive", "Scope", "Send", "Tls", "answer", "bind", "serving"]

_GRACE_S = 3  # for calls under way when it stops
_IDLE_S = 75  # a connection without calls
_SETTLE_ITERATIONS = 5
_LOOK_AGAIN_S = 0.005


@dataclass(frozen=True, slots=True)
class Tls:
    certificate: Path
    key: Path


class _Http2(ZttpH2Protocol):
    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(cast(asyncio.Transport, CoalescingTransport(transport, self.loop)))

    def handle_request(self, event: zttp.Request) -> None:
        """A request whose headers end its stream has no body: zttp tells it in the request and sends no further event,
        for which uvicorn would wait."""
        super().handle_request(event)
        if event.end_stream:
            cycle = self.cycles[event.stream_id]
            cycle.more_body = False
            cycle.message_event.set()


class _Protocol(AutoZttpProtocol):
    def _switch(self, http2: bool, initial_data: bytes = b"") -> None:
        if not http2:
            super()._switch(http2, initial_data)
            return
        protocol = _Http2(self.config, self.server_state, self.app_state, self.loop)
        self.transport.set_protocol(protocol)
        protocol.connection_made(self.transport)
        if initial_data:
            protocol.data_received(initial_data)


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Do nothing: the process handles signals, not a listener."""
        yield

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Let running calls end, then close the connections: clients keep idle ones open forever."""
        for server in self.servers:
            server.close()
        for listening in sockets or ():
            listening.close()
        for connection in list(self.server_state.connections):
            connection.shutdown()
        tasks = set(self.server_state.tasks)
        if tasks:
            await asyncio.wait(tasks, timeout=_GRACE_S)
            await cancel_all(*(task for task in tasks if not task.done()))
        for connection in list(self.server_state.connections):
            connection.transport.abort()
        for _ in range(_SETTLE_ITERATIONS):  # so that their transports close and leave no socket open
            await asyncio.sleep(0)


class AsgiListener:
    """``run`` serves on a socket until ``stop``."""

    def __init__(self, app: Application, listening: socket.socket, tls: Tls | None = None) -> None:
        config = uvicorn.Config(
            app, http=_Protocol, ws="none", lifespan="off", loop="none", log_config=None, access_log=False,
            log_level="warning", backlog=BACKLOG, timeout_keep_alive=_IDLE_S,
            server_header=False, proxy_headers=False,
            ssl_certfile=tls.certificate if tls else None, ssl_keyfile=tls.key if tls else None,
        )  # fmt: skip
        self._server = _Server(config)
        self._socket = listening

    async def run(self) -> None:
        await self._server.serve(sockets=[self._socket])

    def stop(self) -> None:
        self._server.should_exit = True

    @property
    def accepting(self) -> bool:
        return bool(self._server.started)


@contextlib.asynccontextmanager
async def serving(
    application: Application, *, host: str, port: int, clock: Clock, tls: Tls | None = None
) -> AsyncIterator[None]:
    """Serve while the block runs; on exit, running requests have a short time to end."""
    listener = AsgiListener(application, bind(host, port), tls)
    running = asyncio.create_task(listener.run(), name=f"asgi/{port}")
    try:
        while not listener.accepting:
            if running.done():
                raise ConfigError(f"port is {port}: cannot serve on {host}: {running.exception() or 'it stopped'}")
            await clock.sleep(_LOOK_AGAIN_S)
        yield
    finally:
        listener.stop()
        await asyncio.wait([running])
        running.result()
