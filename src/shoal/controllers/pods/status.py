"""Reads a pod's status: active, ready, available. Pure; ``now`` is seconds since 1970."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from shoal.kube.objects import Obj
from shoal.kube.times import parse_epoch

TERMINAL: Final = ("Failed", "Succeeded")


def phase_of(pod: Obj) -> str:
    found: str = (pod.get("status") or {}).get("phase") or ""
    return found


def is_terminating(obj: Obj) -> bool:
    return obj["metadata"].get("deletionTimestamp") is not None


def is_terminal(pod: Obj) -> bool:
    return phase_of(pod) in TERMINAL


def is_active(pod: Obj) -> bool:
    """Whether it runs or will run: neither finished nor terminating."""
    return not is_terminating(pod) and not is_terminal(pod)


def condition_of(obj: Obj, kind: str) -> Obj | None:
    for condition in (obj.get("status") or {}).get("conditions") or ():
        if condition["type"] == kind:
            found: Obj = condition
            return found
    return None


def is_ready(pod: Obj) -> bool:
    condition = condition_of(pod, "Ready")
    return condition is not None and condition["status"] == "True"


def ready_at(pod: Obj) -> float | None:
    """Since when it is ready; None if it is not ready or the time is missing."""
    condition = condition_of(pod, "Ready")
    if condition is None or condition["status"] != "True":
        return None
    text = condition.get("lastTransitionTime")
    return parse_epoch(text) if text else None


def is_available(pod: Obj, min_ready_s: int, now: float) -> bool:
    """Whether it has been ready for ``min_ready_s``."""
    if not is_ready(pod):
        return False
    if not min_ready_s:
        return True
    since = ready_at(pod)
    return since is not None and since + min_ready_s <= now


def next_availability_s(pods: Iterable[Obj], min_ready_s: int, now: float) -> float | None:
    """The delay until the next ready pod becomes available; None if none will."""
    if not min_ready_s:
        return None
    waits = [since + min_ready_s - now for pod in pods if (since := ready_at(pod)) is not None]
    return min((wait for wait in waits if wait > 0), default=None)


def created_at(obj: Obj) -> float:
    text = obj["metadata"].get("creationTimestamp")
    return parse_epoch(text) if text else 0.0


def restarts_of(pod: Obj) -> tuple[int, int]:
    """The highest restart count of a container, and of a sidecar."""
    status = pod.get("status") or {}
    regular = max((each.get("restartCount") or 0 for each in status.get("containerStatuses") or ()), default=0)
    initial = status.get("initContainerStatuses")
    if not initial:
        return regular, 0
    started = pod["spec"].get("initContainers") or ()
    sidecars = {each["name"] for each in started if each.get("restartPolicy") == "Always"}
    return regular, max((each.get("restartCount") or 0 for each in initial if each["name"] in sidecars), default=0)
