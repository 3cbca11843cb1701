"""The ranges that cluster IPs are taken from: the one the server was started with, then those of ServiceCIDR objects.

A range is used unless it is marked as not ready or is being deleted. On a cluster whose Services
use loopback addresses, ranges outside loopback or in the networks of pods and nodes are not used; where they use a
network that the machine has made local for containers, only ranges inside the first one are.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator

from shoal.apiserver import objects
from shoal.apiserver.context import Core
from shoal.kube.objects import Obj

SERVICE_CIDRS = "servicecidrs.networking.k8s.io"
Range = ipaddress.IPv4Network | ipaddress.IPv6Network
_LOOPBACK = ipaddress.ip_network("127.0.0.0/8")


class ServiceRanges:
    """Follows the objects by their revisions: they change rarely, and Services are created often."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._own = ipaddress.ip_network(core.config.service_cidr)
        self._taken = core.config.nodes.networks()  # by pods and nodes on the loopback interface
        self._revisions: tuple[int, ...] | None = None
        self._known: tuple[Range, ...] = ()

    def current(self) -> tuple[Range, ...]:
        """The ranges, in the order in which they are used."""
        entries = self._core.store.range(SERVICE_CIDRS).entries
        revisions = tuple(entry.revision for entry in entries)
        if revisions != self._revisions:
            found = [objects.decode(entry) for entry in entries]
            found.sort(key=lambda each: (each["metadata"].get("creationTimestamp") or "", each["metadata"]["name"]))
            self._known, self._revisions = tuple(self._usable(found)), revisions
        return self._known

    def _usable(self, found: list[Obj]) -> Iterator[Range]:
        ready = [network for each in found if _is_ready(each) for network in _networks(each)]
        if self._own in ready or not any(self._own in _networks(each) for each in found):
            yield self._own
        for network in dict.fromkeys(ready):
            if network != self._own and network.version == self._own.version and self._reaches(network):
                yield network

    def _reaches(self, network: Range) -> bool:
        if not self._taken or network.subnet_of(self._own):  # type: ignore[arg-type]
            return True
        inside = all(each.subnet_of(_LOOPBACK) for each in (network, *self._taken))  # type: ignore[arg-type]
        return inside and not any(network.overlaps(each) for each in self._taken)


def contains(network: Range, address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    """Whether an address can be given out of a range."""
    return address in network and address not in (network.network_address, network.broadcast_address)


def _networks(cidr: Obj) -> list[Range]:
    return [ipaddress.ip_network(text) for text in (cidr.get("spec") or {}).get("cidrs") or ()]


def _is_ready(cidr: Obj) -> bool:
    if cidr["metadata"].get("deletionTimestamp"):
        return False
    conditions = (cidr.get("status") or {}).get("conditions") or ()
    return all(each["status"] == "True" for each in conditions if each["type"] == "Ready")
