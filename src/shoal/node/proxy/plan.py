"""Decides the listeners of a service, and which pod gets a connection.

A service without endpoints has no listener: its clients get "connection refused", as in Kubernetes.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Container, Iterable, Sequence
from ipaddress import IPv4Address, IPv4Network

from shoal.kube.objects import Obj
from shoal.node.proxy.model import OFFSET, ListenAddress, ProxyBackend, ProxyListener

SERVED_PORTS = "shoal.dev/served-ports"  # annotation: ports that are served at another port because they need root
_PROTOCOLS = ("TCP", "UDP")
_AFFINITY_S = 10800.0
_CLIENTS = 4096


def listeners_of(
    service: Obj, slices: Iterable[Obj], node_addresses: Sequence[str], balancer: str = ""
) -> tuple[ProxyListener, ...]:
    """The listeners of a service. ``balancer`` is its address outside, if it is of type LoadBalancer and has one."""
    spec = service["spec"]
    addresses = [each for each in spec.get("clusterIPs") or (spec.get("clusterIP"),) if each and each != "None"]
    if spec.get("type") == "ExternalName" or not addresses:
        return ()
    slices = tuple(slices)
    affinity_s = _affinity_s(spec)
    found: list[ProxyListener] = []
    for port in spec.get("ports") or ():
        protocol = port.get("protocol") or "TCP"
        backends = backends_of(port.get("name") or "", protocol, slices)
        if protocol not in _PROTOCOLS or not backends:
            continue
        for address in (*addresses, balancer) if balancer else addresses:
            place = ListenAddress(protocol, address, port["port"])
            found.append(ProxyListener(place=place, backends=backends, affinity_s=affinity_s))
        for address in node_addresses if port.get("nodePort") else ():
            place = ListenAddress(protocol, address, port["nodePort"])
            found.append(ProxyListener(place=place, backends=backends, affinity_s=affinity_s, node_port=True))
    return tuple(found)


def wants_balancer(service: Obj) -> bool:
    spec = service["spec"]
    deleted = service["metadata"].get("deletionTimestamp")
    return spec.get("type") == "LoadBalancer" and not spec.get("loadBalancerClass") and not deleted


def balancer_of(service: Obj, cidr: str) -> str:
    """The address in the range that the service's status says; empty if it has none."""
    status = (service.get("status") or {}).get("loadBalancer") or {}
    found = [each.get("ip") or "" for each in status.get("ingress") or ()]
    return next((each for each in found if each and IPv4Address(each) in IPv4Network(cidr)), "")


def free_balancer(cidr: str, taken: Container[str]) -> str:
    """The first free address of the range; empty if there is none."""
    return next((str(each) for each in IPv4Network(cidr).hosts() if str(each) not in taken), "")


def _affinity_s(spec: Obj) -> float:
    if spec.get("sessionAffinity") != "ClientIP":
        return 0.0
    config = (spec.get("sessionAffinityConfig") or {}).get("clientIP") or {}
    return float(config.get("timeoutSeconds") or _AFFINITY_S)


def backends_of(port_name: str, protocol: str, slices: Iterable[Obj]) -> tuple[ProxyBackend, ...]:
    """The ready pods; without any, the terminating pods that still serve."""
    ready: set[ProxyBackend] = set()
    terminating: set[ProxyBackend] = set()
    for each in slices:
        if each.get("addressType") == "FQDN":
            continue
        numbers = [
            port["port"]
            for port in each.get("ports") or ()
            if (port.get("name") or "") == port_name
            and (port.get("protocol") or "TCP") == protocol
            and port.get("port")
        ]
        for endpoint in each.get("endpoints") or () if numbers else ():
            kept = _kept(endpoint.get("conditions") or {}, ready, terminating)
            if kept is not None and endpoint.get("addresses"):
                kept.update(ProxyBackend(endpoint["addresses"][0], number) for number in numbers)
    return tuple(sorted(ready or terminating))


def _kept(conditions: Obj, ready: set[ProxyBackend], terminating: set[ProxyBackend]) -> set[ProxyBackend] | None:
    is_ready = conditions.get("ready") is not False  # missing means ready
    serving = conditions["serving"] if conditions.get("serving") is not None else is_ready
    if is_ready:
        return ready
    return terminating if serving and conditions.get("terminating") else None


def moved_ports(moved: Iterable[ListenAddress], places: Iterable[ListenAddress]) -> str:
    """The value of the annotation: ``80:8080`` for each port that is served at another port."""
    ports = sorted({each.port for each in moved} & {each.port for each in places})
    return ",".join(f"{port}:{port + OFFSET}" for port in ports)


def served_ports(service: Obj) -> dict[int, int]:
    """The served port by port of the service, from the annotation; invalid entries are ignored."""
    text = (service["metadata"].get("annotations") or {}).get(SERVED_PORTS, "")
    pairs = (pair.partition(":")[::2] for pair in text.split(",") if pair)
    return {int(port): int(at) for port, at in pairs if _is_port(port) and _is_port(at)}


def _is_port(text: str) -> bool:
    return text.isascii() and text.isdigit() and 0 < int(text) < 65536


class BackendChoice:
    """Chooses the backend of a client: round robin, or with affinity the last one. The number of remembered clients is
    limited; the least recent are dropped."""

    def __init__(self, listener: ProxyListener) -> None:
        self.listener = listener
        self._turn = 0
        self._sticky: OrderedDict[str, tuple[ProxyBackend, float]] = OrderedDict()

    def change(self, listener: ProxyListener) -> None:
        self.listener = listener
        for client in [client for client, (backend, _) in self._sticky.items() if backend not in listener.backends]:
            del self._sticky[client]

    def order(self, client: str, now: float) -> list[ProxyBackend]:
        """The backends to try, preferred one first; advances the round robin."""
        backends = self.listener.backends
        affinity_s = self.listener.affinity_s
        first = self._turn % len(backends)
        if affinity_s:
            known = self._sticky.get(client)
            if known is not None and now - known[1] <= affinity_s:
                first = backends.index(known[0])
                return [*backends[first:], *backends[:first]]
        self._turn = first + 1
        return [*backends[first:], *backends[:first]]

    def remember(self, client: str, backend: ProxyBackend, now: float) -> None:
        """Remember the backend of a client, for affinity."""
        if self.listener.affinity_s and backend in self.listener.backends:
            self._sticky[client] = (backend, now)
            self._sticky.move_to_end(client)
            if len(self._sticky) > _CLIENTS:
                self._sticky.popitem(last=False)
