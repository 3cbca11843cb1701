"""The quota usage of each kind of object: pods, services and claims by content, all others by number."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Final, Protocol

from shoal.kube.kinds.checks import quantity_of
from shoal.kube.kinds.core.pod_status import qos_class
from shoal.kube.kinds.core.resources import is_native
from shoal.kube.objects import Obj
from shoal.kube.quantity import Quantity
from shoal.kube.quota.amounts import ONE, Amounts
from shoal.kube.quota.pod_usage import container_usage, has_own_resources, pod_usage

_POD_NAMES: Final = frozenset({
    "count/pods", "pods", "cpu", "memory", "ephemeral-storage", "requests.cpu", "requests.memory",
    "requests.ephemeral-storage", "limits.cpu", "limits.memory", "limits.ephemeral-storage",
})  # fmt: skip
_MUST_BE_SET: Final = frozenset({"cpu", "memory", "requests.cpu", "requests.memory", "limits.cpu", "limits.memory"})
_HUGE: Final = ("hugepages-", "requests.hugepages-")
_DEVICES: Final = "requests.deviceclass.resource.kubernetes.io/"
_SERVICE_NAMES: Final = frozenset({"count/services", "services", "services.nodeports", "services.loadbalancers"})
_CLAIM_NAMES: Final = frozenset({"count/persistentvolumeclaims", "persistentvolumeclaims", "requests.storage"})
_OF_CLASS: Final = ".storageclass.storage.k8s.io/"
_OF_ANY_CLASS: Final = (f"{_OF_CLASS}persistentvolumeclaims", f"{_OF_CLASS}requests.storage")
_OLD_CLASS: Final = "volume.beta.kubernetes.io/storage-class"
_ALIASES: Final = frozenset({"configmaps", "resourcequotas", "replicationcontrollers", "secrets"})


class Evaluator(Protocol):
    """How quotas evaluate one kind of object."""

    reads: bool  # whether usage depends on the content of an object

    def tracks(self, name: str) -> bool:
        """Whether objects of this kind use the resource."""

    def usage(self, obj: Obj, now: float) -> Amounts: ...

    def in_scope(self, selector: Obj, obj: Obj) -> bool:
        """Whether the object matches one scope selector of a quota."""

    def unspecified(self, names: Iterable[str], obj: Obj) -> str:
        """A text about the resources in ``names`` that an object must specify and does not; empty if there are none."""

    def changes(self, new: Obj, old: Obj, subresource: str) -> bool:
        """Whether an update may use more than before."""


class _Counted:
    """Counts each object as one."""

    reads = False

    def __init__(self, resource: str) -> None:
        self._usage: Amounts = {f"count/{resource}": ONE}
        if resource in _ALIASES:
            self._usage[resource] = ONE

    def tracks(self, name: str) -> bool:
        return name in self._usage

    def usage(self, obj: Obj, now: float) -> Amounts:
        return self._usage

    def in_scope(self, selector: Obj, obj: Obj) -> bool:
        return False

    def unspecified(self, names: Iterable[str], obj: Obj) -> str:
        return ""

    def changes(self, new: Obj, old: Obj, subresource: str) -> bool:
        return False


class _Services(_Counted):
    reads = True

    def tracks(self, name: str) -> bool:
        return name in _SERVICE_NAMES

    def usage(self, obj: Obj, now: float) -> Amounts:
        spec = obj.get("spec") or {}
        kind, ports = spec.get("type"), spec.get("ports") or ()
        balanced = kind == "LoadBalancer"
        if balanced and spec.get("allocateLoadBalancerNodePorts") is False:
            node_ports = sum(1 for port in ports if port.get("nodePort"))
        else:
            node_ports = len(ports) if balanced or kind == "NodePort" else 0
        return {
            "count/services": ONE,
            "services": ONE,
            "services.nodeports": Quantity(node_ports),
            "services.loadbalancers": Quantity(int(balanced)),
        }

    def changes(self, new: Obj, old: Obj, subresource: str) -> bool:
        return not subresource


class _Claims(_Counted):
    reads = True

    def tracks(self, name: str) -> bool:
        return name in _CLAIM_NAMES or name.endswith(_OF_ANY_CLASS)

    def usage(self, obj: Obj, now: float) -> Amounts:
        usage = {"count/persistentvolumeclaims": ONE, "persistentvolumeclaims": ONE}
        name = _storage_class(obj)
        if name:
            usage[f"{name}{_OF_CLASS}persistentvolumeclaims"] = ONE
        size = _storage(obj)
        if size is not None:
            usage["requests.storage"] = size
            if name:
                usage[f"{name}{_OF_CLASS}requests.storage"] = size
        return usage

    def in_scope(self, selector: Obj, obj: Obj) -> bool:
        if selector.get("scopeName") != "VolumeAttributesClass":
            return False
        names = _attribute_classes(obj)
        return any(_selects(selector, name) for name in names) if names else _selects(selector, None)

    def changes(self, new: Obj, old: Obj, subresource: str) -> bool:
        if not subresource:
            return True
        if subresource != "status":
            return False
        return _allocated(new) != _allocated(old) or _attribute_classes(new) != _attribute_classes(old)


def _storage_class(claim: Obj) -> str:
    name: str | None = (claim["metadata"].get("annotations") or {}).get(_OLD_CLASS)
    return name if name is not None else (claim.get("spec") or {}).get("storageClassName") or ""


def _storage(claim: Obj) -> Quantity | None:
    """Whole bytes: the larger of the allocated and the requested size."""
    requests = ((claim.get("spec") or {}).get("resources") or {}).get("requests") or {}
    if "storage" not in requests:
        return None
    asked, allocated = quantity_of(requests["storage"]), quantity_of(_allocated(claim))
    larger = allocated if allocated > asked else asked
    return larger if larger == Quantity(larger.value()) else Quantity(larger.value(), 0, larger.format)


def _allocated(claim: Obj) -> str:
    found: str = ((claim.get("status") or {}).get("allocatedResources") or {}).get("storage", "0")
    return found


def _attribute_classes(claim: Obj) -> set[str]:
    spec, status = claim.get("spec") or {}, claim.get("status") or {}
    target = (status.get("modifyVolumeStatus") or {}).get("targetVolumeAttributesClassName")
    names = (spec.get("volumeAttributesClassName"), status.get("currentVolumeAttributesClassName"), target)
    return {name for name in names if name}


class _Pods(_Counted):
    reads = True

    def tracks(self, name: str) -> bool:
        if name in _POD_NAMES or name.startswith(_HUGE):
            return True
        return name.startswith("requests.") and (not is_native(name) or name.startswith(_DEVICES))

    def usage(self, obj: Obj, now: float) -> Amounts:
        return pod_usage(obj, now)

    def in_scope(self, selector: Obj, obj: Obj) -> bool:
        spec = obj["spec"]
        match selector.get("scopeName"):
            case "Terminating":
                return _ends_by_itself(obj)
            case "NotTerminating":
                return not _ends_by_itself(obj)
            case "BestEffort":
                return _best_effort(obj)
            case "NotBestEffort":
                return not _best_effort(obj)
            case "PriorityClass":
                return _selects(selector, spec.get("priorityClassName") or None)
            case "CrossNamespacePodAffinity":
                return _reaches_other_namespaces(spec.get("affinity") or {})
        return False

    def unspecified(self, names: Iterable[str], obj: Obj) -> str:
        needed = _MUST_BE_SET.intersection(names)
        spec = obj["spec"]
        if not needed or has_own_resources(spec):
            return ""
        missing: dict[str, set[str]] = {}
        for container in (*(spec.get("containers") or ()), *(spec.get("initContainers") or ())):
            for name in needed - container_usage(container).keys():
                missing.setdefault(name, set()).add(container.get("name", ""))
        if not missing:
            return ""
        return "must specify " + "; ".join(f"{name} for: {','.join(sorted(missing[name]))}" for name in sorted(missing))

    def changes(self, new: Obj, old: Obj, subresource: str) -> bool:
        if subresource == "resize":
            return True
        return not subresource and _ends_by_itself(new) != _ends_by_itself(old)


def _ends_by_itself(pod: Obj) -> bool:
    deadline_s = pod["spec"].get("activeDeadlineSeconds")
    return deadline_s is not None and deadline_s >= 0


def _best_effort(pod: Obj) -> bool:
    found = (pod.get("status") or {}).get("qosClass")
    return bool((found or qos_class(pod)) == "BestEffort")


def _reaches_other_namespaces(affinity: Obj) -> bool:
    for kind in ("podAffinity", "podAntiAffinity"):
        rules = affinity.get(kind) or {}
        terms = list(rules.get("requiredDuringSchedulingIgnoredDuringExecution") or ())
        for weighted in rules.get("preferredDuringSchedulingIgnoredDuringExecution") or ():
            terms.append(weighted.get("podAffinityTerm") or {})
        if any(term.get("namespaces") or term.get("namespaceSelector") is not None for term in terms):
            return True
    return False


def _selects(selector: Obj, name: str | None) -> bool:
    """Whether a selector over class names matches one of these names, or their absence."""
    values = selector.get("values") or ()
    match selector.get("operator"):
        case "In":
            return name in values
        case "NotIn":
            return name not in values
        case "Exists":
            return name is not None
        case "DoesNotExist":
            return name is None
    return False


_SPECIAL: Final[dict[str, Evaluator]] = {
    "pods": _Pods("pods"),
    "services": _Services("services"),
    "persistentvolumeclaims": _Claims("persistentvolumeclaims"),
}


@lru_cache(maxsize=4096)
def evaluator_of(resource: str) -> Evaluator:
    """The evaluator of a resource such as ``deployments.apps``."""
    return _SPECIAL.get(resource) or _Counted(resource)


def resources_behind(names: Iterable[str]) -> set[str]:
    """The resources whose objects use what a quota limits."""
    found = set()
    for name in names:
        found |= {resource for resource, evaluator in _SPECIAL.items() if evaluator.tracks(name)}
        if name.startswith("count/"):
            found.add(name.removeprefix("count/"))
        elif name in _ALIASES:
            found.add(name)
    return found


__all__ = ["Evaluator", "evaluator_of", "resources_behind"]
