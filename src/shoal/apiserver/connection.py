"""What connections of HTTP/1.1 and HTTP/2 have in common: a place among those of the server, and its limits.

Part of ``apiserver.http``.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from shoal.apiserver.http import HttpServer

# Output goes to the transport in pieces: its TLS buffer grows to the largest one and never shrinks (decision 0036).
SLICE = 32 * 1024
OVERFLOW_S = 2.0  # for a connection over a limit, until its error is sent
_OVERFLOW = 256  # connections over the limit that stay open until their error is sent


class ClientConnection(asyncio.Protocol):
    """One client connection of a server."""

    __slots__ = ("_address", "_unwanted", "client", "peer_certificate", "server", "transport", "writable")

    def __init__(self, server: HttpServer) -> None:
        self.server = server
        self.transport: asyncio.Transport | None = None
        self.writable = True
        self._address = ""
        self._unwanted = 0  # error status of all requests
        self.client = ""
        self.peer_certificate: bytes | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport) or hasattr(transport, "write")
        self.transport = transport  # type: ignore[assignment]
        server = self.server
        transport.set_write_buffer_limits(high=server.limits.buffered_bytes)  # type: ignore[attr-defined]
        peer = transport.get_extra_info("peername")
        if isinstance(peer, tuple):
            self._address = peer[0]
            self.client = f"{peer[0]}:{peer[1]}"
        server.addresses[self._address] = server.addresses.get(self._address, 0) + 1
        ssl_object = transport.get_extra_info("ssl_object")
        if ssl_object is not None:
            self.peer_certificate = ssl_object.getpeercert(binary_form=True)
        server.connections.add(self)
        server.drained.clear()
        if server.stopping or len(server.connections) > server.limits.connections + _OVERFLOW:
            self.abort()
        self._unwanted = server.overflow(self._address)

    def connection_lost(self, exc: Exception | None) -> None:
        server = self.server
        server.connections.discard(self)
        left = server.addresses.get(self._address, 1) - 1
        if left:
            server.addresses[self._address] = left
        else:
            server.addresses.pop(self._address, None)
        if not server.connections:
            server.drained.set()
        self.transport = None

    def begin_stop(self) -> None:
        """End streams cleanly; close at once when idle."""
        raise NotImplementedError

    def enforce_timeouts(self, now: float) -> None:
        """Called every ``SWEEP_S``."""
        raise NotImplementedError

    def abort(self) -> None:
        if self.transport is not None:
            self.transport.abort()
