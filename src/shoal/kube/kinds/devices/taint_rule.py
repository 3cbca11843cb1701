"""DeviceTaintRule: a taint on all devices that a selector matches."""

from __future__ import annotations

from typing import Final

from shoal.errors import FieldError, too_many
from shoal.kube.kinds.checks import Errors, check_conditions, check_syntax
from shoal.kube.kinds.devices.resource_slice import check_taint
from shoal.kube.kinds.devices.shared import check_pool_name
from shoal.kube.names import is_dns1123_label, is_dns1123_subdomain
from shoal.kube.objects import Obj
from shoal.kube.rules import KindRules

_MAX_CONDITIONS: Final = 8


def _check_selector(selector: Obj, errors: Errors) -> None:
    path = "spec.deviceSelector"
    if "driver" in selector:
        check_syntax(selector["driver"], is_dns1123_subdomain, f"{path}.driver", errors)
    if "pool" in selector:
        check_pool_name(selector["pool"], f"{path}.pool", errors)
    if "device" in selector:
        check_syntax(selector["device"], is_dns1123_label, f"{path}.device", errors)


def _validate(obj: Obj) -> list[FieldError]:
    errors: Errors = []
    spec = obj.get("spec") or {}
    _check_selector(spec.get("deviceSelector") or {}, errors)
    check_taint(spec.get("taint") or {}, "spec.taint", errors)
    return errors


def _validate_update(new: Obj, old: Obj) -> list[FieldError]:
    return _validate(new)


def _validate_status(new: Obj, old: Obj) -> list[FieldError]:
    errors: Errors = []
    conditions = (new.get("status") or {}).get("conditions") or []
    check_conditions(conditions, "status.conditions", errors)
    if len(conditions) > _MAX_CONDITIONS:
        errors.append(too_many("status.conditions", len(conditions), _MAX_CONDITIONS))
    return errors


RULES = KindRules(validate_create=_validate, validate_update=_validate_update, validate_status=_validate_status)
