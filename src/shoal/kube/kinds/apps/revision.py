"""ControllerRevision: an immutable snapshot of a template."""

from __future__ import annotations

from typing import Final

from shoal.errors import FieldError, required
from shoal.kube.kinds.checks import Errors, check_nonnegative
from shoal.kube.kinds.common import check_frozen
from shoal.kube.objects import Obj
from shoal.kube.rules import KindRules


def _validate(obj: Obj) -> list[FieldError]:
    errors: Errors = []
    check_nonnegative(obj.get("revision"), "revision", errors)
    data = obj.get("data")
    if data is None:
        errors.append(required("data", "data is mandatory"))
    elif not isinstance(data, dict):
        errors.append(required("data", "data must be a valid JSON object"))
    return errors


def _validate_update(new: Obj, old: Obj) -> list[FieldError]:
    errors: Errors = []
    check_nonnegative(new.get("revision"), "revision", errors)
    check_frozen(new.get("data"), old.get("data"), "data", errors)
    return errors


RULES: Final = KindRules(validate_create=_validate, validate_update=_validate_update)
