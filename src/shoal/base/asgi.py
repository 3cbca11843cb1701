"""An ASGI application on a port of this event loop: HTTP/1.1 and HTTP/2, with TLS where a certificate is given.

The server must send HTTP trailers, without which there is no gRPC, must let a slow reader slow its sender down, and
must run in our loop: uvicorn does all three, on the connections of ``shoal.base.asgi_front``. Granian was quicker by
little and has no trailers.

Uvicorn writes each part of an answer separately, and each costs a TLS record and a system call. Here all writes to an
HTTP/2 connection in one iteration of the loop are sent together (``shoal.base.coalescing``).
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import uvicorn

from shoal.base.asgi_common import BACKLOG, Application, Receive, Scope, Send, answer, bind
from shoal.base.asgi_front import Front, FrontProtocol, Slot
from shoal.base.clock import Clock
from shoal.base.front_limits import FrontLimits, connections_within_files
from shoal.base.logs import get_logger
from shoal.base.supervision import SupervisedLoops
from shoal.base.tasks import OwnedTasks, cancel_all
from shoal.errors import ConfigError

_log = get_logger("base.asgi")

__all__ = ["Application", "AsgiListener", "Receive", "Scope", "Send", "Tls", "answer", "bind", "serving"]

_GRACE_S = 3  # for calls under way when it stops
_ACCEPT_AGAIN_S = 1.0
# a message of an agent may have 8 MiB; applications have limits of their own
LIMITS = FrontLimits(body_bytes=16 * 1024 * 1024)
_SETTLE_ITERATIONS = 5
_LOOK_AGAIN_S = 0.005


@dataclass(frozen=True, slots=True)
class Tls:
    """The files of a server's certificate. ``reload`` uses them as they are now for new connections."""

    certificate: Path
    key: Path
    contexts: list[ssl.SSLContext] = field(default_factory=list, compare=False)  # of the servers that use them

    def reload(self) -> None:
        for context in self.contexts:
            context.load_cert_chain(self.certificate, self.key)


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Do nothing: the process handles signals, not a listener."""
        yield

    def __init__(self, config: uvicorn.Config, front: Front, clock: Clock) -> None:
        super().__init__(config)
        self._front = front
        self._clock = clock
        self._accepting = SupervisedLoops(clock)
        self._handshakes = OwnedTasks()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept connections here: asyncio's servers do not stop accepting when there is no room."""
        assert sockets is not None
        (listening,) = sockets
        listening.setblocking(False)
        self.servers = []
        self._front.start()
        self._accepting.start("asgi/accept", partial(self._accept, listening))
        self.started = True

    async def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await self._front.room.wait()
            try:
                accepted, peer = await loop.sock_accept(listening)
            except OSError as error:  # no more files, most likely
                _log.warning("connection not accepted", reason=str(error))
                await self._clock.sleep(_ACCEPT_AGAIN_S)
                continue
            slot = self._front.take(peer[0] if isinstance(peer, tuple) else "")
            self._handshakes.start(self._begin(accepted, slot), name="asgi/handshake")

    async def _begin(self, accepted: socket.socket, slot: Slot) -> None:
        tls = self.config.ssl
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: FrontProtocol(self.config, self.server_state, self._front, slot), accepted,
                ssl=tls, ssl_handshake_timeout=self._front.limits.handshake_s if tls else None,
            )  # fmt: skip
        except (OSError, ValueError) as error:
            _log.debug("TLS handshake failed", reason=str(error))
            accepted.close()
            self._front.give_back(slot)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Let running calls end, then close the connections: clients keep idle ones open forever."""
        self._front.stop()
        await self._accepting.stop()
        await self._handshakes.close()
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

    def __init__(
        self,
        app: Application,
        listening: socket.socket,
        tls: Tls | None = None,
        *,
        clock: Clock,
        limits: FrontLimits = LIMITS,
    ) -> None:
        limits = replace(limits, connections=connections_within_files(limits.connections))
        config = uvicorn.Config(
            app, http=FrontProtocol, ws="none", lifespan="off", loop="none", log_config=None, access_log=False,
            log_level="warning", backlog=BACKLOG, timeout_keep_alive=round(limits.idle_timeout_s),
            server_header=False, proxy_headers=False,
            ssl_certfile=tls.certificate if tls else None, ssl_keyfile=tls.key if tls else None,
        )  # fmt: skip
        if tls is not None:
            config.load()
            assert config.ssl is not None
            tls.contexts.append(config.ssl)
        self._server = _Server(config, Front(limits, clock), clock)
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
    application: Application,
    *,
    host: str,
    port: int,
    clock: Clock,
    tls: Tls | None = None,
    limits: FrontLimits = LIMITS,
    listening: socket.socket | None = None,
) -> AsyncIterator[None]:
    """Serve while the block runs; on exit, running requests have a short time to end. ``listening`` is a socket that
    has the port already."""
    listener = AsgiListener(application, listening or bind(host, port), tls, clock=clock, limits=limits)
    running = OwnedTasks().start(listener.run(), name=f"asgi/{port}", awaited=True)
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
