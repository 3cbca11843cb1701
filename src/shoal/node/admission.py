"""Whether a node admits a pod that was bound to it.

The scheduler may have used old data, or the pod was bound without it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from shoal.kube.objects import Obj
from shoal.node.pod_failure import PodFailure
from shoal.node.resources import ACCOUNTED, amounts, total_requests, used


def refusal(pod: Obj, node: Obj, others: Iterable[Obj]) -> PodFailure | None:
    """Why the node rejects the pod next to its current pods ``others``; None if it admits the pod."""
    others = tuple(others)
    found = _resources(pod, node, others) or _selection(pod, node) or port_conflict(pod, others)
    if found is None:
        return None
    reason, message = found
    return PodFailure(reason, f"Pod was rejected: {message}", rejected=True)


def _resources(pod: Obj, node: Obj, others: tuple[Obj, ...]) -> tuple[str, str] | None:
    has = amounts((node.get("status") or {}).get("allocatable"))
    if len(others) + 1 > has.get("pods", 0):
        return "OutOfpods", _short("pods", 1, len(others), has.get("pods", 0))
    needs, taken = total_requests(pod), used(others)
    for name in sorted(needs, key=lambda each: (each not in ACCOUNTED, each)):
        if needs[name] and needs[name] + taken.get(name, 0) > has.get(name, 0):
            return f"OutOf{name}", _short(name, needs[name], taken.get(name, 0), has.get(name, 0))
    return None


def _short(name: str, requested: int, taken: int, capacity: int) -> str:
    figures = f"requested: {requested}, used: {taken}, capacity: {capacity}"
    return f"Node didn't have enough resource: {name}, {figures}"


def _selection(pod: Obj, node: Obj) -> tuple[str, str] | None:
    labels = node["metadata"].get("labels") or {}
    wanted = pod["spec"].get("nodeSelector") or {}
    affinity = (pod["spec"].get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    fits = all(labels.get(key) == value for key, value in wanted.items())
    if fits and required is not None:
        fits = any(_term(term, labels, node["metadata"]["name"]) for term in required.get("nodeSelectorTerms") or ())
    if fits:
        return None
    return "NodeAffinity", "Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector"


def _term(term: Obj, labels: Mapping[str, str], name: str) -> bool:
    expressions, fields = term.get("matchExpressions") or (), term.get("matchFields") or ()
    if not expressions and not fields:
        return False
    by_label = all(_expression(each, labels) for each in expressions)
    return by_label and all(_expression(each, {"metadata.name": name}) for each in fields)


def _expression(expression: Obj, labels: Mapping[str, str]) -> bool:
    found = labels.get(expression["key"])
    values = expression.get("values") or ()
    match expression["operator"]:
        case "In":
            return found in values
        case "NotIn":
            return found not in values
        case "Exists":
            return found is not None
        case "DoesNotExist":
            return found is None
        case "Gt" | "Lt" as operator:
            return _compare(operator, found, values)
    return False


def _compare(operator: str, found: str | None, values: Iterable[str]) -> bool:
    try:
        left, right = int(found or ""), int(next(iter(values), ""))
    except ValueError:
        return False
    return left > right if operator == "Gt" else left < right


def port_conflict(pod: Obj, others: Iterable[Obj]) -> tuple[str, str] | None:
    """Reason and message if a host port of the pod is in use by another pod."""
    mine = _host_ports(pod)
    taken = {port for other in others for port in _host_ports(other)} if mine else set()
    for address, protocol, port in mine:
        for other_address, other_protocol, other_port in taken:
            shared = address == other_address or "0.0.0.0" in (address, other_address)
            if shared and (protocol, port) == (other_protocol, other_port):
                message = "node(s) didn't have free ports for the requested pod ports"
                return "NodePorts", f"Predicate NodePorts failed: {message}"
    return None


def _host_ports(pod: Obj) -> set[tuple[str, str, int]]:
    return {
        (port.get("hostIP") or "0.0.0.0", port.get("protocol") or "TCP", port["hostPort"])
        for container in pod["spec"]["containers"]
        for port in container.get("ports") or ()
        if port.get("hostPort")
    }
