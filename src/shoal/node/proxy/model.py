"""Listeners of the proxy and their backends."""

from __future__ import annotations

from dataclasses import dataclass

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
