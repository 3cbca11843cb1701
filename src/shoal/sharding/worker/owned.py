"""An owned object: reads it, and writes it and its children so that the write of a later owner is never undone.

Every write carries the resourceVersion that it is based on, so that the server refuses writes based on old versions.
Before its first write in an epoch the owner writes the epoch to the children and then to the object: from then on every
write of an earlier owner is based on an old version. Where the server supports fences (Shoal's does) each write also
names the Lease and its term, and is refused once the manager has taken the Lease. This covers new children too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from shoal.client import Client, ResourceClient
from shoal.crds.shard import ConfigSpec
from shoal.errors import AlreadyExists, NotFound, ShoalError
from shoal.kube.objects import Obj
from shoal.reconcile.keys import ObjectKey, controller_of, key_of
from shoal.sharding.model import epoch_annotation, epoch_of, slot_label

Kind = tuple[str, str]  # group, kind


class OwnershipLost(ShoalError):
    """This worker does not own the object any more. Nothing was written."""


class OwnedDeps(Protocol):
    """The part of the worker that an owned object uses."""

    client: Client
    config: str

    @property
    def spec(self) -> ConfigSpec | None:
        """The ShardConfig as last seen."""

    def check(self, slot: int, epoch: int) -> None:
        """Raise ``OwnershipLost`` unless the slot is owned with this epoch now."""

    def children_of(self, uid: str, kind: Kind) -> list[Obj]: ...

    def resource(self, kind: Kind) -> ResourceClient: ...

    def wrote(self, owner_uid: str, written: Obj, epoch: int) -> None:
        """The server has accepted a write of an object or its child."""


class Owned:
    """One object during one run of its handler. Do not modify ``object``; build a new one."""

    __slots__ = ("_controls", "_deps", "_kind", "epoch", "object", "slot")

    def __init__(
        self, deps: OwnedDeps, kind: Kind, controls: tuple[Kind, ...], obj: Obj, slot: int, epoch: int
    ) -> None:
        self._deps = deps
        self._kind = kind
        self._controls = controls
        self.object = obj
        self.slot = slot
        self.epoch = epoch

    @property
    def key(self) -> ObjectKey:
        return key_of(self.object)

    @property
    def spec(self) -> Obj:
        found: Obj = self.object.get("spec") or {}
        return found

    @property
    def token(self) -> str:
        """A fencing token for systems outside the cluster: they should refuse a smaller epoch of the same slot."""
        return f"{self._deps.config}/{self.slot}/{self.epoch}"

    @property
    def settings(self) -> ConfigSpec:
        """The spec of the ShardConfig, as last seen."""
        return self._deps.spec or ConfigSpec()

    @property
    def client(self) -> Client:
        """For reading. Writes through it are not guarded."""
        return self._deps.client

    # the object

    async def update(self, obj: Obj) -> Obj:
        """Replace the object; ``Conflict`` when it changed meanwhile."""
        self._check()
        if not self._newer(self.object):
            await self._claim_children()  # the object is stamped by what is written
        self._check()
        self.object = self._wrote(await self._resource().replace(self._based(self._stamped(obj), self.object)))
        return self.object

    async def update_status(self, status: Mapping[str, Any]) -> Obj:
        """Set fields of the status. Sends nothing when they have these values already."""
        if _contains(self.object.get("status") or {}, status):
            return self.object
        await self._claim()
        about = self.object["metadata"]
        patch = {"metadata": {"resourceVersion": about["resourceVersion"]}, "status": dict(status)}
        self.object = self._wrote(
            await self._resource().patch(about["name"], patch, about.get("namespace", ""), subresource="status")
        )
        return self.object

    async def delete(self) -> None:
        await self._claim()
        await self._delete(self._resource(), self.object)

    # its children

    def children(self, group: str, kind: str) -> list[Obj]:
        """The objects of a controlled kind that have this one as their controller, as last seen."""
        return self._deps.children_of(self.object["metadata"]["uid"], (group, kind))

    async def ensure_child(self, wanted: Obj) -> Obj:
        """Create a child, or patch the given fields that differ. Its name must follow from the object, so that
        two owners create the same child."""
        self._check()
        kind, whole = (wanted["apiVersion"].rpartition("/")[0], wanted["kind"]), self._as_child(wanted)
        name = whole["metadata"]["name"]
        present = self._child(kind, name)
        if present is not None and _contains(present, whole):
            return present
        await self._claim()
        whole, resource = self._stamped(whole), self._deps.resource(kind)
        present = self._child(kind, name)  # claiming has changed its version
        if present is None:
            self._check()
            try:
                return self._wrote(await resource.create(whole))
            except AlreadyExists:
                present = await resource.get(name, whole["metadata"].get("namespace", ""))
        if (controller_of(present) or {}).get("uid") != self.object["metadata"]["uid"]:
            raise AlreadyExists(f"{wanted['kind']} {name} exists and belongs to another owner")
        return present if _contains(present, whole) else await self._change(resource, present, whole)

    def _child(self, kind: Kind, name: str) -> Obj | None:
        return next((child for child in self.children(*kind) if child["metadata"]["name"] == name), None)

    async def delete_child(self, child: Obj) -> None:
        await self._claim()
        group = child["apiVersion"].rpartition("/")[0]
        await self._delete(self._deps.resource((group, child["kind"])), child)

    # guarding

    def _check(self) -> None:
        self._deps.check(self.slot, self.epoch)

    def _resource(self) -> ResourceClient:
        return self._deps.resource(self._kind)

    async def _claim(self) -> None:
        """Before the first write of this epoch: write the epoch to the children and the object."""
        self._check()
        if not self._newer(self.object):
            await self._claim_children()
            self.object = await self._change(self._resource(), self.object, {})

    async def _claim_children(self) -> None:
        for kind in self._controls:
            for child in self.children(*kind):
                if not self._newer(child):
                    try:
                        await self._change(self._deps.resource(kind), child, {})
                    except NotFound:
                        continue  # deleted meanwhile

    def _newer(self, obj: Obj) -> bool:
        """Whether the object has this epoch already. Raises ``OwnershipLost`` when it has a later one."""
        stamped = epoch_of(obj, self._deps.config)
        if stamped > self.epoch:
            raise OwnershipLost(f"{obj.get('kind', 'the object')} {key_of(obj)} has an owner of epoch {stamped}")
        return stamped == self.epoch

    async def _change(self, resource: ResourceClient, present: Obj, wanted: Obj) -> Obj:
        """Patch an object with the wanted fields and the epoch, at the version that was seen."""
        self._newer(present)
        self._check()
        about = present["metadata"]
        given = wanted.get("metadata") or {}
        meta = {
            **({"labels": given["labels"]} if "labels" in given else {}),
            "annotations": {**(given.get("annotations") or {}), epoch_annotation(self._deps.config): str(self.epoch)},
            "resourceVersion": about["resourceVersion"],
            "uid": about["uid"],
        }
        patch = {**{name: value for name, value in wanted.items() if name != "metadata"}, "metadata": meta}
        return self._wrote(await resource.patch(about["name"], patch, about.get("namespace", "")))

    def _wrote(self, written: Obj) -> Obj:
        self._deps.wrote(self.object["metadata"]["uid"], written, self.epoch)
        return written

    async def _delete(self, resource: ResourceClient, obj: Obj) -> None:
        self._check()
        about = obj["metadata"]
        await resource.delete(
            about["name"], about.get("namespace", ""), uid=about["uid"], resource_version=about["resourceVersion"]
        )

    def _stamped(self, obj: Obj) -> Obj:
        about = obj["metadata"]
        notes = {**(about.get("annotations") or {}), epoch_annotation(self._deps.config): str(self.epoch)}
        labels = {**(about.get("labels") or {}), slot_label(self._deps.config): str(self.slot)}
        return {**obj, "metadata": {**about, "annotations": notes, "labels": labels}}

    def _based(self, obj: Obj, on: Obj) -> Obj:
        base = {"resourceVersion": on["metadata"]["resourceVersion"], "uid": on["metadata"]["uid"]}
        return {**obj, "metadata": {**obj["metadata"], **base}}

    def _as_child(self, wanted: Obj) -> Obj:
        about, mine = wanted["metadata"], self.object
        owner = {
            "apiVersion": mine["apiVersion"], "kind": mine["kind"], "name": mine["metadata"]["name"],
            "uid": mine["metadata"]["uid"], "controller": True, "blockOwnerDeletion": True,
        }  # fmt: skip
        place = {"namespace": mine["metadata"]["namespace"]} if mine["metadata"].get("namespace") else {}
        labels = {**(about.get("labels") or {}), slot_label(self._deps.config): str(self.slot)}
        return {**wanted, "metadata": {**place, **about, "labels": labels, "ownerReferences": [owner]}}


def _contains(present: Any, wanted: Any) -> bool:
    """Whether all wanted fields are present. Other fields do not matter, and servers leave out empty ones."""
    if present is None and wanted in ({}, []):
        return True
    if isinstance(wanted, Mapping):
        return isinstance(present, Mapping) and all(
            _contains(present.get(name), value) for name, value in wanted.items()
        )
    if isinstance(wanted, list):
        return isinstance(present, list) and len(present) == len(wanted) and all(map(_contains, present, wanted))
    return bool(present == wanted)
