"""Helpers of the workload tests: objects of each kind, and short calls of kubectl."""

from __future__ import annotations

import json
from typing import Any

from tests.clients.conftest import Kubectl

WITHIN = "--timeout=30s"

_API = {"job": "batch/v1", "replicationcontroller": "v1"}
_KIND = {
    "deployment": "Deployment", "replicaset": "ReplicaSet", "statefulset": "StatefulSet", "daemonset": "DaemonSet",
    "replicationcontroller": "ReplicationController", "job": "Job",
}  # fmt: skip


def names(kubectl: Kubectl, *query: str) -> list[str]:
    return kubectl("get", *query, "-o", "name").split()


def read(kubectl: Kubectl, what: str, path: str) -> str:
    return kubectl("get", what, "-o", f"jsonpath={{{path}}}")


def pods(kubectl: Kubectl, label: str) -> list[str]:
    return names(kubectl, "pods", "-l", label)


def create(kubectl: Kubectl, *objects: dict[str, Any]) -> None:
    for each in objects:
        kubectl("create", "-f", "-", stdin=json.dumps(each))


def create_web(kubectl: Kubectl, replicas: int = 2) -> None:
    """A Deployment, rolled out."""
    kubectl("create", "deployment", "web", "--image=nginx:1", f"--replicas={replicas}")
    rolled_out(kubectl)


def rolled_out(kubectl: Kubectl, what: str = "deploy/web") -> str:
    return kubectl("rollout", "status", what, WITHIN)


def workload(kind: str, name: str = "web", **annotations: str) -> dict[str, Any]:
    """An object of the kind with two pods, where it is for the object to say. ``annotations`` are what its simulated
    pods do: ``run_seconds="0"``."""
    labels = {"app": name}
    told = {f"simulated.shoal.dev/{key.replace('_', '-')}": value for key, value in annotations.items()}
    template: dict[str, Any] = {
        "metadata": {"labels": labels, "annotations": told},
        "spec": {"containers": [{"name": name, "image": "i:1"}]},
    }
    spec: dict[str, Any] = {"template": template}
    if kind == "job":
        template["spec"]["restartPolicy"] = "Never"
    elif kind == "replicationcontroller":
        spec |= {"selector": labels, "replicas": 2}
    elif kind == "daemonset":
        spec |= {"selector": {"matchLabels": labels}}
    else:
        spec |= {"selector": {"matchLabels": labels}, "replicas": 2}
    return {"apiVersion": _API.get(kind, "apps/v1"), "kind": _KIND[kind], "metadata": {"name": name}, "spec": spec}
