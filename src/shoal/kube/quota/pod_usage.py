"""The quota usage of a pod: the total of its containers, by requests and by resources granted by its node."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from shoal.kube.kinds.core.resources import aggregate, is_extended, is_huge_page, is_pod_level
from shoal.kube.objects import Obj
from shoal.kube.quota.amounts import ONE, Amounts, parse
from shoal.kube.times import parse_epoch

_DEVICES: Final = "deviceclass.resource.kubernetes.io/"
_STANDARD: Final = ("cpu", "memory", "ephemeral-storage")
_OVER: Final = ("Failed", "Succeeded")


def is_charged(pod: Obj, now: float) -> bool:
    """Whether a pod counts: not if it has ended, nor if its deletion is overdue."""
    metadata, status = pod["metadata"], pod.get("status") or {}
    if status.get("phase") in _OVER:
        return False
    deleted, grace_s = metadata.get("deletionTimestamp"), metadata.get("deletionGracePeriodSeconds")
    return deleted is None or grace_s is None or now <= parse_epoch(deleted) + grace_s


def pod_usage(pod: Obj, now: float) -> Amounts:
    """The usage of a pod, with the resource names of quotas."""
    usage: Amounts = {"count/pods": ONE}  # objects count as long as they are stored
    if is_charged(pod, now):
        usage |= compute_usage(_requests(pod), _limits(pod))
    return usage


def compute_usage(requests: Amounts, limits: Amounts) -> Amounts:
    usage: Amounts = {"pods": ONE}
    for name in _STANDARD:
        if name in requests:
            usage[name] = usage[f"requests.{name}"] = requests[name]
        if name in limits:
            usage[f"limits.{name}"] = limits[name]
    for name, amount in requests.items():
        if is_huge_page(name):
            usage[name] = usage[f"requests.{name}"] = amount
        elif is_extended(name) or name.startswith(_DEVICES):
            usage[f"requests.{name}"] = amount
    return usage


def container_usage(container: Obj) -> Amounts:
    resources = container.get("resources") or {}
    return compute_usage(parse(resources.get("requests")), parse(resources.get("limits")))


def has_own_resources(spec: Obj) -> bool:
    """Whether a pod has requests or limits of its own, so that its containers need none."""
    own = spec.get("resources") or {}
    return any(is_pod_level(name) for field in ("requests", "limits") for name in own.get(field) or ())


def _requests(pod: Obj) -> Amounts:
    amounts = _of_containers(pod, "requests", (_allocated, _actual))
    _take_own(pod["spec"], "requests", amounts)
    for name, amount in parse(pod["spec"].get("overhead")).items():
        amounts[name] = amounts[name] + amount if name in amounts else amount
    return amounts


def _limits(pod: Obj) -> Amounts:
    amounts = _of_containers(pod, "limits", (_actual,))
    _take_own(pod["spec"], "limits", amounts)
    for name, amount in parse(pod["spec"].get("overhead")).items():
        if amounts.get(name):
            amounts[name] = amounts[name] + amount
    return amounts


def _take_own(spec: Obj, field: str, amounts: Amounts) -> None:
    own = parse((spec.get("resources") or {}).get(field))
    amounts.update({name: amount for name, amount in own.items() if is_pod_level(name)})


_Granted = Callable[[Obj, Obj, str], Any]  # container, its status, requests or limits -> a list of resources


def _of_containers(pod: Obj, field: str, granted: tuple[_Granted, ...]) -> Amounts:
    """The larger of requested and granted resources, which differ while a pod is resized."""
    spec, status = pod["spec"], pod.get("status") or {}
    statuses = {
        known.get("name", ""): known
        for part in ("initContainerStatuses", "containerStatuses")
        for known in status.get(part) or ()
        if known.get("resources") or known.get("allocatedResources")
    }
    asked: Amounts = aggregate(spec, field)
    if not statuses:
        return asked
    refused = _cannot_be_resized(status)
    largest: Amounts = {} if refused else asked
    for choose in granted:
        for name, amount in aggregate(_granted_spec(spec, statuses, field, choose, refused), field).items():
            if name not in largest or largest[name] < amount:
                largest[name] = amount
    return largest


def _granted_spec(spec: Obj, statuses: dict[str, Obj], field: str, choose: _Granted, refused: bool) -> Obj:
    def granted(container: Obj) -> Obj:
        found = choose(container, statuses.get(container.get("name", ""), {}), field)
        if found is None and not refused:
            found = (container.get("resources") or {}).get(field)
        return {"restartPolicy": container.get("restartPolicy"), "resources": {field: found or {}}}

    return {part: [granted(c) for c in spec.get(part) or ()] for part in ("containers", "initContainers")}


def _allocated(container: Obj, status: Obj, field: str) -> Any:
    return status.get("allocatedResources")


def _actual(container: Obj, status: Obj, field: str) -> Any:
    actual = (status.get("resources") or {}).get(field)
    return actual if actual is not None or field == "limits" else status.get("allocatedResources")


def _cannot_be_resized(status: Obj) -> bool:
    for condition in status.get("conditions") or ():
        if condition.get("type") == "PodResizePending":
            return bool(condition.get("reason") == "Infeasible")
    return False


__all__ = ["compute_usage", "container_usage", "has_own_resources", "is_charged", "pod_usage"]
