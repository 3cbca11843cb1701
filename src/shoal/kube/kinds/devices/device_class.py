"""DeviceClass: a category of devices, selected by expressions, with configuration."""

from __future__ import annotations

from typing import Final

from shoal.errors import FieldError, invalid, too_many
from shoal.kube.kinds.checks import Errors
from shoal.kube.kinds.common import deep_same, read
from shoal.kube.kinds.core.resources import is_extended
from shoal.kube.kinds.devices.shared import MAX_LIST, check_configuration, check_selectors
from shoal.kube.objects import Obj
from shoal.kube.rules import KindRules


def _check_class(spec: Obj, old: Obj | None, errors: Errors) -> None:
    if old is None or not deep_same(spec.get("selectors"), old.get("selectors")):
        check_selectors(spec.get("selectors") or [], "spec.selectors", errors)
    configs = spec.get("config") or []
    if len(configs) > MAX_LIST:
        errors.append(too_many("spec.config", len(configs), MAX_LIST))
    for position, config in enumerate(configs):
        check_configuration(config, f"spec.config[{position}]", errors)
    name = spec.get("extendedResourceName")
    if name is not None and not is_extended(name):
        errors.append(invalid("spec.extendedResourceName", name, "must be a valid extended resource name"))


def _validate_class(obj: Obj) -> list[FieldError]:
    errors: Errors = []
    _check_class(read(obj, "spec"), None, errors)
    return errors


def _validate_class_update(new: Obj, old: Obj) -> list[FieldError]:
    errors: Errors = []
    _check_class(read(new, "spec"), read(old, "spec"), errors)
    return errors


RULES: Final = KindRules(validate_create=_validate_class, validate_update=_validate_class_update)
