"""The status of a Deployment: counts, and the conditions that ``kubectl rollout status`` reads. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from shoal.controllers.deployment.model import (
    Bounds,
    actual_of,
    available_of,
    bounds_of,
    progress_deadline_s,
)
from shoal.controllers.deployment.replicasets import Family
from shoal.controllers.deployment.rollout import total
from shoal.controllers.pods.conditions import find_condition, make_condition, with_condition, without_condition
from shoal.controllers.replicaset.plan import REPLICA_FAILURE, replicas_of
from shoal.kube.objects import Obj
from shoal.kube.times import parse_epoch

PROGRESSING, AVAILABLE = "Progressing", "Available"
CREATED, FOUND, UPDATED = "NewReplicaSetCreated", "FoundNewReplicaSet", "ReplicaSetUpdated"
COMPLETE, TIMED_OUT = "NewReplicaSetAvailable", "ProgressDeadlineExceeded"
PAUSED, RESUMED = "DeploymentPaused", "DeploymentResumed"
CREATE_FAILED = "ReplicaSetCreateError"


def _condition(kind: str, status: str, reason: str, message: str, now: float) -> Obj:
    made = make_condition(kind, status, reason, message, now)
    return made | {"lastUpdateTime": made["lastTransitionTime"]}


def conditions_of(deployment: Obj) -> list[Obj]:
    return list((deployment.get("status") or {}).get("conditions") or ())


def paused_conditions(deployment: Obj, conditions: Sequence[Obj], now: float) -> list[Obj]:
    """The conditions of a paused Deployment: the progress deadline stops, and restarts when it is resumed."""
    known = find_condition(conditions, PROGRESSING)
    if progress_deadline_s(deployment) is None or (known is not None and known.get("reason") == TIMED_OUT):
        return list(conditions)
    was = known is not None and known.get("reason") == PAUSED
    if deployment["spec"].get("paused") and not was:
        return with_condition(conditions, _condition(PROGRESSING, "Unknown", PAUSED, "Deployment is paused", now))
    if not deployment["spec"].get("paused") and was:
        return with_condition(conditions, _condition(PROGRESSING, "Unknown", RESUMED, "Deployment is resumed", now))
    return list(conditions)


def created_conditions(conditions: Sequence[Obj], name: str, now: float) -> list[Obj]:
    message = f'Created new replica set "{name}"'
    return with_condition(conditions, _condition(PROGRESSING, "True", CREATED, message, now))


def found_conditions(conditions: Sequence[Obj], name: str, now: float) -> list[Obj]:
    message = f'Found new replica set "{name}"'
    return with_condition(conditions, _condition(PROGRESSING, "True", FOUND, message, now))


def creation_failed(deployment: Obj, name: str, why: str, now: float) -> tuple[Obj, str]:
    """The status of a Deployment whose new ReplicaSet was refused, and the message of the event."""
    status = dict(deployment.get("status") or {})
    message = f'Failed to create new replica set "{name}": {why}'
    if progress_deadline_s(deployment) is not None:
        failed = _condition(PROGRESSING, "False", CREATE_FAILED, message, now)
        status["conditions"] = with_condition(conditions_of(deployment), failed)
    return status, message


def plan_counts(deployment: Obj, family: Family, conditions: Sequence[Obj], now: float) -> Obj:
    """The status without the Progressing condition."""
    everyone, bounds = family.all, bounds_of(deployment)
    before = deployment.get("status") or {}
    available = total(everyone, available_of)
    counts = {
        "observedGeneration": deployment["metadata"].get("generation") or 0,
        "replicas": total(everyone, actual_of),
        "updatedReplicas": actual_of(family.new) if family.new is not None else 0,
        "readyReplicas": total(everyone, lambda each: (each.get("status") or {}).get("readyReplicas") or 0),
        "availableReplicas": available,
        "unavailableReplicas": max(0, total(everyone) - available),
    }
    status: Obj = {name: count for name, count in counts.items() if count}
    terminating = _terminating(everyone)
    if terminating is not None:
        status["terminatingReplicas"] = terminating
    if before.get("collisionCount") is not None:
        status["collisionCount"] = before["collisionCount"]
    status["conditions"] = with_condition(conditions, _availability(available, bounds, now))
    return status


def _availability(available: int, bounds: Bounds, now: float) -> Obj:
    if available >= bounds.least_available:
        message = "Deployment has minimum availability."
        return _condition(AVAILABLE, "True", "MinimumReplicasAvailable", message, now)
    message = "Deployment does not have minimum availability."
    return _condition(AVAILABLE, "False", "MinimumReplicasUnavailable", message, now)


def _terminating(replica_sets: Sequence[Obj]) -> int | None:
    """The number of terminating pods; None if a ReplicaSet does not report it."""
    found = 0
    for each in replica_sets:
        status = each.get("status") or {}
        count = status.get("terminatingReplicas")
        if count is None and status.get("observedGeneration"):
            return None
        found += count or 0
    return found


def is_complete(deployment: Obj, status: Obj) -> bool:
    wanted = replicas_of(deployment)
    counts = (status.get(name) or 0 for name in ("updatedReplicas", "replicas", "availableReplicas"))
    observed = (status.get("observedGeneration") or 0) >= (deployment["metadata"].get("generation") or 0)
    return observed and all(count == wanted for count in counts)


def _has_progressed(before: Obj, after: Obj) -> bool:
    def grown(name: str) -> bool:
        return (after.get(name) or 0) > (before.get(name) or 0)

    def old(status: Obj) -> int:
        return int((status.get("replicas") or 0) - (status.get("updatedReplicas") or 0))

    return grown("updatedReplicas") or old(after) < old(before) or grown("readyReplicas") or grown("availableReplicas")


def plan_rollout_status(
    deployment: Obj, family: Family, conditions: Sequence[Obj], now: float
) -> tuple[Obj, float | None]:
    """The status with the Progressing condition, and when to check the deadline again."""
    status = plan_counts(deployment, family, conditions, now)
    deadline_s = progress_deadline_s(deployment)
    conditions = status["conditions"]
    if deadline_s is None:
        conditions = without_condition(conditions, PROGRESSING)
    else:
        conditions = _with_progress(deployment, family.new, status, deadline_s, now)
    status["conditions"] = _with_failures(conditions, family)
    return status, _recheck_s(deployment, status, deadline_s, now)


def _with_progress(deployment: Obj, new: Obj | None, status: Obj, deadline_s: int, now: float) -> list[Obj]:
    conditions: list[Obj] = status["conditions"]
    known = find_condition(conditions, PROGRESSING)
    finished = known is not None and known.get("reason") == COMPLETE
    if finished and (status.get("replicas") or 0) == (status.get("updatedReplicas") or 0):
        return conditions  # nothing is being rolled out
    who = f'ReplicaSet "{new["metadata"]["name"]}"' if new is not None else f'Deployment "{_name(deployment)}"'
    if is_complete(deployment, status):
        message = f"{who} has successfully progressed."
        return with_condition(conditions, _condition(PROGRESSING, "True", COMPLETE, message, now))
    if _has_progressed(deployment.get("status") or {}, status):
        made = _condition(PROGRESSING, "True", UPDATED, f"{who} is progressing.", now)
        if known is not None and known["status"] == "True":
            made["lastTransitionTime"] = known.get("lastTransitionTime")
        # its update time changes with any progress, unlike that of other conditions
        return [*without_condition(conditions, PROGRESSING), made]
    if known is not None and not finished and _is_late(known, deadline_s, now):
        message = f"{who} has timed out progressing."
        return with_condition(conditions, _condition(PROGRESSING, "False", TIMED_OUT, message, now))
    return conditions


def _is_late(known: Obj, deadline_s: int, now: float) -> bool:
    return known.get("reason") == TIMED_OUT or _updated_at(known) + deadline_s < now


def _updated_at(condition: Obj) -> float:
    text = condition.get("lastUpdateTime") or condition.get("lastTransitionTime")
    return parse_epoch(text) if text else 0.0


def _recheck_s(deployment: Obj, status: Obj, deadline_s: int | None, now: float) -> float | None:
    known = find_condition(status["conditions"], PROGRESSING)
    if deadline_s is None or known is None or known.get("reason") == TIMED_OUT or is_complete(deployment, status):
        return None
    return max(0.0, _updated_at(known) + deadline_s - now) + 1.0  # timestamps have whole seconds


def _with_failures(conditions: Sequence[Obj], family: Family) -> list[Obj]:
    """The conditions with the ReplicaFailure of a ReplicaSet; the new one's first."""
    for each in (*((family.new,) if family.new is not None else ()), *family.old):
        failure = find_condition((each.get("status") or {}).get("conditions") or (), REPLICA_FAILURE)
        if failure is not None:
            return with_condition(conditions, failure | {"lastUpdateTime": failure.get("lastTransitionTime")})
    return without_condition(conditions, REPLICA_FAILURE)


def _name(obj: Obj) -> str:
    found: str = obj["metadata"]["name"]
    return found
