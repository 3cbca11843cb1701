"""Data of slices: label names, which are a contract with readers, and the changes of a plan."""

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
MAX_ENDPOINTS: Final = 100
_NAME_LIMIT: Final = 253


@dataclass(frozen=True, slots=True)
class SliceChanges:
    """Objects to write: slices to create, to update and to delete."""

    creates: tuple[Obj, ...] = ()
    updates: tuple[Obj, ...] = ()
    deletes: tuple[Obj, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.creates or self.updates or self.deletes)


def name_prefix(name: str) -> str:
    """The prefix of slice names; without the dash if the name has the maximum length."""
    return f"{name}-" if len(name) < _NAME_LIMIT else name


def owned_by(piece: Obj, owner: Obj, kind: str) -> bool:
    uid = owner["metadata"]["uid"]
    return any(
        reference.get("uid") == uid and reference.get("kind") == kind and reference.get("apiVersion") == "v1"
        for reference in piece["metadata"].get("ownerReferences") or ()
    )


def recycle(changes: SliceChanges, owner: Obj, kind: str) -> SliceChanges:
    """Reuse slices to delete for new slices of the same family: one update instead of two writes."""
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
