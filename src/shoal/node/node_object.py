"""The Node object that a node reports."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from shoal.kube.objects import Obj
from shoal.kube.times import format_time
from shoal.node.config import NodeConfig, Taint
from shoal.node.resources import minus
from shoal.node.runtime.model import Image, RuntimeInfo

_IMAGES = 50
_DEFAULT_CPU, _DEFAULT_MEMORY, _DEFAULT_DISK = "4", "8Gi", "50Gi"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeConditions:
    """The health of the node as far as its agent knows."""

    runtime_fault: str = ""  # error of the runtime; empty if it works
    pressures: frozenset[str] = frozenset()  # MemoryPressure, DiskPressure, PIDPressure


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineInfo:
    """Identity of the machine."""

    machine_id: str
    boot_id: str


_CALM = {
    "MemoryPressure": ("KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
    "DiskPressure": ("KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
    "PIDPressure": ("KubeletHasSufficientPID", "kubelet has sufficient PID available"),
}
_PRESSED = {
    "MemoryPressure": ("KubeletHasInsufficientMemory", "kubelet has insufficient memory available"),
    "DiskPressure": ("KubeletHasDiskPressure", "kubelet has disk pressure"),
    "PIDPressure": ("KubeletHasInsufficientPID", "kubelet has insufficient PID available"),
}


def capacity(config: NodeConfig, info: RuntimeInfo) -> dict[str, str]:
    return {
        "cpu": config.cpu or _cpu(info.cpu_milli),
        "memory": config.memory or _size(info.memory_bytes, _DEFAULT_MEMORY),
        "ephemeral-storage": config.disk or _size(info.disk_bytes, _DEFAULT_DISK),
        "pods": str(config.pods),
    }


def allocatable(config: NodeConfig, info: RuntimeInfo) -> dict[str, str]:
    """Capacity less the reserved part."""
    found = capacity(config, info)
    found["cpu"] = minus(found["cpu"], config.reserved_cpu)
    found["memory"] = minus(found["memory"], config.reserved_memory)
    return found


def _cpu(milli: int) -> str:
    if not milli:
        return _DEFAULT_CPU
    return str(milli // 1000) if milli % 1000 == 0 else f"{milli}m"


def _size(count: int, otherwise: str) -> str:
    return f"{count // 1024}Ki" if count else otherwise


def new_node(config: NodeConfig, info: RuntimeInfo, status: Obj) -> Obj:
    """The Node object for registration."""
    architecture = info.architecture or "amd64"
    labels = {
        "kubernetes.io/hostname": config.name, "kubernetes.io/os": "linux", "kubernetes.io/arch": architecture,
        "beta.kubernetes.io/os": "linux", "beta.kubernetes.io/arch": architecture, **dict(config.labels),
    }  # fmt: skip
    annotations = {"volumes.kubernetes.io/controller-managed-attach-detach": "true", **dict(config.annotations)}
    spec: Obj = {}
    if config.taints:
        spec["taints"] = [taint_object(each) for each in config.taints]
    if config.provider_id:
        spec["providerID"] = config.provider_id
    if config.pod_cidr:
        spec |= {"podCIDR": config.pod_cidr, "podCIDRs": [config.pod_cidr]}
    about = {"name": config.name, "labels": labels, "annotations": annotations}
    return {"apiVersion": "v1", "kind": "Node", "metadata": about, "spec": spec, "status": status}


def taint_object(taint: Taint) -> Obj:
    return {"key": taint.key, "effect": taint.effect} | ({"value": taint.value} if taint.value else {})


def node_status(
    old: Obj,
    config: NodeConfig,
    info: RuntimeInfo,
    machine: MachineInfo,
    condition: NodeConditions,
    images: Iterable[Image],
    *,
    version: str,
    now: float,
) -> Obj:
    """The whole status; fields of other owners stay."""
    return {
        **old,
        "capacity": {**(old.get("capacity") or {}), **capacity(config, info)},
        "allocatable": {**(old.get("allocatable") or {}), **allocatable(config, info)},
        "conditions": _conditions(old.get("conditions") or (), condition, now),
        "addresses": [
            *({"type": "InternalIP", "address": each} for each in config.addresses),
            {"type": "Hostname", "address": config.name},
        ],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": config.port}},
        "nodeInfo": {
            "machineID": machine.machine_id, "systemUUID": machine.machine_id, "bootID": machine.boot_id,
            "kernelVersion": info.kernel, "osImage": info.os_image or "Shoal",
            "containerRuntimeVersion": f"{info.name}://{info.version}", "kubeletVersion": version,
            "kubeProxyVersion": "", "operatingSystem": "linux", "architecture": info.architecture or "amd64",
        },
        "images": _images(images),
    }  # fmt: skip


def _images(images: Iterable[Image]) -> list[Obj]:
    largest = sorted(images, key=lambda each: (-each.size_bytes, each.id))[:_IMAGES]
    return [{"names": list(each.names), "sizeBytes": each.size_bytes} for each in largest]


def _conditions(old: Iterable[Obj], condition: NodeConditions, now: float) -> list[Obj]:
    before = {each["type"]: each for each in old}
    wanted = {}
    for kind, calm in _CALM.items():
        pressed = kind in condition.pressures
        wanted[kind] = ("True" if pressed else "False", *(_PRESSED[kind] if pressed else calm))
    if condition.runtime_fault:
        wanted["Ready"] = ("False", "KubeletNotReady", f"container runtime is down: {condition.runtime_fault}")
    else:
        wanted["Ready"] = ("True", "KubeletReady", "kubelet is posting ready status")
    stamp = format_time(now)
    ours = []
    for kind, (status, reason, message) in wanted.items():
        known = before.pop(kind, None)
        since = known.get("lastTransitionTime", stamp) if known is not None and known["status"] == status else stamp
        ours.append(
            {
                "type": kind,
                "status": status,
                "lastHeartbeatTime": stamp,
                "lastTransitionTime": since,
                "reason": reason,
                "message": message,
            }  # fmt: skip
        )
    return [*before.values(), *ours]


def same_but_heartbeat(one: Obj, other: Obj) -> bool:
    """Whether two statuses differ only in their timestamps."""
    return _without_heartbeat(one) == _without_heartbeat(other)


def _without_heartbeat(status: Obj) -> Obj:
    conditions = [{**each, "lastHeartbeatTime": ""} for each in status.get("conditions") or ()]
    return {**status, "conditions": conditions}
