"""Events of core/v1. Events of both APIs are stored in this form."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from shoal.errors import FieldError, invalid, required
from shoal.kube.kinds.checks import Errors, check_syntax, path_segment_name, size_bytes
from shoal.kube.names import is_qualified_name
from shoal.kube.objects import Obj
from shoal.kube.rules import KindRules

_LIMITS: Final = {"reportingInstance": 128, "action": 128, "reason": 128, "message": 1024}
_REFERENCE_FIELDS = ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")


def _validate_create(event: Obj) -> list[FieldError]:
    """For events with an ``eventTime`` the rules of events.k8s.io/v1 apply, which require more fields."""
    errors: Errors = []
    namespace = (event.get("metadata") or {}).get("namespace", "")
    involved = (event.get("involvedObject") or {}).get("namespace", "")
    if not event.get("eventTime"):
        matches = namespace == involved if involved else namespace in ("", "default")
    else:
        matches = bool(involved) or namespace in ("default", "kube-system")
        _check_new_event(event, errors)
    if not matches:
        errors.insert(0, invalid("involvedObject.namespace", involved, "does not match event.namespace"))
    return errors


def _check_new_event(event: Obj, errors: Errors) -> None:
    component = event.get("reportingComponent", "")
    if not component:
        errors.append(required("reportingComponent"))
    check_syntax(component, is_qualified_name, "reportingComponent", errors)
    for field, limit in _LIMITS.items():
        text = event.get(field, "")
        if not text and field != "message":
            errors.append(required(field))
        if size_bytes(text) > limit:
            errors.append(invalid(field, "", f"can have at most {limit} characters"))


def _validate_update(new: Obj, old: Obj) -> list[FieldError]:
    return _validate_create(new)


def _involved(field: str) -> Callable[[Obj], str]:
    return lambda event: (event.get("involvedObject") or {}).get(field) or ""


def _text(field: str) -> Callable[[Obj], str]:
    return lambda event: event.get(field) or ""


def _source(event: Obj) -> str:
    return (event.get("source") or {}).get("component") or event.get("reportingComponent") or ""


EVENT = KindRules(
    validate_create=_validate_create,
    validate_update=_validate_update,
    name_errors=path_segment_name,  # old clients build them from names of objects of any kind
    selectable={
        **{f"involvedObject.{field}": _involved(field) for field in _REFERENCE_FIELDS},
        "reason": _text("reason"),
        "reportingComponent": _text("reportingComponent"),
        "source": _source,
        "type": _text("type"),
    },
    indexed_fields=("involvedObject.uid", "involvedObject.name"),
)
