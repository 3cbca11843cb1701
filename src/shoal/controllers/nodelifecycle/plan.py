"""Health of nodes and zones, and the resulting taints."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from shoal.controllers.nodelifecycle.config import NodeLifecycleConfig
from shoal.kube.objects import Obj
from shoal.kube.times import format_time, parse_epoch

NOT_READY: Final = "node.kubernetes.io/not-ready"
UNREACHABLE: Final = "node.kubernetes.io/unreachable"
UNSCHEDULABLE: Final = "node.kubernetes.io/unschedulable"
NO_SCHEDULE, NO_EXECUTE = "NoSchedule", "NoExecute"
READY, UNKNOWN = "Ready", "Unknown"
_WATCHED: Final = (READY, "MemoryPressure", "DiskPressure", "PIDPressure")
_TAINT_OF: Final = {
    (READY, "False"): NOT_READY,
    (READY, UNKNOWN): UNREACHABLE,
    ("MemoryPressure", "True"): "node.kubernetes.io/memory-pressure",
    ("DiskPressure", "True"): "node.kubernetes.io/disk-pressure",
    ("NetworkUnavailable", "True"): "node.kubernetes.io/network-unavailable",
    ("PIDPressure", "True"): "node.kubernetes.io/pid-pressure",
}
_CONDITION_TAINTS: Final = frozenset({*_TAINT_OF.values(), UNSCHEDULABLE})
_REGION, _ZONE = "topology.kubernetes.io/region", "topology.kubernetes.io/zone"


def condition_of(obj: Obj, kind: str) -> Obj:
    for condition in (obj.get("status") or {}).get("conditions") or ():
        if condition["type"] == kind:
            found: Obj = condition
            return found
    return {}


def ready_status(node: Obj) -> str:
    status: str = condition_of(node, READY).get("status", UNKNOWN)
    return status


# heartbeats


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeHealth:
    """The last heartbeats of a node and when they changed, by this process's clock, so that clocks may differ."""

    uid: str
    heartbeat: str  # of the Ready condition, as the node wrote it
    renewed: str  # the lease's renewTime
    seen_s: float


def observe(before: NodeHealth | None, node: Obj, renewed: str, now_s: float) -> NodeHealth:
    """The health after another check. A node that has never reported counts from its creation."""
    uid, heartbeat = node["metadata"]["uid"], condition_of(node, READY).get("lastHeartbeatTime") or ""
    if before is None or before.uid != uid:
        has_reported = bool(heartbeat or renewed)
        created_s = parse_epoch(node["metadata"]["creationTimestamp"])
        return NodeHealth(uid=uid, heartbeat=heartbeat, renewed=renewed, seen_s=now_s if has_reported else created_s)
    if heartbeat != before.heartbeat or (renewed and renewed != before.renewed):
        return replace(before, heartbeat=heartbeat, renewed=renewed or before.renewed, seen_s=now_s)
    return before


def is_lost(signs: NodeHealth, config: NodeLifecycleConfig, now_s: float) -> bool:
    grace_s = config.grace_s if signs.heartbeat else config.startup_grace_s
    return now_s > signs.seen_s + grace_s


def lost_conditions(node: Obj, now_s: float) -> list[Obj]:
    """The conditions of a lost node: status Unknown."""
    now = format_time(now_s)
    known = {each["type"]: each for each in (node.get("status") or {}).get("conditions") or ()}
    for kind in _WATCHED:
        before = known.get(kind)
        if before is None:
            known[kind] = {
                "type": kind, "status": UNKNOWN, "reason": "NodeStatusNeverUpdated",
                "message": "Kubelet never posted node status.",
                "lastHeartbeatTime": node["metadata"]["creationTimestamp"], "lastTransitionTime": now,
            }  # fmt: skip
        elif before["status"] != UNKNOWN:
            known[kind] = {
                **before, "status": UNKNOWN, "reason": "NodeStatusUnknown",
                "message": "Kubelet stopped posting node status.", "lastTransitionTime": now,
            }  # fmt: skip
    return list(known.values())


# taints


def _conditions_say(node: Obj) -> Iterable[str]:
    for condition in (node.get("status") or {}).get("conditions") or ():
        key = _TAINT_OF.get((condition["type"], condition["status"]))
        if key is not None:
            yield key
    if (node.get("spec") or {}).get("unschedulable"):
        yield UNSCHEDULABLE


def taints_of(node: Obj) -> list[Obj]:
    return list((node.get("spec") or {}).get("taints") or ())


def condition_taints(node: Obj, now_s: float) -> list[Obj]:
    """The taints that follow from the node's conditions: NoSchedule for each bad one, and no NoExecute for a ready
    node. Foreign taints stay."""
    wanted = dict.fromkeys(_conditions_say(node))
    kept = [taint for taint in taints_of(node) if not _is_outdated(taint, wanted, node)]
    present = {taint["key"] for taint in kept if taint["effect"] == NO_SCHEDULE}
    added = [_taint(key, NO_SCHEDULE, now_s) for key in wanted if key not in present]
    return kept + added


def _is_outdated(taint: Obj, wanted: dict[str, None], node: Obj) -> bool:
    key, effect = taint["key"], taint["effect"]
    if effect == NO_SCHEDULE:
        return key in _CONDITION_TAINTS and key not in wanted
    return effect == NO_EXECUTE and key in (NOT_READY, UNREACHABLE) and ready_status(node) == "True"


def _taint(key: str, effect: str, now_s: float) -> Obj:
    return {"key": key, "effect": effect, "timeAdded": format_time(now_s)}


def eviction_taints(node: Obj, now_s: float) -> list[Obj]:
    """The node's taints with the NoExecute taint for its state, replacing the other one."""
    key = UNREACHABLE if ready_status(node) == UNKNOWN else NOT_READY
    if any(taint["key"] == key and taint["effect"] == NO_EXECUTE for taint in taints_of(node)):
        return taints_of(node)
    return [*without_eviction_taints(node), _taint(key, NO_EXECUTE, now_s)]


def without_eviction_taints(node: Obj) -> list[Obj]:
    """The node's taints without the NoExecute taints of a lost node."""
    return [
        taint
        for taint in taints_of(node)
        if taint["effect"] != NO_EXECUTE or taint["key"] not in (NOT_READY, UNREACHABLE)
    ]


def is_evicting(node: Obj) -> bool:
    return len(without_eviction_taints(node)) != len(taints_of(node))


def has_other_eviction_taint(node: Obj) -> bool:
    """Whether it already has the other NoExecute taint: then it is swapped without waiting for the rate limit."""
    return is_evicting(node) and ready_status(node) != "True"


# zones


class ZoneState(StrEnum):
    NORMAL = "normal"
    PARTIAL = "partly lost"
    FULL = "lost"


def zone_of(node: Obj) -> str:
    labels = node["metadata"].get("labels") or {}
    region, zone = labels.get(_REGION, ""), labels.get(_ZONE, "")
    return f"{region}:\0:{zone}" if region or zone else ""


def zone_state(ready: Sequence[bool], config: NodeLifecycleConfig) -> ZoneState:
    lost = len(ready) - sum(ready)
    if ready and lost == len(ready):
        return ZoneState.FULL
    if lost > 2 and lost / len(ready) >= config.unhealthy_share:
        return ZoneState.PARTIAL
    return ZoneState.NORMAL


def rate(state: ZoneState, size: int, config: NodeLifecycleConfig) -> float:
    """The number of the zone's nodes per second that may start evicting pods."""
    if state is not ZoneState.PARTIAL:
        return config.rate
    return config.slow_rate if size > config.large_cluster else 0.0
