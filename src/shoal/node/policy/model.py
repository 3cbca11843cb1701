"""Rules by address: who may connect to whom."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network
from typing import Any


@dataclass(frozen=True, slots=True, order=True)
class Block:
    """Addresses of a range, without some parts of it."""

    cidr: str
    excepts: tuple[str, ...] = ()

    def has(self, address: str) -> bool:
        return _has(self.cidr, address) and not any(_has(each, address) for each in self.excepts)


@dataclass(frozen=True, slots=True, order=True)
class PortRange:
    protocol: str  # TCP, UDP, SCTP
    first: int
    last: int

    def has(self, protocol: str, port: int) -> bool:
        return self.protocol == protocol and self.first <= port <= self.last


@dataclass(frozen=True, slots=True, order=True)
class Allow:
    """Connections with one of the peers, on one of the ports. None: with everybody, on every port."""

    peers: tuple[Block, ...] | None
    ports: tuple[PortRange, ...] | None

    def has(self, peer: str, protocol: str, port: int) -> bool:
        if self.peers is not None and not any(each.has(peer) for each in self.peers):
            return False
        return self.ports is None or any(each.has(protocol, port) for each in self.ports)


@dataclass(frozen=True, slots=True)
class Rules:
    """What isolated pods accept (``ingress``) and where they connect to (``egress``), by address. A pod that is in
    neither is not restricted."""

    ingress: Mapping[str, tuple[Allow, ...]] = field(default_factory=dict)
    egress: Mapping[str, tuple[Allow, ...]] = field(default_factory=dict)

    def allow(self, source: str, target: str, protocol: str, port: int) -> bool:
        if source == target:
            return True
        out, into = self.egress.get(source), self.ingress.get(target)
        if out is not None and not any(each.has(target, protocol, port) for each in out):
            return False
        return into is None or any(each.has(source, protocol, port) for each in into)


def pack(rules: Rules) -> list[Any]:
    """As lists, for JSON."""
    return [
        [[address, [_packed(each) for each in allows]] for address, allows in sorted(way.items())]
        for way in (rules.ingress, rules.egress)
    ]


def unpack(packed: list[Any]) -> Rules:
    ways = [{address: tuple(map(_unpacked, allows)) for address, allows in way} for way in packed]
    return Rules(*ways)


def _packed(allow: Allow) -> list[Any]:
    peers = None if allow.peers is None else [[each.cidr, list(each.excepts)] for each in allow.peers]
    ports = None if allow.ports is None else [[each.protocol, each.first, each.last] for each in allow.ports]
    return [peers, ports]


def _unpacked(packed: list[Any]) -> Allow:
    peers, ports = packed
    return Allow(
        None if peers is None else tuple(Block(cidr, tuple(excepts)) for cidr, excepts in peers),
        None if ports is None else tuple(PortRange(*each) for each in ports),
    )


@lru_cache(maxsize=4096)
def _network(cidr: str) -> IPv4Network:
    return IPv4Network(cidr, strict=False)


def _has(cidr: str, address: str) -> bool:
    return IPv4Address(address) in _network(cidr)
