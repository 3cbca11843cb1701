"""Opens, changes and closes the listeners of services according to the plan, one service at a time."""

from __future__ import annotations

import errno
from dataclasses import dataclass, replace

from shoal.base.logs import get_logger
from shoal.client import Client, PatchType, builtin
from shoal.errors import NotFound
from shoal.kube.objects import Obj
from shoal.node.proxy.config import ProxyConfig
from shoal.node.proxy.model import OFFSET, PRIVILEGED, ListenAddress, ProxyBackend, ProxyListener
from shoal.node.proxy.plan import (
    SERVED_PORTS,
    balancer_of,
    free_balancer,
    listeners_of,
    moved_ports,
    wants_balancer,
)
from shoal.node.proxy.relays import Relays
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

    listener: ProxyListener
    moved: bool


class ServiceProxy:
    """The listeners of all services. A controller calls ``reconcile`` with the keys of services."""

    def __init__(
        self, client: Client, services: Informer, slices: Informer, events: EventRecorder, relays: Relays,
        config: ProxyConfig,
    ) -> None:  # fmt: skip
        self._services = services.cache
        self._slices = slices.cache
        self._resource = client.of(builtin("services"))
        self._events = events
        self._relays = relays
        self._config = config
        self._behind = {ProxyBackend(each.place.address, each.place.port): each.backends for each in config.fixed}
        self._open: dict[ObjectKey, dict[ListenAddress, _Open]] = {}
        self._owner: dict[ListenAddress, ObjectKey] = {}
        self._balancers: dict[ObjectKey, str] = {}
        self._warned: dict[tuple[ObjectKey, ListenAddress], str] = {}

    @property
    def listeners(self) -> int:
        return len(self._owner)

    async def reconcile(self, key: ObjectKey) -> Result:
        service = self._services.get(key)
        self._balance(key, service)
        wanted = self._wanted(key, service)
        for place in [place for place in self._open.get(key, {}) if place not in wanted]:
            await self._close(key, place)
        complete = True
        for place, listener in wanted.items():
            complete &= await self._ensure(key, service, place, listener)
        if service is None:
            self._forget(key)
            return DONE
        await self._annotate(key, service)
        await self._tell_balancer(key, service)
        return DONE if complete else Result(after_s=self._config.retry_s)

    def _wanted(self, key: ObjectKey, service: Obj | None) -> dict[ListenAddress, ProxyListener]:
        if service is None or service["metadata"].get("deletionTimestamp"):
            return {}
        pieces = self._slices.by_index(BY_SERVICE, str(key))
        found = listeners_of(service, pieces, self._config.node_addresses, self._balancers.get(key, ""))
        return {each.place: replace(each, backends=self._direct(each.backends)) for each in found}

    def _direct(self, backends: tuple[ProxyBackend, ...]) -> tuple[ProxyBackend, ...]:
        """What is behind a fixed listener instead of the listener, so that no connection is relayed twice."""
        return tuple(direct for each in backends for direct in self._behind.get(each, (each,)))

    # addresses of balancers

    def _balance(self, key: ObjectKey, service: Obj | None) -> None:
        """Choose the address of a Service of type LoadBalancer; it keeps the one that it has."""
        cidr = self._config.balancers
        if not cidr or service is None or not wants_balancer(service):
            self._balancers.pop(key, None)
        elif key not in self._balancers:
            taken = set(self._balancers.values())
            before = balancer_of(service, cidr)
            address = before if before and before not in taken else free_balancer(cidr, taken)
            if address:
                self._balancers[key] = address

    async def _tell_balancer(self, key: ObjectKey, service: Obj) -> None:
        cidr, address = self._config.balancers, self._balancers.get(key, "")
        if not cidr or balancer_of(service, cidr) == address:
            return
        patch = {"status": {"loadBalancer": {"ingress": [{"ip": address, "ipMode": "VIP"}] if address else None}}}
        try:
            await self._resource.patch(key.name, patch, key.namespace, type=PatchType.MERGE, subresource="status")
        except NotFound:
            return  # it was deleted: the informer will report it

    # listeners

    async def _ensure(self, key: ObjectKey, service: Obj | None, place: ListenAddress, listener: ProxyListener) -> bool:
        """Open or update a listener; False if it is not served."""
        present = self._open.get(key, {}).get(place)
        if present is not None and present.listener == listener and self._relays.serves(place):
            return True
        assert service is not None
        if self._owner.get(place, key) != key:
            return False  # still in use by a service that is being changed or removed
        if present is None and len(self._owner) >= self._config.listeners:
            message = f"{place} is not served: the proxy has its {self._config.listeners} listeners in use"
            self._warn(key, service, place, "TooManyListeners", message)
            return False
        self._owner[place] = key
        try:
            moved = await self._relays.open(listener) != place.port
        except OSError as error:
            self._owner.pop(place, None)
            self._open.get(key, {}).pop(place, None)
            self._warn_about(key, service, place, error)
            return False
        except BaseException:
            if present is None:
                self._owner.pop(place, None)
            raise
        self._open.setdefault(key, {})[place] = _Open(listener, moved)
        if moved:
            message = f"{place} is served at port {place.port + OFFSET}: ports below {PRIVILEGED} need root rights"
            self._warn(key, service, place, "PortMoved", message)
        else:
            self._warned.pop((key, place), None)
        return True

    def _warn_about(self, key: ObjectKey, service: Obj, place: ListenAddress, error: OSError) -> None:
        if error.errno == errno.EADDRINUSE:
            self._warn(key, service, place, "PortInUse", f"{place} is not served: another program uses it")
        else:
            self._warn(key, service, place, "NotServed", f"{place} is not served: {error.strerror or error}")

    async def _close(self, key: ObjectKey, place: ListenAddress) -> None:
        await self._relays.close(place)
        del self._open[key][place]
        self._owner.pop(place, None)
        self._warned.pop((key, place), None)

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

    # beginning and end

    async def begin(self) -> None:
        """Close what an earlier process has left open and no service has now; the caches are complete."""
        for key in sorted(self._services.keys()):
            self._balance(key, self._services.get(key))
        places = [place for key in self._services.keys() for place in self._wanted(key, self._services.get(key))]
        await self._relays.keep([*places, *(each.place for each in self._config.fixed)])
        for each in self._config.fixed:
            try:
                await self._relays.open(each)
            except OSError as error:
                log.warning("an address is not served", place=str(each.place), reason=error.strerror or str(error))

    async def close(self) -> None:
        self._open.clear()
        self._owner.clear()
        await self._relays.release()
