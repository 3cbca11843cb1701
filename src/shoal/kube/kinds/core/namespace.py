"""Namespaces: the label with their name, the finalizer that delays deletion until they are empty, and their phases."""

from __future__ import annotations

from typing import Final

from shoal.errors import FieldError, invalid
from shoal.kube.kinds.checks import Errors, check_qualified_finalizer, check_syntax, label_name
from shoal.kube.names import is_qualified_name
from shoal.kube.objects import Obj
from shoal.kube.rules import KindRules

NAME_LABEL: Final = "kubernetes.io/metadata.name"
FINALIZER: Final = "kubernetes"


def _default(namespace: Obj) -> None:
    """Set the label with the name. The server calls this again after it has generated a name."""
    metadata = namespace.setdefault("metadata", {})
    name = metadata.get("name")
    if name:
        metadata.setdefault("labels", {})[NAME_LABEL] = name
    status = namespace.setdefault("status", {})
    if not status.get("phase"):
        status["phase"] = "Active"


def _prepare_create(namespace: Obj) -> None:
    namespace["status"] = {"phase": "Active"}
    spec = namespace.setdefault("spec", {})
    finalizers = spec.get("finalizers") or []
    if FINALIZER not in finalizers:
        spec["finalizers"] = [*finalizers, FINALIZER]
    _default(namespace)


def _prepare_update(new: Obj, old: Obj) -> None:
    """Only /finalize changes the finalizers and only /status the status."""
    if "status" in old:
        new["status"] = old["status"]
    finalizers = (old.get("spec") or {}).get("finalizers")
    spec = new.setdefault("spec", {})
    if finalizers is None:
        spec.pop("finalizers", None)
    else:
        spec["finalizers"] = finalizers


def _check_finalizer(finalizer: str, path: str, errors: Errors) -> None:
    check_syntax(finalizer, is_qualified_name, path, errors)
    check_qualified_finalizer(finalizer, path, errors)


def _validate_create(namespace: Obj) -> list[FieldError]:
    errors: Errors = []
    for finalizer in (namespace.get("spec") or {}).get("finalizers") or ():
        _check_finalizer(finalizer, "spec.finalizers", errors)
    return errors


def _validate_update(new: Obj, old: Obj) -> list[FieldError]:
    return _validate_create(new)


def _validate_status(new: Obj, old: Obj) -> list[FieldError]:
    phase = (new.get("status") or {}).get("phase", "")
    deleting = bool((new.get("metadata") or {}).get("deletionTimestamp"))
    if deleting and phase != "Terminating":
        return [invalid("status.Phase", phase, "may only be 'Terminating' if `deletionTimestamp` is not empty")]
    if not deleting and phase != "Active":
        return [invalid("status.Phase", phase, "may only be 'Active' if `deletionTimestamp` is empty")]
    return []


def _validate_finalize(new: Obj, old: Obj) -> list[FieldError]:
    errors: Errors = []
    for index, finalizer in enumerate((new.get("spec") or {}).get("finalizers") or ()):
        _check_finalizer(finalizer, f"spec.finalizers[{index}]", errors)
    return errors


def _phase(namespace: Obj) -> str:
    return (namespace.get("status") or {}).get("phase") or ""


def _name(namespace: Obj) -> str:
    return (namespace.get("metadata") or {}).get("name") or ""


NAMESPACE = KindRules(
    default=_default,
    prepare_create=_prepare_create,
    prepare_update=_prepare_update,
    validate_create=_validate_create,
    validate_update=_validate_update,
    validate_status=_validate_status,
    name_errors=label_name,
    selectable={"status.phase": _phase, "name": _name},
    subresource_validation={"finalize": _validate_finalize},
)
