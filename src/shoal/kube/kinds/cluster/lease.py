"""Lease: the holder of a lock, and its renewal times."""

from __future__ import annotations

from typing import Final

from shoal.errors import FieldError, forbidden, invalid, not_supported
from shoal.kube.kinds.checks import Errors, check_syntax
from shoal.kube.kinds.common import read
from shoal.kube.names import is_qualified_name
from shoal.kube.objects import Obj
from shoal.kube.rules import KindRules

_STRATEGY: Final = "OldestEmulationVersion"


def _validate(obj: Obj) -> list[FieldError]:
    errors: Errors = []
    spec = read(obj, "spec")
    duration = spec.get("leaseDurationSeconds")
    if duration is not None and duration <= 0:
        errors.append(invalid("spec.leaseDurationSeconds", duration, "must be greater than 0"))
    transitions = spec.get("leaseTransitions")
    if transitions is not None and transitions < 0:
        errors.append(invalid("spec.leaseTransitions", transitions, "must be greater than or equal to 0"))
    strategy = spec.get("strategy")
    if strategy is not None:
        path = "spec.strategy.strategy"  # the path in Kubernetes' messages
        if "/" in strategy:
            check_syntax(strategy, is_qualified_name, path, errors)
        elif strategy != _STRATEGY:
            errors.append(not_supported(path, strategy, (_STRATEGY,)))
    if spec.get("preferredHolder") and not strategy:
        errors.append(forbidden("spec.preferredHolder", "may only be specified if `strategy` is defined"))
    return errors


def _validate_update(new: Obj, old: Obj) -> list[FieldError]:
    return _validate(new)


RULES: Final = KindRules(validate_create=_validate, validate_update=_validate_update)
