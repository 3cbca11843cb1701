"""Computes replicas from samples: which pods count, and how many are needed to meet the target."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from shoal.controllers.autoscaling.model import Groups, MetricError, PodSample, Tolerance
from shoal.kube.objects import Obj
from shoal.kube.quantity import parse
from shoal.kube.times import parse_epoch

CPU_INITIALIZATION_S: Final = 300.0
READINESS_DELAY_S: Final = 30.0


def group_pods(pods: Iterable[Obj], samples: Mapping[str, PodSample], resource: str, now: float) -> Groups:
    ready = 0
    unready: set[str] = set()
    missing: set[str] = set()
    ignored: set[str] = set()
    for pod in pods:
        name, status = pod["metadata"]["name"], pod.get("status") or {}
        if pod["metadata"].get("deletionTimestamp") or status.get("phase") == "Failed":
            ignored.add(name)
        elif status.get("phase") == "Pending":
            unready.add(name)
        elif name not in samples:
            missing.add(name)
        elif resource == "cpu" and _is_warming_up(status, samples[name], now):
            unready.add(name)
        else:
            ready += 1
    return Groups(ready=ready, unready=frozenset(unready), missing=frozenset(missing), ignored=frozenset(ignored))


def _is_warming_up(status: Obj, sample: PodSample, now: float) -> bool:
    """Whether a pod has started too recently for its usage to count."""
    condition = next((each for each in status.get("conditions") or () if each["type"] == "Ready"), None)
    if condition is None or not status.get("startTime"):
        return True
    started_at = parse_epoch(status["startTime"])
    changed_at = parse_epoch(condition["lastTransitionTime"]) if condition.get("lastTransitionTime") else started_at
    if started_at + CPU_INITIALIZATION_S > now:
        return bool(condition["status"] == "False" or sample.at < changed_at + sample.window_s)
    return bool(condition["status"] == "False" and started_at + READINESS_DELAY_S > changed_at)


def pod_request(pod: Obj, resource: str, container: str = "") -> int:
    """The request of a pod or of one of its containers, in thousandths."""
    spec = pod["spec"]
    own = ((spec.get("resources") or {}).get("requests") or {}).get(resource)
    if own is not None and not container:
        return parse(str(own)).milli()
    sidecars = [each for each in spec.get("initContainers") or () if each.get("restartPolicy") == "Always"]
    total = 0
    for each in [*spec["containers"], *sidecars]:
        if container and each["name"] != container:
            continue
        amount = ((each.get("resources") or {}).get("requests") or {}).get(resource)
        if amount is None:
            name, about = each["name"], pod["metadata"]
            raise MetricError(f"missing request for {resource} in container {name} of Pod {about['name']}")
        total += parse(str(amount)).milli()
    return total


def for_utilization(
    current: int, target: int, samples: Mapping[str, PodSample], requests: Mapping[str, int], groups: Groups,
    tolerance: Tolerance,
) -> tuple[int, int, int]:  # fmt: skip
    """Replicas so that pods use ``target`` percent of their requests; also the current percentage and average."""
    amounts = _counted(samples, groups)

    def ratio(found: Mapping[str, int]) -> float:
        asked = sum(requests[name] for name in found)
        if asked == 0:
            raise MetricError("no metrics returned matched known pods")
        return sum(found.values()) * 100 / asked / target

    def stand_in(name: str) -> int:
        return requests[name] * max(100, target) // 100

    replicas = _replicas(current, amounts, groups, tolerance, ratio, stand_in)
    asked = sum(requests[name] for name in amounts)
    return replicas, sum(amounts.values()) * 100 // asked, sum(amounts.values()) // len(amounts)


def for_average(
    current: int, target_milli: int, samples: Mapping[str, PodSample], groups: Groups, tolerance: Tolerance
) -> tuple[int, int]:
    """Replicas so that each uses ``target_milli``; also the current average."""
    amounts = _counted(samples, groups)

    def ratio(found: Mapping[str, int]) -> float:
        return sum(found.values()) / len(found) / target_milli

    replicas = _replicas(current, amounts, groups, tolerance, ratio, lambda _: target_milli)
    return replicas, sum(amounts.values()) // len(amounts)


def _counted(samples: Mapping[str, PodSample], groups: Groups) -> dict[str, int]:
    out = groups.ignored | groups.unready
    amounts = {name: sample.milli for name, sample in samples.items() if name not in out}
    if not amounts:
        raise MetricError("did not receive metrics for targeted pods (pods might be unready)")
    return amounts


def _replicas(
    current: int, amounts: Mapping[str, int], groups: Groups, tolerance: Tolerance,
    ratio: Callable[[Mapping[str, int]], float], stand_in: Callable[[str], int],
) -> int:  # fmt: skip
    """The common computation: pods without samples get the value that dampens the change."""
    first = ratio(amounts)
    with_unready = bool(groups.unready) and first > 1.0
    if not with_unready and not groups.missing:
        return current if tolerance.covers(first) else math.ceil(first * groups.ready)
    filled = dict(amounts)
    for name in groups.missing:
        filled[name] = stand_in(name) if first < 1.0 else 0
    if with_unready:
        filled |= dict.fromkeys(groups.unready, 0)
    second = ratio(filled)
    if tolerance.covers(second) or (first < 1.0 < second) or (second < 1.0 < first):
        return current
    wanted = math.ceil(second * len(filled))
    if (second < 1.0 and wanted > current) or (second > 1.0 and wanted < current):
        return current
    return wanted


def for_total(current: int, target_milli: int, total_milli: int, ready: int, tolerance: Tolerance) -> int:
    """Replicas so that one value for all of them meets its target."""
    ratio = total_milli / target_milli
    if current == 0:
        return math.ceil(ratio)
    return current if tolerance.covers(ratio) else math.ceil(ratio * ready)


def for_share(current: int, target_milli: int, total_milli: int, tolerance: Tolerance) -> tuple[int, int]:
    """Replicas so that the value per replica meets its target; also the current value per replica."""
    wanted = math.ceil(total_milli / target_milli)
    if current and tolerance.covers(total_milli / (target_milli * current)):
        wanted = current
    return wanted, math.ceil(total_milli / current) if current else 0
