"""The collector's data of an object: identity, owners, and deletion state."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from shoal.kube.objects import Obj

ORPHAN, FOREGROUND = "orphan", "foregroundDeletion"


class PropagationPolicy(StrEnum):
    """What happens to the dependents of an object that is deleted."""

    BACKGROUND = "Background"
    FOREGROUND = "Foreground"
    ORPHAN = "Orphan"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeType:
    """The resource of an object. All objects of one resource share the instance."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnerReference:
    """One entry of ownerReferences, whole, so that the list can be written back."""

    api_version: str
    kind: str
    name: str
    uid: str
    controller: bool | None = None
    blocks: bool | None = None  # blockOwnerDeletion

    @property
    def group(self) -> str:
        return self.api_version.rpartition("/")[0]

    def as_object(self) -> Obj:
        found: Obj = {"apiVersion": self.api_version, "kind": self.kind, "name": self.name, "uid": self.uid}
        if self.controller is not None:
            found["controller"] = self.controller
        if self.blocks is not None:
            found["blockOwnerDeletion"] = self.blocks
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphNode:
    """The last seen state of an object."""

    type: NodeType
    namespace: str
    name: str
    uid: str
    version: str
    owners: tuple[OwnerReference, ...] = ()
    finalizers: tuple[str, ...] = ()
    deleting: bool = False

    @property
    def waits(self) -> bool:
        """Whether it is in foreground deletion and waits for its dependents."""
        return self.deleting and FOREGROUND in self.finalizers

    @property
    def orphans_dependents(self) -> bool:
        """Whether it is being deleted and its dependents must be orphaned first."""
        return self.deleting and ORPHAN in self.finalizers

    @property
    def propagation(self) -> PropagationPolicy:
        """The propagation policy of a deletion that is already requested, if any."""
        if ORPHAN in self.finalizers:
            return PropagationPolicy.ORPHAN
        return PropagationPolicy.FOREGROUND if FOREGROUND in self.finalizers else PropagationPolicy.BACKGROUND

    def blocks(self, owner_uid: str) -> bool:
        return any(each.uid == owner_uid and each.blocks for each in self.owners)


def node_of(type: NodeType, obj: Obj) -> GraphNode:
    about = obj["metadata"]
    references = about.get("ownerReferences")
    return GraphNode(
        type=type,
        namespace=about.get("namespace") or "",
        name=about["name"],
        uid=about["uid"],
        version=about.get("resourceVersion", ""),
        owners=tuple(reference_of(each) for each in references) if references else (),
        finalizers=tuple(about.get("finalizers") or ()),
        deleting=bool(about.get("deletionTimestamp")),
    )


def reference_of(found: Obj) -> OwnerReference:
    return OwnerReference(
        api_version=found.get("apiVersion", ""),
        kind=found.get("kind", ""),
        name=found.get("name", ""),
        uid=found.get("uid", ""),
        controller=found.get("controller"),
        blocks=found.get("blockOwnerDeletion"),
    )
