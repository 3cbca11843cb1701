"""Cluster IPs and node ports: chosen here, reserved by keys that are created in the Service's own transaction.

A cluster IP is reserved by its ``IPAddress`` object, which users can see; a node port by a key
in the store only. Two Services can therefore never get the same address, on any number of servers, and a Service
that is not created leaves nothing behind.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from itertools import chain

from shoal.apiserver import objects
from shoal.apiserver.context import Core
from shoal.apiserver.effects import NOTHING, Extra, mark
from shoal.apiserver.ranges import Range, ServiceRanges, contains
from shoal.errors import Invalid, invalid
from shoal.kube.kinds.core import service as rules
from shoal.kube.objects import Obj
from shoal.store import Absent, Delete, Key, Op, Put, Require

NODE_PORTS = "services.nodeports"
IP_ADDRESSES = "ipaddresses.networking.k8s.io"
_TRIES = 64
_FULL_S = 1.0


class ServiceEffects:
    """Allocates on create and on changes of type, releases on delete."""

    before_validation = True

    def __init__(self, core: Core) -> None:
        self.core = core
        self.ranges = ServiceRanges(core)
        self._full: dict[Range, float] = {}  # ranges recently found full, and until when to skip them
        low, high = core.config.node_ports
        self.ports = range(low, high + 1)

    def on_create(self, obj: Obj) -> Extra:
        ops: list[Op] = []
        requires: list[Require] = []
        self._allocate_ip(obj, ops, requires)
        self._allocate_ports(obj, set(), ops, requires)
        return Extra(ops, requires)

    def on_update(self, new: Obj, old: Obj) -> Extra:
        before_ip, before_ports = _cluster_ip(old), _reserved_ports(old)
        ops: list[Op] = []
        requires: list[Require] = []
        if rules.needs_cluster_ip(new) and not _cluster_ip(new) or _cluster_ip(new) != before_ip:
            self._allocate_ip(new, ops, requires)
        self._allocate_ports(new, before_ports, ops, requires)
        after_ip = _cluster_ip(new)
        if before_ip and before_ip != after_ip:
            self._release_ip(before_ip, ops)
        for port in sorted(before_ports - _reserved_ports(new)):
            self._release(Key(NODE_PORTS, "", port), ops)
        return Extra(ops, requires) if ops or requires else NOTHING

    def on_delete(self, old: Obj) -> Extra:
        ops: list[Op] = []
        if _cluster_ip(old):
            self._release_ip(_cluster_ip(old), ops)
        for port in sorted(_reserved_ports(old)):
            self._release(Key(NODE_PORTS, "", port), ops)
        return Extra(ops) if ops else NOTHING

    # -- cluster IPs -----------------------------------------------------------------------------------------------

    def _allocate_ip(self, obj: Obj, ops: list[Op], requires: list[Require]) -> None:
        spec = obj.setdefault("spec", {})
        given = spec.get("clusterIP") or ""
        if given == "None" or not (given or rules.needs_cluster_ip(obj)):
            return
        address = self._explicit(obj, given) if given else self._free_ip()
        key = _ip_key(address)
        if given and self.core.store.get(key) is not None:
            raise _refused(
                obj, "spec.clusterIPs", [address], f"failed to allocate IP {address}: provided IP is already allocated"
            )
        spec["clusterIP"], spec["clusterIPs"] = address, [address]
        requires.append(Absent(key))
        ops.append(self._ip_address(address, obj))

    def _explicit(self, obj: Obj, given: str) -> str:
        try:
            address = ipaddress.ip_address(given)
        except ValueError:
            raise _refused(obj, "spec.clusterIPs", [given], "must be a valid IP address") from None
        if not any(contains(network, address) for network in self.ranges.current()):
            raise _refused(
                obj, "spec.clusterIPs", [given],
                f"failed to allocate IP {given}: the provided network does not match the current range",
            )  # fmt: skip
        return str(address)

    def _free_ip(self) -> str:
        """A free address of the first range that has one. Finding a large range full takes long, so it is remembered
        for a moment."""
        now = self.core.clock.monotonic()
        ranges = self.ranges.current()
        lately = [network for network in ranges if self._full.get(network, 0.0) > now]
        for network in (*(each for each in ranges if each not in lately), *lately):
            address = self._free_in(network)
            if address is not None:
                return str(ipaddress.ip_address(address))
            self._full[network] = now + _FULL_S
        raise Invalid(f"range is full: no free cluster IP is left in {', '.join(map(str, ranges))}")

    def _free_in(self, network: Range) -> int | None:
        """A free address: at random in the upper part of the range, then by scanning, the lower part last."""
        first, size = int(network.network_address) + 1, network.num_addresses - 2
        offset = min(max(16, size // 16), 256) if size > 32 else 0
        upper = size - offset
        for _ in range(_TRIES if upper > 0 else 0):
            candidate = first + offset + self._random() % upper
            if self._is_free(candidate):
                return candidate
        steps = chain(range(offset, size), range(offset))
        return next((first + step for step in steps if self._is_free(first + step)), None)

    def _is_free(self, address: int) -> bool:
        return self.core.store.get(_ip_key(str(ipaddress.ip_address(address)))) is None

    def _ip_address(self, address: str, service: Obj) -> Put:
        metadata = service["metadata"]
        obj: Obj = {
            "metadata": {
                "name": address,
                "uid": self.core.ids.new_uid(),
                "creationTimestamp": self.core.now(),
                "labels": {
                    "ipaddress.kubernetes.io/ip-family": "IPv6" if ":" in address else "IPv4",
                    "ipaddress.kubernetes.io/managed-by": "ipallocator.k8s.io",
                },
            },
            "spec": {
                "parentRef": {
                    "resource": "services",
                    "namespace": metadata.get("namespace", ""),
                    "name": metadata.get("name", ""),  # validation, which comes later, refuses an empty one
                }
            },
        }
        key = _ip_key(address)
        served = self.core.registry.stored(IP_ADDRESSES)
        assert served is not None
        value, hole = objects.encode(obj, "IPAddress", "networking.k8s.io/v1")
        return Put(key, value, hole, served.attrs(obj, key))

    def _release_ip(self, address: str, ops: list[Op]) -> None:
        self._release(_ip_key(address), ops)

    def _release(self, key: Key, ops: list[Op]) -> None:
        if self.core.store.get(key) is not None:
            ops.append(Delete(key))

    # -- node ports ------------------------------------------------------------------------------------------------

    def _allocate_ports(self, obj: Obj, have: set[str], ops: list[Op], requires: list[Require]) -> None:
        if not rules.needs_node_ports(obj):
            return
        taken: set[str] = set()
        for index, port in enumerate(obj["spec"].get("ports") or ()):
            protocol = port.get("protocol", "TCP")
            number = port.get("nodePort") or 0
            if not number:
                number = port["nodePort"] = self._free_port(protocol, taken)
            elif number not in self.ports:
                raise _refused(
                    obj, f"spec.ports[{index}].nodePort", number,
                    f"provided port is not in the valid range. The range of valid ports is "
                    f"{self.ports.start}-{self.ports.stop - 1}",
                )  # fmt: skip
            name = _port_name(number, protocol)
            if name in have or name in taken:
                taken.add(name)
                continue
            key = Key(NODE_PORTS, "", name)
            if self.core.store.get(key) is not None:
                raise _refused(obj, f"spec.ports[{index}].nodePort", number, "provided port is already allocated")
            taken.add(name)
            requires.append(Absent(key))
            ops.append(mark(key))
        health = obj["spec"].get("healthCheckNodePort")
        if health == 0 or (health is None and rules.needs_health_check_port(obj)):
            obj["spec"]["healthCheckNodePort"] = number = self._free_port("TCP", taken)
            key = Key(NODE_PORTS, "", _port_name(number, "TCP"))
            requires.append(Absent(key))
            ops.append(mark(key))

    def _free_port(self, protocol: str, taken: set[str]) -> int:
        size = len(self.ports)
        offset = min(max(16, size // 32), 128) if size > 64 else 0
        steps = [offset + self._random() % (size - offset) for _ in range(_TRIES)]
        for step in (*steps, *range(offset, size), *range(offset)):
            number: int = self.ports.start + step
            if self._port_free(number, protocol, taken):
                return number
        raise Invalid("range is full: no free node port is left")

    def _port_free(self, number: int, protocol: str, taken: set[str]) -> bool:
        name = _port_name(number, protocol)
        return name not in taken and self.core.store.get(Key(NODE_PORTS, "", name)) is None

    def _random(self) -> int:
        return int(self.core.ids.new_uid()[:8], 16)


def _cluster_ip(obj: Obj) -> str:
    address: str = (obj.get("spec") or {}).get("clusterIP") or ""
    return "" if address == "None" else address


def _reserved_ports(obj: Obj) -> set[str]:
    spec = obj.get("spec") or {}
    ports: Iterable[Obj] = spec.get("ports") or ()
    found = {_port_name(p["nodePort"], p.get("protocol", "TCP")) for p in ports if p.get("nodePort")}
    if spec.get("healthCheckNodePort"):
        found.add(_port_name(spec["healthCheckNodePort"], "TCP"))
    return found


def _ip_key(address: str) -> Key:
    return Key(IP_ADDRESSES, "", address)


def _port_name(number: int, protocol: str) -> str:
    return f"{number}-{protocol.lower()}"


def _refused(obj: Obj, field: str, value: object, why: str) -> Invalid:
    return Invalid.of("Service", "", obj["metadata"].get("name", ""), [invalid(field, value, why)])
