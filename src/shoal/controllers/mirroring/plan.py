"""The slices that mirror an Endpoints object: one for each set of ports and family. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from shoal.controllers.endpoints.plan import LEADER, repack
from shoal.controllers.endpointslice.endpoint import EndpointKey, PortsKey, endpoint_key, ports_key
from shoal.controllers.endpointslice.model import (
    MANAGED_BY,
    SERVICE_NAME,
    TRIGGER_TIME,
    SliceChanges,
    name_prefix,
    recycle,
)
from shoal.controllers.pods.template import controller_reference
from shoal.kube.names import parse_ip
from shoal.kube.objects import Obj

CONTROLLER_NAME: Final = "endpointslicemirroring-controller.k8s.io"
SKIP: Final = "endpointslice.kubernetes.io/skip-mirror"
MAX_PER_SUBSET: Final = 1000
_LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"


@dataclass(slots=True)
class _Group:
    """The content of one slice."""

    ports: list[Obj]
    endpoints: dict[EndpointKey, Obj] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class MirrorPlan:
    changes: SliceChanges
    skipped: int = 0  # addresses beyond the limit of a slice
    invalid: int = 0  # invalid addresses


def is_mirrored(endpoints: Obj | None, service: Obj | None) -> bool:
    """Whether a user, not a controller, writes the Endpoints."""
    if endpoints is None or service is None or service["spec"].get("selector") is not None:
        return False
    about = endpoints["metadata"]
    return (about.get("labels") or {}).get(SKIP) != "true" and LEADER not in (about.get("annotations") or {})


def plan_mirror(endpoints: Obj, slices: Sequence[Obj], *, limit: int = MAX_PER_SUBSET) -> MirrorPlan:
    """``slices`` are those that this controller has created for the object."""
    groups: dict[tuple[str, PortsKey], _Group] = {}
    skipped = invalid = 0
    for subset in repack(endpoints.get("subsets") or ()):
        left, bad = _mirror_subset(subset, groups, limit)
        skipped, invalid = skipped + left, invalid + bad
    spare: dict[tuple[str, PortsKey], list[Obj]] = {}
    for piece in slices:
        if piece["metadata"].get("deletionTimestamp") is None:
            spare.setdefault((piece["addressType"], ports_key(piece.get("ports"))), []).append(piece)
    creates: list[Obj] = []
    updates: list[Obj] = []
    for key, group in groups.items():
        made = _slice(endpoints, key[0], group)
        present = spare.get(key)
        if not present:
            creates.append(made)
            continue
        kept = present.pop(0)
        if not _is_same(kept, made, group):
            about = {name: value for name, value in made["metadata"].items() if name != "generateName"}
            identity = {name: kept["metadata"][name] for name in ("name", "uid", "resourceVersion")}
            updates.append({**made, "metadata": {**about, **identity}})
    deletes = tuple(piece for rest in spare.values() for piece in rest)
    if endpoints["metadata"].get("deletionTimestamp") is not None:
        creates.clear()
    changes = recycle(SliceChanges(tuple(creates), tuple(updates), deletes), endpoints, "Endpoints")
    return MirrorPlan(changes, skipped, invalid)


def _mirror_subset(subset: Obj, groups: dict[tuple[str, PortsKey], _Group], limit: int) -> tuple[int, int]:
    """Add the addresses of a subset to their groups; return how many were left out and how many are invalid."""
    ports = [_port(port) for port in subset.get("ports") or ()]
    key = ports_key(ports)
    added = invalid = 0
    addresses = [(each, True) for each in subset.get("addresses") or ()]
    addresses += [(each, False) for each in subset.get("notReadyAddresses") or ()]
    for address, ready in addresses:
        if added >= limit:
            break
        parsed = parse_ip(address.get("ip") or "")
        if parsed is None:
            invalid += 1
            continue
        added += 1
        endpoint: Obj = {"addresses": [str(parsed)], "conditions": {"ready": ready}}
        for name in ("targetRef", "nodeName", "hostname"):
            if address.get(name):
                endpoint[name] = address[name]
        group = groups.setdefault((f"IPv{parsed.version}", key), _Group(ports))
        group.endpoints[endpoint_key(endpoint)] = endpoint
    return len(addresses) - added - invalid, invalid


def _port(port: Obj) -> Obj:
    made = {"name": port.get("name") or "", "port": port["port"], "protocol": port.get("protocol", "TCP")}
    return {**made, "appProtocol": port["appProtocol"]} if port.get("appProtocol") is not None else made


def _slice(endpoints: Obj, family: str, group: _Group) -> Obj:
    about = endpoints["metadata"]
    annotations = about.get("annotations") or {}
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "generateName": name_prefix(about["name"]),
            "namespace": about["namespace"],
            "labels": {**(about.get("labels") or {}), SERVICE_NAME: about["name"], MANAGED_BY: CONTROLLER_NAME},
            "annotations": {
                key: value for key, value in annotations.items() if key not in (TRIGGER_TIME, _LAST_APPLIED)
            },
            "ownerReferences": [controller_reference(endpoints, "v1", "Endpoints")],
        },
        "addressType": family,
        "endpoints": list(group.endpoints.values()),
        "ports": group.ports,
    }


def _is_same(piece: Obj, made: Obj, group: _Group) -> bool:
    before, after = piece["metadata"], made["metadata"]
    for name in ("labels", "annotations", "ownerReferences"):
        if (before.get(name) or {}) != (after[name] or {}):
            return False
    present = {endpoint_key(endpoint): endpoint for endpoint in piece.get("endpoints") or ()}
    return present == group.endpoints
