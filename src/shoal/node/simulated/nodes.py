"""Node objects of a simulated fleet: created at the start, with leases renewed for a part of the fleet at a time.

Every node with the fleet's label is simulated, also one that another client created. While a node has the ``down``
annotation, its lease and status are not renewed and its pods do not progress.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from zlib import crc32

from shoal.base.clock import Clock
from shoal.base.logs import get_logger
from shoal.client import Client, TransportError, builtin
from shoal.errors import AlreadyExists, ApiError, Conflict, NotFound
from shoal.kube.objects import Obj
from shoal.kube.schema import kubernetes_version
from shoal.kube.times import format_micro_time, format_time
from shoal.node.limits import each_limited
from shoal.node.node_object import taint_object
from shoal.node.simulated.addresses import Addresses
from shoal.node.simulated.config import FleetConfig
from shoal.node.simulated.model import DOWN_ANNOTATION, NODE_LABEL, NODE_LABEL_VALUE
from shoal.reconcile import Cache, Change, ObjectKey

log = get_logger("node.simulated")

LEASE_NAMESPACE = "kube-node-lease"
_FOREIGN = 1 << 15  # numbers of nodes that others made begin here

CONDITIONS = (
    ("MemoryPressure", "False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
    ("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
    ("PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
    ("Ready", "True", "KubeletReady", "kubelet is posting ready status"),
)


@dataclass(slots=True)
class SimulatedNode:
    """A node of the fleet."""

    name: str
    number: int
    address: str
    uid: str
    down: bool
    lease: Obj | None = None  # as last written
    reported_at: float | None = None  # monotonic, of the last status


class Nodes:
    """The fleet's nodes: registration, leases and statuses."""

    def __init__(
        self, client: Client, cache: Cache, config: FleetConfig, addresses: Addresses, *, clock: Clock
    ) -> None:
        self._nodes = client.of(builtin("nodes"))
        self._leases = client.of(builtin("leases", "coordination.k8s.io"))
        self._cache = cache
        self._config = config
        self._addresses = addresses
        self._clock = clock
        self._version = f"v{kubernetes_version()}"
        self._known: dict[str, SimulatedNode] = {}
        self._by_address: dict[str, SimulatedNode] = {}
        self._numbers: set[int] = set()
        self._listeners: list[Callable[[str], None]] = []
        cache.add_handler(self._changed)

    def __len__(self) -> int:
        return len(self._known)

    def __iter__(self) -> Iterator[SimulatedNode]:
        return iter(tuple(self._known.values()))

    def get(self, name: str) -> SimulatedNode | None:
        return self._known.get(name)

    def at(self, address: str) -> SimulatedNode | None:
        return self._by_address.get(address)

    def on_change(self, listener: Callable[[str], None]) -> None:
        """Add a handler that is called with the name of a node that was added or removed, or went down or up."""
        self._listeners.append(listener)

    # the cache tells

    def _changed(self, change: Change) -> None:
        obj, name = change.new, change.key.name
        known = self._known.get(name)
        if obj is None or (obj["metadata"].get("labels") or {}).get(NODE_LABEL) != NODE_LABEL_VALUE:
            if known is not None:
                del self._known[name]
                self._by_address.pop(known.address, None)
                self._numbers.discard(known.number)
                self._tell(name)
            return
        down = DOWN_ANNOTATION in (obj["metadata"].get("annotations") or {})
        if known is not None and not _says_ready(obj):
            known.reported_at = None  # made by others, or given up by the cluster meanwhile: say that it lives
        if known is None:
            node = self._known[name] = self._taken(obj, down)
            self._by_address[node.address] = node
        elif known.down != down:
            known.down, known.reported_at = down, None
        else:
            return
        self._tell(name)

    def _taken(self, obj: Obj, down: bool) -> SimulatedNode:
        name = obj["metadata"]["name"]
        number = self._number(name)
        addresses = (obj.get("status") or {}).get("addresses") or ()
        found = [each["address"] for each in addresses if each["type"] == "InternalIP"]
        node = SimulatedNode(name, number, "", obj["metadata"]["uid"], down)
        node.address = found[0] if found else self._addresses.node(number)
        if _says_ready(obj) and _kubelet_port(obj) == self._config.kubelet_port:
            share = number % self._config.slices / self._config.slices  # so that not all are written again at once
            node.reported_at = self._clock.monotonic() - share * self._config.status_s
        return node

    def _number(self, name: str) -> int:
        """The number in the name of a node that the fleet created; for other nodes one derived from the name, if it is
        free, so that addresses stay the same over restarts."""
        tail = name.removeprefix(self._config.name_prefix)
        ours = tail.isascii() and tail.isdigit() and len(tail) < 8
        number = int(tail) if ours else _FOREIGN + (crc32(name.encode()) >> 18)
        while number in self._numbers:
            number += 1
        self._numbers.add(number)
        return number

    def _tell(self, name: str) -> None:
        for listener in self._listeners:
            listener(name)

    # registration

    async def register(self) -> None:
        """Create the configured nodes that do not exist yet."""
        numbers = range(self._config.first, self._config.first + self._config.nodes)
        await each_limited(self._config.writers, numbers, self._make)

    async def _make(self, number: int) -> None:
        name = f"{self._config.name_prefix}{number}"
        if name in self._known:
            return
        try:
            await self._nodes.create(self._object(name, number))
        except AlreadyExists:
            pass
        except (ApiError, TransportError) as error:
            log.warning("registering a node failed", node=name, reason=str(error))

    def _object(self, name: str, number: int) -> Obj:
        zones = self._config.zones
        labels = {
            "kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64",
            "beta.kubernetes.io/os": "linux", "beta.kubernetes.io/arch": "amd64", NODE_LABEL: NODE_LABEL_VALUE,
            **dict(self._config.labels),
        }  # fmt: skip
        if zones:
            labels["topology.kubernetes.io/zone"] = zones[(number - self._config.first) % len(zones)]
        spec: Obj = {"podCIDR": self._addresses.network(number), "podCIDRs": [self._addresses.network(number)]}
        if self._config.taints:
            spec["taints"] = [taint_object(each) for each in self._config.taints]
        return {
            "metadata": {"name": name, "labels": labels},
            "spec": spec,
            "status": self._status({}, name, self._addresses.node(number)),
        }

    def _status(self, old: Obj, name: str, address: str) -> Obj:
        amounts = {
            "cpu": self._config.cpu, "memory": self._config.memory, "pods": str(self._config.pods),
            "ephemeral-storage": self._config.disk,
        }  # fmt: skip
        stamp = format_time(self._clock.wall_s())
        before = {each["type"]: each for each in old.get("conditions") or ()}
        conditions = [_condition(before.pop(each[0], None), each, stamp) for each in CONDITIONS]
        return {
            **old,
            "capacity": old.get("capacity") or amounts,
            "allocatable": old.get("allocatable") or amounts,
            "conditions": [*before.values(), *conditions],
            "addresses": old.get("addresses")
            or [{"type": "InternalIP", "address": address}, {"type": "Hostname", "address": name}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": self._config.kubelet_port}},
            "nodeInfo": self._node_info(name),
        }

    def _node_info(self, name: str) -> Obj:
        digest = f"{crc32(name.encode()):08x}"
        return {
            "machineID": digest, "systemUUID": digest, "bootID": digest, "kernelVersion": "simulated",
            "osImage": "Shoal simulated node", "containerRuntimeVersion": "simulated://1",
            "kubeletVersion": self._version, "kubeProxyVersion": "", "operatingSystem": "linux",
            "architecture": "amd64",
        }  # fmt: skip

    # signs of life

    async def live(self) -> None:
        """Renew leases and write statuses until cancelled, a part of the fleet at a time."""
        part = 0
        while True:
            slices = self._config.slices
            period_s = self._config.renewal_s(len(self._known))
            now = self._clock.monotonic()
            mine = [node for node in self._known.values() if node.number % slices == part or node.reported_at is None]
            await each_limited(self._config.writers, [node for node in mine if not node.down], self._sign)
            part = (part + 1) % slices
            took_s = self._clock.monotonic() - now
            await self._clock.sleep(max(0.05, period_s / slices - took_s))

    async def _sign(self, node: SimulatedNode) -> None:
        now = self._clock.monotonic()
        try:
            if node.reported_at is None or now - node.reported_at >= self._config.status_s:
                await self._report(node)
                node.reported_at = now
            await self._renew(node)
        except (Conflict, NotFound, AlreadyExists):
            node.lease = None  # someone else wrote: read it the next time
        except (ApiError, TransportError) as error:
            log.warning("renewing a simulated node failed", node=node.name, reason=str(error))

    async def _report(self, node: SimulatedNode) -> None:
        obj = self._cache.get(ObjectKey("", node.name))
        if obj is not None:
            status = self._status(obj.get("status") or {}, node.name, node.address)
            await self._nodes.replace_status({**obj, "status": status})

    async def _renew(self, node: SimulatedNode) -> None:
        if node.lease is None:
            node.lease = await self._first_lease(node)
            return
        spec = {**node.lease["spec"], "renewTime": format_micro_time(self._clock.wall_s())}
        node.lease = await self._leases.replace({**node.lease, "spec": spec})

    async def _first_lease(self, node: SimulatedNode) -> Obj:
        spec = {
            "holderIdentity": node.name,
            "leaseDurationSeconds": self._config.lease_s,
            "renewTime": format_micro_time(self._clock.wall_s()),
        }
        owner = {"apiVersion": "v1", "kind": "Node", "name": node.name, "uid": node.uid}
        about = {"name": node.name, "namespace": LEASE_NAMESPACE, "ownerReferences": [owner]}
        try:
            return await self._leases.create({"metadata": about, "spec": spec})
        except AlreadyExists:
            found = await self._leases.get(node.name, LEASE_NAMESPACE)
            return await self._leases.replace({**found, "spec": spec})


def _says_ready(obj: Obj) -> bool:
    conditions = (obj.get("status") or {}).get("conditions") or ()
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


def _kubelet_port(obj: Obj) -> int:
    endpoints = (obj.get("status") or {}).get("daemonEndpoints") or {}
    port: int = (endpoints.get("kubeletEndpoint") or {}).get("Port", 0)
    return port


def _condition(old: Obj | None, wanted: tuple[str, str, str, str], stamp: str) -> Obj:
    kind, value, reason, message = wanted
    since = old.get("lastTransitionTime", stamp) if old is not None and old["status"] == value else stamp
    return {
        "type": kind, "status": value, "lastHeartbeatTime": stamp, "lastTransitionTime": since, "reason": reason,
        "message": message,
    }  # fmt: skip
