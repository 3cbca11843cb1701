"""The next step of a job: whether it is over and why, and which pods it needs. Pure; ``now`` is seconds since 1970.

``tracking`` counts its pods.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from shoal.controllers.job.backoff import after_pods, finished_at, remaining_of_index_s, remaining_s
from shoal.controllers.job.indexes import EMPTY, Indexes, parse_indexes
from shoal.controllers.job.model import (
    FAILURE_COUNT,
    Ending,
    JobBackoff,
    JobView,
    count_annotation,
    failures_before,
    has_finalizer,
    index_of,
    is_failed,
    is_indexed,
    is_suspended,
    valid_index,
    waits_for_end,
)
from shoal.controllers.job.policy import fails_job, met_success, pod_failure_action
from shoal.controllers.job.template import indexed_pods, plain_pods
from shoal.controllers.pods.conditions import find_condition
from shoal.controllers.pods.ranking import to_delete
from shoal.controllers.pods.status import is_active, is_ready, is_terminal, is_terminating, phase_of
from shoal.kube.objects import Obj
from shoal.kube.times import parse_epoch

_BATCH_S = 1.0  # shorter waits are not worth a separate pass
_BURST = 500  # maximum of pods that one pass creates or deletes


@dataclass(frozen=True, slots=True)
class PodPlan:
    """Pods to delete or pods to create, never both; or how long to wait before creating."""

    deletes: tuple[Obj, ...] = ()
    creates: tuple[Obj, ...] = ()
    wait_s: float | None = None


# looking


def observe(job: Obj, pods: Sequence[Obj], released: frozenset[str], backoff: JobBackoff, now: float) -> JobView:
    """``released`` are uids of pods whose finalizer is removed but still in the cache."""
    spec, status = job["spec"], job.get("status") or {}
    held = frozenset(uid for pod in pods if has_finalizer(pod) and (uid := pod["metadata"]["uid"]) not in released)
    active = tuple(pod for pod in pods if is_active(pod))
    uncounted = status.get("uncountedTerminatedPods") or {}
    counted_well, counted_badly = uncounted.get("succeeded") or (), uncounted.get("failed") or ()
    new_succeeded = _new(job, pods, held, counted_well, lambda pod: phase_of(pod) == "Succeeded")
    new_failed = _new(job, pods, held, counted_badly, lambda pod: is_failed(pod, job))
    succeeded = (status.get("succeeded") or 0) + len(counted_well) + len(new_succeeded)
    failed = (status.get("failed") or 0) + len(counted_badly) + _counting(spec.get("podFailurePolicy"), new_failed)
    ending = _recorded_ending(job) or _failure(job, pods, failed, now)
    completed, failed_indexes = EMPTY, None
    delayed: dict[int, Obj] = {}
    if is_indexed(job):
        completed, failed_indexes = _indexes(job, pods, held)
        succeeded = len(completed)
        ending = ending or _indexed_ending(job, completed, failed_indexes)
        if failed_indexes is not None:
            delayed = _delayed(job, pods, held, active, completed.union(failed_indexes))
    return JobView(
        job=job,
        pods=tuple(pods),
        held=held,
        active=active,
        ready=sum(map(is_ready, active)),
        terminating=sum(is_terminating(pod) and not is_terminal(pod) for pod in pods),
        succeeded=succeeded,
        failed=failed,
        ending=ending,
        completed=completed,
        failed_indexes=failed_indexes,
        delayed=delayed,
        backoff=after_pods(backoff, new_succeeded, new_failed),
        deadline_s=_deadline_s(job, now),
    )


def _new(
    job: Obj, pods: Sequence[Obj], held: frozenset[str], known: Iterable[str], matches: Callable[[Obj], bool]
) -> list[Obj]:
    """Pods that have ended this way and are not in the status yet."""
    seen, indexed = set(known), is_indexed(job)
    return [
        pod
        for pod in pods
        if (uid := pod["metadata"]["uid"]) in held
        and uid not in seen
        and (not indexed or valid_index(pod, job) is not None)
        and matches(pod)
    ]


def _counting(policy: Obj | None, failed: Sequence[Obj]) -> int:
    return len(failed) if policy is None else sum(pod_failure_action(policy, pod).counts for pod in failed)


def _indexes(job: Obj, pods: Sequence[Obj], held: frozenset[str]) -> tuple[Indexes, Indexes | None]:
    """The completed and the failed indexes, including those of uncounted pods. No index is in both."""
    spec, status = job["spec"], job.get("status") or {}
    completions = spec.get("completions") or 0
    per_index = spec.get("backoffLimitPerIndex") is not None
    failed_before = parse_indexes(status.get("failedIndexes"), completions) if per_index else EMPTY
    well: list[int] = []
    badly: list[int] = []
    for pod in pods:
        index = valid_index(pod, job)
        if index is None or pod["metadata"]["uid"] not in held:
            continue
        if phase_of(pod) == "Succeeded":
            if index not in failed_before:
                well.append(index)
        elif per_index and _fails_index(job, pod):
            badly.append(index)
    completed = parse_indexes(status.get("completedIndexes"), completions).with_indexes(well)
    if not per_index:
        return completed, None
    return completed, failed_before.with_indexes(index for index in badly if index not in completed)


def _fails_index(job: Obj, pod: Obj) -> bool:
    """Whether this failure exceeds the limit of the pod's index."""
    if not is_failed(pod, job):
        return False
    verdict = pod_failure_action(job["spec"].get("podFailurePolicy"), pod)
    if verdict.action == "FailIndex":
        return True
    return verdict.counts and count_annotation(pod, FAILURE_COUNT) >= job["spec"]["backoffLimitPerIndex"]


