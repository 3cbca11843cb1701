"""The scale subresource: the replicas and selector of a workload."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from shoal.errors import BadRequest, FieldError, InternalError, Invalid, invalid
from shoal.kube.labels import from_object, from_set
from shoal.kube.objects import Obj

_METADATA: Final = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")


@dataclass(frozen=True, slots=True)
class ScalePaths:
    """The fields of a custom resource that Scale shows: JSON paths without subscripts, such as ``.spec.replicas``."""

    spec_replicas: str
    status_replicas: str
    label_selector: str = ""


def scale_of(resource_kind: str, obj: Obj, paths: ScalePaths | None = None) -> Obj:
    """The autoscaling/v1 Scale of a workload; ``paths`` for custom resources."""
    if paths is not None:
        replicas, current, selector = _custom(obj, paths)
    else:
        spec = obj.get("spec") or {}
        replicas = spec.get("replicas")
        current = (obj.get("status") or {}).get("replicas")
        selector = _selector_text(resource_kind, spec.get("selector"))
    metadata = obj["metadata"]
    status: Obj = {"replicas": current or 0}
    if selector:
        status["selector"] = selector
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {name: metadata[name] for name in _METADATA if name in metadata},
        "spec": {"replicas": replicas or 0},
        "status": status,
    }


def _selector_text(kind: str, selector: Obj | None) -> str:
    if kind == "ReplicationController":
        return str(from_set(selector))
    try:
        return str(from_object(selector))
    except BadRequest:
        return ""


def _names(path: str) -> list[str]:
    return [name for name in path.split(".") if name]


def _at(obj: Obj, path: str) -> Any:
    value: Any = obj
    for name in _names(path):
        if not isinstance(value, dict):
            return None
        value = value.get(name)
    return value


def _custom(obj: Obj, paths: ScalePaths) -> tuple[Any, Any, str]:
    replicas = _at(obj, paths.spec_replicas)
    if not isinstance(replicas, int):
        raise InternalError(f'the spec replicas field "{paths.spec_replicas}" does not exist')
    current = _at(obj, paths.status_replicas)
    selector = _at(obj, paths.label_selector) if paths.label_selector else ""
    return (
        replicas,
        current if isinstance(current, int) else 0,
        selector if isinstance(selector, str) else "",
    )


def scale_errors(scale: Obj) -> list[FieldError]:
    replicas = (scale.get("spec") or {}).get("replicas") or 0
    return [invalid("spec.replicas", replicas, "must be greater than or equal to 0")] if replicas < 0 else []


def apply_scale(obj: Obj, scale: Obj, paths: ScalePaths | None = None) -> None:
    """Set the replicas of ``obj`` in place; raises ``Invalid`` for a scale that is not valid.

    A resourceVersion or uid in the scale becomes that of the object, so that the write that follows checks it.
    """
    errors = scale_errors(scale)
    metadata = scale.get("metadata") or {}
    if errors:
        name = metadata.get("name") or obj["metadata"].get("name", "")
        raise Invalid.of("Scale", "autoscaling", name, errors)
    for field in ("resourceVersion", "uid"):
        if metadata.get(field):
            obj["metadata"][field] = metadata[field]
    *parents, last = _names(paths.spec_replicas if paths is not None else ".spec.replicas")
    target = obj
    for name in parents:
        child = target.get(name)
        if not isinstance(child, dict):
            child = target[name] = {}
        target = child
    target[last] = (scale.get("spec") or {}).get("replicas") or 0
