"""A round every twenty seconds over all pods."""

from __future__ import annotations

import asyncio

from shoal.client import PatchType
from shoal.controllers.context import ControllerContext
from shoal.controllers.podgc.plan import (
    PERIOD_S,
    TERMINATED_LIMIT,
    Removal,
    due_nodes,
    is_finished,
    missing_nodes,
    orphaned,
    stuck_out_of_service,
    surplus,
    unscheduled_ending,
)
from shoal.controllers.podindex import BY_NODE
from shoal.errors import Conflict, NotFound
from shoal.kube.times import format_time
from shoal.reconcile import Cache

_AT_ONCE = 20


class PodCollector:
    def __init__(self, context: ControllerContext, nodes: Cache, pods: Cache, *, limit: int = TERMINATED_LIMIT) -> None:
        self._context = context
        self._nodes, self._pods = nodes, pods
        self._limit = limit
        self._missing: dict[str, float] = {}
        self._pod_client, self._node_client = context.resource("pods"), context.resource("nodes")

    async def step(self) -> float:
        pods = tuple(self._pods)
        nodes = {node["metadata"]["name"]: node for node in self._nodes}
        ending = [pod for pod in pods if pod["metadata"].get("deletionTimestamp")]
        removals = surplus(pods, self._limit) + unscheduled_ending(ending) + stuck_out_of_service(ending, nodes)
        now_s = self._context.clock.monotonic()
        names = {pod["spec"].get("nodeName") or "" for pod in pods}
        self._missing = missing_nodes(names, nodes, self._missing, now_s)
        for name in due_nodes(self._missing, now_s):
            if await self._is_gone(name):
                removals += orphaned(self._pods.by_index(BY_NODE, name))
        wanted = list({removal.pod["metadata"]["uid"]: removal for removal in removals}.values())
        for start in range(0, len(wanted), _AT_ONCE):
            await asyncio.gather(*(self._remove(each) for each in wanted[start : start + _AT_ONCE]))
        return PERIOD_S

    async def _is_gone(self, node: str) -> bool:
        """Verify with the server, because a forced deletion cannot be undone."""
        try:
            await self._node_client.get(node)
        except NotFound:
            return True
        return False

    async def _remove(self, removal: Removal) -> None:
        about = removal.pod["metadata"]
        name, namespace, uid = about["name"], about["namespace"], about["uid"]
        try:
            if removal.why and not is_finished(removal.pod):
                await self._pod_client.patch(
                    name, self._failed(uid, removal.why), namespace, type=PatchType.STRATEGIC, subresource="status"
                )
            await self._pod_client.delete(name, namespace, grace_period_s=0, uid=uid)
        except (NotFound, Conflict):
            return  # already deleted, or another pod has its name

    def _failed(self, uid: str, why: str) -> dict[str, object]:
        condition = {
            "type": "DisruptionTarget", "status": "True", "reason": "DeletionByPodGC", "message": why,
            "lastTransitionTime": format_time(self._context.clock.wall_s()),
        }  # fmt: skip
        return {"metadata": {"uid": uid}, "status": {"phase": "Failed", "conditions": [condition]}}