def _delayed(
    job: Obj, pods: Sequence[Obj], held: frozenset[str], active: Sequence[Obj], settled: Indexes
) -> dict[int, Obj]:
    """The last failed pod of each index that will be retried."""
    running = {index_of(pod) for pod in active}
    found: dict[int, Obj] = {}
    for pod in pods:
        index = valid_index(pod, job)
        if index is None or index in running or index in settled:
            continue
        if pod["metadata"]["uid"] not in held or not is_failed(pod, job):
            continue
        known = found.get(index)
        if known is None or (failures_before(known), finished_at(known)) <= (failures_before(pod), finished_at(pod)):
            found[index] = pod
    return found


# the end


def _recorded_ending(job: Obj) -> Ending | None:
    """The ending that an earlier pass has decided, which is final."""
    conditions = (job.get("status") or {}).get("conditions") or ()
    for kind, success in (("SuccessCriteriaMet", True), ("FailureTarget", False)):
        condition = find_condition(conditions, kind)
        if condition is not None and condition["status"] == "True":
            return Ending(success, condition.get("reason") or "", condition.get("message") or "", recorded=True)
    return None


def _failure(job: Obj, pods: Sequence[Obj], failed: int, now: float) -> Ending | None:
    spec = job["spec"]
    why = fails_job(spec.get("podFailurePolicy"), (pod for pod in pods if is_failed(pod, job)))
    if why:
        return Ending(False, "PodFailurePolicy", why)
    limit = _backoff_limit(job)
    if failed > limit or _restarted_too_often(job, pods, limit):
        return Ending(False, "BackoffLimitExceeded", "Job has reached the specified backoff limit")
    left_s = _deadline_s(job, now)
    if left_s is not None and left_s <= 0:
        return Ending(False, "DeadlineExceeded", "Job was active longer than specified deadline")
    return None


def _backoff_limit(job: Obj) -> int:
    limit = job["spec"].get("backoffLimit")
    return 6 if limit is None else int(limit)


def _restarted_too_often(job: Obj, pods: Sequence[Obj], limit: int) -> bool:
    """Whether container restarts, which also count as failures, exceed the limit."""
    if job["spec"]["template"]["spec"].get("restartPolicy") != "OnFailure":
        return False
    restarts = 0
    for pod in pods:
        if phase_of(pod) in ("Running", "Pending"):
            status = pod.get("status") or {}
            for field in ("initContainerStatuses", "containerStatuses"):
                restarts += sum(each.get("restartCount") or 0 for each in status.get(field) or ())
    return restarts > 0 if limit == 0 else restarts >= limit


def _deadline_s(job: Obj, now: float) -> float | None:
    limit_s, started = job["spec"].get("activeDeadlineSeconds"), (job.get("status") or {}).get("startTime")
    if limit_s is None or is_suspended(job):
        return None
    return (parse_epoch(started) if started else now) + float(limit_s) - now


