"""What has a name in a cluster."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, order=True)
class NamedPort:
    name: str
    protocol: str  # TCP, UDP, SCTP
    port: int


@dataclass(frozen=True, slots=True, order=True)
class NamedEndpoint:
    """A pod of a Service without an address of its own."""

    address: str
    hostname: str = ""
    ports: tuple[NamedPort, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceNames:
    """A Service: with addresses, or the name it stands for, or its endpoints."""

    namespace: str
    name: str
    addresses: tuple[str, ...] = ()
    ports: tuple[NamedPort, ...] = ()
    external: str = ""
    endpoints: tuple[NamedEndpoint, ...] = ()


def pack(names: ServiceNames) -> list[Any]:
    """As lists, for JSON."""
    ends = [[each.address, each.hostname, _packed(each.ports)] for each in names.endpoints]
    return [names.namespace, names.name, list(names.addresses), _packed(names.ports), names.external, ends]


def unpack(packed: list[Any]) -> ServiceNames:
    namespace, name, addresses, ports, external, ends = packed
    return ServiceNames(
        namespace=namespace, name=name, addresses=tuple(addresses), ports=_unpacked(ports), external=external,
        endpoints=tuple(NamedEndpoint(address, hostname, _unpacked(own)) for address, hostname, own in ends),
    )  # fmt: skip


def _packed(ports: tuple[NamedPort, ...]) -> list[Any]:
    return [[each.name, each.protocol, each.port] for each in ports]


def _unpacked(ports: list[Any]) -> tuple[NamedPort, ...]:
    return tuple(NamedPort(*each) for each in ports)
