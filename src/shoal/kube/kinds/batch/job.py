"""Job: defaults, the generated selector, and the fields that may change while it is suspended."""

from __future__ import annotations

from typing import Any, Final

from shoal.errors import FieldError, invalid, required
from shoal.kube.kinds.batch.job_spec import check_job_spec, default_failure_policy
from shoal.kube.kinds.batch.job_status import validate_job_status
from shoal.kube.kinds.checks import Errors, check_label_selector
from shoal.kube.kinds.common import (
    MAX_INT32,
    check_frozen,
    check_frozen_fields,
    child,
    condition_is,
    fill,
    name_warning,
    read,
    selector_matches,
    spec_of,
)
from shoal.kube.kinds.core.pod import default_pod_template, template_warnings
from shoal.kube.names import is_dns1123_label
from shoal.kube.objects import Obj
from shoal.kube.rules import KindRules

_UID: Final = "batch.kubernetes.io/controller-uid"
_NAME: Final = "batch.kubernetes.io/job-name"
_UID_LABELS: Final = ("controller-uid", _UID)
_NAME_LABELS: Final = ("job-name", _NAME)
_FROZEN: Final = ("completionMode", "podFailurePolicy", "backoffLimitPerIndex", "managedBy", "successPolicy")
_MANY_COMPLETIONS: Final = 100_000
_MUCH_PARALLELISM: Final = 10_000
_SCHEDULING: Final = ("nodeSelector", "tolerations", "schedulingGates")


def _default(obj: Obj) -> None:
    spec = spec_of(obj)
    if spec.get("parallelism") is None:
        if spec.get("completions") is None:
            spec["completions"] = 1
        spec["parallelism"] = 1
    spec.setdefault("backoffLimit", 6 if spec.get("backoffLimitPerIndex") is None else MAX_INT32)
    spec.setdefault("completionMode", "NonIndexed")
    spec.setdefault("suspend", False)
    spec.setdefault("podReplacementPolicy", "TerminatingOrFailed" if spec.get("podFailurePolicy") is None else "Failed")
    spec.setdefault("manualSelector", False)
    default_failure_policy(spec)
    default_pod_template(child(spec, "template"))


def _mirror_labels(obj: Obj) -> None:
    """A job without labels gets the labels of its pods."""
    labels = read(read(spec_of(obj), "template"), "metadata").get("labels")
    if labels:
        fill(obj["metadata"], "labels", dict(labels))


def _prepare_create(obj: Obj) -> None:
    spec = spec_of(obj)
    if not spec.get("manualSelector"):
        name, uid = obj["metadata"].get("name", ""), obj["metadata"].get("uid", "")
        labels = child(child(child(spec, "template"), "metadata"), "labels")
        for key in _NAME_LABELS:
            labels.setdefault(key, name)
        for key in _UID_LABELS:
            labels.setdefault(key, uid)
        child(child(spec, "selector"), "matchLabels").setdefault(_UID, uid)
    _mirror_labels(obj)


def _prepare_update(new: Obj, old: Obj) -> None:
    _mirror_labels(new)


def _check_label(labels: dict[str, str], key: str, wanted: str, errors: Errors) -> None:
    found = labels.get(key)
    path = f"spec.template.metadata.labels[{key}]"
    if found is None:
        errors.append(required(path, f"must be '{wanted}'"))
    elif found != wanted:
        errors.append(invalid(path, labels, f"must be '{wanted}'"))


def _check_generated_selector(obj: Obj, errors: Errors) -> None:
    spec, metadata = read(obj, "spec"), obj["metadata"]
    selector = spec.get("selector")
    if spec.get("manualSelector") or selector is None:
        return
    name, uid = metadata.get("name", ""), metadata.get("uid", "")
    if not uid:
        errors.append(required("metadata.uid"))
    labels = read(read(read(spec, "template"), "metadata"), "labels")
    wanted = {"controller-uid": uid, "job-name": name, _UID: uid, _NAME: name}
    for key, value in wanted.items():
        _check_label(labels, key, value, errors)
    if selector_matches(selector, wanted) is False:
        errors.append(invalid("spec.selector", selector, "`selector` not auto-generated"))


def _check_spec(spec: Obj, errors: Errors) -> None:
    check_job_spec(spec, "spec", errors)
    selector = spec.get("selector")
    if selector is None:
        errors.append(required("spec.selector"))
    check_label_selector(selector, "spec.selector", errors)
    labels = read(read(read(spec, "template"), "metadata"), "labels")
    if selector_matches(selector, labels) is False:
        text = "`selector` does not match template `labels`"
        errors.append(invalid("spec.template.metadata.labels", labels or None, text))


