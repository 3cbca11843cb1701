"""What slices are made with: names that are a contract with their readers, and the changes that a plan asks for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from shoal.kube.objects import Obj

SERVICE_NAME: Final = "kubernetes.io/service-name"
MANAGED_BY: Final = "endpointslice.kubernetes.io/managed-by"
HEADLESS: Final = "service.kubernetes.io/headless"
TRIGGER_TIME: Final = "endpoints.kubernetes.io/last-change-trigger-time"
CONTROLLER_NAME: Final = "endpointslice-controller.k8s.io"
ZONE: Final = "topology.kubernetes.io/zone"
FAMILIES: Final = ("IPv4", "IPv6")
MAX_ENDPOINTS: Final = 100
_NAME_LIMIT: Final = 253


@dataclass(frozen=True, slots=True)
class SliceChanges:
    """Objects to send: new slices, slices with another content, and slices that go."""

    creates: tuple[Obj, ...] = ()
    updates: tuple[Obj, ...] = ()
    deletes: tuple[Obj, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.creates or self.updates or self.deletes)


def name_prefix(name: str) -> str:
    """What the names of slices begin with; without the dash when the name is as long as names get."""
    return f"{name}-" if len(name) < _NAME_LIMIT else name


def owned_by(piece: Obj, owner: Obj, kind: str) -> bool:
    uid = owner["metadata"]["uid"]
    return any(
        reference.get("uid") == uid and reference.get("kind") == kind and reference.get("apiVersion") == "v1"
        for reference in piece["metadata"].get("ownerReferences") or ()
    )


def recycle(changes: SliceChanges, owner: Obj, kind: str) -> SliceChanges:
    """New slices take the place of slices of the same family that would go: one update instead of two writes."""
    updates: list[Obj] = list(changes.updates)
    deletes: list[Obj] = list(changes.deletes)
    creates: list[Obj] = []
    for fresh in changes.creates:
        spare = next(
            (old for old in deletes if old["addressType"] == fresh["addressType"] and owned_by(old, owner, kind)), None
        )
        if spare is None:
            creates.append(fresh)
            continue
        deletes.remove(spare)
        about = {key: value for key, value in fresh["metadata"].items() if key != "generateName"}
        kept = {key: spare["metadata"][key] for key in ("name", "uid", "resourceVersion")}
        updates.append({**fresh, "metadata": {**about, **kept}})
    return SliceChanges(tuple(creates), tuple(updates), tuple(deletes))
