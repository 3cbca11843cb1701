"""Event of events.k8s.io/v1: stricter than core/v1, and mostly immutable.

Errors have the field names of core/v1, in both APIs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from shoal.errors import FieldError, invalid, required
from shoal.kube.kinds.checks import Errors, check_syntax, size_bytes
from shoal.kube.kinds.common import check_frozen, read
from shoal.kube.names import is_qualified_name
from shoal.kube.objects import Obj
from shoal.kube.rules import KindRules

_LIMITS: Final = (("reportingInstance", 128), ("action", 128), ("reason", 128))
_NOTE_LIMIT: Final = 1024
_OLD_FIELDS: Final = (
    ("deprecatedFirstTimestamp", "firstTimestamp"),
    ("deprecatedLastTimestamp", "lastTimestamp"),
    ("deprecatedCount", "count"),
)
_FROZEN: Final = (
    ("regarding", "involvedObject"),
    ("reason", "reason"),
    ("note", "message"),
    ("deprecatedSource", "source"),
    ("deprecatedFirstTimestamp", "firstTimestamp"),
    ("deprecatedLastTimestamp", "lastTimestamp"),
    ("deprecatedCount", "count"),
    ("type", "type"),
    ("eventTime", "eventTime"),
    ("action", "action"),
    ("related", "related"),
    ("reportingController", "reportingController"),
    ("reportingInstance", "reportingInstance"),
)


def _check_namespace(event: Obj, errors: Errors) -> None:
    """An event is in the namespace of its object, or in ``default`` if the object has none."""
    own = event["metadata"].get("namespace") or ""
    about = read(event, "regarding").get("namespace") or ""
    if event.get("eventTime"):
        fits = bool(about) or own in ("default", "kube-system")
    else:
        fits = own == about if about else own in ("", "default")
    if not fits:
        errors.append(invalid("involvedObject.namespace", about, "does not match event.namespace"))


def _check_common(event: Obj, errors: Errors) -> None:
    _check_namespace(event, errors)
    if not event.get("eventTime"):
        return
    controller = event.get("reportingController") or ""
    if not controller:
        errors.append(required("reportingController"))
    check_syntax(controller, is_qualified_name, "reportingController", errors)
    for name, limit in _LIMITS:
        value = event.get(name) or ""
        if not value:
            errors.append(required(name))
        elif size_bytes(value) > limit:
            errors.append(invalid(name, "", f"can have at most {limit} characters"))
    if size_bytes(event.get("note") or "") > _NOTE_LIMIT:
        errors.append(invalid("message", "", f"can have at most {_NOTE_LIMIT} characters"))


def _check_series(event: Obj, errors: Errors) -> None:
    series = event.get("series")
    if series is not None:
        if (series.get("count") or 0) < 2:
            errors.append(invalid("series.count", "", "should be at least 2"))
        if not series.get("lastObservedTime"):
            errors.append(required("series.lastObservedTime"))


def _validate(event: Obj) -> list[FieldError]:
    errors: Errors = []
    _check_common(event, errors)
    _check_series(event, errors)
    if not event.get("eventTime"):
        errors.append(required("eventTime"))
    kind = event.get("type") or ""
    if kind not in ("Normal", "Warning"):
        errors.append(invalid("type", "", f"has invalid value: {kind}"))
    for name, shown in _OLD_FIELDS:
        if event.get(name):
            errors.append(invalid(shown, "", "needs to be unset"))
    source = read(event, "deprecatedSource")
    if source.get("component") or source.get("host"):
        errors.append(invalid("source", "", "needs to be unset"))
    return errors


def _validate_update(new: Obj, old: Obj) -> list[FieldError]:
    errors: Errors = []
    _check_common(new, errors)
    if new.get("series") != old.get("series"):
        _check_series(new, errors)
    for name, shown in _FROZEN:
        check_frozen(new.get(name) or None, old.get(name) or None, shown, errors)
    return errors


def _field(name: str) -> Callable[[Obj], str]:
    return lambda event: str(event.get(name) or "")


def _regarding(name: str) -> Callable[[Obj], str]:
    return lambda event: str(read(event, "regarding").get(name) or "")


_REFERENCE: Final = ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")

RULES: Final = KindRules(
    validate_create=_validate,
    validate_update=_validate_update,
    selectable={
        **{f"regarding.{name}": _regarding(name) for name in _REFERENCE},
        **{name: _field(name) for name in ("reason", "reportingController", "type")},
    },
)
