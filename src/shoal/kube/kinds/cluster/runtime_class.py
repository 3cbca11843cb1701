"""RuntimeClass: the handler of a pod, its overhead, and the nodes that have it."""

from __future__ import annotations

from typing import Final

from shoal.errors import FieldError, duplicate, required
from shoal.kube.kinds.checks import Errors, check_labels, check_syntax
from shoal.kube.kinds.common import check_frozen, read
from shoal.kube.kinds.core.resources import check_requirements
from shoal.kube.kinds.core.scheduling import check_tolerations
from shoal.kube.names import is_dns1123_label
from shoal.kube.objects import Obj
from shoal.kube.rules import KindRules

_TOLERATION_KEYS: Final = ("key", "operator", "value", "effect")
_DEPRECATED_LABELS: Final = {
    "beta.kubernetes.io/arch": "kubernetes.io/arch",
    "beta.kubernetes.io/os": "kubernetes.io/os",
    "beta.kubernetes.io/instance-type": "node.kubernetes.io/instance-type",
    "failure-domain.beta.kubernetes.io/region": "topology.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone": "topology.kubernetes.io/zone",
}


def _validate(obj: Obj) -> list[FieldError]:
    errors: Errors = []
    handler = obj.get("handler")
    if not handler:
        errors.append(required("handler"))
    else:
        check_syntax(handler, is_dns1123_label, "handler", errors)
    overhead = obj.get("overhead")
    if overhead is not None:
        check_requirements({"limits": overhead.get("podFixed") or {}}, "overhead", errors)
    scheduling = read(obj, "scheduling")
    check_labels(scheduling.get("nodeSelector"), "scheduling.nodeSelector", errors)
    tolerations = scheduling.get("tolerations") or []
    check_tolerations(tolerations, "scheduling.tolerations", errors)
    seen = set()
    for position, toleration in enumerate(tolerations):
        key = tuple(toleration.get(name) or "" for name in _TOLERATION_KEYS)
        if key in seen:
            errors.append(duplicate(f"scheduling.tolerations[{position}]", toleration))
        seen.add(key)
    return errors


def _validate_update(new: Obj, old: Obj) -> list[FieldError]:
    errors = _validate(new)
    check_frozen(new.get("handler"), old.get("handler"), "handler", errors)
    return errors


def _warnings(obj: Obj) -> list[str]:
    selector = read(read(obj, "scheduling"), "nodeSelector")
    return [
        f'scheduling.nodeSelector: deprecated since v1.14; use "{newer}" instead'
        for label, newer in _DEPRECATED_LABELS.items()
        if label in selector
    ]


RULES: Final = KindRules(validate_create=_validate, validate_update=_validate_update, warnings=_warnings)
