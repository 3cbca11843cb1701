"""Requests of pods and capacities of nodes, as numbers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from shoal.kube import quantity
from shoal.kube.objects import Obj
from shoal.kube.quantity import Quantity
from shoal.node.containers import ContainerRole, init_containers

CPU = "cpu"
ACCOUNTED = (CPU, "memory", "ephemeral-storage")

Amounts = dict[str, int]  # CPU in thousandths, everything else in units


def amount(resource: str, text: str | int) -> int:
    parsed = quantity.parse(str(text))
    return parsed.milli() if resource == CPU else parsed.value()


def amounts(values: Mapping[str, str] | None) -> Amounts:
    return {name: amount(name, text) for name, text in (values or {}).items()}


def total_requests(pod: Obj) -> Amounts:
    """The requests of a pod: the larger of its main containers with all sidecars, and of each init container with the
    sidecars before it; plus the overhead of its runtime class."""
    spec = pod["spec"]
    sidecars: Amounts = {}
    peak: Amounts = {}
    for each, role in init_containers(pod):
        own = _requests(each)
        if role is ContainerRole.SIDECAR:
            sidecars = _sum((sidecars, own))
            peak = _max(peak, sidecars)
        else:
            peak = _max(peak, _sum((sidecars, own)))
    needed = _max(_sum((sidecars, *(_requests(each) for each in spec["containers"]))), peak)
    needed |= amounts((spec.get("resources") or {}).get("requests"))
    return _sum((needed, amounts(spec.get("overhead"))))


def _requests(container: Obj) -> Amounts:
    return amounts((container.get("resources") or {}).get("requests"))


def _sum(parts: Iterable[Amounts]) -> Amounts:
    found: Amounts = {}
    for part in parts:
        for name, value in part.items():
            found[name] = found.get(name, 0) + value
    return found


def _max(one: Amounts, other: Amounts) -> Amounts:
    return {name: max(one.get(name, 0), other.get(name, 0)) for name in {**one, **other}}


def used(pods: Iterable[Obj]) -> Amounts:
    """The sum of these pods' requests."""
    return _sum(total_requests(pod) for pod in pods)


def minus(total: str, reserved: str) -> str:
    """A quantity less another, never below zero."""
    left = quantity.parse(total) - quantity.parse(reserved)
    return str(left) if left.nano() > 0 else "0"


def parsed(values: Mapping[str, str]) -> dict[str, Quantity]:
    return {name: quantity.parse(text) for name, text in values.items()}
