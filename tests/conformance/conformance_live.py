"""Helpers for tests on a cluster with controllers, a scheduler and simulated nodes: pods that fail or exit as a test
says, and waiting for the controllers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from conformance_api import Api, Resource, unique

from shoal.kube.objects import Obj
from shoal.testing.waiting import eventually_blocking

SETTLE_S = 30.0  # how long controllers may take on a busy machine
GATE = "example.com/healthy"  # a readiness gate that a test opens and closes, as a probe would


def settles(check: Callable[[], Any]) -> Any:
    """Wait until ``check`` returns something true, and return it."""
    return eventually_blocking(check, timeout_s=SETTLE_S)


def course(**wanted: object) -> dict[str, str]:
    """Annotations that say what becomes of a simulated pod: ``course(run_seconds=0, exit_code=1)``."""
    return {f"simulated.shoal.dev/{name.replace('_', '-')}": str(value) for name, value in wanted.items()}


def with_course(workload: Obj, **wanted: object) -> Obj:
    """The workload, with pods that take this course."""
    template = workload["spec"]["template"]
    about = template.get("metadata", {})
    annotations = {**about.get("annotations", {}), **course(**wanted)}
    changed = {**template, "metadata": {**about, "annotations": annotations}}
    return {**workload, "spec": {**workload["spec"], "template": changed}}


def conditions(obj: Obj) -> dict[str, str]:
    return {each["type"]: each["status"] for each in obj.get("status", {}).get("conditions", ())}


def reason(obj: Obj, kind: str) -> str:
    """Of the condition of this type."""
    found = [each.get("reason", "") for each in obj["status"]["conditions"] if each["type"] == kind]
    return str(found[0])


def is_ready(pod: Obj) -> bool:
    return conditions(pod).get("Ready") == "True" and "deletionTimestamp" not in pod["metadata"]


def name_of(obj: Obj) -> str:
    return str(obj["metadata"]["name"])


def image_of(pod: Obj) -> str:
    return str(pod["spec"]["containers"][0]["image"])


def controller_of(obj: Obj) -> Obj | None:
    owners = [each for each in obj["metadata"].get("ownerReferences", ()) if each.get("controller")]
    return owners[0] if owners else None


def find(resource: Resource, name: str) -> Obj | None:
    """The object, if there is one at the moment."""
    return next(iter(resource.items(fields=f"metadata.name={name}")), None)


def ready_pods(pods: Resource, count: int, selector: str = "") -> list[Obj]:
    """The pods of a selector once there are exactly so many, all of them ready."""

    def check() -> list[Obj] | bool:
        found = pods.items(selector)
        return len(found) == count and all(is_ready(each) for each in found) and (found or True)

    found: list[Obj] = settles(check)
    return found if count else []


def observed(resource: Resource, name: str, wanted: Callable[[Obj], object]) -> Obj:
    """The object once its controller has seen all of it and its status is as wanted."""

    def check() -> Obj | None:
        obj = resource.get(name)
        seen = obj.get("status", {}).get("observedGeneration", 0) >= obj["metadata"].get("generation", 0)
        return obj if seen and wanted(obj["status"]) else None

    found: Obj = settles(check)
    return found


def set_health(pods: Resource, name: str, healthy: bool) -> None:
    """Open or close the readiness gate of a pod."""
    condition = {"type": GATE, "status": str(healthy)}
    pods.patch(name, {"status": {"conditions": [condition]}}, "strategic", "status")


def bound(pods: Resource, name: str) -> Obj:
    """The pod once it has a node."""

    def check() -> Obj | None:
        pod = pods.get(name)
        return pod if pod["spec"].get("nodeName") else None

    found: Obj = settles(check)
    return found


def unschedulable(pods: Resource, name: str) -> Obj:
    """The pod once the scheduler has said that no node will do."""

    def check() -> Obj | None:
        pod = pods.get(name)
        assert not pod["spec"].get("nodeName"), f"{name} was bound to {pod['spec']['nodeName']}"
        refused = conditions(pod).get("PodScheduled") == "False" and reason(pod, "PodScheduled") == "Unschedulable"
        return pod if refused else None

    found: Obj = settles(check)
    return found


def tainted(node: Obj) -> bool:
    return bool(node.get("spec", {}).get("taints"))


def nodes(api: Api) -> list[str]:
    """The nodes of the cluster that all pods may use."""
    return [name_of(node) for node in api.of("v1", "nodes").items() if not tainted(node)]


@contextmanager
def own_node(api: Api, **resources: str) -> Iterator[str]:
    """A further simulated node, with extended resources that no other test requests."""
    name, all_nodes = unique("node"), api.of("v1", "nodes")
    amounts = {"cpu": "4", "memory": "8Gi", "pods": "20", "ephemeral-storage": "20Gi"}
    amounts.update({f"example.com/{kind}": amount for kind, amount in resources.items()})
    labels = {"node.shoal.dev/runtime": "simulated", "kubernetes.io/hostname": name}
    status = {"capacity": amounts, "allocatable": amounts}
    all_nodes.create({"metadata": {"name": name, "labels": labels}, "status": status})
    settles(lambda: is_ready(all_nodes.get(name)) and not tainted(all_nodes.get(name)))
    try:
        yield name
    finally:
        for each in api.of("v1", "pods").items(fields=f"spec.nodeName={name}"):
            api.of("v1", "pods", each["metadata"]["namespace"]).delete(name_of(each), gracePeriodSeconds=0)
        all_nodes.delete(name)


def on_node(name: str) -> Obj:
    """The part of a pod's spec that asks for this node, through the scheduler."""
    return {"nodeSelector": {"kubernetes.io/hostname": name}}


def asking(resource: str, amount: object) -> Obj:
    """A container's resources."""
    amounts = {resource if resource == "cpu" else f"example.com/{resource}": str(amount)}
    return {"requests": amounts, "limits": amounts}
