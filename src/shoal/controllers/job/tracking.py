"""Counts a job's pods exactly, even across crashes. Pure.

A finished pod keeps its finalizer until its uid is in the job's status as uncounted; then the finalizer is removed, and
only then the counters include the pod. A pod without a finalizer is already in the status, as a uid or in a counter, so
none is counted twice and none is lost. For an indexed job the completed indexes are the count.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from shoal.controllers.job.model import (
    MAX_UNCOUNTED,
    Ending,
    JobCounts,
    JobView,
    index_of,
    is_failed,
    is_indexed,
    is_suspended,
    valid_index,
    with_job_condition,
)
from shoal.controllers.job.policy import pod_failure_action
from shoal.controllers.pods.status import is_terminating, phase_of
from shoal.kube.objects import Obj
from shoal.kube.times import format_time

_UNCOUNTED = "uncountedTerminatedPods"


@dataclass(frozen=True, slots=True)
class Tracking:
    """``status`` must be stored before the finalizers of ``releases`` are removed."""

    status: Obj
    releases: tuple[Obj, ...]
    limited: bool  # more pods to count than fit into a status at once


def begin_status(view: JobView, counts: JobCounts, now: float) -> Obj:
    """The parts of the job's status that do not depend on counting."""
    status = dict(view.job.get("status") or {})
    if not is_suspended(view.job) and not status.get("startTime"):
        status["startTime"] = format_time(now)
    _put(status, "active", counts.active)
    status["ready"], status["terminating"] = counts.ready, counts.terminating
    return status


def suspension(view: JobView, status: Obj, now: float) -> tuple[Obj, str]:
    """The status with the Suspended condition, and the transition: ``Suspended``, ``Resumed`` or empty."""
    conditions = status.get("conditions") or []
    if is_suspended(view.job):
        fresh, changed = with_job_condition(conditions, "Suspended", "True", "JobSuspended", "Job suspended", now)
        made = {**status, "conditions": fresh}
        if changed:
            made.pop("startTime", None)  # the active deadline restarts when it is resumed
        return (made, "Suspended") if changed else (status, "")
    fresh, changed = with_job_condition(conditions, "Suspended", "False", "JobResumed", "Job resumed", now)
    if not changed:
        return status, ""
    return {**status, "conditions": fresh, "startTime": format_time(now)}, "Resumed"


def track(view: JobView, status: Obj, ending: Ending | None, now: float) -> Tracking:
    """Record finished pods as uncounted, and find those whose finalizer can be removed."""
    job = view.job
    status = settle(status, view.held)
    uncounted = status[_UNCOUNTED]
    well: list[str] = list(uncounted.get("succeeded") or ())
    badly: list[str] = list(uncounted.get("failed") or ())
    known = {*well, *badly}
    indexed = is_indexed(job)
    new_indexes: set[int] = set()
    releases: list[Obj] = []
    limited = False
    for pod in _ordered(view) if indexed else view.pods:
        uid = pod["metadata"]["uid"]
        if uid not in view.held or not _is_releasable(view, pod, ending):
            continue
        releases.append(pod)
        if phase_of(pod) == "Succeeded" and uid not in badly:
            index = valid_index(pod, job) if indexed else None
            if index is not None:
                new_indexes.add(index)  # the index alone shows that it was counted
            elif not indexed and uid not in known:
                well.append(uid)
        elif uid not in known and _counts_as_failed(view, pod, ending):
            badly.append(uid)
        if len(new_indexes) + len(well) + len(badly) >= MAX_UNCOUNTED:
            limited = True
            break
    status[_UNCOUNTED] = {name: uids for name, uids in (("succeeded", well), ("failed", badly)) if uids}
    if indexed:
        _put(status, "succeeded", len(view.completed))
        _put(status, "completedIndexes", str(view.completed))
        if view.failed_indexes is not None:
            status["failedIndexes"] = str(view.failed_indexes)
    if ending is not None and not ending.recorded:
        conditions = status.get("conditions") or []
        status["conditions"], _ = with_job_condition(
            conditions, ending.interim, "True", ending.reason, ending.message, now
        )
    return Tracking(status, tuple(releases), limited)


def _ordered(view: JobView) -> list[Obj]:
    return sorted(view.pods, key=lambda pod: -1 if (index := index_of(pod)) is None else index)


def _is_releasable(view: JobView, pod: Obj, ending: Ending | None) -> bool:
    """Whether the finalizer can be removed once the pod is recorded."""
    if is_terminating(view.job) or ending is not None or phase_of(pod) == "Succeeded":
        return True
    if not is_failed(pod, view.job):
        return False
    index = index_of(pod)
    kept = view.delayed.get(index) if index is not None else None
    return kept is None or kept["metadata"]["uid"] != pod["metadata"]["uid"]


def _counts_as_failed(view: JobView, pod: Obj, ending: Ending | None) -> bool:
    if not is_failed(pod, view.job) and (ending is None or ending.success):
        return False  # in a failed job all pods count as failed, running ones too
    if is_indexed(view.job) and valid_index(pod, view.job) is None:
        return False
    return pod_failure_action(view.job["spec"].get("podFailurePolicy"), pod).counts


def settle(status: Obj, held: Collection[str]) -> Obj:
    """The status with all pods counted whose finalizer is removed."""
    made = dict(status)
    uncounted = status.get(_UNCOUNTED) or {}
    left: Obj = {}
    for name in ("succeeded", "failed"):
        uids = uncounted.get(name) or ()
        waiting = [uid for uid in uids if uid in held]
        _put(made, name, (status.get(name) or 0) + len(uids) - len(waiting))
        if waiting:
            left[name] = waiting
    made[_UNCOUNTED] = left
    return made


def conclude(status: Obj, ending: Ending, now: float) -> Obj | None:
    """The final status of the job; None while pods still have to be counted or to end."""
    if status.get(_UNCOUNTED) or status.get("terminating") or status.get("active"):
        return None
    conditions, _ = with_job_condition(
        status.get("conditions") or [], ending.final, "True", ending.reason, ending.message, now
    )
    made = {**status, "conditions": conditions}
    stamp = format_time(now)
    made.setdefault("startTime", stamp)
    if ending.success:
        made["completionTime"] = stamp
    return made


def same_status(one: Obj | None, other: Obj | None) -> bool:
    """Whether two statuses are equal, ignoring empty fields."""
    return _values(one or {}) == _values(other or {})


def _values(status: Obj) -> Obj:
    return {key: value for key, value in status.items() if key in ("ready", "terminating", "failedIndexes") or value}


def _put(status: Obj, name: str, value: int | str) -> None:
    """Set a counter as the API server writes it: absent instead of 0."""
    if value:
        status[name] = value
    else:
        status.pop(name, None)