def _check_name(obj: Obj, errors: Errors) -> None:
    """The name of an indexed job and its largest index form a host name, whose length is limited."""
    spec = read(obj, "spec")
    completions = spec.get("completions")
    if spec.get("completionMode") == "Indexed" and completions is not None and completions > 0:
        name = obj["metadata"].get("name", "")
        host = f"{name}-{completions - 1}"
        if is_dns1123_label(host):
            text = f"will not able to create pod with invalid DNS label: {host}"
            errors.append(invalid("metadata.name", name, text))


def _validate(obj: Obj) -> list[FieldError]:
    errors: Errors = []
    _check_generated_selector(obj, errors)
    _check_spec(read(obj, "spec"), errors)
    _check_name(obj, errors)
    return errors


def _check_completions(spec: Obj, old: Obj, errors: Errors) -> None:
    """Completions of an indexed job may change if they stay equal to its parallelism."""
    after, before = spec.get("completions"), old.get("completions")
    if spec.get("completionMode") != "Indexed":
        check_frozen(after, before, "spec.completions", errors)
    elif after is not None and after != before and after != spec.get("parallelism"):
        errors.append(invalid("spec.completions", after, "can only be modified in tandem with spec.parallelism"))


def _template_is_open(job: Obj) -> bool:
    """Whether scheduling directives and resources of the template may change: the job is suspended and has no pods."""
    status = read(job, "status")
    halted = status.get("startTime") is None or condition_is(status.get("conditions"), "Suspended")
    return bool(read(job, "spec").get("suspend")) and halted and not status.get("active")


def _check_template(new: Obj, old: Obj, errors: Errors) -> None:
    template, before = read(read(new, "spec"), "template"), read(read(old, "spec"), "template")
    if not _template_is_open(old):
        check_frozen(template, before, "spec.template", errors)
        return
    pod, old_pod = read(template, "spec"), read(before, "spec")
    check_frozen(_closed_part(pod, old_pod), _closed_part(old_pod, pod), "spec.template.spec", errors)


def _closed_part(pod: Obj, other: Obj) -> Obj:
    """The part of a pod spec that may never change: all but scheduling directives and resources."""
    part = {key: value for key, value in pod.items() if key not in _SCHEDULING}
    affinity = {key: value for key, value in read(pod, "affinity").items() if key != "nodeAffinity"}
    part["affinity"] = affinity
    for name in ("containers", "initContainers"):
        part[name] = _without_resources(pod.get(name), other.get(name))
    return part


def _without_resources(containers: list[Obj] | None, others: list[Obj] | None) -> list[dict[str, Any]]:
    mine, theirs = containers or [], others or []
    if len(mine) != len(theirs):
        return mine
    return [
        {key: value for key, value in one.items() if key != "resources" or one.get("name") != two.get("name")}
        for one, two in zip(mine, theirs, strict=True)
    ]


def _validate_update(new: Obj, old: Obj) -> list[FieldError]:
    errors: Errors = []
    spec, before = read(new, "spec"), read(old, "spec")
    _check_spec(spec, errors)
    _check_completions(spec, before, errors)
    check_frozen(spec.get("selector"), before.get("selector"), "spec.selector", errors)
    _check_template(new, old, errors)
    check_frozen_fields(spec, before, _FROZEN, "spec", errors)
    _check_name(new, errors)
    return errors


def job_spec_warnings(spec: Obj, path: str) -> list[str]:
    found = list(template_warnings(read(spec, "template"), f"{path}.template"))
    many = (spec.get("completions") or 0) > _MANY_COMPLETIONS and (spec.get("parallelism") or 0) > _MUCH_PARALLELISM
    if many and spec.get("completionMode") == "Indexed":
        found.append(
            f"{path}: In Indexed Jobs with a number of completions higher than 10^5 and a parallelism higher than "
            "10^4, Kubernetes might not be able to track completedIndexes when a big number of indexes fail"
        )
    return found


def _warnings(obj: Obj) -> list[str]:
    return name_warning(obj) + job_spec_warnings(read(obj, "spec"), "spec")


def _successful(obj: Obj) -> str:
    return str(read(obj, "status").get("succeeded") or 0)


RULES: Final = KindRules(
    default=_default,
    prepare_create=_prepare_create,
    prepare_update=_prepare_update,
    validate_create=_validate,
    validate_update=_validate_update,
    validate_status=validate_job_status,
    warnings=_warnings,
    selectable={"status.successful": _successful},
)
