"""Computes when a pod must be evicted because of its node's taints."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from shoal.kube.objects import Obj
from shoal.kube.times import parse_epoch

STAYS = math.inf


def driving_taints(node: Obj) -> list[Obj]:
    return [taint for taint in (node.get("spec") or {}).get("taints") or () if taint.get("effect") == "NoExecute"]


def tolerates(toleration: Obj, taint: Obj) -> bool:
    if toleration.get("effect") not in (None, "", taint["effect"]):
        return False
    key = toleration.get("key") or ""
    if key and key != taint["key"]:
        return False
    operator = toleration.get("operator") or "Equal"
    if operator == "Exists":
        return True
    value, wanted = taint.get("value") or "", toleration.get("value") or ""
    if operator in ("Lt", "Gt"):
        return _compares(operator, value, wanted)
    return bool(key) and value == wanted


def _compares(operator: str, value: str, limit: str) -> bool:
    try:
        return int(value) < int(limit) if operator == "Lt" else int(value) > int(limit)
    except ValueError:
        return False


def leaves_at(pod: Obj, taints: Iterable[Obj]) -> float:
    """When the pod must be evicted from a node with these taints, as seconds since 1970; ``STAYS`` if it may stay.

    The time of each taint starts with the taint, but not before the pod was placed on the node."""
    tolerations: Sequence[Obj] = pod["spec"].get("tolerations") or ()
    came_at = _came_at(pod)
    end = STAYS
    for taint in taints:
        found = next((each for each in tolerations if tolerates(each, taint)), None)
        if found is None:
            return 0.0
        seconds = found.get("tolerationSeconds")
        if seconds is None:
            continue
        began_at = max(came_at, parse_epoch(taint["timeAdded"]) if taint.get("timeAdded") else 0.0)
        end = min(end, began_at + max(0, seconds))
    return end


def _came_at(pod: Obj) -> float:
    for condition in (pod.get("status") or {}).get("conditions") or ():
        if (
            condition["type"] == "PodScheduled"
            and condition["status"] == "True"
            and condition.get("lastTransitionTime")
        ):
            return parse_epoch(condition["lastTransitionTime"])
    created = pod["metadata"].get("creationTimestamp")
    return parse_epoch(created) if created else 0.0
