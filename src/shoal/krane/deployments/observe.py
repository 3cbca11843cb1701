"""Sees what the cluster really runs of each deployment; implements ``Observer``.

Pods are watched themselves: a pod that crashes changes nothing in its Deployment. They are found by the labels of their
template, which are those of the Deployment.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from shoal.base.clock import Clock
from shoal.client import Client, Scope, builtin
from shoal.krane import labels
from shoal.krane.deployments.apply import KIND, PARTS
from shoal.krane.deployments.instances import instance, is_instance
from shoal.krane.model import Owner
from shoal.krane.objects.memory import Memory
from shoal.krane.objects.watching import Watched
from shoal.reconcile import ObjectKey
from shoal.wire.fleet.v1 import cluster_pb as pb

Obj = dict[str, Any]

_PODS, _NODES = builtin("pods"), builtin("nodes")
# Secrets are not watched: their values would all be in memory.
_WATCHED = tuple(kind for kind in PARTS if kind.kind != "Secret")


def only_labels(node: Obj) -> Obj:
    """A transform: of a node only its zone is asked for."""
    about = node["metadata"]
    kept = {name: about[name] for name in ("name", "uid", "resourceVersion", "labels") if name in about}
    return {"metadata": kept}


class DeploymentObserver:
    def __init__(
        self, client: Client, owner: Owner, memory: Memory, *, clock: Clock, random: Callable[[], float]
    ) -> None:
        self._make = partial(Watched, client, clock=clock, random=random)
        self._owner = owner
        self._memory = memory
        self._watched = self._make()

    async def run(self, changed: Callable[[str], None]) -> None:
        self._watched = watched = self._make()
        scope = Scope(label_selector=labels.selector(self._owner, KIND))
        watched.parts(_WATCHED, scope)
        watched.add(_PODS, scope)
        watched.add(_NODES, Scope(), only_labels)
        self._memory.caches = watched.caches
        await watched.run(changed)

    def report(self, key: str) -> pb.DeploymentReport | None:
        root = self._watched.first("Deployment", key, self._memory)
        if root is None:
            return None
        pods = sorted(self._watched.of("Pod", key), key=lambda pod: str(pod["metadata"]["name"]))
        here = root["metadata"]["namespace"]
        return pb.DeploymentReport(
            desired_replicas=root["spec"].get("replicas") or 0,
            available_replicas=(root.get("status") or {}).get("availableReplicas") or 0,
            instances=[
                instance(pod, self._node_labels(pod))
                for pod in pods
                if is_instance(pod) and pod["metadata"].get("namespace") == here
            ],
            drift=self._memory.drift(key),
            live_name=root["metadata"]["name"],
        )

    def keys(self) -> Iterable[str]:
        return self._watched.keys(("Deployment",))

    @property
    def synced(self) -> bool:
        return self._watched.synced

    def _node_labels(self, pod: Obj) -> dict[str, str]:
        name = (pod.get("spec") or {}).get("nodeName")
        node = self._watched.caches["Node"].get(ObjectKey("", name)) if name else None
        return (node["metadata"].get("labels") or {}) if node is not None else {}
