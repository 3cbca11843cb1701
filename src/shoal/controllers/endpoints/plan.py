"""The Endpoints object of a service. Pure.

Addresses with the same ports share a subset; all lists are sorted, so that the same pods give the same object.
Addresses beyond a thousand are left out, those that are not ready first.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from shoal.controllers.endpointslice.endpoint import (
    PortsKey,
    addresses_of,
    families_of,
    has_address,
    host_name_of,
    is_headless,
    ports_key,
    ports_of,
    target_reference,
)
from shoal.controllers.endpointslice.model import HEADLESS, TRIGGER_TIME
from shoal.controllers.pods.status import is_ready, is_terminating
from shoal.kube.objects import Obj

MANAGED_BY: Final = "endpoints.kubernetes.io/managed-by"
CONTROLLER_NAME: Final = "endpoint-controller"
OVER_CAPACITY: Final = "endpoints.kubernetes.io/over-capacity"
LEADER: Final = "control-plane.alpha.kubernetes.io/leader"
MAX_ADDRESSES: Final = 1000

_READY, _NOT_READY = "addresses", "notReadyAddresses"


def plan_endpoints(service: Obj, pods: Iterable[Obj], present: Obj | None, trigger: str) -> Obj | None:
    """The desired object; None if it is unchanged. ``trigger`` is the time of the change's cause, as text."""
    whole = subsets_of(service, pods)
    subsets, truncated = truncate(whole)
    labels = _labels(service)
    about = present["metadata"] if present is not None else None
    annotations: dict[str, str] = dict((about or {}).get("annotations") or {})
    if present is not None and about is not None:
        same = (present.get("subsets") or []) == subsets and about.get("labels") == labels
        if same and (annotations.get(OVER_CAPACITY) == "truncated") == truncated:
            return None
    annotations.pop(TRIGGER_TIME, None)
    annotations.pop(OVER_CAPACITY, None)
    if trigger:
        annotations[TRIGGER_TIME] = trigger
    if truncated:
        annotations[OVER_CAPACITY] = "truncated"
    identity = about or {"name": service["metadata"]["name"], "namespace": service["metadata"]["namespace"]}
    made: Obj = {"apiVersion": "v1", "kind": "Endpoints"}
    made["metadata"] = {**identity, "labels": labels, "annotations": annotations}
    if subsets:
        made["subsets"] = subsets
    return made


def _labels(service: Obj) -> dict[str, str]:
    labels = {key: value for key, value in (service["metadata"].get("labels") or {}).items() if key != HEADLESS}
    if is_headless(service):
        labels[HEADLESS] = ""
    labels[MANAGED_BY] = CONTROLLER_NAME
    return labels


def subsets_of(service: Obj, pods: Iterable[Obj]) -> list[Obj]:
    """All reachable pods, grouped by their ports."""
    publish = bool(service["spec"].get("publishNotReadyAddresses"))
    found: list[Obj] = []
    for pod in pods:
        if not has_address(pod) or (is_terminating(pod) and not publish):
            continue
        ports = ports_of(service, pod)
        if not ports and (service["spec"].get("ports") or not is_headless(service)):
            continue
        address = _address(service, pod)
        if address is not None:
            found.append({_READY if publish or is_ready(pod) else _NOT_READY: [address], "ports": ports})
    return repack(found)


def _address(service: Obj, pod: Obj) -> Obj | None:
    named = service["spec"].get("ipFamilies")
    family = families_of(service)[0]
    if not named and is_headless(service) and ":" in ((pod.get("status") or {}).get("podIP") or ""):
        family = "IPv6"
    addresses = addresses_of(pod, family)
    if not addresses:
        return None
    address: Obj = {"ip": addresses[0], "targetRef": target_reference(pod)}
    if node := pod["spec"].get("nodeName"):
        address["nodeName"] = node
    if host := host_name_of(pod, service):
        address["hostname"] = host
    return address


def repack(subsets: Sequence[Obj]) -> list[Obj]:
    """The same addresses in the fewest subsets: each address once, with all its ports; everything sorted."""
    reached: dict[tuple[str, str], tuple[Obj, bool, dict[Any, Obj]]] = {}
    for subset in subsets:
        ports = {ports_key([port]): port for port in subset.get("ports") or ()}
        for field, ready in ((_READY, True), (_NOT_READY, False)):
            for address in subset.get(field) or ():
                key = address["ip"], (address.get("targetRef") or {}).get("uid") or ""
                known = reached.get(key)
                if known is None:
                    reached[key] = address, ready, dict(ports)
                else:
                    reached[key] = known[0], known[1] and ready, known[2] | ports
    groups: dict[PortsKey, Obj] = {}
    for key in sorted(reached):
        address, ready, by_key = reached[key]
        ports_of_address = [by_key[each] for each in sorted(by_key)]
        group = groups.setdefault(ports_key(ports_of_address), {"ports": ports_of_address})
        group.setdefault(_READY if ready else _NOT_READY, []).append(address)
    return [_without_empty(groups[key]) for key in sorted(groups)]


def _without_empty(subset: Obj) -> Obj:
    return {key: value for key, value in subset.items() if value}


def truncate(subsets: Sequence[Obj], limit: int = MAX_ADDRESSES) -> tuple[list[Obj], bool]:
    """At most ``limit`` addresses, in proportion to the subsets; also whether any was left out."""
    ready = sum(len(each.get(_READY) or ()) for each in subsets)
    unready = sum(len(each.get(_NOT_READY) or ()) for each in subsets)
    if ready + unready <= limit:
        return list(subsets), False
    field, room, total = (_READY, limit, ready) if ready > limit else (_NOT_READY, limit - ready, unready)
    kept: list[Obj] = []
    left = room
    for subset in subsets:
        inside = subset.get(field) or []
        share = min(left, -(-len(inside) * room // total))
        left -= min(share, len(inside))
        made = {**subset, field: inside[:share]}
        if field == _READY:
            made.pop(_NOT_READY, None)
        if made.get(_READY) or made.get(_NOT_READY):
            kept.append(_without_empty(made))
    return kept, True
