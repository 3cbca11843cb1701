"""Deployment: defaults, strategy and status rules."""

from __future__ import annotations

from typing import Final

from shoal.errors import FieldError, forbidden, invalid, not_supported, required
from shoal.kube.kinds.apps.workload import (
    check_collision_count,
    check_counters,
    check_replicated_template,
    check_selector,
    default_template,
    replicated_warnings,
)
from shoal.kube.kinds.checks import Errors, check_int_or_percent, check_not_above_100_percent
from shoal.kube.kinds.common import amount, check_frozen, check_nonnegative_fields, child, read, spec_of
from shoal.kube.objects import Obj
from shoal.kube.rules import KindRules

_COUNTERS: Final = (
    "observedGeneration",
    "replicas",
    "updatedReplicas",
    "readyReplicas",
    "availableReplicas",
    "unavailableReplicas",
    "terminatingReplicas",
    "collisionCount",
)


def _default(obj: Obj) -> None:
    spec = spec_of(obj)
    spec.setdefault("replicas", 1)
    strategy = child(spec, "strategy")
    if not strategy.get("type"):
        strategy["type"] = "RollingUpdate"
    if strategy["type"] == "RollingUpdate":
        rolling = child(strategy, "rollingUpdate")
        rolling.setdefault("maxUnavailable", "25%")
        rolling.setdefault("maxSurge", "25%")
    spec.setdefault("revisionHistoryLimit", 10)
    spec.setdefault("progressDeadlineSeconds", 600)
    default_template(spec)


def _check_rolling(rolling: Obj, errors: Errors) -> None:
    path = "spec.strategy.rollingUpdate"
    unavailable, surge = rolling.get("maxUnavailable", 0), rolling.get("maxSurge", 0)
    check_int_or_percent(unavailable, f"{path}.maxUnavailable", errors)
    check_int_or_percent(surge, f"{path}.maxSurge", errors)
    if amount(unavailable) == 0 and amount(surge) == 0:
        errors.append(invalid(f"{path}.maxUnavailable", unavailable, "may not be 0 when `maxSurge` is 0"))
    check_not_above_100_percent(unavailable, f"{path}.maxUnavailable", errors)


def _check_strategy(strategy: Obj, errors: Errors) -> None:
    kind = strategy.get("type")
    rolling = strategy.get("rollingUpdate")
    if kind == "Recreate":
        if rolling is not None:
            text = "may not be specified when strategy `type` is 'Recreate'"
            errors.append(forbidden("spec.strategy.rollingUpdate", text))
    elif kind == "RollingUpdate":
        if rolling is None:
            errors.append(required("spec.strategy.rollingUpdate", "this should be defaulted and never be nil"))
        else:
            _check_rolling(rolling, errors)
    else:
        errors.append(not_supported("spec.strategy", strategy, ("Recreate", "RollingUpdate")))


def _validate(obj: Obj) -> list[FieldError]:
    errors: Errors = []
    spec = read(obj, "spec")
    check_nonnegative_fields(spec, ("replicas",), "spec", errors)
    check_selector(spec, "deployment", errors)
    check_replicated_template(spec, errors)
    _check_strategy(read(spec, "strategy"), errors)
    limits = ("minReadySeconds", "revisionHistoryLimit", "progressDeadlineSeconds")
    check_nonnegative_fields(spec, limits, "spec", errors)
    deadline = spec.get("progressDeadlineSeconds")
    if deadline is not None and deadline <= (spec.get("minReadySeconds") or 0):
        errors.append(invalid("spec.progressDeadlineSeconds", deadline, "must be greater than minReadySeconds"))
    return errors


def _validate_update(new: Obj, old: Obj) -> list[FieldError]:
    errors = _validate(new)
    check_frozen(read(new, "spec").get("selector"), read(old, "spec").get("selector"), "spec.selector", errors)
    return errors


def _validate_status(new: Obj, old: Obj) -> list[FieldError]:
    errors: Errors = []
    status = read(new, "status")
    check_nonnegative_fields(status, _COUNTERS, "status", errors)
    check_counters(status, ("updatedReplicas", "readyReplicas", "availableReplicas"), "readyReplicas", errors)
    check_collision_count(new, old, errors)
    return errors


def _prepare_status(new: Obj, old: Obj) -> None:
    """A status write does not change the labels."""
    labels = old["metadata"].get("labels")
    if labels is None:
        new["metadata"].pop("labels", None)
    else:
        new["metadata"]["labels"] = labels


RULES: Final = KindRules(
    default=_default,
    prepare_status=_prepare_status,
    validate_create=_validate,
    validate_update=_validate_update,
    validate_status=_validate_status,
    warnings=replicated_warnings,
)
