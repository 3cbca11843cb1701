"""Helpers of the checks: access to containers, and wording of findings."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from shoal.kube.objects import Obj

_CONTAINERS: Final = ("initContainers", "containers", "ephemeralContainers")
_NOTHING: Final[Obj] = {}


class Violation(NamedTuple):
    """Why a pod does not meet a standard: a short text for lists, and the details."""

    reason: str
    detail: str


# A check sees the pod's annotations and its spec.
Check = Callable[[Mapping[str, str], Obj], Violation | None]


def containers(spec: Obj) -> Iterator[tuple[str, Obj]]:
    """Name and security context of every container."""
    for field in _CONTAINERS:
        for container in spec.get(field) or ():
            yield container.get("name", ""), container.get("securityContext") or _NOTHING


def whole_containers(spec: Obj) -> Iterator[Obj]:
    for field in _CONTAINERS:
        yield from spec.get(field) or ()


def pod_context(spec: Obj) -> Obj:
    return spec.get("securityContext") or _NOTHING


def quoted(items: Iterable[str]) -> str:
    listed = '", "'.join(items)
    return f'"{listed}"' if listed else ""


def some(singular: str, plural: str, items: Collection[object]) -> str:
    return singular if len(items) == 1 else plural


def named(items: Collection[str], noun: str = "container") -> str:
    """``container "a"`` or ``containers "a", "b"``."""
    return f"{some(noun, noun + 's', items)} {quoted(items)}"


def setters(pod: bool, found: Collection[str]) -> str:
    """Names the origin of a setting: the pod, containers, or both."""
    parts = (["pod"] if pod else []) + ([named(found)] if found else [])
    return " and ".join(parts)
