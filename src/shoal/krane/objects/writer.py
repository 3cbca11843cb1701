"""Writes single objects: reads, refuses objects of other owners or of a newer version, applies only differences,
deletes only its own.

Every write is a server-side apply with the resourceVersion that was read, so no change made in between is overwritten
unseen. An object that another client changes meanwhile (its controller, for example) is read and checked again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping
from dataclasses import replace
from typing import Any, TypeVar

from shoal.client import Client, PatchType, Propagation, ResourceType, Scope, builtin
from shoal.crds import sentinel as crds
from shoal.errors import AlreadyExists, ApiError, Conflict, Forbidden, NotFound
from shoal.krane import labels
from shoal.krane.labels import APPLIED, CORRELATION, FIELD_MANAGER_KRANE, VERSION
from shoal.krane.objects.compare import FOREIGN, additions, differences, fingerprint, foreign_fields, taken_over
from shoal.krane.owner import Newer, Owner
from shoal.kube.objects import Obj
from shoal.sync.versions import Version

T = TypeVar("T")

_ATTEMPTS = 6
_CUSTOM = {
    "SentinelRoute": ResourceType(crds.GROUP, crds.VERSION, "sentinelroutes", True, "SentinelRoute"),
    "SentinelPolicy": ResourceType(crds.GROUP, crds.VERSION, "sentinelpolicies", True, "SentinelPolicy"),
}


class NotOurs(AlreadyExists):
    """An object of that name exists and has another owner; it was not changed."""


def type_of(kind: str, api_version: str) -> ResourceType:
    return _CUSTOM.get(kind) or builtin(kind, api_version.rpartition("/")[0])


def shown(obj: Obj) -> str:
    about = obj["metadata"]
    place = f"{about['namespace']}/" if about.get("namespace") else ""
    return f"{obj['kind']} {place}{about['name']}"


async def together(parts: Mapping[str, Coroutine[Any, Any, T]]) -> dict[str, T]:
    """The results of all parts, run at the same time; of several failures the first is raised."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = {name: group.create_task(part, name=name) for name, part in parts.items()}
    except BaseExceptionGroup as failures:
        raise failures.exceptions[0] from None
    return {name: task.result() for name, task in tasks.items()}