def _indexed_ending(job: Obj, completed: Indexes, failed: Indexes | None) -> Ending | None:
    spec = job["spec"]
    completions = spec.get("completions") or 0
    if failed is not None and failed.intervals:
        most = spec.get("maxFailedIndexes")
        if most is not None and len(failed) > most:
            text = "Job has exceeded the specified maximal number of failed indexes"
            return Ending(False, "MaxFailedIndexesExceeded", text)
        if len(failed) + len(completed) >= completions:
            return Ending(False, "FailedIndexes", "Job has failed indexes")
    met = met_success(spec.get("successPolicy"), completed, completions)
    return Ending(True, "SuccessPolicy", met) if met else None


def reached(view: JobView, active: int) -> Ending | None:
    """Success, if all completions succeeded and nothing runs any more."""
    completions = view.job["spec"].get("completions")
    enough = view.succeeded > 0 if completions is None else view.succeeded >= completions
    if not enough or active:
        return None
    return Ending(True, "CompletionsReached", "Reached expected number of succeeded pods")


# the pods


def plan_pods(view: JobView, now: float) -> PodPlan:
    """Which pods to create or delete for a job that is not over."""
    job, active = view.job, len(view.active)
    wanted = 0 if is_suspended(job) else _wanted(view)
    surplus = _surplus(view, max(0, active - wanted), now)
    if surplus or is_suspended(job):
        return PodPlan(deletes=tuple(surplus[:_BURST]))
    lacked = wanted - active - (view.terminating if waits_for_end(job) else 0)
    if lacked <= 0:
        return PodPlan()
    return _creations(view, min(lacked, _BURST), now)


def _wanted(view: JobView) -> int:
    spec = view.job["spec"]
    parallelism, completions = spec.get("parallelism"), spec.get("completions")
    parallelism = 1 if parallelism is None else int(parallelism)
    if completions is None:
        # after the first success the others may end, but no more are started
        return len(view.active) if view.succeeded else parallelism
    return max(0, min(int(completions) - view.succeeded, parallelism))


def _surplus(view: JobView, at_least: int, now: float) -> list[Obj]:
    """Pods to delete: in an indexed job those without a valid index and duplicates; then the least useful."""
    doomed: list[Obj] = []
    left: list[Obj] = list(view.active)
    if is_indexed(view.job):
        by_index: dict[int | None, list[Obj]] = {}
        for pod in view.active:
            by_index.setdefault(valid_index(pod, view.job), []).append(pod)
        doomed = by_index.pop(None, [])
        left = []
        for index in sorted(index for index in by_index if index is not None):
            same = by_index[index]
            extra = to_delete(same, view.active, len(same) - 1, now)
            doomed += extra
            left += [pod for pod in same if pod not in extra]
    if len(doomed) < at_least:
        doomed += to_delete(left, view.active, at_least - len(doomed), now)
    return doomed


def _creations(view: JobView, count: int, now: float) -> PodPlan:
    job = view.job
    if view.failed_indexes is None:
        wait_s = remaining_s(view.backoff, now)
        if wait_s > 0:
            return PodPlan(wait_s=max(_BATCH_S, wait_s))
    if not is_indexed(job):
        return PodPlan(creates=tuple(plain_pods(job, count)))
    indexes = _pending_indexes(view, count)
    waits = {index: remaining_of_index_s(view.delayed.get(index), now) for index in indexes}
    due = [index for index in indexes if not waits[index]]
    wait_s = min((wait for wait in waits.values() if wait), default=0.0)
    return PodPlan(
        creates=tuple(indexed_pods(job, due, view.delayed)), wait_s=max(_BATCH_S, wait_s) if wait_s else None
    )


def _pending_indexes(view: JobView, count: int) -> list[int]:
    """The first indexes without an active pod and without a result."""
    taken = [index for pod in view.active if (index := index_of(pod)) is not None]
    if waits_for_end(view.job):
        going = (pod for pod in view.pods if is_terminating(pod) and not is_terminal(pod))
        taken += [index for pod in going if (index := index_of(pod)) is not None]
    settled = view.completed.union(view.failed_indexes or EMPTY).with_indexes(taken)
    return settled.first_missing(count, view.job["spec"].get("completions") or 0)
