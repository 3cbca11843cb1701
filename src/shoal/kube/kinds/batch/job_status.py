"""Rules of a job's status and its changes: finished is final, counters do not decrease.

A rule is only checked if its fields changed, so that a status written by an older controller can still be updated.
"""

from __future__ import annotations

from typing import Any, Final

from shoal.errors import FieldError, duplicate, invalid, required
from shoal.kube.kinds.batch.indexes import count_indexes, first_overlap
from shoal.kube.kinds.checks import Errors
from shoal.kube.kinds.common import check_nonnegative_fields, condition_is, deep_same, invalid_hidden, read
from shoal.kube.objects import Obj

_NUMBERS: Final = ("active", "succeeded", "failed", "ready", "terminating")
_CONDITIONS: Final = "status.conditions"


class _Side:
    """One side of a status update, with values that several rules use."""

    __slots__ = ("complete", "criteria_met", "failed", "failure_target", "finished", "spec", "status", "suspended")

    def __init__(self, job: Obj) -> None:
        self.spec = read(job, "spec")
        self.status = read(job, "status")
        conditions = self.status.get("conditions")
        self.complete = condition_is(conditions, "Complete")
        self.failed = condition_is(conditions, "Failed")
        self.finished = self.complete or self.failed
        self.failure_target = condition_is(conditions, "FailureTarget")
        self.criteria_met = condition_is(conditions, "SuccessCriteriaMet")
        self.suspended = condition_is(conditions, "Suspended")

    def number(self, name: str) -> int:
        return self.status.get(name) or 0


class _Update:
    """Both sides, and which of their fields differ."""

    __slots__ = ("new", "old")

    def __init__(self, new: _Side, old: _Side) -> None:
        self.new = new
        self.old = old

    def changed(self, name: str) -> bool:
        return not deep_same(self.new.status.get(name), self.old.status.get(name))

    def turned(self, name: str) -> bool:
        return bool(getattr(self.new, name) != getattr(self.old, name))


def validate_job_status(new: Obj, old: Obj) -> list[FieldError]:
    errors: Errors = []
    update = _Update(_Side(new), _Side(old))
    check_nonnegative_fields(update.new.status, _NUMBERS, "status", errors)
    _check_uncounted(update.new.status, errors)
    _check_conditions(update, errors)
    _check_times(update, errors)
    _check_finished(update, errors)
    _check_indexes(update, errors)
    _check_counters(update, errors)
    return errors


def _check_uncounted(status: Obj, errors: Errors) -> None:
    seen: set[str] = set()
    uncounted = read(status, "uncountedTerminatedPods")
    for name in ("succeeded", "failed"):
        for position, uid in enumerate(uncounted.get(name) or ()):
            path = f"status.uncountedTerminatedPods.{name}[{position}]"
            if not uid:
                errors.append(invalid(path, uid, "must not be empty"))
            elif uid in seen:
                errors.append(duplicate(path, uid))
            seen.add(uid)


def _check_conditions(update: _Update, errors: Errors) -> None:
    new, old = update.new, update.old

    def refuse(text: str) -> None:
        errors.append(invalid_hidden(_CONDITIONS, text))

    if new.complete and new.failed and (update.turned("complete") or update.turned("failed")):
        refuse("cannot set Complete=True and Failed=true conditions")
    if new.complete and new.failure_target and (update.turned("complete") or update.turned("failure_target")):
        refuse("cannot set Complete=True and FailureTarget=true conditions")
    if new.failed and not new.failure_target and (update.turned("failed") or update.changed("failedIndexes")):
        refuse("cannot set Failed=True condition without the FailureTarget=true condition")
    if new.complete and not new.criteria_met and (update.turned("complete") or update.turned("criteria_met")):
        refuse("cannot set Complete=True condition without the SuccessCriteriaMet=true condition")
    if new.criteria_met and new.failed:
        refuse("cannot set SuccessCriteriaMet=True and Failed=true conditions")
    if new.criteria_met and new.failure_target:
        refuse("cannot set SuccessCriteriaMet=True and FailureTarget=true conditions")
    if new.complete and not new.criteria_met and new.spec.get("successPolicy") is not None:
        refuse("cannot set Complete=True for Job with SuccessPolicy unless SuccessCriteriaMet=True")
    for fact, name in (("failed", "Failed"), ("complete", "Complete"), ("failure_target", "FailureTarget")):
        if getattr(old, fact) and not getattr(new, fact):
            refuse(f"cannot disable the terminal {name}=True condition")
    if old.criteria_met and not new.criteria_met:
        refuse("cannot disable the SuccessCriteriaMet=True condition")
    if old.complete and not old.criteria_met and new.criteria_met:
        refuse("cannot set SuccessCriteriaMet=True for Job already has Complete=true conditions")


