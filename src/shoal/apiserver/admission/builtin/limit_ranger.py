"""LimitRanger: default requests and limits of containers, and bounds for containers, pods and claims of a namespace."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from shoal.apiserver.admission.builtin.namespaces import check_namespace
from shoal.apiserver.admission.builtin.object_cache import ObjectCache
from shoal.apiserver.admission.model import CREATE, UPDATE, Admission, Where
from shoal.apiserver.context import Core
from shoal.kube.kinds.checks import quantity_of
from shoal.kube.kinds.core.resources import aggregate
from shoal.kube.objects import Obj
from shoal.kube.quantity import MAX_INT64, Quantity

_RANGES: Final = "limitranges"
_CLAIMS: Final = "persistentvolumeclaims"
_ANNOTATION: Final = "kubernetes.io/limit-ranger"
_ON_PODS: Final = (("pods", CREATE, ""), ("pods", UPDATE, "resize"))
_ON_CLAIMS: Final = ((_CLAIMS, CREATE, ""), (_CLAIMS, UPDATE, ""))
_CONTAINERS: Final = (("containers", "container"), ("initContainers", "init container"))
_MAX_MILLI: Final = MAX_INT64 // 1000

Amounts = Mapping[str, Quantity]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Limit:
    """One item of a LimitRange: the limits for one type."""

    type: str
    min: Amounts
    max: Amounts
    ratio: Amounts
    limits: Mapping[str, str]  # defaults, as texts to copy
    requests: Mapping[str, str]


def _amounts(texts: Mapping[str, str] | None) -> dict[str, Quantity]:
    return {name: quantity_of(text) for name, text in sorted((texts or {}).items())}


def _read(obj: Obj) -> tuple[_Limit, ...]:
    return tuple(
        _Limit(
            type=item.get("type", ""),
            min=_amounts(item.get("min")),
            max=_amounts(item.get("max")),
            ratio=_amounts(item.get("maxLimitRequestRatio")),
            limits=item.get("default") or {},
            requests=item.get("defaultRequest") or {},
        )
        for item in (obj.get("spec") or {}).get("limits") or ()
    )


class LimitRanger:
    """Applies LimitRanges; a namespace without any costs one look-up."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._ranges: ObjectCache[tuple[_Limit, ...]] = ObjectCache(core, _RANGES, _read)

    def start(self) -> None:
        self._ranges.start()

    def limits(self, namespace: str) -> bool:
        return namespace in self._ranges

    def handles(self, where: Where) -> bool:
        return where in _ON_PODS or where in _ON_CLAIMS

    def mutate(self, admission: Admission) -> None:
        obj = admission.object
        if admission.namespace not in self._ranges or obj is None or admission.served.key != "pods":
            return
        if _ends(admission):
            return
        for _, limits in sorted(self._ranges.of(admission.namespace).items()):
            _fill_in(obj, limits)

    def validate(self, admission: Admission) -> None:
        obj = admission.object
        if admission.namespace not in self._ranges or obj is None or _ends(admission):
            return
        check = _pod_faults if admission.served.key == "pods" else _claim_faults
        for _, limits in sorted(self._ranges.of(admission.namespace).items()):
            faults = list(dict.fromkeys(fault for limit in limits for fault in check(obj, limit)))
            if faults:
                if admission.operation == CREATE:
                    check_namespace(self._core, admission)
                raise admission.denied(faults[0] if len(faults) == 1 else f"[{', '.join(faults)}]")


def _ends(admission: Admission) -> bool:
    return bool(admission.old and admission.old["metadata"].get("deletionTimestamp"))


def _fill_in(pod: Obj, limits: tuple[_Limit, ...]) -> None:
    """Set the requests and limits that containers leave out, and note them in an annotation."""
    requests: dict[str, str] = {}
    maxima: dict[str, str] = {}
    for limit in limits:
        if limit.type == "Container":
            requests |= limit.requests
            maxima |= limit.limits
    notes: list[str] = []
    for field, word in _CONTAINERS:
        for container in pod["spec"].get(field) or ():
            for part, defaults, noun in (("requests", requests, "request"), ("limits", maxima, "limit")):
                added = _add_missing(container, part, defaults)
                if added:
                    notes.append(f"{', '.join(added)} {noun} for {word} {container.get('name', '')}")
    if notes:
        metadata = pod["metadata"]
        text = f"LimitRanger plugin set: {'; '.join(notes)}"
        metadata["annotations"] = {**(metadata.get("annotations") or {}), _ANNOTATION: text}


