"""Small objects for the scheduler's tests."""

from __future__ import annotations

from typing import Any

from shoal.kube.objects import Obj

ZONE = "topology.kubernetes.io/zone"
HOSTNAME = "kubernetes.io/hostname"


def a_node(name: str, *, zone: str = "", cpu: str = "4", memory: str = "8Gi", pods: str = "110", **extra: Any) -> Obj:
    labels = {HOSTNAME: name} | ({ZONE: zone} if zone else {}) | extra.pop("labels", {})
    others = extra.pop("others", {})
    images = [{"names": [image], "sizeBytes": size} for image, size in extra.pop("images", {}).items()]
    return {
        "metadata": {"name": name, "labels": labels},
        "spec": extra,
        "status": {"allocatable": {"cpu": cpu, "memory": memory, "pods": pods, **others}, "images": images},
    }


def a_pod(name: str, *, cpu: str = "", memory: str = "", namespace: str = "default", **extra: Any) -> Obj:
    """``extra`` goes into the spec, but for labels, owner, ports, others, image, node, start and nominated."""
    requests = {key: value for key, value in (("cpu", cpu), ("memory", memory)) if value} | extra.pop("others", {})
    container: Obj = {
        "name": "c",
        "image": extra.pop("image", "example.com/app:1"),
        "resources": {"requests": requests},
    }
    if ports := extra.pop("ports", None):
        container["ports"] = ports
    about: Obj = {
        "name": name,
        "namespace": namespace,
        "uid": f"uid-{namespace}-{name}",
        "labels": extra.pop("labels", {}),
    }
    if owner := extra.pop("owner", None):
        about["ownerReferences"] = [
            {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": owner, "uid": owner, "controller": True}
        ]
    status: Obj = {"phase": "Pending"}
    for field, key in (("start", "startTime"), ("nominated", "nominatedNodeName")):
        if value := extra.pop(field, None):
            status[key] = value
    if node := extra.pop("node", None):
        extra["nodeName"] = node
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": about,
        "spec": {"containers": [container], "schedulerName": "default-scheduler", **extra},
        "status": status,
    }


def a_term(key: str, **labels: str) -> Obj:
    return {"topologyKey": key, "labelSelector": {"matchLabels": labels}}


def a_constraint(key: str, skew: int = 1, *, hard: bool = True, **labels: str) -> Obj:
    return {
        "topologyKey": key,
        "maxSkew": skew,
        "whenUnsatisfiable": "DoNotSchedule" if hard else "ScheduleAnyway",
        "labelSelector": {"matchLabels": labels},
    }
