"""Lists of conditions: copied, never changed in place. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from shoal.kube.objects import Obj
from shoal.kube.times import format_time


def make_condition(kind: str, status: str, reason: str, message: str, now: float) -> Obj:
    stamp = format_time(now)
    return {"type": kind, "status": status, "lastTransitionTime": stamp, "reason": reason, "message": message}


def find_condition(conditions: Sequence[Obj], kind: str) -> Obj | None:
    for condition in conditions:
        if condition["type"] == kind:
            return condition
    return None


def without_condition(conditions: Sequence[Obj], kind: str) -> list[Obj]:
    return [condition for condition in conditions if condition["type"] != kind]


def with_condition(conditions: Sequence[Obj], condition: Obj) -> list[Obj]:
    """The list with the condition. An existing one with the same status and reason is kept; with the same status, its
    transition time is kept."""
    known = find_condition(conditions, condition["type"])
    if known is not None and known["status"] == condition["status"]:
        if known.get("reason") == condition["reason"]:
            return list(conditions)
        condition = {**condition, "lastTransitionTime": known.get("lastTransitionTime")}
    return [*without_condition(conditions, condition["type"]), condition]