def _add_missing(container: Obj, part: str, defaults: Mapping[str, str]) -> list[str]:
    resources = container.get("resources") or {}
    given = resources.get(part) or {}
    missing = sorted(name for name in defaults if name not in given)
    if missing:
        container["resources"] = {**resources, part: {**given, **{name: defaults[name] for name in missing}}}
    return missing


# --- bounds


def _pod_faults(pod: Obj, limit: _Limit) -> Iterator[str]:
    spec = pod["spec"]
    if limit.type == "Container":
        for field, _ in _CONTAINERS:
            for container in spec.get(field) or ():
                resources = container.get("resources") or {}
                yield from _faults(limit, _amounts(resources.get("requests")), _amounts(resources.get("limits")))
    elif limit.type == "Pod":
        yield from _faults(limit, _of_pod(spec, "requests"), _of_pod(spec, "limits"))


def _of_pod(spec: Obj, field: str) -> Amounts:
    own = (spec.get("resources") or {}).get(field) or {}
    return aggregate(spec, field) | {name: quantity_of(own[name]) for name in ("cpu", "memory") if name in own}


def _claim_faults(claim: Obj, limit: _Limit) -> Iterator[str]:
    if limit.type != "PersistentVolumeClaim":
        return
    requests = _amounts(((claim.get("spec") or {}).get("resources") or {}).get("requests"))
    for name, bound in limit.min.items():
        fault = _below(limit.type, name, bound, requests, {})
        if fault:
            yield fault
    for name, bound in limit.max.items():
        text = f"maximum {name} usage per {limit.type} is {bound}"
        if name not in requests:
            yield f"{text}.  No request is specified"
        elif requests[name] > bound:
            yield f"{text}, but request is {requests[name]}"


def _faults(limit: _Limit, requests: Amounts, limits: Amounts) -> Iterator[str]:
    for check, bounds in ((_below, limit.min), (_above, limit.max), (_ratio, limit.ratio)):
        for name, bound in bounds.items():
            fault = check(limit.type, name, bound, requests, limits)
            if fault:
                yield fault


def _below(kind: str, name: str, bound: Quantity, requests: Amounts, limits: Amounts) -> str:
    text = f"minimum {name} usage per {kind} is {bound}"
    if name not in requests:
        return f"{text}.  No request is specified"
    if requests[name] < bound:
        return f"{text}, but request is {requests[name]}"
    if name in limits and limits[name] < bound:
        return f"{text}, but limit is {limits[name]}"
    return ""


def _above(kind: str, name: str, bound: Quantity, requests: Amounts, limits: Amounts) -> str:
    text = f"maximum {name} usage per {kind} is {bound}"
    if name not in limits:
        return f"{text}.  No limit is specified"
    if limits[name] > bound:
        return f"{text}, but limit is {limits[name]}"
    if name in requests and requests[name] > bound:
        return f"{text}, but request is {requests[name]}"
    return ""


def _ratio(kind: str, name: str, bound: Quantity, requests: Amounts, limits: Amounts) -> str:
    text = f"{name} max limit to request ratio per {kind} is {bound}"
    if not requests.get(name):
        return f"{text}, but no request is specified or request is 0"
    if not limits.get(name):
        return f"{text}, but no limit is specified or limit is 0"
    exact = all(amount.value() <= _MAX_MILLI for amount in (requests[name], limits[name], bound))
    request, limit = ((a.milli() if exact else a.value()) for a in (requests[name], limits[name]))
    if limit * 1000 > bound.milli() * request:
        return f"{text}, but provided ratio is {limit / request:f}"
    return ""
