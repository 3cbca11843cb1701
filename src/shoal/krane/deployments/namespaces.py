"""Deletes the namespace of a deleted environment.

Only a namespace that krane made for this environment of this fleet, as its labels say, and only while nothing of others
runs or stores data in it. What others have configured there (a ConfigMap, a VirtualService) belonged to the apps of the
environment and goes with them.
"""

from __future__ import annotations

from collections.abc import Mapping

from shoal.client import Client, Propagation, Scope, builtin
from shoal.errors import Conflict, NotFound
from shoal.krane.labels import ENVIRONMENT, FLEET, KRANE, MANAGED_BY, label_value
from shoal.krane.owner import Owner
from shoal.kube.objects import Obj

_NAMESPACES = builtin("namespaces")
_LOOKED_AT = (
    builtin("persistentvolumeclaims"),
    builtin("deployments", "apps"),
    builtin("services"),
    builtin("pods"),
)
_SHOWN = 3


class Namespaces:
    def __init__(self, client: Client, owner: Owner) -> None:
        self._client = client
        self._fleet = {MANAGED_BY: KRANE, FLEET: label_value(owner.fleet)}

    async def delete(self, name: str, *, environment: str) -> None:
        """Ask for its deletion. ``Conflict`` while it has objects of others: the deletion is tried again later."""
        try:
            live = await self._client.of(_NAMESPACES).get(name)
        except NotFound:
            return
        about = live["metadata"]
        wanted = {**self._fleet, ENVIRONMENT: label_value(environment)}
        if not _has(live, wanted) or about.get("deletionTimestamp"):
            return
        foreign = await self._foreign(name)
        if foreign:
            more = f" and {len(foreign) - _SHOWN} more" if len(foreign) > _SHOWN else ""
            raise Conflict(
                f"namespace {name} of a deleted environment has objects that krane did not make: "
                f"{', '.join(foreign[:_SHOWN])}{more}; delete them, and the namespace goes too"
            )
        try:
            await self._client.of(_NAMESPACES).delete(
                name, propagation=Propagation.BACKGROUND, uid=about["uid"], resource_version=about["resourceVersion"]
            )
        except NotFound:
            return

    async def _foreign(self, namespace: str) -> list[str]:
        found: list[str] = []
        for kind in _LOOKED_AT:
            objects = (await self._client.of(kind).list(Scope(namespace=namespace))).items
            found += [f"{kind.kind} {obj['metadata']['name']}" for obj in objects if not _has(obj, self._fleet)]
        return found


def _has(obj: Obj, wanted: Mapping[str, str]) -> bool:
    labels: Mapping[str, str] = obj["metadata"].get("labels") or {}
    return all(labels.get(name) == value for name, value in wanted.items())
