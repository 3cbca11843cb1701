"""Priority: resolves a priority class name to its value and preemption policy; allows one default class."""

from __future__ import annotations

from typing import Final, NamedTuple

from shoal.apiserver.admission.builtin.object_cache import ObjectCache
from shoal.apiserver.admission.model import CREATE, UPDATE, Admission, Where
from shoal.apiserver.context import Core
from shoal.kube.objects import Obj

CLASSES: Final = "priorityclasses.scheduling.k8s.io"
_ON_PODS: Final = (("pods", CREATE, ""), ("pods", UPDATE, ""))
_ON_CLASSES: Final = ((CLASSES, CREATE, ""), (CLASSES, UPDATE, ""))


class _Class(NamedTuple):
    name: str
    value: int
    policy: str | None
    is_default: bool


_NO_CLASS: Final = _Class("", 0, "PreemptLowerPriority", False)


def _read(obj: Obj) -> _Class:
    return _Class(
        obj["metadata"]["name"], obj.get("value") or 0, obj.get("preemptionPolicy"), bool(obj.get("globalDefault"))
    )


class Priority:
    def __init__(self, core: Core) -> None:
        self._classes: ObjectCache[_Class] = ObjectCache(core, CLASSES, _read)

    def start(self) -> None:
        self._classes.start()

    @property
    def version(self) -> int:
        return self._classes.version

    def handles(self, where: Where) -> bool:
        return where in _ON_PODS

    def mutate(self, admission: Admission) -> None:
        pod = admission.object
        assert pod is not None
        if admission.operation == UPDATE:
            _keep(pod, admission.old)
            return
        spec = pod["spec"]
        chosen = self._class_of(spec.get("priorityClassName") or "", admission)
        if chosen.name:
            spec["priorityClassName"] = chosen.name
        given = spec.get("priority")
        if given is not None and given != chosen.value:
            raise admission.denied(
                f"the integer value of priority ({given}) must not be provided in pod spec; priority admission "
                f"controller computed {chosen.value} from the given PriorityClass name"
            )
        spec["priority"] = chosen.value
        if chosen.policy is None:
            return
        given = spec.get("preemptionPolicy")
        if given is not None and given != chosen.policy:
            raise admission.denied(
                f"the string value of PreemptionPolicy ({given}) must not be provided in pod spec; priority admission "
                f"controller computed {chosen.policy} from the given PriorityClass name"
            )
        spec["preemptionPolicy"] = chosen.policy

    def _class_of(self, name: str, admission: Admission) -> _Class:
        if not name:
            return self._default() or _NO_CLASS
        found = self._classes.get(name)
        if found is None:
            raise admission.denied(f"no PriorityClass with name {name} was found")
        return found

    def default_class(self) -> str:
        """The name of the class for pods that name none, "" when there is none."""
        return (self._default() or _NO_CLASS).name

    def _default(self) -> _Class | None:
        """The default class; the lowest if there are several, which two servers can create at the same time."""
        found = (known for known in self._classes.of().values() if known.is_default)
        return min(found, key=lambda known: known.value, default=None)


class OneDefaultPriorityClass:
    """The other half of the plugin: rejects a second default class."""

    def __init__(self, priority: Priority) -> None:
        self._priority = priority

    def handles(self, where: Where) -> bool:
        return where in _ON_CLASSES

    def validate(self, admission: Admission) -> None:
        new = admission.object
        if new is None or not new.get("globalDefault"):
            return
        found = self._priority.default_class()
        if found and (admission.operation == CREATE or found != new["metadata"]["name"]):
            raise admission.denied(f"PriorityClass {found} is already marked as default. Only one default can exist")


def _keep(new: Obj, old: Obj | None) -> None:
    before = (old or {}).get("spec") or {}
    for name in ("priority", "preemptionPolicy"):
        if new["spec"].get(name) is None and before.get(name) is not None:
            new["spec"][name] = before[name]
