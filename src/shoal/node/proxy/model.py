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


@dataclass(frozen=True, slots=True, order=True)
class ProxyBackend:
    """A port of a pod."""

    address: str
    port: int


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
