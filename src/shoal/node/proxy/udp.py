"""Relays UDP datagrams of a listener to pods, and their answers back. A client keeps its pod while it is active."""

from __future__ import annotations

import asyncio
import socket
from collections import OrderedDict
from typing import Any, cast

from shoal.base.tasks import OwnedTasks
from shoal.node.proxy.gate import Gate
from shoal.node.proxy.model import Admission, ProxyBackend, ProxyListener
from shoal.node.proxy.plan import BackendChoice
from shoal.node.proxy.sockets import MachineSockets, Sockets

_IDLE_S = 60.0
_CLIENTS = 1024


class _Upstream(asyncio.DatagramProtocol):
    """The connection to the pod of one client."""

    def __init__(self, relay: UdpRelay, client: Any, backend: ProxyBackend) -> None:
        self._relay = relay
        self._client = client
        self.backend = backend
        self.transport: asyncio.DatagramTransport | None = None
        self.waiting: list[bytes] = []  # received before the socket was open
        self.used_at = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.DatagramTransport, transport)
        for data in self.waiting:
            self.transport.sendto(data)
        self.waiting.clear()

    def datagram_received(self, data: bytes, addr: Any) -> None:
        self._relay.answer(self._client, data)

    def error_received(self, exc: Exception) -> None:
        self._relay.forget(self._client)

    def close(self) -> None:
        if self.transport is not None:
            self.transport.close()


class UdpRelay(asyncio.DatagramProtocol):
    """Listens on one address and relays its datagrams to the backends."""

    def __init__(
        self,
        listener: ProxyListener,
        admission: Admission | None = None,
        sockets: Sockets | None = None,
        gate: Gate | None = None,
    ) -> None:
        self._gate = gate or Gate()
        self._sockets = sockets or MachineSockets()
        self._choice = BackendChoice(listener)
        self._admission = admission or Admission()
        self._transport: asyncio.DatagramTransport | None = None
        self._clients: OrderedDict[Any, _Upstream] = OrderedDict()  # least recently used first
        self._connecting = OwnedTasks()

    @property
    def connections(self) -> int:
        return 0  # datagrams need no draining

    async def open(self, port: int) -> None:
        loop = asyncio.get_running_loop()
        place = self._choice.listener.place
        made = await self._sockets.open(socket.SOCK_DGRAM, place.address, outside=place.outside)
        try:
            made.bind((place.address, port))
            self._transport, _ = await loop.create_datagram_endpoint(lambda: self, sock=made)
        except BaseException:
            made.close()
            raise

    def change(self, listener: ProxyListener) -> None:
        """Change the backends; clients of removed backends get another one."""
        self._choice.change(listener)
        for client in [each for each, upstream in self._clients.items() if upstream.backend not in listener.backends]:
            self.forget(client)

    def stop_listening(self) -> None:
        if self._transport is not None:
            self._transport.close()
            self._transport = None
        for client in tuple(self._clients):
            self.forget(client)

    async def close(self) -> None:
        self.stop_listening()
        await self._connecting.close()

    def datagram_received(self, data: bytes, addr: Any) -> None:
        now = asyncio.get_running_loop().time()
        upstream = self._clients.get(addr)
        if upstream is None:
            if not self._admission.admits(addr[0], self._choice.listener.place):
                return
            self._expire(now)
            place = self._choice.listener.place
            offered = [each for each in self._choice.order(addr[0], now) if self._gate.allows(addr[0], place, each)]
            if not offered:
                return
            backend = offered[0]
            self._choice.remember(addr[0], backend, now)
            upstream = self._clients[addr] = _Upstream(self, addr, backend)
            self._connecting.start(self._connect(upstream), name=f"proxy/{self._choice.listener.place}")
        elif not self._gate.allows(addr[0], self._choice.listener.place, upstream.backend):
            self.forget(addr)
            return
        upstream.used_at = now
        self._clients.move_to_end(addr)
        if upstream.transport is not None:
            upstream.transport.sendto(data)
        elif len(upstream.waiting) < 16:
            upstream.waiting.append(data)

    async def _connect(self, upstream: _Upstream) -> None:
        loop = asyncio.get_running_loop()
        backend = upstream.backend
        try:
            made = await self._sockets.open(socket.SOCK_DGRAM, backend.address, outside=backend.outside)
        except OSError:
            upstream.waiting.clear()
            return
        try:
            await loop.sock_connect(made, (backend.address, backend.port))
            await loop.create_datagram_endpoint(lambda: upstream, sock=made)
        except OSError:
            made.close()
            upstream.waiting.clear()
        except BaseException:
            made.close()
            raise

    def _expire(self, now: float) -> None:
        while self._clients:
            client, upstream = next(iter(self._clients.items()))
            if len(self._clients) < _CLIENTS and now - upstream.used_at < _IDLE_S:
                return
            self.forget(client)

    def answer(self, client: Any, data: bytes) -> None:
        if self._transport is not None:
            self._transport.sendto(data, client)

    def forget(self, client: Any) -> None:
        upstream = self._clients.pop(client, None)
        if upstream is not None:
            upstream.close()
