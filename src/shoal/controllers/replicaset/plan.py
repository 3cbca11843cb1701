"""The next step and the status of a ReplicaSet. Pure; also for ReplicationControllers, which have the same fields."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from shoal.controllers.pods.conditions import find_condition, make_condition, with_condition, without_condition
from shoal.controllers.pods.status import condition_of, is_available
from shoal.kube.objects import Obj

REPLICA_FAILURE = "ReplicaFailure"


def replicas_of(owner: Obj) -> int:
    wanted = owner["spec"].get("replicas")
    return 1 if wanted is None else int(wanted)


def missing(owner: Obj, active: Sequence[Obj]) -> int:
    """The number of missing pods; negative if there are too many."""
    return replicas_of(owner) - len(active)


def plan_status(
    owner: Obj, active: Sequence[Obj], now: float, *, terminating: int | None = None, failure: str = "", lacked: int = 0
) -> Obj:
    """The status of the owner. ``failure`` is why pods could not be created (``lacked`` above 0) or deleted."""
    spec, before = owner["spec"], owner.get("status") or {}
    wanted: dict[str, Any] = ((spec.get("template") or {}).get("metadata") or {}).get("labels") or {}
    min_ready_s = spec.get("minReadySeconds") or 0
    labelled = ready = available = 0
    for pod in active:
        tags = pod["metadata"].get("labels") or {}
        if wanted.items() <= tags.items():
            labelled += 1
        condition = condition_of(pod, "Ready")
        if condition is not None and condition["status"] == "True":
            ready += 1
            if not min_ready_s or is_available(pod, min_ready_s, now):
                available += 1
    status: Obj = {"replicas": len(active)}
    counts = {"fullyLabeledReplicas": labelled, "readyReplicas": ready, "availableReplicas": available}
    status |= {name: count for name, count in counts.items() if count}
    if terminating is not None:
        status["terminatingReplicas"] = terminating
    if generation := owner["metadata"].get("generation"):
        status["observedGeneration"] = generation
    conditions = _conditions(before.get("conditions") or [], failure, lacked, now)
    if conditions:
        status["conditions"] = conditions
    return status


def _conditions(before: Sequence[Obj], failure: str, lacked: int, now: float) -> list[Obj]:
    if not failure:
        return without_condition(before, REPLICA_FAILURE)
    if find_condition(before, REPLICA_FAILURE) is not None:
        return list(before)
    reason = "FailedCreate" if lacked > 0 else "FailedDelete"
    return with_condition(before, make_condition(REPLICA_FAILURE, "True", reason, failure, now))
