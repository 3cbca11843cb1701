"""Builders of workloads, pods and nodes for tests: ``deployment("web", 3)`` as a user writes it, ``stored(...)`` and
``pod(...)`` as a server returns it."""

from __future__ import annotations

from itertools import count
from typing import Any

from shoal.kube.objects import Obj
from shoal.kube.times import format_time

_NUMBERS = count(1)
NOW = 1_700_000_000.0


def template(app: str = "web", image: str = "app:1", **spec: Any) -> Obj:
    return {"metadata": {"labels": {"app": app}}, "spec": {"containers": [{"name": "main", "image": image}], **spec}}


def _workload(kind: str, name: str, spec: Obj, about: Obj | None) -> Obj:
    made = {"selector": {"matchLabels": {"app": name}}, "template": template(name), **spec}
    metadata = {"name": name, "namespace": "default", **(about or {})}
    return {"apiVersion": "apps/v1", "kind": kind, "metadata": metadata, "spec": made}


def deployment(name: str = "web", replicas: int = 1, *, about: Obj | None = None, **spec: Any) -> Obj:
    return _workload("Deployment", name, {"replicas": replicas, **spec}, about)


def replica_set(name: str = "web", replicas: int = 1, *, about: Obj | None = None, **spec: Any) -> Obj:
    return _workload("ReplicaSet", name, {"replicas": replicas, **spec}, about)


def stateful_set(name: str = "web", replicas: int = 1, *, about: Obj | None = None, **spec: Any) -> Obj:
    return _workload("StatefulSet", name, {"replicas": replicas, "serviceName": name, **spec}, about)


def daemon_set(name: str = "web", *, about: Obj | None = None, **spec: Any) -> Obj:
    return _workload("DaemonSet", name, spec, about)


def replication_controller(name: str = "web", replicas: int = 1, **spec: Any) -> Obj:
    made = {"replicas": replicas, "selector": {"app": name}, "template": template(name), **spec}
    about = {"name": name, "namespace": "default"}
    return {"apiVersion": "v1", "kind": "ReplicationController", "metadata": about, "spec": made}


def node(name: str, labels: Obj | None = None, taints: list[Obj] | None = None) -> Obj:
    spec = {"taints": taints} if taints else {}
    about = {"name": name, "labels": {"kubernetes.io/hostname": name, **(labels or {})}}
    return {"apiVersion": "v1", "kind": "Node", "metadata": about, "spec": spec}


def stored(obj: Obj, *, created_at: float = NOW, uid: str = "", **status: Any) -> Obj:
    """The object as a server returns it: with uid, resourceVersion and times."""
    number = next(_NUMBERS)
    about = {
        "uid": uid or f"uid-{number:06}", "resourceVersion": str(number), "generation": 1,
        "creationTimestamp": format_time(created_at), **obj["metadata"],
    }  # fmt: skip
    found = {**obj, "metadata": about}
    return {**found, "status": {**(obj.get("status") or {}), **status}} if status else found


def pod(
    name: str = "",
    *,
    owner: Obj | None = None,
    phase: str = "Running",
    ready: bool = True,
    ready_at: float = NOW,
    node: str = "node-1",
    labels: Obj | None = None,
    annotations: Obj | None = None,
    restarts: int = 0,
    created_at: float = NOW,
    deleting: bool = False,
    uid: str = "",
) -> Obj:
    """A pod as a server returns it."""
    number = next(_NUMBERS)
    about: Obj = {
        "name": name or f"pod-{number}", "namespace": "default", "uid": uid or f"uid-{number:06}",
        "resourceVersion": str(number), "creationTimestamp": format_time(created_at),
        "labels": labels if labels is not None else {"app": "web"},
    }  # fmt: skip
    if annotations:
        about["annotations"] = annotations
    if owner is not None:
        about["ownerReferences"] = [reference(owner)]
    if deleting:
        about["deletionTimestamp"] = format_time(created_at)
    spec: Obj = {"containers": [{"name": "main", "image": "app:1"}]}
    if node:
        spec["nodeName"] = node
    condition = {"type": "Ready", "status": "True" if ready else "False", "lastTransitionTime": format_time(ready_at)}
    status = {
        "phase": phase, "conditions": [condition], "containerStatuses": [{"name": "main", "restartCount": restarts}],
    }  # fmt: skip
    return {"apiVersion": "v1", "kind": "Pod", "metadata": about, "spec": spec, "status": status}


def reference(owner: Obj, *, controller: bool = True) -> Obj:
    about = owner["metadata"]
    return {
        "apiVersion": owner["apiVersion"], "kind": owner["kind"], "name": about["name"], "uid": about["uid"],
        "controller": controller, "blockOwnerDeletion": True,
    }  # fmt: skip
