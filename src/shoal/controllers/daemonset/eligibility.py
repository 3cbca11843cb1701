"""Which nodes are eligible for a DaemonSet: affinity, selector, taints; and the tolerations of its pods. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from shoal.kube import labels
from shoal.kube.objects import Obj

NODE_NAME_FIELD: Final = "metadata.name"

_OPERATORS: Final = {
    "In": labels.IN, "NotIn": labels.NOT_IN, "Exists": labels.EXISTS, "DoesNotExist": labels.ABSENT,
    "Gt": labels.GREATER, "Lt": labels.LESS,
}  # fmt: skip
_TOLERATED: Final = (
    ("node.kubernetes.io/not-ready", "NoExecute"),
    ("node.kubernetes.io/unreachable", "NoExecute"),
    ("node.kubernetes.io/disk-pressure", "NoSchedule"),
    ("node.kubernetes.io/memory-pressure", "NoSchedule"),
    ("node.kubernetes.io/pid-pressure", "NoSchedule"),
    ("node.kubernetes.io/unschedulable", "NoSchedule"),
)
_WITHOUT_NETWORK: Final = ("node.kubernetes.io/network-unavailable", "NoSchedule")


@dataclass(frozen=True, slots=True)
class Fit:
    """Whether a node should get the set's pod, and whether an existing one may stay."""

    runs: bool
    stays: bool


_NO: Final = Fit(False, False)


def tolerations_of(spec: Obj) -> list[Obj]:
    """The tolerations of the pods: the template's, and those for node states that daemons must survive."""
    wanted = (*_TOLERATED, _WITHOUT_NETWORK) if spec.get("hostNetwork") else _TOLERATED
    added = [{"key": key, "operator": "Exists", "effect": effect} for key, effect in wanted]
    return [each for each in spec.get("tolerations") or () if each not in added] + added


def tolerates(toleration: Obj, taint: Obj) -> bool:
    if toleration.get("effect") and toleration["effect"] != taint["effect"]:
        return False
    key, operator = toleration.get("key") or "", toleration.get("operator") or "Equal"
    if key and key != taint["key"]:
        return False
    if operator == "Exists":
        return True
    return operator == "Equal" and bool(key) and (toleration.get("value") or "") == (taint.get("value") or "")


@lru_cache(maxsize=4096)
def _requirement(key: str, operator: str, values: tuple[str, ...]) -> labels.Selector | None:
    try:
        return labels.Selector((labels.make_requirement(key, _OPERATORS[operator], values),))
    except (KeyError, ValueError):
        return None


def _matches(expression: Obj, tags: Mapping[str, str]) -> bool:
    selector = _requirement(expression["key"], expression["operator"], tuple(expression.get("values") or ()))
    return selector is not None and selector.matches(tags)


def _term_matches(term: Obj, tags: Mapping[str, str], fields: Mapping[str, str]) -> bool:
    expressions, names = term.get("matchExpressions") or (), term.get("matchFields") or ()
    if not expressions and not names:
        return False
    return all(_matches(each, tags) for each in expressions) and all(_field_matches(each, fields) for each in names)


def _field_matches(expression: Obj, fields: Mapping[str, str]) -> bool:
    value, values = fields.get(expression["key"]), expression.get("values") or ()
    return value in values if expression["operator"] == "In" else value not in values


def _required_terms(spec: Obj) -> list[Obj] | None:
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    return None if required is None else required.get("nodeSelectorTerms") or []


def affinity_matches(spec: Obj, node: Obj) -> bool:
    """Whether the node matches the pod's node selector and affinity."""
    tags: Mapping[str, str] = node["metadata"].get("labels") or {}
    if any(tags.get(key) != value for key, value in (spec.get("nodeSelector") or {}).items()):
        return False
    terms = _required_terms(spec)
    if terms is None:
        return True
    fields = {NODE_NAME_FIELD: node["metadata"]["name"]}
    return any(_term_matches(term, tags, fields) for term in terms)


def fit(spec: Obj, tolerations: Sequence[Obj], node: Obj) -> Fit:
    """How the pods of a template's ``spec`` fit a node."""
    pinned = spec.get("nodeName")
    if (pinned and pinned != node["metadata"]["name"]) or not affinity_matches(spec, node):
        return _NO
    effects = {
        taint["effect"]
        for taint in (node.get("spec") or {}).get("taints") or ()
        if not any(tolerates(each, taint) for each in tolerations)
    }
    stays = "NoExecute" not in effects
    return Fit(stays and "NoSchedule" not in effects, stays)


def pinned_to(affinity: Obj | None, node: str) -> Obj:
    """The affinity of a pod that may only run on one node; its other node requirements are already checked."""
    field = {"key": NODE_NAME_FIELD, "operator": "In", "values": [node]}
    required = {"nodeSelectorTerms": [{"matchFields": [field]}]}
    present = affinity or {}
    nodes = {**(present.get("nodeAffinity") or {}), "requiredDuringSchedulingIgnoredDuringExecution": required}
    return {**present, "nodeAffinity": nodes}


def node_of(pod: Obj) -> str:
    """The node that a pod is on, or pinned to."""
    found: str = pod["spec"].get("nodeName") or ""
    if found:
        return found
    for term in _required_terms(pod["spec"]) or ():
        for field in term.get("matchFields") or ():
            if field["key"] == NODE_NAME_FIELD and field["operator"] == "In" and len(field["values"]) == 1:
                return str(field["values"][0])
    return ""
