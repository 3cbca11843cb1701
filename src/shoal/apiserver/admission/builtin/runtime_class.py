"""RuntimeClass: adds the overhead and the scheduling constraints of a pod's runtime class to the pod."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from shoal.apiserver.admission.builtin.object_cache import ObjectCache
from shoal.apiserver.admission.model import CREATE, Admission, Where
from shoal.apiserver.context import Core
from shoal.kube.kinds.checks import quantity_of
from shoal.kube.objects import Obj

_CLASSES: Final = "runtimeclasses.node.k8s.io"
_MISMATCH: Final = "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead"
_TOLERATION_FIELDS: Final = ("key", "operator", "value", "effect", "tolerationSeconds")


class _Class(NamedTuple):
    overhead: dict[str, str] | None  # None: not defined, which is not the same as empty
    node_selector: dict[str, str]
    tolerations: list[Obj]
    schedules: bool


def _read(obj: Obj) -> _Class:
    overhead, scheduling = obj.get("overhead"), obj.get("scheduling")
    return _Class(
        None if overhead is None else overhead.get("podFixed") or {},
        (scheduling or {}).get("nodeSelector") or {},
        (scheduling or {}).get("tolerations") or [],
        scheduling is not None,
    )


class RuntimeClass:
    """Mutates and validates new pods."""

    def __init__(self, core: Core) -> None:
        self._classes: ObjectCache[_Class] = ObjectCache(core, _CLASSES, _read)

    def start(self) -> None:
        self._classes.start()

    @property
    def version(self) -> int:
        return self._classes.version

    def handles(self, where: Where) -> bool:
        return where == ("pods", CREATE, "")

    def mutate(self, admission: Admission) -> None:
        pod = admission.object
        assert pod is not None
        spec = pod["spec"]
        chosen = self._class_of(spec, admission)
        if chosen is None:
            return
        if chosen.overhead is not None:
            if spec.get("overhead") and not _same_amounts(spec["overhead"], chosen.overhead):
                raise admission.denied(_MISMATCH)
            if chosen.overhead:
                spec["overhead"] = dict(chosen.overhead)
        if chosen.schedules:
            _schedule(spec, chosen, admission)

    def validate(self, admission: Admission) -> None:
        pod = admission.object
        assert pod is not None
        spec = pod["spec"]
        chosen = self._class_of(spec, admission)
        overhead = spec.get("overhead")
        if chosen is not None and chosen.overhead is not None:
            if not _same_amounts(overhead or {}, chosen.overhead):
                raise admission.denied(_MISMATCH)
        elif overhead is not None:
            raise admission.denied("pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead")

    def _class_of(self, spec: Obj, admission: Admission) -> _Class | None:
        name = spec.get("runtimeClassName")
        if name is None:
            return None
        found = self._classes.get(name)
        if found is None:
            raise admission.denied(f'pod rejected: RuntimeClass "{name}" not found')
        return found


def _same_amounts(left: dict[str, str], right: dict[str, str]) -> bool:
    return left.keys() == right.keys() and all(quantity_of(left[name]) == quantity_of(right[name]) for name in left)


def _schedule(spec: Obj, chosen: _Class, admission: Admission) -> None:
    selector = dict(spec.get("nodeSelector") or {})
    for key, value in chosen.node_selector.items():
        if selector.get(key, value) != value:
            raise admission.denied(
                f"conflict: runtimeClass.scheduling.nodeSelector[{key}] = {value}; "
                f"pod.spec.nodeSelector[{key}] = {selector[key]}"
            )
        selector[key] = value
    if selector:
        spec["nodeSelector"] = selector
    tolerations = merge_tolerations(spec.get("tolerations") or [], chosen.tolerations)
    if tolerations:
        spec["tolerations"] = tolerations


def merge_tolerations(first: list[Obj], second: list[Obj]) -> list[Obj]:
    """Both lists without tolerations that another one covers; of equal ones the first stays."""
    everything, merged = [*first, *second], list[Obj]()
    for index, toleration in enumerate(everything):
        if any(_covers(kept, toleration) for kept in merged):
            continue
        later = everything[index + 1 :]
        if any(_fields(toleration) != _fields(other) and _covers(other, toleration) for other in later):
            continue
        merged.append(toleration)
    return merged


def _fields(toleration: Obj) -> tuple[Any, ...]:
    key, operator, value, effect, seconds = (toleration.get(name) for name in _TOLERATION_FIELDS)
    return key or "", operator or "", value or "", effect or "", seconds


def _covers(wide: Obj, narrow: Obj) -> bool:
    """Whether ``wide`` tolerates everything that ``narrow`` tolerates."""
    if _fields(wide) == _fields(narrow):
        return True
    key, operator, value, effect, seconds = _fields(wide)
    narrow_key, narrow_operator, narrow_value, narrow_effect, narrow_seconds = _fields(narrow)
    if narrow_key != key and (key or operator != "Exists"):
        return False
    if effect and narrow_effect != effect:
        return False
    if effect == "NoExecute" and seconds is not None and (narrow_seconds is None or narrow_seconds > seconds):
        return False
    if operator in ("", "Equal"):
        return bool(narrow_operator == "Equal" and narrow_value == value)
    return bool(operator == "Exists")
