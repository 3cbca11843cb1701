"""Samples of kubelet statistics, and the usage between two samples as NodeMetrics and PodMetrics. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from shoal.kube.objects import Obj
from shoal.kube.quantity import Format, Quantity, parse
from shoal.kube.resources import Resource
from shoal.kube.tables.printer import NAME, Printer, column
from shoal.kube.times import format_duration, format_time

GROUP: Final = "metrics.k8s.io"
VERSION: Final = "v1beta1"
_READ: Final = ("get", "list")
NODES: Final = Resource(
    group=GROUP, version=VERSION, plural="nodes", kind="NodeMetrics", namespaced=False, verbs=_READ, stored=False,
    custom=True,
)  # fmt: skip
PODS: Final = Resource(
    group=GROUP, version=VERSION, plural="pods", kind="PodMetrics", verbs=_READ, stored=False, custom=True
)

_USAGE: Final = {
    "type": "object",
    "description": "Usage of each resource; for memory, the working set.",
    "additionalProperties": {"type": "string", "description": "A quantity."},
}
_INTERVAL: Final = {
    "timestamp": {"type": "string", "format": "date-time", "description": "The end of the measured interval."},
    "window": {"type": "string", "description": "The length of the measured interval."},
}
NODE_SCHEMA: Final = {
    "type": "object",
    "required": ["timestamp", "window", "usage"],
    "properties": {**_INTERVAL, "usage": _USAGE},
}
POD_SCHEMA: Final = {
    "type": "object",
    "required": ["timestamp", "window", "containers"],
    "properties": {
        **_INTERVAL,
        "containers": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["name", "usage"],
                "properties": {"name": {"type": "string"}, "usage": _USAGE},
            },
        },
    },
}

ContainerKey = tuple[str, str, str]  # namespace, pod, container


@dataclass(frozen=True, slots=True)
class ResourceUse:
    """Usage of a node or container at one moment. ``cpu_rate`` is the kubelet's own rate, in billionths of a core."""

    cpu_total_ns: int
    cpu_rate: int
    memory_bytes: int


@dataclass(frozen=True, slots=True)
class KubeletSample:
    """One reading of one kubelet."""

    at: float  # by this server's clock: kubelets' clocks may differ
    node: ResourceUse | None
    containers: Mapping[ContainerKey, ResourceUse]


def sample(summary: Mapping[str, Any], at: float) -> KubeletSample:
    """From the answer to ``/stats/summary``."""
    containers: dict[ContainerKey, ResourceUse] = {}
    for pod in summary.get("pods") or ():
        about = pod.get("podRef") or {}
        for container in pod.get("containers") or ():
            use = _use(container)
            if use is not None:
                containers[about.get("namespace", ""), about.get("name", ""), container.get("name", "")] = use
    return KubeletSample(at, _use(summary.get("node") or {}), containers)


def _use(stats: Mapping[str, Any]) -> ResourceUse | None:
    cpu, memory = stats.get("cpu") or {}, stats.get("memory") or {}
    if "usageCoreNanoSeconds" not in cpu and "usageNanoCores" not in cpu:
        return None
    used = memory.get("workingSetBytes", memory.get("usageBytes", 0))
    return ResourceUse(int(cpu.get("usageCoreNanoSeconds") or 0), int(cpu.get("usageNanoCores") or 0), int(used or 0))


@dataclass(frozen=True, slots=True)
class NodeReading:
    """The latest sample of a node and the one before."""

    last: KubeletSample
    before: KubeletSample | None = None

    @property
    def window_s(self) -> float:
        return self.last.at - self.before.at if self.before is not None else 0.0

    def node_usage(self) -> Obj | None:
        before = self.before.node if self.before is not None else None
        return None if self.last.node is None else self._usage(self.last.node, before)

    def pod_usage(self) -> dict[tuple[str, str], list[Obj]]:
        """The usage of each container of each pod."""
        found: dict[tuple[str, str], list[Obj]] = {}
        earlier = self.before.containers if self.before is not None else {}
        for key, use in self.last.containers.items():
            namespace, pod, name = key
            made = {"name": name, "usage": self._usage(use, earlier.get(key))}
            found.setdefault((namespace, pod), []).append(made)
        return found

    def _usage(self, last: ResourceUse, before: ResourceUse | None) -> Obj:
        rate = last.cpu_rate
        if before is not None and last.cpu_total_ns >= before.cpu_total_ns > 0 and self.window_s > 0:
            rate = int((last.cpu_total_ns - before.cpu_total_ns) / self.window_s)
        return {
            "cpu": str(Quantity(rate, -9, Format.DECIMAL_SI)),
            "memory": str(Quantity(last.memory_bytes, 0, Format.BINARY_SI)),
        }

    def stamps(self, default_s: float) -> Obj:
        window_s = self.window_s or default_s
        return {"timestamp": format_time(self.last.at), "window": format_duration(int(window_s * 1000) * 1_000_000)}


def metrics_object(
    resource: Resource, metadata: Mapping[str, Any], reading: NodeReading, default_s: float, content: Obj
) -> Obj:
    """An object of the API. ``metadata`` is that of the node or pod it is about."""
    about: Obj = {"name": metadata["name"]}
    if metadata.get("namespace"):
        about["namespace"] = metadata["namespace"]
    about["creationTimestamp"] = format_time(reading.last.at)
    if metadata.get("labels"):
        about["labels"] = metadata["labels"]
    stamps = reading.stamps(default_s)
    return {"kind": resource.kind, "apiVersion": resource.api_version, "metadata": about, **stamps, **content}


def _total(usages: Iterable[Obj], name: str) -> str:
    total = None
    for usage in usages:
        amount = parse(usage[name])
        total = amount if total is None else total + amount
    return str(total) if total is not None else "0"


def _cells(obj: Obj, now: float) -> list[Any]:
    usages = [each["usage"] for each in obj["containers"]] if "containers" in obj else [obj["usage"]]
    return [obj["metadata"]["name"], _total(usages, "cpu"), _total(usages, "memory"), obj["window"]]


PRINTER: Final = Printer(
    [
        NAME,
        column("cpu", "CPU usage, in cores."),
        column("memory", "Working set, in bytes."),
        column("Window", "The length of the measured interval."),
    ],
    _cells,
)
