"""The relays of a proxy by their addresses: in this process, or behind ``shoal.node.proxy.process`` in another one."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from dataclasses import dataclass
from typing import Protocol

from shoal.base.clock import Clock
from shoal.base.deadline import within
from shoal.base.logs import get_logger
from shoal.node.proxy.gate import Gate
from shoal.node.proxy.model import OFFSET, PRIVILEGED, Admission, ListenAddress, ProxyListener
from shoal.node.proxy.sockets import MachineSockets, Sockets
from shoal.node.proxy.tcp import ConnectionBudget, TcpRelay
from shoal.node.proxy.udp import UdpRelay

log = get_logger("node.proxy")


class Relays(Protocol):
    async def open(self, listener: ProxyListener) -> int:
        """Listen, or change the backends of new connections to an open listener. Returns the port, which is higher
        where the wanted one needs root rights; raises ``OSError``."""

    def serves(self, place: ListenAddress) -> bool:
        """Whether a listener is open there."""

    async def close(self, place: ListenAddress) -> None:
        """Accept no new connections; open ones continue until one side closes them."""

    async def keep(self, places: Collection[ListenAddress]) -> None:
        """Close all other listeners, which an earlier process has left."""

    async def run(self) -> None:
        """Keep the relays working, until cancelled."""

    async def release(self) -> None:
        """This process no longer needs the relays."""


@dataclass(slots=True)
class _Open:
    relay: TcpRelay | UdpRelay
    port: int


class LocalRelays:
    """Relays in this process. ``release`` closes them; open connections get ``drain_s`` to end."""

    def __init__(self, *, clock: Clock, connections: int, drain_s: float) -> None:
        self._clock = clock
        self._drain_s = drain_s
        self._budget = ConnectionBudget(connections)
        self._admission = Admission()
        self._sockets: Sockets = MachineSockets()
        self.gate = Gate()
        self._open: dict[ListenAddress, _Open] = {}
        self._draining: set[TcpRelay | UdpRelay] = set()  # closed listeners with open connections

    @property
    def connections(self) -> int:
        return sum(relay.connections for relay in self._all())

    @property
    def counts(self) -> dict[str, int]:
        """What there is now, and connections since the beginning."""
        return {
            "listeners": len(self._open), "connections": self.connections, "accepted": self._budget.accepted,
            "failed": self._budget.failed,
        }  # fmt: skip

    def admit(self, clients: Collection[str]) -> None:
        """Off the loopback interface, accept new connections only from these networks."""
        self._admission.only(clients)

    def use(self, sockets: Sockets) -> None:
        """Open the sockets of later listeners and connections there."""
        self._sockets = sockets

    async def open(self, listener: ProxyListener) -> int:
        place = listener.place
        found = self._open.get(place)
        if found is not None:
            found.relay.change(listener)
            return found.port
        relay: TcpRelay | UdpRelay
        if place.protocol == "UDP":
            relay = UdpRelay(listener, self._admission, self._sockets, self.gate)
        else:
            relay = TcpRelay(listener, self._budget, self._admission, self._sockets, self.gate)
        port = place.port
        try:
            await relay.open(port)
        except PermissionError:
            if port >= PRIVILEGED:
                raise
            port += OFFSET
            await relay.open(port)
        self._open[place] = _Open(relay, port)
        return port

    def serves(self, place: ListenAddress) -> bool:
        return place in self._open

    async def close(self, place: ListenAddress) -> None:
        found = self._open.pop(place, None)
        if found is None:
            return
        found.relay.stop_listening()
        self._draining = {relay for relay in self._draining if relay.connections}
        if found.relay.connections:
            self._draining.add(found.relay)

    async def keep(self, places: Collection[ListenAddress]) -> None:
        for place in [place for place in self._open if place not in places]:
            await self.close(place)

    async def run(self) -> None:
        await asyncio.Event().wait()

    async def release(self) -> None:
        relays = self._all()
        for relay in relays:
            relay.stop_listening()
        self._open.clear()
        try:
            async with within(self._clock, self._drain_s):
                while any(relay.connections for relay in relays):
                    await self._clock.sleep(0.02)
        except TimeoutError:
            log.info("closing connections that did not end in time", count=sum(relay.connections for relay in relays))
        await asyncio.gather(*(relay.close() for relay in relays))
        self._draining.clear()

    def _all(self) -> set[TcpRelay | UdpRelay]:
        return {each.relay for each in self._open.values()} | self._draining