class Writer:
    """For one owner. Calls for one object must not overlap."""

    def __init__(self, client: Client, owner: Owner) -> None:
        self._client = client
        self._owner = owner
        self._namespaces: set[str] = set()  # that are there, as far as is known

    async def read(self, want: Obj) -> Obj | None:
        about = want["metadata"]
        return await self.get(type_of(want["kind"], want["apiVersion"]), about.get("namespace", ""), about["name"])

    async def get(self, kind: ResourceType, namespace: str, name: str) -> Obj | None:
        try:
            return await self._client.of(kind).get(name, namespace)
        except NotFound:
            return None

    async def list(self, kind: ResourceType, scope: Scope) -> list[Obj]:
        """Of the API server; nothing where the kind does not exist."""
        try:
            return (await self._client.of(kind).list(scope)).items
        except NotFound:
            return []

    def check(self, live: Obj, version: Version, taken_from: str = "", *, want: Obj | None = None) -> None:
        """``NotOurs`` or ``Newer`` when the live object may not be written. What the shard ``taken_from`` made may be,
        whatever its version: another place counts on its own. So may a user's object that is ``want``ed as an adopted
        one."""
        if want is not None and labels.is_adopted(want) and not labels.is_of_krane(live):
            return
        if taken_from and labels.is_of(live, replace(self._owner, shard=taken_from)):
            return
        if not labels.is_of(live, self._owner):
            raise NotOurs(
                f"{shown(live)} exists and is {labels.owner_shown(live)}: krane does not change it; delete or rename it"
            )
        found = labels.live_version(live)
        if found is not None and found.database == version.database and found.is_after(version):
            raise Newer(f"{shown(live)} has version {found}, newer than {version}")

    async def write(
        self,
        want: Obj,
        live: Obj | None,
        version: Version,
        *,
        correlation: str = "",
        every_version: bool = False,
        strict: bool = True,
        taken_from: str = "",
    ) -> Obj:
        """Make the object as wanted; ``live`` is it as it was read. ``correlation`` names the request that led to the
        version: it is written with the object and never makes a write necessary. ``every_version``: its annotation
        follows the version even when nothing else changes. ``strict`` also removes fields that others have added.
        ``taken_from``: a shard whose objects become ours."""
        for _ in range(_ATTEMPTS):
            if live is not None:
                self.check(live, version, taken_from, want=want)
                if _is_current(want, live, version if every_version else None, strict):
                    return live
            try:
                if live is not None and strict and additions(want, foreign_fields(live)):
                    if FOREIGN in live:
                        live = await self.read(want)  # with its managed fields
                        continue
                    live = await self._take_over(live)
                resource = self._client.of(type_of(want["kind"], want["apiVersion"]))
                return await resource.apply(
                    _stamped(want, live, version, correlation), field_manager=FIELD_MANAGER_KRANE, force=True
                )
            except Conflict:
                live = await self.read(want)
            except NotFound:
                if live is None:
                    raise  # its namespace, or its kind
                live = None
        raise Conflict(f"{shown(want)} was changed by others {_ATTEMPTS} times while it was being written")

    async def ensure(self, want: Obj) -> Obj:
        """Make sure that an object which several agents share is there. What is not krane's is taken as it is."""
        resource = self._client.of(type_of(want["kind"], want["apiVersion"]))
        live = await self.read(want)
        if live is not None:
            found: Mapping[str, str] = live["metadata"].get("labels") or {}
            fleet = want["metadata"]["labels"].get(labels.FLEET)
            is_krane = found.get(labels.MANAGED_BY) == labels.KRANE and fleet in (None, found.get(labels.FLEET))
            if not is_krane or not differences(want, live):
                return live
        try:
            return await resource.apply(want, field_manager=FIELD_MANAGER_KRANE, force=True)
        except Forbidden:
            if live is None:
                raise
            return live  # an administrator made it, and keeps it
        except Conflict:  # another agent was faster
            return await resource.get(want["metadata"]["name"], want["metadata"].get("namespace", ""))

    async def ensure_namespace(self, want: Obj) -> None:
        """As ``ensure``, and not asked again until something is not found in it."""
        name = want["metadata"]["name"]
        if name not in self._namespaces:
            await self.ensure(want)
            self._namespaces.add(name)

    def forget_namespace(self, name: str) -> None:
        self._namespaces.discard(name)

    async def co_own(self, want: Obj, manager: str) -> None:
        """Hold some fields of an object under another manager's name."""
        await self._client.of(type_of(want["kind"], want["apiVersion"])).apply(want, field_manager=manager, force=True)

    async def scale(self, want: Obj, replicas: int) -> None:
        about = want["metadata"]
        patch = {"spec": {"replicas": replicas}}
        await self._client.of(type_of(want["kind"], want["apiVersion"])).patch(
            about["name"], patch, about["namespace"], subresource="scale", field_manager=labels.FIELD_MANAGER_SCALE
        )

    async def remove(self, kind: ResourceType, namespace: str, name: str) -> Obj | None:
        """Delete it if it is ours; an object that is not found, or has another owner, is fine. Only as it was seen:
        another shard may be taking it over at this moment. Returns what was deleted."""
        for _ in range(_ATTEMPTS):
            live = await self.get(kind, namespace, name)
            if live is None or not labels.is_of(live, self._owner) or live["metadata"].get("deletionTimestamp"):
                return None
            about = live["metadata"]
            try:
                await self._client.of(kind).delete(
                    name,
                    namespace,
                    propagation=Propagation.BACKGROUND,
                    uid=about["uid"],
                    resource_version=about["resourceVersion"],
                )
                return live
            except NotFound:
                return None
            except Conflict:
                continue  # it changed, or another object has its name now
        raise Conflict(f"{kind.kind} {namespace}/{name} was changed by others {_ATTEMPTS} times while being deleted")

    async def release(self, kind: ResourceType, namespace: str, name: str) -> None:
        """Take our labels and annotations off."""
        for _ in range(_ATTEMPTS):
            live = await self.get(kind, namespace, name)
            if live is None or not labels.is_of(live, self._owner):
                return
            about = live["metadata"]
            annotations = {mark: None for mark in about.get("annotations") or {} if labels.is_ours_to_remove(mark)}
            marks: Obj = {
                "resourceVersion": about["resourceVersion"],
                "labels": labels.released_labels(live),
                "annotations": annotations,
            }
            try:
                await self._client.of(kind).patch(
                    name, {"metadata": marks}, namespace, field_manager=FIELD_MANAGER_KRANE
                )
                return
            except Conflict:
                continue
            except NotFound:
                return
        raise Conflict(f"{kind.kind} {namespace}/{name} was changed by others {_ATTEMPTS} times while being released")

    async def _take_over(self, live: Obj) -> Obj:
        """Become the manager of what others have added, so that the next apply removes it."""
        about = live["metadata"]
        patch = [
            {"op": "replace", "path": "/metadata/resourceVersion", "value": about["resourceVersion"]},
            {"op": "replace", "path": "/metadata/managedFields", "value": taken_over(about["managedFields"])},
        ]
        return await self._client.of(type_of(live["kind"], live["apiVersion"])).patch(
            about["name"], patch, about.get("namespace", ""), type=PatchType.JSON, field_manager=FIELD_MANAGER_KRANE
        )


class _BeingDeleted(ApiError):
    """An object of the same name is being deleted; the new one can be created once it is gone."""

    reason, code = "Conflict", 409


def _stamped(want: Obj, live: Obj | None, version: Version, correlation: str) -> Obj:
    """The object to apply: with its version, the cause of that and its fingerprint, and with the resourceVersion that
    was read."""
    about = dict(want["metadata"])
    about["annotations"] = {**(about.get("annotations") or {}), VERSION: str(version), APPLIED: fingerprint(want)}
    if correlation:
        about["annotations"][CORRELATION] = correlation
    if live is not None:
        if live["metadata"].get("deletionTimestamp"):
            raise _BeingDeleted(f"{shown(want)} is still being deleted")
        about["resourceVersion"] = live["metadata"]["resourceVersion"]
    return {**want, "metadata": about}


def _is_current(want: Obj, live: Obj, version: Version | None, strict: bool) -> bool:
    annotations: Mapping[str, str] = live["metadata"].get("annotations") or {}
    if annotations.get(APPLIED) != fingerprint(want) or (
        version is not None and annotations.get(VERSION) != str(version)
    ):
        return False
    return not differences(want, live) and not (strict and additions(want, foreign_fields(live)))
