"""Claims: an owner adopts selected objects without a controller, and releases its objects that it no longer selects.

Before adopting, it asks the server whether the owner still exists and is not being deleted: the cache may lag, and an
adopted object would be deleted with its owner.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from shoal.client import PatchType, ResourceClient
from shoal.controllers.pods.expectations import Expectations
from shoal.controllers.pods.owners import controlled_by, orphans_in
from shoal.controllers.pods.status import is_terminating
from shoal.errors import Conflict, Invalid, NotFound
from shoal.kube.labels import Selector
from shoal.kube.objects import Obj
from shoal.reconcile.cache import Cache


@dataclass(frozen=True, slots=True)
class Claims:
    """The objects of an owner, and those to adopt and release."""

    kept: tuple[Obj, ...]
    adopted: tuple[Obj, ...]
    released: tuple[Obj, ...]


def plan_claims(
    owner: Obj,
    selector: Selector,
    controlled: Iterable[Obj],
    orphans: Iterable[Obj],
    *,
    wanted: Callable[[Obj], bool] = lambda obj: True,
) -> Claims:
    """``wanted`` restricts the objects further than the owner's selector."""

    def selects(obj: Obj) -> bool:
        return selector.matches(obj["metadata"].get("labels") or {}) and wanted(obj)

    kept: list[Obj] = []
    released: list[Obj] = []
    for obj in controlled:
        (kept if selects(obj) else released).append(obj)
    if is_terminating(owner):
        return Claims(tuple(kept), (), ())
    adopted = tuple(obj for obj in orphans if not is_terminating(obj) and selects(obj))
    return Claims(tuple(kept), adopted, tuple(released))


class Claimer:
    """Executes claims on objects of one resource."""

    def __init__(
        self, resource: ResourceClient, cache: Cache, owners: ResourceClient, expectations: Expectations
    ) -> None:
        self._resource = resource
        self._cache = cache
        self._owners = owners
        self._expectations = expectations

    async def claim(
        self, owner: Obj, reference: Obj, selector: Selector, *, wanted: Callable[[Obj], bool] = lambda obj: True
    ) -> tuple[Obj, ...]:
        """Adopt and release; return the owner's objects. The cache needs the index by controller."""
        namespace = owner["metadata"]["namespace"]
        claims = plan_claims(
            owner, selector, controlled_by(self._cache, owner), orphans_in(self._cache, namespace), wanted=wanted
        )
        if not claims.adopted and not claims.released:
            return claims.kept
        for obj in claims.released:
            await self._release(owner, obj)
        adopted: list[Obj] = []
        if claims.adopted and await self._may_adopt(owner):
            for obj in claims.adopted:
                adopted += await self._adopt(owner, reference, obj)
        return claims.kept + tuple(adopted)

    async def _may_adopt(self, owner: Obj) -> bool:
        about = owner["metadata"]
        try:
            fresh = await self._owners.get(about["name"], about["namespace"])
        except NotFound:
            return False
        return bool(fresh["metadata"]["uid"] == about["uid"]) and not is_terminating(fresh)

    async def _adopt(self, owner: Obj, reference: Obj, obj: Obj) -> tuple[Obj, ...]:
        patch = {"metadata": {"uid": obj["metadata"]["uid"], "ownerReferences": [reference]}}
        try:
            return (await self._patch(owner, obj, patch),)
        except NotFound:
            return ()

    async def _release(self, owner: Obj, obj: Obj) -> None:
        gone = {"$patch": "delete", "uid": owner["metadata"]["uid"]}
        patch = {"metadata": {"uid": obj["metadata"]["uid"], "ownerReferences": [gone]}}
        try:
            await self._patch(owner, obj, patch)
        except (NotFound, Invalid, Conflict):
            pass  # deleted, or another object has its name

    async def _patch(self, owner: Obj, obj: Obj, patch: Obj) -> Obj:
        about = obj["metadata"]
        answer = await self._resource.patch(about["name"], patch, about["namespace"], type=PatchType.STRATEGIC)
        self._expectations.wrote(owner["metadata"]["uid"], self._cache, answer)
        return answer
