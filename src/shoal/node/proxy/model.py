"""What the proxy listens on and where that leads."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """Where clients connect to."""

    protocol: str  # TCP, UDP
    address: str
    port: int

    def __str__(self) -> str:
        return f"{self.address}:{self.port}/{self.protocol}"


@dataclass(frozen=True, slots=True, order=True)
class Backend:
    """A port of a pod."""

    address: str
    port: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Listener:
    """One place and the pods behind it; never without any."""

    place: Place
    backends: tuple[Backend, ...]
    affinity_s: float = 0.0  # how long a client stays with its pod; 0: not at all
    node_port: bool = False
