"""Nodes with their pods. A ``NodeInfo`` is updated in place: with the node itself, or by adding and removing pods."""

from __future__ import annotations

from collections.abc import Iterable

from shoal.kube.objects import Obj
from shoal.scheduler.amounts import CPU, MEMORY, STORAGE, amounts
from shoal.scheduler.shapes import PodInfo, PodShape, Port

_ANY_ADDRESS = "0.0.0.0"


class NodeInfo:
    """One node and the pods on it. Without ``obj`` the node does not exist, but pods name it."""

    __slots__ = (
        "cpu", "disks", "generation", "images", "labels", "max_pods", "memory", "name", "obj",
        "object_generation", "others", "pods", "ports", "slot", "storage", "taints", "unschedulable", "used_cpu",
        "used_memory", "used_others", "used_scored_cpu", "used_scored_memory", "used_storage",
    )  # fmt: skip

    def __init__(self, name: str, slot: int) -> None:
        self.name = name
        self.slot = slot
        self.obj: Obj | None = None
        self.generation = 0  # generation of the last change of node or pods
        self.object_generation = 0  # generation of the last change of the node itself
        self.labels: dict[str, str] = {}
        self.taints: list[Obj] = []
        self.unschedulable = False
        self.images: dict[str, int] = {}  # name -> size
        self.cpu = self.memory = self.storage = self.max_pods = 0
        self.others: dict[str, int] = {}
        self.used_cpu = self.used_memory = self.used_storage = 0
        self.used_scored_cpu = self.used_scored_memory = 0
        self.used_others: dict[str, int] = {}
        self.pods: dict[str, PodInfo] = {}  # by uid
        self.ports: dict[Port, int] = {}  # number of pods with it: two while one of them is terminating
        self.disks: dict[str, list[bool]] = {}  # identity -> whether each use is read-only

    def set(self, obj: Obj) -> None:
        """Take the current node object."""
        spec, status = obj.get("spec") or {}, obj.get("status") or {}
        self.obj = obj
        self.labels = obj["metadata"].get("labels") or {}
        self.taints = spec.get("taints") or []
        self.unschedulable = bool(spec.get("unschedulable"))
        has = amounts(status.get("allocatable"))
        self.cpu, self.memory = has.pop(CPU, 0), has.pop(MEMORY, 0)
        self.storage, self.max_pods = has.pop(STORAGE, 0), has.pop("pods", 0)
        self.others = has
        self.images = {
            name: int(image.get("sizeBytes") or 0)
            for image in status.get("images") or ()
            for name in image.get("names") or ()
        }

    def gone(self) -> None:
        """The node was deleted; pods that name it stay until they are deleted."""
        self.obj = None
        self.labels, self.taints, self.images = {}, [], {}

    def add(self, pod: PodInfo) -> None:
        self.pods[pod.uid] = pod
        self._count(pod.shape, 1)

    def remove(self, pod: PodInfo) -> None:
        del self.pods[pod.uid]
        self._count(pod.shape, -1)

    def trial(self) -> NodeInfo:
        """A copy for trials: pods can be added and removed without effect on this node."""
        copy = NodeInfo(self.name, self.slot)
        for name in NodeInfo.__slots__:
            setattr(copy, name, getattr(self, name))
        copy.used_others = dict(self.used_others)
        copy.pods = dict(self.pods)
        copy.ports = dict(self.ports)
        copy.disks = {disk: list(uses) for disk, uses in self.disks.items()}
        return copy

    def _count(self, shape: PodShape, sign: int) -> None:
        wanted = shape.requests
        self.used_cpu += sign * wanted.cpu
        self.used_memory += sign * wanted.memory
        self.used_storage += sign * wanted.storage
        self.used_scored_cpu += sign * wanted.scored_cpu
        self.used_scored_memory += sign * wanted.scored_memory
        if wanted.others:
            used = self.used_others
            for name, amount in wanted.others.items():
                used[name] = used.get(name, 0) + sign * amount
        for port in shape.ports:
            _count(self.ports, port, sign)
        for disk, read_only in shape.disks:
            uses = self.disks.setdefault(disk, [])
            uses.append(read_only) if sign > 0 else uses.remove(read_only)
            if not uses:
                del self.disks[disk]


def _count(counts: dict[Port, int], port: Port, sign: int) -> None:
    left = counts.get(port, 0) + sign
    if left:
        counts[port] = left
    else:
        del counts[port]


def ports_conflict(wanted: Iterable[Port], used: Iterable[Port]) -> bool:
    """Whether a requested port is in use; 0.0.0.0 conflicts with every address."""
    taken: dict[tuple[str, int], set[str]] = {}
    for address, protocol, port in used:
        taken.setdefault((protocol, port), set()).add(address)
    for address, protocol, port in wanted:
        addresses = taken.get((protocol, port))
        if addresses and (address == _ANY_ADDRESS or address in addresses or _ANY_ADDRESS in addresses):
            return True
    return False
