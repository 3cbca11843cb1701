"""The numbers of a PodDisruptionBudget."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from shoal.kube.objects import Obj
from shoal.kube.times import format_time, parse_epoch

DELETION_S: Final = 120.0  # an eviction without a deletion by then has failed


@dataclass(frozen=True, slots=True)
class Expected:
    """How many pods there should be, and how many of them healthy."""

    pods: int
    healthy: int


def needs_scale(spec: Obj) -> bool:
    """Whether the budget depends on the desired number of pods instead of the existing ones."""
    if spec.get("maxUnavailable") is not None:
        return True
    return isinstance(spec.get("minAvailable"), str)


def expected(spec: Obj, present: int, scale: int) -> Expected:
    """``scale`` is the total of desired pods of the pods' owners."""
    most_away, least_there = spec.get("maxUnavailable"), spec.get("minAvailable")
    if most_away is not None:
        return Expected(scale, max(0, scale - _share(most_away, scale)))
    if isinstance(least_there, str):
        return Expected(scale, _share(least_there, scale))
    return Expected(present, least_there or 0)


def _share(value: int | str, total: int) -> int:
    """A number, or a percentage of ``total``, rounded up."""
    if isinstance(value, int):
        return value
    return -(-total * int(value.removesuffix("%")) // 100)


@dataclass(frozen=True, slots=True)
class Disrupted:
    """Evictions in progress."""

    pods: dict[str, str]  # name -> when it was granted
    failed: tuple[str, ...]  # pods that were not deleted in time
    recheck_s: float | None  # seconds until the next one has failed


def disrupted(known: Mapping[str, str], pods: Iterable[Obj], now_s: float) -> Disrupted:
    kept: dict[str, str] = {}
    failed: list[str] = []
    recheck_s: float | None = None
    for pod in pods:
        name = pod["metadata"]["name"]
        granted = known.get(name)
        if granted is None or pod["metadata"].get("deletionTimestamp"):
            continue  # already terminating: it no longer counts as healthy anyway
        left_s = parse_epoch(granted) + DELETION_S - now_s
        if left_s < 0:
            failed.append(name)
            continue
        kept[name] = granted
        recheck_s = left_s if recheck_s is None else min(recheck_s, left_s)
    return Disrupted(kept, tuple(failed), recheck_s)


def healthy(pods: Iterable[Obj], leaving: Mapping[str, str]) -> int:
    return sum(
        not pod["metadata"].get("deletionTimestamp") and pod["metadata"]["name"] not in leaving and _is_ready(pod)
        for pod in pods
    )


def _is_ready(pod: Obj) -> bool:
    conditions: Sequence[Obj] = (pod.get("status") or {}).get("conditions") or ()
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


def status(budget: Obj, wanted: Expected, current: int, leaving: Mapping[str, str], now_s: float) -> Obj:
    """The whole status."""
    allowed = max(0, current - wanted.healthy) if wanted.pods > 0 else 0
    found: Obj = {
        "currentHealthy": current,
        "desiredHealthy": wanted.healthy,
        "expectedPods": wanted.pods,
        "disruptionsAllowed": allowed,
        "observedGeneration": budget["metadata"].get("generation", 0),
    }
    if leaving:
        found["disruptedPods"] = dict(leaving)
    reason = "SufficientPods" if allowed > 0 else "InsufficientPods"
    found["conditions"] = _conditions(budget, "True" if allowed > 0 else "False", reason, "", now_s)
    return found


def failed_status(budget: Obj, message: str, now_s: float) -> Obj:
    """The status if the desired number is unknown: no disruptions allowed."""
    before = budget.get("status") or {}
    conditions = _conditions(budget, "False", "SyncFailed", message, now_s)
    empty = {"currentHealthy": 0, "desiredHealthy": 0, "expectedPods": 0}
    return {**empty, **before, "disruptionsAllowed": 0, "conditions": conditions}


def _conditions(budget: Obj, value: str, reason: str, message: str, now_s: float) -> list[Obj]:
    known: list[Obj] = (budget.get("status") or {}).get("conditions") or []
    before = next((each for each in known if each["type"] == "DisruptionAllowed"), {})
    same = before.get("status") == value
    found = {
        "type": "DisruptionAllowed", "status": value, "reason": reason, "message": message,
        "observedGeneration": budget["metadata"].get("generation", 0),
        "lastTransitionTime": before["lastTransitionTime"] if same else format_time(now_s),
    }  # fmt: skip
    return [each for each in known if each["type"] != "DisruptionAllowed"] + [found]


def scale_source(replica_set: Obj) -> Obj | None:
    """The reference to the Deployment that controls a ReplicaSet's size, if there is one."""
    for reference in replica_set["metadata"].get("ownerReferences") or ():
        if reference.get("controller") and reference["kind"] == "Deployment":
            found: Obj = reference
            return found
    return None
