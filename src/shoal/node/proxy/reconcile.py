"""Opens, changes and closes the listeners of services according to the plan, one service at a time."""

from __future__ import annotations

import asyncio
import errno
from dataclasses import dataclass

from shoal.base.clock import Clock
from shoal.base.deadline import within
from shoal.base.logs import get_logger
from shoal.client import Client, PatchType, builtin
from shoal.errors import NotFound
from shoal.kube.objects import Obj
from shoal.node.proxy.config import ProxyConfig
from shoal.node.proxy.model import ListenAddress, ProxyListener
from shoal.node.proxy.plan import OFFSET, PRIVILEGED, SERVED_PORTS, listeners_of, moved_ports
from shoal.node.proxy.tcp import ConnectionBudget, TcpRelay
from shoal.node.proxy.udp import UdpRelay
from shoal.reconcile import DONE, EventRecorder, EventType, Informer, ObjectKey, Result

log = get_logger("node.proxy")

BY_SERVICE = "service"
_SERVICE_NAME = "kubernetes.io/service-name"


def service_of(piece: Obj) -> tuple[str, ...]:
    """The index of slices: ``namespace/name`` of their service."""
    about = piece["metadata"]
    name = (about.get("labels") or {}).get(_SERVICE_NAME)
    return (f"{about['namespace']}/{name}",) if name else ()


@dataclass(slots=True)
class _Open:
    """An open listener, at its own port or moved to a higher one."""

    relay: TcpRelay | UdpRelay
    listener: ProxyListener
    moved: bool


class ServiceProxy:
    """The listeners of all services. A controller calls ``reconcile`` with the keys of services."""

    def __init__(
        self, client: Client, services: Informer, slices: Informer, events: EventRecorder, *, clock: Clock,
        config: ProxyConfig,
    ) -> None:  # fmt: skip
        self._services = services.cache
        self._slices = slices.cache
        self._resource = client.of(builtin("services"))
        self._events = events
        self._clock = clock
        self._config = config
        self._budget = ConnectionBudget(config.connections)
        self._open: dict[ObjectKey, dict[ListenAddress, _Open]] = {}
        self._owner: dict[ListenAddress, ObjectKey] = {}
        self._draining: set[TcpRelay | UdpRelay] = set()  # closed listeners with open connections
        self._warned: dict[tuple[ObjectKey, ListenAddress], str] = {}

    @property
    def listeners(self) -> int:
        return len(self._owner)

    async def reconcile(self, key: ObjectKey) -> Result:
        service = self._services.get(key)
        wanted = self._wanted(key, service)
        for place in [place for place in self._open.get(key, {}) if place not in wanted]:
            self._close(key, place)
        complete = True
        for place, listener in wanted.items():
            complete &= await self._ensure(key, service, place, listener)
        if service is None:
            self._forget(key)
            return DONE
        await self._annotate(key, service)
        return DONE if complete else Result(after_s=self._config.retry_s)

    def _wanted(self, key: ObjectKey, service: Obj | None) -> dict[ListenAddress, ProxyListener]:
        if service is None or service["metadata"].get("deletionTimestamp"):
            return {}
        pieces = self._slices.by_index(BY_SERVICE, str(key))
        return {each.place: each for each in listeners_of(service, pieces, self._config.node_addresses)}

    # listeners

    async def _ensure(self, key: ObjectKey, service: Obj | None, place: ListenAddress, listener: ProxyListener) -> bool:
        """Open or update a listener; False if it is not served."""
        present = self._open.get(key, {}).get(place)
        if present is not None:
            if present.listener != listener:
                present.relay.change(listener)
                present.listener = listener
            return True
        assert service is not None
        if place in self._owner:
            return False  # still in use by a service that is being changed or removed
        if len(self._owner) >= self._config.listeners:
            message = f"{place} is not served: the proxy has its {self._config.listeners} listeners in use"
            self._warn(key, service, place, "TooManyListeners", message)
            return False
        self._owner[place] = key
        try:
            made = await self._opened(listener)
        except OSError as error:
            self._owner.pop(place, None)
            self._warn_about(key, service, place, error)
            return False
        except BaseException:
            self._owner.pop(place, None)
            raise
        self._open.setdefault(key, {})[place] = made
        if made.moved:
            message = f"{place} is served at port {place.port + OFFSET}: ports below {PRIVILEGED} need root rights"
            self._warn(key, service, place, "PortMoved", message)
        else:
            self._warned.pop((key, place), None)
        return True

    async def _opened(self, listener: ProxyListener) -> _Open:
        place = listener.place
        relay: TcpRelay | UdpRelay = UdpRelay(listener) if place.protocol == "UDP" else TcpRelay(listener, self._budget)
        try:
            await relay.open(place.port)
        except PermissionError:
            if place.port >= PRIVILEGED:
                raise
            await relay.open(place.port + OFFSET)
            return _Open(relay, listener, True)
        return _Open(relay, listener, False)

    def _warn_about(self, key: ObjectKey, service: Obj, place: ListenAddress, error: OSError) -> None:
        if error.errno == errno.EADDRINUSE:
            self._warn(key, service, place, "PortInUse", f"{place} is not served: another program uses it")
        else:
            self._warn(key, service, place, "NotServed", f"{place} is not served: {error.strerror or error}")

    def _close(self, key: ObjectKey, place: ListenAddress) -> None:
        """Accept no new connections; open ones continue until one side closes them."""
        found = self._open[key].pop(place)
        self._owner.pop(place, None)
        self._warned.pop((key, place), None)
        found.relay.stop_listening()
        self._draining = {relay for relay in self._draining if relay.connections}
        if found.relay.connections:
            self._draining.add(found.relay)

    def _forget(self, key: ObjectKey) -> None:
        self._open.pop(key, None)
        for each in [each for each in self._warned if each[0] == key]:
            del self._warned[each]

    # events and annotations

    def _warn(self, key: ObjectKey, service: Obj, place: ListenAddress, reason: str, message: str) -> None:
        if self._warned.get((key, place)) == reason:
            return
        self._warned[key, place] = reason
        about = {"apiVersion": "v1", "kind": "Service", "metadata": service["metadata"]}
        self._events.record(about, EventType.WARNING, reason, message)

    async def _annotate(self, key: ObjectKey, service: Obj) -> None:
        open_here = self._open.get(key, {})
        moved = [place for place, each in open_here.items() if each.moved]
        value = moved_ports(moved, open_here)
        before = (service["metadata"].get("annotations") or {}).get(SERVED_PORTS, "")
        if value == before or (before and not open_here):
            return
        patch = {"metadata": {"annotations": {SERVED_PORTS: value or None}}}
        try:
            await self._resource.patch(key.name, patch, key.namespace, type=PatchType.MERGE)
        except NotFound:
            return  # it was deleted: the informer will report it

    # closing

    async def close(self) -> None:
        """Close all listeners; open connections get ``drain_s`` to end."""
        relays = {each.relay for places in self._open.values() for each in places.values()} | self._draining
        for relay in relays:
            relay.stop_listening()
        self._open.clear()
        self._owner.clear()
        try:
            async with within(self._clock, self._config.drain_s):
                while any(relay.connections for relay in relays):
                    await self._clock.sleep(0.02)
        except TimeoutError:
            log.info("closing connections that did not end in time", count=sum(relay.connections for relay in relays))
        await asyncio.gather(*(relay.close() for relay in relays))
        self._draining.clear()