def _check_times(update: _Update, errors: Errors) -> None:
    new, old = update.new, update.old
    started, ended = new.status.get("startTime"), new.status.get("completionTime")
    start_changed, end_changed = update.changed("startTime"), update.changed("completionTime")
    path = "status.completionTime"
    if update.turned("complete") or end_changed:
        if ended is not None and not new.complete:
            text = "cannot set completionTime when there is no Complete=True condition"
            errors.append(invalid(path, ended, text))
        if ended is None and new.complete:
            errors.append(required(path, "completionTime is required for Complete jobs"))
    # Times are stored in one form, in which the order of texts is the order of times.
    if (start_changed or end_changed) and started and ended and ended < started:
        errors.append(invalid(path, ended, "must be equal to or after `startTime`"))
    if ended is not None and old.status.get("completionTime") is not None and end_changed:
        errors.append(invalid(path, ended, "field is immutable"))
    resuming = old.suspended and condition_is(new.status.get("conditions"), "Suspended", "False")
    moved = start_changed and old.status.get("startTime") is not None
    if moved and not resuming and not new.spec.get("suspend"):
        errors.append(invalid("status.startTime", started, "field is immutable for unsuspended job once set"))


def _check_finished(update: _Update, errors: Errors) -> None:
    new = update.new
    if not new.finished:
        return
    turned = update.turned("finished")
    if new.number("active") > 0 and (turned or update.changed("active")):
        errors.append(invalid("status.active", new.status["active"], "active>0 is invalid for finished job"))
    empty = bool(new.spec.get("suspend")) and new.spec.get("completions") == 0
    if new.status.get("startTime") is None and (turned or update.changed("startTime")) and not empty:
        errors.append(required("status.startTime", "startTime is required for finished job"))
    uncounted = read(new.status, "uncountedTerminatedPods")
    if (uncounted.get("failed") or uncounted.get("succeeded")) and (
        turned or update.changed("uncountedTerminatedPods")
    ):
        errors.append(invalid("status.uncountedTerminatedPods", uncounted, "must be empty for finished job"))
    if new.number("terminating") > 0 and (turned or update.changed("terminating")):
        text = "terminating>0 is invalid for finished job"
        errors.append(invalid("status.terminating", new.status["terminating"], text))


def _check_format(text: str, completions: int | None, name: str, errors: Errors) -> None:
    if completions is None:
        return
    try:
        count_indexes(text, completions)
    except ValueError as error:
        errors.append(invalid(f"status.{name}", text, f"error parsing {name}: {error}"))


def _check_indexes(update: _Update, errors: Errors) -> None:
    spec, status = update.new.spec, update.new.status
    completions = spec.get("completions")
    completed: str = status.get("completedIndexes") or ""
    failed: Any = status.get("failedIndexes")
    per_index = spec.get("backoffLimitPerIndex") is not None
    completed_changed, failed_changed = update.changed("completedIndexes"), update.changed("failedIndexes")
    if completed_changed:
        _check_format(completed, completions, "completedIndexes", errors)
        if completed and spec.get("completionMode") != "Indexed":
            text = "cannot set non-empty completedIndexes when non-indexed completion mode"
            errors.append(invalid("status.completedIndexes", completed, text))
    if failed is None:
        return
    if failed_changed and per_index:
        _check_format(failed, completions, "failedIndexes", errors)
    elif failed_changed:
        text = "cannot set non-null failedIndexes when backoffLimitPerIndex is null"
        errors.append(invalid("status.failedIndexes", failed, text))
    if completions is not None and (failed_changed or completed_changed):
        both = first_overlap(completed, failed, completions)
        if both is not None:
            text = f"failedIndexes and completedIndexes overlap at index: {both}"
            errors.append(invalid("status.failedIndexes", failed, text))


def _check_counters(update: _Update, errors: Errors) -> None:
    new, old = update.new, update.old
    ready = new.status.get("ready")
    if ready is not None and ready > new.number("active") and (update.changed("ready") or update.changed("active")):
        errors.append(invalid("status.ready", ready, "cannot set more ready pods than active"))
    if new.number("failed") < old.number("failed"):
        errors.append(invalid("status.failed", new.number("failed"), "cannot decrease the failed counter"))
    elastic = new.spec.get("completionMode") == "Indexed" and (
        new.spec.get("completions") == new.spec.get("parallelism")
    )
    if not elastic and new.number("succeeded") < old.number("succeeded"):
        errors.append(invalid("status.succeeded", new.number("succeeded"), "cannot decrease the succeeded counter"))
