"""Small valid objects that several tests start from."""

from __future__ import annotations

from typing import Any

from shoal.kube.objects import Obj

IMAGE = "registry.example.com/pause:1"
OTHER_IMAGE = "registry.example.com/pause:2"
WHEN = "2024-05-01T10:00:00Z"
LATER = "2024-05-01T11:00:00Z"


def pod_spec(**more: Any) -> Obj:
    return {"containers": [{"name": "main", "image": IMAGE}], **more}


def pod(name: str, labels: dict[str, str] | None = None, **spec: Any) -> Obj:
    return {"metadata": {"name": name, "labels": labels or {}}, "spec": pod_spec(**spec)}


def template(app: str) -> Obj:
    return {"metadata": {"labels": {"app": app}}, "spec": pod_spec()}


def workload(name: str, replicas: int | None = 1, **spec: Any) -> Obj:
    """A Deployment, ReplicaSet, StatefulSet or (without replicas) DaemonSet: they are spelled alike."""
    count = {} if replicas is None else {"replicas": replicas}
    return {
        "metadata": {"name": name, "labels": {"app": name}},
        "spec": {**count, "selector": {"matchLabels": {"app": name}}, "template": template(name), **spec},
    }


def statefulset(name: str, replicas: int = 1) -> Obj:
    return workload(name, replicas, serviceName="test")


def replication_controller(name: str, replicas: int = 1) -> Obj:
    return {
        "metadata": {"name": name, "labels": {"app": name}},
        "spec": {"replicas": replicas, "selector": {"app": name}, "template": template(name)},
    }


def job(name: str, **spec: Any) -> Obj:
    return {"metadata": {"name": name}, "spec": {"template": {"spec": pod_spec(restartPolicy="Never")}, **spec}}


def condition(kind: str, **more: Any) -> Obj:
    return {"type": kind, "status": "True", "reason": "Test", "message": f"set by {kind}", **more}
