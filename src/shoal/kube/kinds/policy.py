"""policy/v1: PodDisruptionBudget."""

from __future__ import annotations

from typing import Final

from shoal.errors import FieldError, invalid
from shoal.kube.kinds.checks import (
    Errors,
    check_conditions,
    check_enum,
    check_int_or_percent,
    check_label_selector,
    check_not_above_100_percent,
)
from shoal.kube.kinds.common import check_nonnegative_fields, read
from shoal.kube.objects import Obj
from shoal.kube.rules import KindRules

_EVICTION_POLICIES: Final = ("AlwaysAllow", "IfHealthyBudget")
_COUNTERS: Final = ("disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods")


def _validate(obj: Obj) -> list[FieldError]:
    errors: Errors = []
    spec = read(obj, "spec")
    if spec.get("minAvailable") is not None and spec.get("maxUnavailable") is not None:
        errors.append(invalid("spec", spec, "minAvailable and maxUnavailable cannot be both set"))
    for name in ("minAvailable", "maxUnavailable"):
        value = spec.get(name)
        if value is not None:
            check_int_or_percent(value, f"spec.{name}", errors)
            check_not_above_100_percent(value, f"spec.{name}", errors)
    check_label_selector(spec.get("selector"), "spec.selector", errors)
    policy = spec.get("unhealthyPodEvictionPolicy")
    if policy is not None:
        check_enum(policy, _EVICTION_POLICIES, "spec.unhealthyPodEvictionPolicy", errors)
    return errors


def _validate_update(new: Obj, old: Obj) -> list[FieldError]:
    return _validate(new)


def _validate_status(new: Obj, old: Obj) -> list[FieldError]:
    errors: Errors = []
    status = read(new, "status")
    check_conditions(status.get("conditions"), "status.conditions", errors)
    check_nonnegative_fields(status, _COUNTERS, "status", errors)
    return errors


RULES: dict[tuple[str, str, str], KindRules] = {
    ("policy", "v1", "PodDisruptionBudget"): KindRules(
        validate_create=_validate, validate_update=_validate_update, validate_status=_validate_status
    ),
}
