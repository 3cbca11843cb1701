"""Listeners of the proxy and their backends."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class ListenAddress:
    """Where clients connect to."""

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
    """One place and the pods behind it; never without any."""

    place: ListenAddress
    backends: tuple[ProxyBackend, ...]
    affinity_s: float = 0.0  # how long a client stays with its pod; 0: not at all
    node_port: bool = False
