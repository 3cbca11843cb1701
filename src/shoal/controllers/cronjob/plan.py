"""The next step of a CronJob: missed times, the job to start, finished jobs to delete. Pure; ``now`` is seconds since
1970."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from shoal.controllers.cronjob.due import Due, in_zone
from shoal.controllers.job.model import finished_as
from shoal.controllers.pods.status import created_at, is_terminating
from shoal.controllers.pods.template import controller_reference
from shoal.kube.objects import Obj
from shoal.kube.times import format_time, parse_epoch

SCHEDULED_AT: Final = "batch.kubernetes.io/cronjob-scheduled-timestamp"
_MANY: Final = 100
_PADDING_S: Final = 0.1  # clock differences: better late than early


class Missed(StrEnum):
    NONE = "none"
    FEW = "few"
    MANY = "many"


@dataclass(frozen=True, slots=True)
class Recent:
    """The latest time a job was due, if any, of those since ``earliest``."""

    earliest: float
    due: float | None
    missed: Missed


class ScheduleError(ValueError):
    """The schedule is well-formed but unusable."""


def most_recent(cron: Obj, now: float, schedule: Due, *, within_deadline: bool) -> Recent:
    """The latest missed time; with ``within_deadline``, times past the starting deadline are ignored."""
    last = (cron.get("status") or {}).get("lastScheduleTime")
    earliest = parse_epoch(last) if last else created_at(cron)
    deadline_s = cron["spec"].get("startingDeadlineSeconds")
    if within_deadline and deadline_s is not None:
        earliest = max(earliest, now - deadline_s)
    first = schedule.after(earliest)
    second = schedule.after(first) if first is not None else None
    if first is None or now < first:
        return Recent(earliest, None, Missed.NONE)
    if second is None or now < second:
        return Recent(earliest, first, Missed.NONE)
    step_s = int(round(second - first))
    if step_s < 1:
        raise ScheduleError("time difference between two schedules is less than 1 second")
    missed = int(now - first) // step_s + 1
    return Recent(earliest, _last_until(now, first, step_s, schedule), Missed.MANY if missed > _MANY else Missed.FEW)


def _last_until(now: float, first: float, step_s: int, schedule: Due) -> float:
    """The last time up to ``now``, starting with ``first``. It searches from the end, so years of missed minutes cost
    no more than two; steps back grow, since a schedule may pause for days."""
    steps = (int(now - first) // step_s) - 1
    back = 1
    while True:
        start = first + max(0, steps) * step_s
        candidate = first if steps <= 0 else schedule.after(start)
        due: float | None = None
        while candidate is not None and candidate <= now:
            due = candidate
            candidate = schedule.after(candidate)
        if due is not None:
            return due
        steps -= back
        back *= 2


def next_delay_s(cron: Obj, now: float, schedule: Due) -> float | None:
    """The delay until the next time; None if there is none."""
    try:
        recent = most_recent(cron, now, schedule, within_deadline=False)
    except ScheduleError:
        base = now
    else:
        base = recent.due if recent.due is not None else recent.earliest if recent.missed is Missed.NONE else now
    following = schedule.after(base)
    return None if following is None else following + _PADDING_S - now


class Skip(StrEnum):
    """Why no job is started now."""

    NOT_DUE = "not due"
    TOO_LATE = "too late"
    DONE = "already started"
    ACTIVE = "one is running"


@dataclass(frozen=True, slots=True)
class StartJob:
    """Start the job of this time, once the replaced jobs are gone."""

    at: float
    replaces: tuple[Obj, ...] = ()
    many_missed: bool = False


@dataclass(frozen=True, slots=True)
class NoStart:
    why: Skip
    at: float = 0.0
    many_missed: bool = False


def plan_start(cron: Obj, active: Sequence[Obj], now: float, schedule: Due) -> StartJob | NoStart:
    """``active`` are the references of running jobs."""
    spec = cron["spec"]
    recent = most_recent(cron, now, schedule, within_deadline=True)
    if recent.due is None:
        return NoStart(Skip.NOT_DUE)
    due, many = recent.due, recent.missed is Missed.MANY
    deadline_s = spec.get("startingDeadlineSeconds")
    if deadline_s is not None and due + deadline_s < now:
        return NoStart(Skip.TOO_LATE, due, many)
    last = (cron.get("status") or {}).get("lastScheduleTime")
    name = job_name(cron, due)
    if (last and parse_epoch(last) == due) or any(each.get("name") == name for each in active):
        return NoStart(Skip.DONE, due, many)
    policy = spec.get("concurrencyPolicy")
    if policy == "Forbid" and active:
        return NoStart(Skip.ACTIVE, due, many)
    return StartJob(due, tuple(active) if policy == "Replace" else (), many)


def job_name(cron: Obj, at: float) -> str:
    """A unique name per time, so that a time cannot be started twice."""
    return f"{cron['metadata']['name']}-{int(at) // 60}"


def job_of(cron: Obj, at: float) -> Obj:
    about, template = cron["metadata"], cron["spec"]["jobTemplate"]
    given = template.get("metadata") or {}
    stamp = in_zone(at, cron["spec"].get("timeZone") or "")
    made: Obj = {
        "name": job_name(cron, at),
        "namespace": about["namespace"],
        "annotations": {**(given.get("annotations") or {}), SCHEDULED_AT: stamp},
        "ownerReferences": [controller_reference(cron, "batch/v1", "CronJob")],
    }
    if given.get("labels"):
        made["labels"] = given["labels"]
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": made, "spec": template["spec"]}


def job_reference(job: Obj) -> Obj:
    about = job["metadata"]
    return {
        "kind": "Job",
        "namespace": about["namespace"],
        "name": about["name"],
        "uid": about["uid"],
        "apiVersion": "batch/v1",
        "resourceVersion": about.get("resourceVersion", ""),
    }


@dataclass(frozen=True, slots=True)
class ActivePlan:
    """The update of the list of active jobs."""

    active: tuple[Obj, ...]
    missing: tuple[Obj, ...]  # references, also in ``active``, of jobs that are not in the cache
    completed: tuple[Obj, ...]  # formerly active jobs that have ended
    unexpected: tuple[Obj, ...]  # running jobs that are not in the list
    last_success: str


def plan_active(cron: Obj, jobs: Sequence[Obj]) -> ActivePlan:
    before = cron.get("status") or {}
    by_uid = {job["metadata"]["uid"]: job for job in jobs}
    listed = before.get("active") or []
    known = {reference.get("uid") for reference in listed}
    kept: list[Obj] = []
    missing: list[Obj] = []
    completed: list[Obj] = []
    for reference in listed:
        job = by_uid.get(reference.get("uid"))
        if job is not None and finished_as(job):
            completed.append(job)
            continue
        kept.append(reference)
        if job is None:
            missing.append(reference)
    unexpected = [job for job in jobs if not finished_as(job) and job["metadata"]["uid"] not in known]
    succeeded = (job["status"] for job in jobs if finished_as(job) == "Complete")
    ends = [status["completionTime"] for status in succeeded if status.get("completionTime")]
    # the time format sorts as text
    last_success = max([*ends, before.get("lastSuccessfulTime") or ""])
    return ActivePlan(tuple(kept), tuple(missing), tuple(completed), tuple(unexpected), last_success)


def plan_history(cron: Obj, jobs: Sequence[Obj]) -> tuple[Obj, ...]:
    """Finished jobs beyond the history limits, the oldest first."""
    old: list[Obj] = []
    for kind, field in (("Complete", "successfulJobsHistoryLimit"), ("Failed", "failedJobsHistoryLimit")):
        limit = cron["spec"].get(field)
        ended = [job for job in jobs if finished_as(job) == kind and not is_terminating(job)]
        if limit is not None and len(ended) > limit:
            old += sorted(ended, key=_age)[: len(ended) - limit]
    return tuple(old)


def _age(job: Obj) -> tuple[bool, str, str]:
    started = (job.get("status") or {}).get("startTime") or ""
    return not started, started, job["metadata"]["name"]


def status_of(cron: Obj, active: Sequence[Obj], last_success: str, scheduled: float | None) -> Obj:
    """``scheduled`` is the time of the job that was started now, if one was."""
    status = dict(cron.get("status") or {})
    status.pop("active", None)
    if active:
        status["active"] = list(active)
    if last_success:
        status["lastSuccessfulTime"] = last_success
    if scheduled is not None:
        status["lastScheduleTime"] = format_time(scheduled)
    return status
