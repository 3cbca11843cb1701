"""Answers questions about names of a cluster, as Kubernetes' specification of DNS for Services has them.

SERVICE.NAMESPACE.svc.DOMAIN             its addresses, or those of its endpoints, or a CNAME
HOSTNAME.SERVICE.NAMESPACE.svc.DOMAIN    an endpoint of a Service without an address
_PORT._PROTOCOL.SERVICE...               SRV
1-2-3-4.NAMESPACE.pod.DOMAIN             1.2.3.4
4.3.2.1.in-addr.arpa                     the name of a Service or of an endpoint
"""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import IPv4Address, IPv4Network
from typing import cast

from shoal.node.dns import codec
from shoal.node.dns.codec import Answer, Name, Record
from shoal.node.dns.model import NamedEndpoint, NamedPort, ServiceNames

_VERSION = "1.1.0"  # of the specification
_REVERSE = ("in-addr", "arpa")
_CNAMES = 8

Key = tuple[str, str]


class NameTable:
    """The names of one cluster. ``reverse`` are the ranges of addresses whose names nobody else knows."""

    def __init__(self, domain: str = "cluster.local", *, reverse: Iterable[str] = (), ttl_s: int = 5) -> None:
        self.domain = codec.name_of(domain)
        self._reverse = tuple(IPv4Network(each) for each in reverse)
        self._ttl_s = ttl_s
        self._services: dict[Key, ServiceNames] = {}
        self._namespaces: dict[str, int] = {}  # how many Services each has
        self._names: dict[str, dict[Key, Name]] = {}  # by address
        self._turn = 0

    def set(self, names: ServiceNames) -> None:
        key = (names.namespace, names.name)
        self.remove(key)
        self._services[key] = names
        self._namespaces[names.namespace] = self._namespaces.get(names.namespace, 0) + 1
        base = self._base(names)
        for address in names.addresses:
            self._names.setdefault(address, {})[key] = base
        for each in names.endpoints:
            if each.hostname:
                self._names.setdefault(each.address, {})[key] = (each.hostname, *base)

    def remove(self, key: Key) -> None:
        names = self._services.pop(key, None)
        if names is None:
            return
        self._namespaces[names.namespace] -= 1
        if not self._namespaces[names.namespace]:
            del self._namespaces[names.namespace]
        for address in (*names.addresses, *(each.address for each in names.endpoints)):
            known = self._names.get(address, {})
            known.pop(key, None)
            if not known:
                self._names.pop(address, None)

    def keep(self, keys: Iterable[Key]) -> None:
        kept = set(keys)
        for key in [key for key in self._services if key not in kept]:
            self.remove(key)

    def answer(self, name: Name, kind: int) -> Answer | None:
        """None if the name is not one of the cluster's."""
        if name[-2:] == _REVERSE:
            return self._answer_address(name, kind)
        if not self._is_ours(name):
            return None
        found: list[Record] = []
        for _ in range(_CNAMES):
            records = self._records(name)
            if records is None:
                return Answer(codec.NOERROR if found else codec.NXDOMAIN, tuple(found), self._soa())
            links = [each for each in records if each.type == codec.CNAME]
            fitting = [each for each in records if kind in (each.type, codec.ANY)]
            found += fitting or links
            if fitting or not links or not self._is_ours(name := links[0].data):  # type: ignore[arg-type, assignment]
                break
        return Answer(codec.NOERROR, tuple(found), None if found else self._soa(), self._targets(found))

    def _is_ours(self, name: Name) -> bool:
        return name[-len(self.domain) :] == self.domain

    def _soa(self) -> Record:
        return Record(self.domain, codec.SOA, self._ttl_s, self.domain)

    def _base(self, names: ServiceNames) -> Name:
        return (names.name, names.namespace, "svc", *self.domain)

    def _record(self, name: Name, kind: int, data: str | Name | tuple[int, int, int, Name]) -> Record:
        return Record(name, kind, self._ttl_s, data)

    def _records(self, name: Name) -> list[Record] | None:
        """Everything at a name; an empty list if there are only names below it, None if there is nothing."""
        match name[: len(name) - len(self.domain)]:
            case ():
                return [self._soa()]
            case ("dns-version",):
                return [self._record(name, codec.TXT, _VERSION)]
            case ("svc",) | ("pod",) | ("dns",):
                return []
            case (namespace, "svc" | "pod"):
                return [] if namespace in self._namespaces else None
            case (host, namespace, "pod"):
                return self._pod(name, host, namespace)
            case (*before, service, namespace, "svc"):
                found = self._services.get((namespace, service))
                return None if found is None else self._service(name, tuple(before), found)
        return None

    def _pod(self, name: Name, host: str, namespace: str) -> list[Record] | None:
        address = host.replace("-", ".")
        if namespace not in self._namespaces or not _is_address(address) or "." in host:
            return None
        return [self._record(name, codec.A, address)]

    def _service(self, name: Name, before: Name, found: ServiceNames) -> list[Record] | None:
        base = self._base(found)
        if found.external:
            return None if before else [self._record(name, codec.CNAME, codec.name_of(found.external))]
        match before:
            case ():
                places = found.addresses or self._rotated([each.address for each in found.endpoints])
                addresses = [self._record(name, codec.A, each) for each in dict.fromkeys(places) if _is_address(each)]
                return addresses + self._ports(name, found, base, "", "")
            case (protocol,) if protocol in ("_tcp", "_udp", "_sctp"):
                return []
            case (port, protocol) if port.startswith("_") and protocol.startswith("_"):
                return self._ports(name, found, base, port[1:], protocol[1:].upper()) or None
            case (host,):
                same = dict.fromkeys(each.address for each in found.endpoints if _host(each) == host)
                return [self._record(name, codec.A, each) for each in same] or None
        return None

    def _ports(self, name: Name, found: ServiceNames, base: Name, port: str, protocol: str) -> list[Record]:
        """SRV records; of all ports if none is given."""

        def fits(each: NamedPort) -> bool:
            return not protocol or (each.name == port and each.protocol == protocol)

        offers = [(base, each) for each in found.ports if fits(each)]
        offers += [((_host(end), *base), each) for end in found.endpoints for each in end.ports if fits(each)]
        weight = 100 // len(offers) if offers else 0
        return [self._record(name, codec.SRV, (0, max(weight, 1), each.port, target)) for target, each in offers]

    def _targets(self, found: list[Record]) -> tuple[Record, ...]:
        """The addresses of the targets of SRV records."""
        targets = dict.fromkeys(each.data[3] for each in found if each.type == codec.SRV)
        more = [self._records(cast(Name, each)) or [] for each in targets]
        return tuple(record for records in more for record in records if record.type == codec.A)

    def _rotated(self, addresses: list[str]) -> list[str]:
        if not addresses:
            return addresses
        self._turn = (self._turn + 1) % len(addresses)
        return addresses[self._turn :] + addresses[: self._turn]

    def _answer_address(self, name: Name, kind: int) -> Answer | None:
        address = ".".join(reversed(name[:-2]))
        if not _is_address(address):
            return None
        names = self._names.get(address)
        if names is None:
            ours = any(IPv4Address(address) in each for each in self._reverse)
            return Answer(codec.NXDOMAIN, (), self._soa()) if ours else None
        if kind not in (codec.PTR, codec.ANY):
            return Answer(codec.NOERROR, (), self._soa())
        return Answer(codec.NOERROR, tuple(self._record(name, codec.PTR, each) for each in sorted(names.values())))


def _host(endpoint: NamedEndpoint) -> str:
    return endpoint.hostname or endpoint.address.replace(".", "-")


def _is_address(text: str) -> bool:
    try:
        IPv4Address(text)
    except ValueError:
        return False
    return True
