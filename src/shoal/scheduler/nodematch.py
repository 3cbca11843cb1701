"""Matches pods to nodes: node selectors, node affinity, taints and tolerations.

Everything is compiled once per shape into functions of a node's labels and name, or of its taints.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from shoal.kube.labels import Requirement, Selector
from shoal.kube.objects import Obj

Labels = Mapping[str, str]
NodeMatch = Callable[[Labels, str], bool]  # labels, name
_OPERATORS = {"In": "in", "NotIn": "notin", "Exists": "exists", "DoesNotExist": "!", "Gt": "gt", "Lt": "lt"}
NO_SCHEDULE = ("NoSchedule", "NoExecute")
UNSCHEDULABLE_TAINT = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}


def anything(labels: Labels, name: str) -> bool:
    return True


def _nothing(labels: Labels, name: str) -> bool:
    return False


def _term(term: Obj) -> NodeMatch | None:
    """One term; None for an empty one, which matches no node."""
    expressions, fields = term.get("matchExpressions") or (), term.get("matchFields") or ()
    if not expressions and not fields:
        return None
    selector = Selector(tuple(_requirement(each) for each in expressions))
    by_name = Selector(tuple(_requirement(each) for each in fields if each.get("key") == "metadata.name"))
    if len(by_name.requirements) != len(fields):
        return _nothing
    matches, named = selector.matches, by_name.matches
    if not fields:
        return lambda labels, name: matches(labels)
    return lambda labels, name: named({"metadata.name": name}) and matches(labels)


def _requirement(expression: Obj) -> Requirement:
    values = tuple(sorted(set(expression.get("values") or ())))
    operator = _OPERATORS.get(expression.get("operator", ""), "in")
    return Requirement(expression.get("key", ""), operator, values)


def terms_match(terms: Sequence[Obj]) -> NodeMatch:
    """Whether any term matches; an empty list matches nothing."""
    compiled = [match for match in map(_term, terms) if match is not None]
    if not compiled:
        return _nothing
    if len(compiled) == 1:
        return compiled[0]
    return lambda labels, name: any(match(labels, name) for match in compiled)


def required_match(spec: Obj) -> NodeMatch | None:
    """``nodeSelector`` and required node affinity combined; None if the pod has neither."""
    wanted = spec.get("nodeSelector")
    affinity = ((spec.get("affinity") or {}).get("nodeAffinity") or {}).get(
        "requiredDuringSchedulingIgnoredDuringExecution"
    )
    if not wanted and affinity is None:
        return None
    pairs = tuple((wanted or {}).items())
    match = terms_match(affinity.get("nodeSelectorTerms") or ()) if affinity is not None else anything
    if not pairs:
        return match
    return lambda labels, name: all(labels.get(key) == value for key, value in pairs) and match(labels, name)


def preferred_weights(spec: Obj) -> tuple[tuple[int, NodeMatch], ...]:
    """Weights of preferred node affinity, each with its condition."""
    terms = ((spec.get("affinity") or {}).get("nodeAffinity") or {}).get(
        "preferredDuringSchedulingIgnoredDuringExecution"
    )
    found = ((int(each.get("weight", 0)), _term(each.get("preference") or {})) for each in terms or ())
    return tuple((weight, match) for weight, match in found if weight and match is not None)


def tolerates(tolerations: Sequence[Obj], taint: Obj) -> bool:
    return any(_tolerates(each, taint) for each in tolerations)


def _tolerates(toleration: Obj, taint: Obj) -> bool:
    effect, key = toleration.get("effect"), toleration.get("key")
    if effect and effect != taint.get("effect"):
        return False
    if key and key != taint.get("key"):
        return False
    operator = toleration.get("operator") or "Equal"
    if operator == "Exists":
        return True
    given, wanted = toleration.get("value") or "", taint.get("value") or ""
    if operator == "Equal":
        return bool(given == wanted)
    return _compares(operator, given, wanted)


def _compares(operator: str, given: str, wanted: str) -> bool:
    """``Lt`` and ``Gt``: the taint's number against the toleration's."""
    try:
        bound, value = int(given), int(wanted)
    except ValueError:
        return False
    return value < bound if operator == "Lt" else value > bound if operator == "Gt" else False


def untolerated(taints: Sequence[Obj], tolerations: Sequence[Obj]) -> bool:
    """Whether a NoSchedule or NoExecute taint is not tolerated."""
    return any(taint.get("effect") in NO_SCHEDULE and not tolerates(tolerations, taint) for taint in taints)


def disliked(taints: Sequence[Obj], tolerations: Sequence[Obj]) -> int:
    """How many PreferNoSchedule taints are not tolerated."""
    usable = [each for each in tolerations if (each.get("effect") or "PreferNoSchedule") == "PreferNoSchedule"]
    return sum(taint.get("effect") == "PreferNoSchedule" and not tolerates(usable, taint) for taint in taints)
