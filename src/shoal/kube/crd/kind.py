"""The rules of the kind CustomResourceDefinition.

The modules that implement them are imported when the first definition is written, not with this table.
"""

from __future__ import annotations

from typing import Final

from shoal.errors import FieldError
from shoal.kube.objects import Obj
from shoal.kube.rules import KindRules


def _default(obj: Obj) -> None:
    from shoal.kube.crd.definition import default_crd

    default_crd(obj)


def _prepare_create(obj: Obj) -> None:
    from shoal.kube.crd.definition import prepare_create

    prepare_create(obj)


def _prepare_update(new: Obj, old: Obj) -> None:
    from shoal.kube.crd.definition import prepare_update

    prepare_update(new, old)


def _validate(obj: Obj) -> list[FieldError]:
    from shoal.kube.crd.validation import validate_crd

    return validate_crd(obj)


def _validate_update(new: Obj, old: Obj) -> list[FieldError]:
    from shoal.kube.crd.validation import validate_crd

    return validate_crd(new, old)


def _validate_status(new: Obj, old: Obj) -> list[FieldError]:
    from shoal.kube.crd.validation import validate_status

    return validate_status(new, old)


def _warnings(obj: Obj) -> list[str]:
    from shoal.kube.crd.validation import warnings

    return warnings(obj)


_DEFINITION: Final = KindRules(
    default=_default,
    prepare_create=_prepare_create,
    prepare_update=_prepare_update,
    validate_create=_validate,
    validate_update=_validate_update,
    validate_status=_validate_status,
    warnings=_warnings,
)

RULES: dict[tuple[str, str, str], KindRules] = {("apiextensions.k8s.io", "v1", "CustomResourceDefinition"): _DEFINITION}
