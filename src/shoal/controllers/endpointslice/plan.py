"""Which slices a service needs, in as few writes as possible. Pure.

Endpoints stay in their slice. New ones fill slices that change anyway, the fullest first; the rest goes into one
unchanged slice if it fits, else into new ones. So a service of thousands of pods does not rewrite all its slices when
one pod is added or removed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from shoal.controllers.endpointslice.endpoint import (
    EndpointKey,
    PortsKey,
    endpoint_key,
    endpoint_of,
    families_of,
    has_address,
    is_headless,
    ports_key,
    ports_of,
)
from shoal.controllers.endpointslice.model import (
    CONTROLLER_NAME,
    HEADLESS,
    MANAGED_BY,
    MAX_ENDPOINTS,
    SERVICE_NAME,
    TRIGGER_TIME,
    SliceChanges,
    name_prefix,
    owned_by,
    recycle,
)
from shoal.controllers.pods.template import controller_reference
from shoal.kube.objects import Obj

ZoneOf = Callable[[str], str | None]  # the zone of a node, empty if it has none; None: the node does not exist
_RESERVED = (SERVICE_NAME, MANAGED_BY, HEADLESS)


@dataclass(slots=True)
class _Group:
    """The endpoints with the same ports."""

    ports: list[Obj]
    wanted: dict[EndpointKey, Obj] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SlicePlan:
    changes: SliceChanges
    lost_nodes: tuple[str, ...] = ()  # unknown nodes whose pods were left out


@dataclass(slots=True)
class _Draft:
    """A slice being planned: its current and its desired endpoints."""

    piece: Obj | None
    endpoints: list[Obj]
    changed: bool


def plan_slices(
    service: Obj,
    pods: Sequence[Obj],
    slices: Sequence[Obj],
    *,
    zone_of: ZoneOf,
    trigger: str,
    limit: int = MAX_ENDPOINTS,
) -> SlicePlan:
    """``slices`` are the service's slices that this controller manages; ``trigger`` is the time of the change's cause
    as text, empty if unknown."""
    families = families_of(service)
    present = [piece for piece in slices if piece["metadata"].get("deletionTimestamp") is None]
    foreign = [piece for piece in present if piece["addressType"] not in families]
    lost: dict[str, None] = {}
    creates: list[Obj] = []
    updates: list[Obj] = []
    deletes: list[Obj] = list(foreign)
    for family in families:
        groups = _groups(service, pods, family, zone_of, lost)
        mine = [piece for piece in present if piece["addressType"] == family]
        planned = recycle(_plan_family(service, family, mine, groups, limit), service, "Service")
        creates += planned.creates
        updates += planned.updates
        deletes += planned.deletes
    if service["metadata"].get("deletionTimestamp") is not None:
        creates.clear()  # the garbage collector is about to delete its slices
    changes = SliceChanges(
        tuple(_stamped(piece, trigger) for piece in creates),
        tuple(_stamped(piece, trigger) for piece in updates),
        tuple(deletes),
    )
    return SlicePlan(changes, tuple(lost))


def _groups(
    service: Obj, pods: Sequence[Obj], family: str, zone_of: ZoneOf, lost: dict[str, None]
) -> dict[PortsKey, _Group]:
    """The desired endpoints, by ports."""
    groups: dict[PortsKey, _Group] = {}
    named = any(isinstance(port.get("targetPort"), str) for port in service["spec"].get("ports") or ())
    shared: tuple[PortsKey, list[Obj]] | None = None  # numbers are the same for all pods
    for pod in pods:
        if not has_address(pod):
            continue
        if named or shared is None:
            ports = ports_of(service, pod)
            shared = ports_key(ports), ports
        key, ports = shared
        group = groups.get(key)
        if group is None:
            group = groups[key] = _Group(ports)
        node = pod["spec"].get("nodeName") or ""
        zone = zone_of(node)
        if zone is None and not service["spec"].get("publishNotReadyAddresses"):
            lost[node] = None
            continue
        endpoint = endpoint_of(pod, service, family, zone or "")
        if endpoint["addresses"]:
            group.wanted[endpoint_key(endpoint)] = endpoint
    return groups


def _plan_family(
    service: Obj, family: str, slices: Sequence[Obj], groups: dict[PortsKey, _Group], limit: int
) -> SliceChanges:
    labels = slice_labels(service)
    by_ports: dict[PortsKey, list[Obj]] = {}
    deletes: list[Obj] = []
    for piece in slices:
        if owned_by(piece, service, "Service"):
            by_ports.setdefault(ports_key(piece.get("ports")), []).append(piece)
        else:
            deletes.append(piece)  # of a deleted service of the same name
    creates: list[Obj] = []
    updates: list[Obj] = []
    for key, group in groups.items():
        for draft in _pack(by_ports.pop(key, ()), group.wanted, labels, limit):
            if draft.piece is None:
                creates.append(_new_slice(service, family, labels, group.ports, draft.endpoints))
            elif not draft.endpoints:
                deletes.append(draft.piece)
            elif draft.changed:
                updates.append(_changed(draft.piece, labels, draft.endpoints))
    for rest in by_ports.values():
        deletes += rest
    if len(deletes) == len(slices) and not creates:
        # A service always has a slice, so that readers can distinguish "no endpoints" from "not known yet".
        placeholder = _new_slice(service, family, labels, [], [])
        if len(deletes) == 1 and _is_placeholder(deletes[0], service, labels):
            deletes.clear()
        else:
            creates.append(placeholder)
    return SliceChanges(tuple(creates), tuple(updates), tuple(deletes))


def _pack(slices: Sequence[Obj], wanted: dict[EndpointKey, Obj], labels: Obj, limit: int) -> list[_Draft]:
    missing = dict(wanted)
    drafts = [_kept(piece, missing, labels) for piece in slices]
    rest = list(missing.values())
    for draft in sorted(drafts, key=lambda each: -len(each.endpoints)):
        if rest and draft.changed and draft.endpoints:
            room = limit - len(draft.endpoints)
            draft.endpoints += rest[:room]
            rest = rest[max(room, 0) :]
    while rest:
        draft = (_best_fit(drafts, len(rest), limit) if len(rest) < limit else None) or _Draft(None, [], True)
        if draft.piece is None:
            drafts.append(draft)
        room = limit - len(draft.endpoints)
        draft.endpoints += rest[:room]
        draft.changed = True
        rest = rest[room:]
    return drafts


def _kept(piece: Obj, missing: dict[EndpointKey, Obj], labels: Obj) -> _Draft:
    """The slice with its endpoints that are still desired; removes these from the missing ones."""
    before = piece.get("endpoints") or []
    kept: list[Obj] = []
    changed = piece["metadata"].get("labels") != labels
    for endpoint in before:
        wanted = missing.pop(endpoint_key(endpoint), None)
        if wanted is None:
            changed = True
            continue
        changed = changed or wanted != endpoint
        kept.append(wanted)
    return _Draft(piece, kept, changed)


def _best_fit(drafts: Sequence[_Draft], count: int, limit: int) -> _Draft | None:
    """The unchanged slice that is fullest after adding this many."""
    fitting = [each for each in drafts if not each.changed and len(each.endpoints) + count <= limit]
    return max(fitting, key=lambda each: len(each.endpoints), default=None)


def slice_labels(service: Obj) -> Obj:
    """The labels of a service's slices: the service's, except those with a meaning for slices."""
    own = service["metadata"].get("labels") or {}
    labels = {key: value for key, value in own.items() if key not in _RESERVED}
    if is_headless(service):
        labels[HEADLESS] = ""
    labels[SERVICE_NAME] = service["metadata"]["name"]
    labels[MANAGED_BY] = CONTROLLER_NAME
    return labels


def _new_slice(service: Obj, family: str, labels: Obj, ports: list[Obj], endpoints: list[Obj]) -> Obj:
    about = service["metadata"]
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "generateName": name_prefix(about["name"]),
            "namespace": about["namespace"],
            "labels": labels,
            "ownerReferences": [controller_reference(service, "v1", "Service")],
        },
        "addressType": family,
        "endpoints": endpoints,
        "ports": ports,
    }


def _changed(piece: Obj, labels: Obj, endpoints: list[Obj]) -> Obj:
    return {**piece, "metadata": {**piece["metadata"], "labels": labels}, "endpoints": endpoints}


def _is_placeholder(piece: Obj, service: Obj, labels: Obj) -> bool:
    if piece.get("endpoints") or piece.get("ports") or not owned_by(piece, service, "Service"):
        return False
    return bool(piece["metadata"].get("labels") == labels)


def _stamped(piece: Obj, trigger: str) -> Obj:
    """The annotations with the time of the change's cause, from which readers compute the delay."""
    about = piece["metadata"]
    annotations = {key: value for key, value in (about.get("annotations") or {}).items() if key != TRIGGER_TIME}
    if trigger:
        annotations[TRIGGER_TIME] = trigger
    return {**piece, "metadata": {**about, "annotations": annotations}}
