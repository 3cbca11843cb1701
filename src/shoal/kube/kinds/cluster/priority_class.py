"""PriorityClass: a name for an immutable priority."""

from __future__ import annotations

from typing import Final

from shoal.errors import FieldError, forbidden
from shoal.kube.kinds.checks import Errors, check_enum
from shoal.kube.kinds.common import check_frozen
from shoal.kube.objects import Obj
from shoal.kube.rules import KindRules

HIGHEST_USER_PRIORITY: Final = 1_000_000_000
SYSTEM_CLASSES: Final = {
    "system-cluster-critical": 2 * HIGHEST_USER_PRIORITY,
    "system-node-critical": 2 * HIGHEST_USER_PRIORITY + 1000,
}
_PREEMPTION: Final = ("PreemptLowerPriority", "Never")


def _default(obj: Obj) -> None:
    obj.setdefault("preemptionPolicy", "PreemptLowerPriority")


def _system_fault(name: str, value: int, global_default: bool) -> str:
    wanted = SYSTEM_CLASSES.get(name)
    if wanted is None:
        return f"{name} is not a known system priority class"
    if value != wanted:
        return f"value of {name} PriorityClass must be {wanted}"
    return f"globalDefault of {name} PriorityClass must be false" if global_default else ""


def _validate(obj: Obj) -> list[FieldError]:
    errors: Errors = []
    name, value = obj["metadata"].get("name") or "", obj.get("value") or 0
    if name.startswith("system-"):
        fault = _system_fault(name, value, bool(obj.get("globalDefault")))
        if fault:
            text = f"priority class names with 'system-' prefix are reserved for system use only. error: {fault}"
            errors.append(forbidden("metadata.name", text))
    elif value > HIGHEST_USER_PRIORITY:
        text = f"maximum allowed value of a user defined priority is {HIGHEST_USER_PRIORITY}"
        errors.append(forbidden("value", text))
    policy = obj.get("preemptionPolicy")
    if policy is not None:
        check_enum(policy, _PREEMPTION, "preemptionPolicy", errors)
    return errors


def _validate_update(new: Obj, old: Obj) -> list[FieldError]:
    errors: Errors = []
    if (new.get("value") or 0) != (old.get("value") or 0):
        errors.append(forbidden("value", "may not be changed in an update."))
    check_frozen(new.get("preemptionPolicy"), old.get("preemptionPolicy"), "preemptionPolicy", errors)
    return errors


def bootstrap_objects() -> list[Obj]:
    """The two classes that every cluster has."""
    used_for = {
        "system-cluster-critical": "Used for system critical pods that must run in the cluster, but can be moved to "
        "another node if necessary.",
        "system-node-critical": "Used for system critical pods that must not be moved from their current node.",
    }
    return [
        {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": name},
            "value": value,
            "description": used_for[name],
            "preemptionPolicy": "PreemptLowerPriority",
        }
        for name, value in SYSTEM_CLASSES.items()
    ]


RULES: Final = KindRules(default=_default, validate_create=_validate, validate_update=_validate_update)
