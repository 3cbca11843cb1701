"""Relays TCP connections of a listener to pods in both directions, with backpressure.

An open connection keeps its pod, also when the pod is removed from the service or the listener is closed. It ends when
one of its two sides closes it.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import cast

from shoal.base.tasks import OwnedTasks
from shoal.node.proxy.gate import Gate
from shoal.node.proxy.model import Admission, ProxyBackend, ProxyListener
from shoal.node.proxy.plan import BackendChoice
from shoal.node.proxy.sockets import MachineSockets, Sockets

_BACKLOG = 128
_BUFFER_BYTES = 256 << 10
_CONNECT_S = 5.0
_TRIES = 3


class ConnectionBudget:
    """A limit on the number of connections, and how many there have been."""

    def __init__(self, limit: int) -> None:
        self._left = limit
        self.accepted = 0
        self.failed = 0  # no backend accepted them

    def take(self) -> bool:
        if self._left == 0:
            return False
        self._left -= 1
        self.accepted += 1
        return True

    def give_back(self) -> None:
        self._left += 1


class _Side(asyncio.Protocol):
    """One of the two sides of a relayed connection."""

    def __init__(self, lost: Callable[[], None] = lambda: None) -> None:
        self.transport: asyncio.Transport | None = None
        self.peer: _Side | None = None
        self.ended = False  # it has sent EOF
        self._early = bytearray()  # received before the peer was connected
        self._lost = lost

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.transport.set_write_buffer_limits(_BUFFER_BYTES)
        self.transport.pause_reading()  # until the peer is connected; uvloop still reads once
        raw = transport.get_extra_info("socket")
        if raw is not None:
            raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)

    def join(self, peer: _Side) -> None:
        """Connect two sides; either may have closed meanwhile."""
        self.peer, peer.peer = peer, self
        for side, other in ((self, peer), (peer, self)):
            if side.transport is None or side.transport.is_closing():
                other.end(abort=True)
                continue
            if side._early and other.transport is not None:
                other.transport.write(bytes(side._early))
                side._early.clear()
            if not side.ended:
                side.transport.resume_reading()
            elif other.transport is not None and other.transport.can_write_eof():
                other.transport.write_eof()

    def data_received(self, data: bytes) -> None:
        if self.peer is None:
            self._early += data
            if self.transport is not None:
                self.transport.pause_reading()
        elif self.peer.transport is not None:
            self.peer.transport.write(data)

    def eof_received(self) -> bool:
        self.ended = True
        if self.peer is None:
            return True
        if self.peer.transport is None or self.peer.ended:
            return False
        if self.peer.transport.can_write_eof():
            self.peer.transport.write_eof()
        return True  # keep the other direction open

    def pause_writing(self) -> None:
        if self.peer is not None and self.peer.transport is not None:
            self.peer.transport.pause_reading()

    def resume_writing(self) -> None:
        if self.peer is not None and self.peer.transport is not None and not self.peer.transport.is_closing():
            self.peer.transport.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        if self.peer is not None:
            self.peer.end(abort=exc is not None)
        self._lost()

    def end(self, *, abort: bool) -> None:
        if self.transport is not None and not self.transport.is_closing():
            if abort:
                self.transport.abort()
            else:
                self.transport.close()


class TcpRelay:
    """Listens on one address and relays its connections to the backends."""

    def __init__(
        self,
        listener: ProxyListener,
        budget: ConnectionBudget | None = None,
        admission: Admission | None = None,
        sockets: Sockets | None = None,
        gate: Gate | None = None,
    ) -> None:
        self._gate = gate or Gate()
        self._sockets = sockets or MachineSockets()
        self._choice = BackendChoice(listener)
        self._admission = admission or Admission()
        self._budget = budget or ConnectionBudget(1 << 20)
        self._server: asyncio.Server | None = None
        self._sides: set[_Side] = set()  # of clients
        self._connecting = OwnedTasks()

    @property
    def connections(self) -> int:
        return len(self._sides)

    async def open(self, port: int) -> None:
        """Listen on the listener's address and this port; raises ``OSError``."""
        place = self._choice.listener.place
        address = place.address
        made = await self._sockets.open(socket.SOCK_STREAM, address, outside=place.outside)
        try:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            made.bind((address, port))
            loop = asyncio.get_running_loop()
            self._server = await loop.create_server(self._accept, sock=made, backlog=_BACKLOG)
        except BaseException:
            made.close()
            raise

    def change(self, listener: ProxyListener) -> None:
        """Change the backends of new connections; open ones stay."""
        self._choice.change(listener)

    def stop_listening(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None

    async def close(self) -> None:
        """Close the listener and abort all connections."""
        self.stop_listening()
        await self._connecting.close()
        for side in tuple(self._sides):
            side.end(abort=True)

    def _accept(self) -> asyncio.Protocol:
        return _Client(self._arrived, self._left)

    def _arrived(self, side: _Side) -> None:
        assert side.transport is not None
        peer = side.transport.get_extra_info("peername")
        admitted = peer is None or self._admission.admits(peer[0], self._choice.listener.place)
        if not admitted or not self._budget.take():
            side.transport.abort()
            return
        self._sides.add(side)
        self._connecting.start(self._relay(side), name=f"proxy/{self._choice.listener.place}")

    def _left(self, side: _Side) -> None:
        if side in self._sides:
            self._sides.discard(side)
            self._budget.give_back()

    async def _relay(self, side: _Side) -> None:
        assert side.transport is not None
        peer = side.transport.get_extra_info("peername")
        client = peer[0] if peer else ""
        loop = asyncio.get_running_loop()
        place = self._choice.listener.place
        offered = self._choice.order(client, loop.time())
        for backend in [each for each in offered if self._gate.allows(client, place, each)][:_TRIES]:
            try:
                async with asyncio.timeout(_CONNECT_S):
                    upstream = await self._connected(backend)
            except (OSError, TimeoutError):
                continue
            self._remember(client, backend)
            side.join(upstream)
            return
        self._budget.failed += 1
        side.end(abort=True)

    async def _connected(self, backend: ProxyBackend) -> _Side:
        loop = asyncio.get_running_loop()
        made = await self._sockets.open(socket.SOCK_STREAM, backend.address, outside=backend.outside)
        try:
            await loop.sock_connect(made, (backend.address, backend.port))
            _, upstream = await loop.create_connection(_Side, sock=made)
        except BaseException:
            made.close()
            raise
        return upstream

    def _remember(self, client: str, backend: ProxyBackend) -> None:
        self._choice.remember(client, backend, asyncio.get_running_loop().time())


class _Client(_Side):
    """The client's side of a connection."""

    def __init__(self, arrived: Callable[[_Side], None], left: Callable[[_Side], None]) -> None:
        super().__init__(lambda: left(self))
        self._arrived = arrived

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._arrived(self)
