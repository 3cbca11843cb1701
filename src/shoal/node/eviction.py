"""Selects pods to evict when a node is short of memory or disk.

The order is that of Kubernetes: pods above their requests first, then by priority, then by excess over the requests.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from shoal.kube.objects import Obj
from shoal.kube.quantity import Format, Quantity
from shoal.node.pod_failure import PodFailure
from shoal.node.resources import total_requests

_CRITICAL = 2_000_000_000  # pods of this priority are never evicted


@dataclass(frozen=True, slots=True)
class Pressure:
    """A resource that the node is short of."""

    resource: str  # memory, ephemeral-storage
    threshold_bytes: int
    available_bytes: int

    @property
    def condition(self) -> str:
        return "MemoryPressure" if self.resource == "memory" else "DiskPressure"


@dataclass(frozen=True, slots=True)
class PodUse:
    """Usage of each resource by a pod and its containers, in bytes."""

    pod: Obj
    total: Mapping[str, int]
    containers: Mapping[str, Mapping[str, int]]  # by container


def victim(pressure: Pressure, pods: Iterable[PodUse]) -> PodUse | None:
    """The pod to evict first."""
    candidates = [each for each in pods if (each.pod["spec"].get("priority") or 0) < _CRITICAL]
    return min(candidates, key=lambda each: _rank(pressure.resource, each), default=None)


def _rank(resource: str, use: PodUse) -> tuple[int, int, int]:
    excess = use.total.get(resource, 0) - total_requests(use.pod).get(resource, 0)
    return (0 if excess > 0 else 1), use.pod["spec"].get("priority") or 0, -excess


def eviction_failure(pressure: Pressure, use: PodUse) -> PodFailure:
    """The pod's status after its eviction."""
    text = (
        f"The node was low on resource: {pressure.resource}. Threshold quantity: {_bytes(pressure.threshold_bytes)}, "
    )
    text += f"available: {_bytes(pressure.available_bytes)}. "
    for each in use.pod["spec"]["containers"]:
        used = use.containers.get(each["name"], {}).get(pressure.resource, 0)
        request = ((each.get("resources") or {}).get("requests") or {}).get(pressure.resource, "0")
        if used > total_requests({"spec": {"containers": [each]}}).get(pressure.resource, 0):
            text += f"Container {each['name']} was using {_bytes(used)}, request is {request}, "
            text += f"has larger consumption of {pressure.resource}. "
    condition = ("DisruptionTarget", "TerminationByKubelet", text)
    return PodFailure("Evicted", text, (condition,), grace_s=0.0)


def _bytes(count: int) -> str:
    return str(Quantity(count, 0, Format.BINARY_SI))
