"""Two loops: a round every few seconds checks the heartbeats of all nodes and decides on evictions; a controller keeps
each node's taints in line with its conditions and marks the pods of lost nodes as not ready."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

from shoal.base.logs import get_logger
from shoal.client import PatchType, TransportError
from shoal.controllers.context import ControllerContext
from shoal.controllers.nodelifecycle.config import NodeLifecycleConfig
from shoal.controllers.nodelifecycle.plan import (
    READY,
    NodeHealth,
    condition_of,
    condition_taints,
    eviction_taints,
    has_other_eviction_taint,
    is_evicting,
    is_lost,
    lost_conditions,
    observe,
    ready_status,
    taints_of,
    without_eviction_taints,
    zone_of,
)
from shoal.controllers.nodelifecycle.zones import Zones
from shoal.controllers.podindex import BY_NODE
from shoal.errors import ApiError, Conflict, NotFound
from shoal.kube.objects import Obj
from shoal.kube.times import format_time
from shoal.reconcile import DONE, Cache, Change, EventType, ObjectKey, Result

_AT_ONCE = 20  # concurrent writes of one round
_ATTEMPTS = 3

log = get_logger("controllers.nodelifecycle")


class NodeWriter:
    """Writes taints with the resourceVersion of the decision."""

    def __init__(self, context: ControllerContext) -> None:
        self._nodes = context.resource("nodes")

    async def set_taints(self, node: Obj, taints: list[Obj]) -> None:
        if taints == taints_of(node):
            return
        about = node["metadata"]
        guarded = {"uid": about["uid"], "resourceVersion": about["resourceVersion"]}
        await self._nodes.patch(about["name"], {"metadata": guarded, "spec": {"taints": taints or None}})


class NodeTaints:
    """Reconciles one node: taints that follow from conditions, readiness of its pods."""

    def __init__(self, context: ControllerContext, nodes: Cache, pods: Cache) -> None:
        self._context = context
        self._nodes, self._pods = nodes, pods
        self._writer = NodeWriter(context)
        self._resource = context.resource("pods")

    async def reconcile(self, key: ObjectKey) -> Result:
        node = self._nodes.get(key)
        if node is None:
            return DONE
        try:
            await self._writer.set_taints(node, condition_taints(node, self._context.clock.wall_s()))
        except NotFound:
            return DONE
        if ready_status(node) != "True" and condition_of(node, READY):
            await self._mark_pods(key.name)
        return DONE

    async def _mark_pods(self, node: str) -> None:
        pods = [pod for pod in self._pods.by_index(BY_NODE, node) if condition_of(pod, READY).get("status") == "True"]
        for start in range(0, len(pods), _AT_ONCE):
            await asyncio.gather(*(self._mark(pod) for pod in pods[start : start + _AT_ONCE]))

    async def _mark(self, pod: Obj) -> None:
        about = pod["metadata"]
        now = format_time(self._context.clock.wall_s())
        condition = {**condition_of(pod, READY), "status": "False", "lastTransitionTime": now}
        patch = {"metadata": {"uid": about["uid"]}, "status": {"conditions": [condition]}}
        try:
            await self._resource.patch(
                about["name"], patch, about["namespace"], type=PatchType.STRATEGIC, subresource="status"
            )
        except (NotFound, Conflict):
            return  # deleted, or another pod has its name
        self._context.events.record(pod, EventType.WARNING, "NodeNotReady", "Node is not ready")


def matters(change: Change) -> bool:
    """A predicate that ignores heartbeats, which change neither conditions nor taints."""
    old, new = change.old, change.new
    if old is None or new is None:
        return new is not None
    if old.get("spec") != new.get("spec"):
        return True
    before, after = ([(c["type"], c["status"]) for c in _conditions(each)] for each in (old, new))
    return before != after


def _conditions(node: Obj) -> list[Obj]:
    return (node.get("status") or {}).get("conditions") or []


class NodeMonitor:
    """Checks all nodes periodically."""

    def __init__(self, context: ControllerContext, nodes: Cache, leases: Cache, config: NodeLifecycleConfig) -> None:
        self._context = context
        self._nodes, self._leases = nodes, leases
        self._config = config
        self._signs: dict[str, NodeHealth] = {}
        self._view: dict[str, Obj] = {}  # the nodes of this round, including its own writes
        self._zones = Zones(config)
        self._resource = context.resource("nodes")
        self._writer = NodeWriter(context)
        self._next_s = context.clock.monotonic()  # time of the next check of all nodes

    async def step(self) -> float:
        """Check all nodes if it is time, start due evictions; return the delay until the next step."""
        clock = self._context.clock
        if clock.monotonic() >= self._next_s:
            self._next_s = clock.monotonic() + self._config.period_s
            await self._round()
        await self._drive_away()
        turn_s = self._zones.next_s(clock.monotonic())
        left_s = max(0.0, self._next_s - clock.monotonic())
        return left_s if turn_s is None else min(turn_s, left_s)

    async def _round(self) -> None:
        self._record_node_changes()
        self._view = {node["metadata"]["name"]: node for node in self._nodes}
        lost = [node for node in self._view.values() if self._is_newly_lost(node)]
        for start in range(0, len(lost), _AT_ONCE):
            await asyncio.gather(*(self._report_lost(node) for node in lost[start : start + _AT_ONCE]))
        await self._update_zones()

    def _record_node_changes(self) -> None:
        """Record events for added and deleted nodes."""
        names = {key.name for key in self._nodes.keys()}
        for name in self._signs.keys() - names:
            uid = self._signs.pop(name).uid
            self._event(name, uid, "RemovingNode", f"Node {name} event: Removing Node {name} from Controller")
        for name in names - self._signs.keys():
            node = self._nodes.get(ObjectKey("", name))
            if node is not None:
                message = f"Node {name} event: Registered Node {name} in Controller"
                self._event(name, node["metadata"]["uid"], "RegisteredNode", message)

    def _event(self, name: str, uid: str, reason: str, message: str) -> None:
        node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "uid": uid}}
        self._context.events.record(node, EventType.NORMAL, reason, message)

    def _is_newly_lost(self, node: Obj) -> bool:
        """Whether the node is newly lost: no heartbeat for too long, and its conditions do not show it yet."""
        name, now_s = node["metadata"]["name"], self._context.clock.wall_s()
        lease = self._leases.get(ObjectKey("kube-node-lease", name)) or {}
        renewed = (lease.get("spec") or {}).get("renewTime") or ""
        self._signs[name] = observe(self._signs.get(name), node, renewed, now_s)
        if not is_lost(self._signs[name], self._config, now_s):
            return False
        return lost_conditions(node, now_s) != _conditions(node)

    async def _report_lost(self, node: Obj) -> None:
        conditions = lost_conditions(node, self._context.clock.wall_s())
        status = {**(node.get("status") or {}), "conditions": conditions}
        was_ready = ready_status(node) == "True"
        try:
            written = await self._resource.replace_status({**node, "status": status})
        except (NotFound, Conflict):
            return  # it reported meanwhile or was deleted: the next round sees it
        except (ApiError, TransportError) as error:
            log.warning(
                "writing the conditions of a lost node failed", node=node["metadata"]["name"], reason=str(error)
            )
            return
        name, uid = node["metadata"]["name"], node["metadata"]["uid"]
        self._view[name] = written
        if was_ready:
            self._event(name, uid, "NodeNotReady", f"Node {name} status is now: NodeNotReady")

    async def _update_zones(self) -> None:
        now_s = self._context.clock.monotonic()
        ready: dict[str, dict[str, bool]] = {}
        for name, node in self._view.items():
            ready.setdefault(zone_of(node), {})[name] = ready_status(node) == "True"
        came_back = self._zones.update(ready, now_s)
        if came_back:
            # no node reported: all get the full time again
            wall_s = self._context.clock.wall_s()
            for name, signs in self._signs.items():
                self._signs[name] = replace(signs, seen_s=wall_s)
        if self._zones.all_lost:
            self._zones.forget_waiting()
            await self._leave_in_peace()
            return
        for name, node in self._view.items():
            if ready_status(node) == "True" or not condition_of(node, READY):
                continue
            if has_other_eviction_taint(node):
                await self._taint(name, self._evicting)
            elif not is_evicting(node):
                self._zones.wait(zone_of(node), name)

    async def _leave_in_peace(self) -> None:
        for name, node in self._view.items():
            if is_evicting(node):
                await self._taint(name, without_eviction_taints)

    async def _drive_away(self) -> None:
        for name in self._zones.take(self._context.clock.monotonic()):
            await self._taint(name, self._evicting)

    def _evicting(self, node: Obj) -> list[Obj]:
        if ready_status(node) == "True":
            return taints_of(node)
        return eviction_taints(node, self._context.clock.wall_s())

    async def _taint(self, name: str, wanted: Callable[[Obj], list[Obj]]) -> None:
        """Write a node's taints. Retry a conflict at once, because the node's turn does not come again soon."""
        try:
            node = await self._resource.get(name)
            for _ in range(_ATTEMPTS):
                try:
                    await self._writer.set_taints(node, wanted(node))
                    return
                except Conflict:
                    node = await self._resource.get(name)
        except NotFound:
            return
        except (ApiError, TransportError) as error:
            log.warning("tainting a node failed", node=name, reason=str(error))
