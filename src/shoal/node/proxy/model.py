"""Listeners of the proxy and their backends."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import IPv4Network, ip_address

OFFSET = 8000  # a port that needs root rights is served this much higher
PRIVILEGED = 1024


@dataclass(frozen=True, slots=True, order=True)
class ListenAddress:
    """The address that clients connect to."""

    protocol: str  # TCP, UDP
    address: str
    port: int

    def __str__(self) -> str:
        return f"{self.address}:{self.port}/{self.protocol}"

    @property
    def outside(self) -> bool:
        """On this machine, also where the proxy serves a network of sandboxes."""
        return self.address.startswith("127.")


@dataclass(frozen=True, slots=True, order=True)
class ProxyBackend:
    """A port of a pod."""

    address: str
    port: int
    outside: bool = False  # of this machine, although the listener may be in the network of sandboxes


@dataclass(frozen=True, slots=True, kw_only=True)
class ProxyListener:
    """A listen address and its backends, at least one."""

    place: ListenAddress
    backends: tuple[ProxyBackend, ...]
    affinity_s: float = 0.0  # how long a client keeps its backend; 0: no affinity
    node_port: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedNetwork:
    """Addresses of this machine for a cluster whose pods have networks of their own. Other machines could send packets
    to them too: ``clients`` are the only networks from which connections are accepted there."""

    cidr: str
    clients: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class InsideNetwork:
    """The network namespace of a cluster whose pods are sandboxes. Listeners with a loopback address are outside of it,
    on this machine, all others inside; backends are inside."""

    helper: str  # folder of the process that opens sockets there
    local: tuple[str, ...]  # ranges that the namespace takes as its own, so that the proxy can listen there
    api: str = ""  # the address of the API server in there
    dns: str = ""  # where to answer questions about names
    domain: str = "cluster.local"
    reverse: tuple[str, ...] = ()  # ranges of addresses that only this cluster has names for
    upstream: bool = False  # whether the machine's DNS servers are asked about other names


class Admission:
    """Which clients may connect to a listener: everybody on the loopback interface, else those of the given networks,
    or everybody if there are none."""

    def __init__(self, clients: Iterable[str] = ()) -> None:
        self._networks: tuple[IPv4Network, ...] = ()
        self.only(clients)

    def only(self, clients: Iterable[str]) -> None:
        self._networks = tuple(IPv4Network(each) for each in clients)

    def admits(self, client: str, place: ListenAddress) -> bool:
        if not self._networks or ip_address(place.address).is_loopback:
            return True
        source = ip_address(client)
        return source.is_loopback or any(source in each for each in self._networks)
