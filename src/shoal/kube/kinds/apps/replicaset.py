"""ReplicaSet: defaults, validation and its field selector."""

from __future__ import annotations

from typing import Final

from shoal.errors import FieldError
from shoal.kube.kinds.apps.workload import (
    check_counters,
    check_replicated_template,
    check_selector,
    default_template,
    replicated_warnings,
)
from shoal.kube.kinds.checks import Errors
from shoal.kube.kinds.common import check_frozen, check_nonnegative_fields, read, spec_of
from shoal.kube.objects import Obj
from shoal.kube.rules import KindRules

_COUNTERS: Final = (
    "replicas",
    "fullyLabeledReplicas",
    "readyReplicas",
    "availableReplicas",
    "observedGeneration",
    "terminatingReplicas",
)


def _default(obj: Obj) -> None:
    spec = spec_of(obj)
    spec.setdefault("replicas", 1)
    default_template(spec)


def _validate(obj: Obj) -> list[FieldError]:
    errors: Errors = []
    spec = read(obj, "spec")
    check_nonnegative_fields(spec, ("replicas", "minReadySeconds"), "spec", errors)
    check_selector(spec, "deployment", errors)  # the field name that clients know, also for ReplicaSets
    check_replicated_template(spec, errors)
    return errors


def _validate_update(new: Obj, old: Obj) -> list[FieldError]:
    errors = _validate(new)
    check_frozen(read(new, "spec").get("selector"), read(old, "spec").get("selector"), "spec.selector", errors)
    return errors


def _validate_status(new: Obj, old: Obj) -> list[FieldError]:
    errors: Errors = []
    status = read(new, "status")
    check_nonnegative_fields(status, _COUNTERS, "status", errors)
    check_counters(status, ("fullyLabeledReplicas", "readyReplicas", "availableReplicas"), "readyReplicas", errors)
    return errors


def _replicas(obj: Obj) -> str:
    return str(read(obj, "status").get("replicas") or 0)


RULES: Final = KindRules(
    default=_default,
    validate_create=_validate,
    validate_update=_validate_update,
    validate_status=_validate_status,
    warnings=replicated_warnings,
    selectable={"status.replicas": _replicas},
)
