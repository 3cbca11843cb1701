"""CronJob: defaults, schedule and time zone."""

from __future__ import annotations

from typing import Final

from shoal.errors import FieldError, invalid, not_supported, required
from shoal.kube.kinds.batch.job import job_spec_warnings
from shoal.kube.kinds.batch.job_spec import check_job_spec, default_failure_policy
from shoal.kube.kinds.batch.schedule import is_time_zone, parse_schedule
from shoal.kube.kinds.checks import Errors, check_nonnegative, check_required_enum
from shoal.kube.kinds.common import check_nonnegative_fields, child, fill, name_warning, read, spec_of
from shoal.kube.kinds.core.pod import default_pod_template
from shoal.kube.objects import Obj
from shoal.kube.rules import KindRules

_MAX_NAME: Final = 52  # names of jobs add a dash and ten digits, and are label values
_CONCURRENCY: Final = ("Allow", "Forbid", "Replace")


def _default(obj: Obj) -> None:
    spec = spec_of(obj)
    fill(spec, "concurrencyPolicy", "Allow")
    spec.setdefault("suspend", False)
    spec.setdefault("successfulJobsHistoryLimit", 3)
    spec.setdefault("failedJobsHistoryLimit", 1)
    job = child(child(spec, "jobTemplate"), "spec")
    default_failure_policy(job)
    default_pod_template(child(job, "template"))


def _check_schedule(spec: Obj, zone_in_schedule: bool, errors: Errors) -> None:
    path = "spec.schedule"
    schedule = spec.get("schedule")
    if not schedule:
        errors.append(required(path))
        return
    try:
        parse_schedule(schedule)
    except ValueError as error:
        errors.append(invalid(path, schedule, str(error)))
    if "TZ" in schedule:
        if not zone_in_schedule:
            text = "cannot use TZ or CRON_TZ in schedule, use timeZone field instead"
            errors.append(invalid(path, schedule, text))
        elif spec.get("timeZone") is not None:
            text = "cannot use both timeZone field and TZ or CRON_TZ in schedule"
            errors.append(invalid(path, schedule, text))


def _check_time_zone(zone: str | None, errors: Errors) -> None:
    path = "spec.timeZone"
    if zone is None:
        return
    if not zone:
        errors.append(invalid(path, zone, "timeZone must be nil or non-empty string"))
    elif zone.lower() == "local":
        text = "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones"
        errors.append(invalid(path, zone, text))
    elif not is_time_zone(zone):
        errors.append(invalid(path, zone, f"unknown time zone {zone}"))


def _check_spec(spec: Obj, errors: Errors) -> None:
    check_nonnegative(spec.get("startingDeadlineSeconds"), "spec.startingDeadlineSeconds", errors)
    check_required_enum(spec.get("concurrencyPolicy"), _CONCURRENCY, "spec.concurrencyPolicy", errors)
    job = read(read(spec, "jobTemplate"), "spec")
    path = "spec.jobTemplate.spec"
    check_job_spec(job, path, errors)
    if job.get("selector") is not None:
        errors.append(invalid(f"{path}.selector", job["selector"], "`selector` will be auto-generated"))
    if job.get("manualSelector"):
        errors.append(not_supported(f"{path}.manualSelector", True, ("nil", "false")))
    check_nonnegative_fields(spec, ("successfulJobsHistoryLimit", "failedJobsHistoryLimit"), "spec", errors)


def _validate(obj: Obj) -> list[FieldError]:
    errors: Errors = []
    spec = read(obj, "spec")
    _check_schedule(spec, False, errors)
    _check_time_zone(spec.get("timeZone"), errors)
    _check_spec(spec, errors)
    name = obj["metadata"].get("name") or ""
    if len(name) > _MAX_NAME:
        errors.append(invalid("metadata.name", name, f"must be no more than {_MAX_NAME} characters"))
    return errors


def _validate_update(new: Obj, old: Obj) -> list[FieldError]:
    errors: Errors = []
    spec, before = read(new, "spec"), read(old, "spec")
    _check_schedule(spec, "TZ" in (before.get("schedule") or ""), errors)
    if spec.get("timeZone") != before.get("timeZone"):
        _check_time_zone(spec.get("timeZone"), errors)
    _check_spec(spec, errors)
    return errors


def _warnings(obj: Obj) -> list[str]:
    spec = read(obj, "spec")
    found = name_warning(obj) + job_spec_warnings(read(read(spec, "jobTemplate"), "spec"), "spec.jobTemplate.spec")
    if "TZ" in (spec.get("schedule") or ""):
        found.append(
            "cannot use TZ or CRON_TZ in spec.spec.schedule, use timeZone instead, see "
            "https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/ for more details"
        )
    return found


RULES: Final = KindRules(
    default=_default,
    validate_create=_validate,
    validate_update=_validate_update,
    warnings=_warnings,
)
