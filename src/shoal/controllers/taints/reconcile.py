"""Deletes a pod when its toleration of a node's taints ends. Keys are pods; a change of taints enqueues the node's
pods."""

from __future__ import annotations

from collections.abc import Iterable

from shoal.client import PatchType
from shoal.controllers.context import ControllerContext
from shoal.controllers.podindex import BY_NODE
from shoal.controllers.taints.plan import STAYS, driving_taints, leaves_at
from shoal.errors import Conflict, NotFound
from shoal.kube.objects import Obj
from shoal.kube.times import format_time
from shoal.reconcile import DONE, Cache, Change, EventType, ObjectKey, Result
from shoal.reconcile.keys import key_of


class Evictor:
    def __init__(self, context: ControllerContext, nodes: Cache, pods: Cache) -> None:
        self._context = context
        self._nodes, self._pods = nodes, pods
        self._resource = context.resource("pods")
        self._leaving: set[ObjectKey] = set()  # pods with a scheduled eviction

    def concerns(self, change: Change) -> bool:
        """Whether a change of a pod can start or cancel an eviction: most nodes have no NoExecute taints, and later
        taints are handled with the node."""
        if change.key in self._leaving:
            return True
        if change.new is None:
            return False
        node = self._nodes.get(ObjectKey("", change.new["spec"].get("nodeName") or ""))
        return node is not None and bool(driving_taints(node))

    def pods_of(self, node: Obj) -> Iterable[ObjectKey]:
        return [key_of(pod) for pod in self._pods.by_index(BY_NODE, node["metadata"]["name"])]

    async def reconcile(self, key: ObjectKey) -> Result:
        pod = self._pods.get(key)
        if pod is None or pod["metadata"].get("deletionTimestamp"):
            self._leaving.discard(key)
            return DONE
        node = self._nodes.get(ObjectKey("", pod["spec"].get("nodeName") or ""))
        taints = driving_taints(node) if node is not None else []
        end = leaves_at(pod, taints) if taints else STAYS
        if end == STAYS:
            self._stays(key, pod)
            return DONE
        left_s = end - self._context.clock.wall_s()
        if left_s > 0:
            self._leaving.add(key)
            return Result(after_s=left_s)
        await self._evict(key, pod)
        return DONE

    def _stays(self, key: ObjectKey, pod: Obj) -> None:
        if key in self._leaving:
            self._leaving.discard(key)
            self._context.events.record(
                pod, EventType.NORMAL, "TaintManagerEviction", f"Cancelling deletion of Pod {key}"
            )

    async def _evict(self, key: ObjectKey, pod: Obj) -> None:
        self._leaving.discard(key)
        self._context.events.record(pod, EventType.NORMAL, "TaintManagerEviction", f"Marking for deletion Pod {key}")
        uid = pod["metadata"]["uid"]
        condition = {
            "type": "DisruptionTarget", "status": "True", "reason": "DeletionByTaintManager",
            "message": "Taint manager: deleting due to NoExecute taint",
            "lastTransitionTime": format_time(self._context.clock.wall_s()),
        }  # fmt: skip
        patch = {"metadata": {"uid": uid}, "status": {"conditions": [condition]}}
        try:
            await self._resource.patch(key.name, patch, key.namespace, type=PatchType.STRATEGIC, subresource="status")
            await self._resource.delete(key.name, key.namespace, uid=uid)
        except (NotFound, Conflict):
            return  # already deleted, or another pod has its name


def taints_changed(change: Change) -> bool:
    if change.new is None:
        return False
    before = driving_taints(change.old) if change.old is not None else []
    return before != driving_taints(change.new)
