"""Writes changes of slices, and tracks them until the cache shows them."""

from __future__ import annotations

from shoal.client import ResourceClient
from shoal.controllers.context import ControllerContext
from shoal.controllers.endpointslice.model import SliceChanges
from shoal.controllers.pods.control import namespace_ends
from shoal.controllers.pods.expectations import Expectations
from shoal.errors import ApiError, Conflict, NotFound
from shoal.kube.objects import Obj
from shoal.reconcile.cache import Cache
from shoal.reconcile.keys import version_of

_REMEMBERED = 4096


class SliceWriter:
    """The writer of one controller. ``owner`` is the uid of the object that the slices belong to."""

    def __init__(self, context: ControllerContext, cache: Cache) -> None:
        self._resource: ResourceClient = context.resource("endpointslices", "discovery.k8s.io")
        self._cache = cache
        self._expectations = Expectations(context.clock)
        self._versions: dict[str, None] = {}  # resourceVersions that this controller wrote, newest last

    def caught_up(self, owner: str) -> bool:
        """Whether the cache shows all writes for the owner."""
        return self._expectations.satisfied(owner)

    def wrote(self, piece: Obj) -> bool:
        """Whether this version of a slice is the controller's own write."""
        return version_of(piece) in self._versions

    def forget(self, owner: str) -> None:
        self._expectations.forget(owner)

    async def apply(self, owner: str, changes: SliceChanges) -> None:
        """Create slices before deleting old ones, so that no address is missing in between."""
        for piece in changes.creates:
            try:
                answer = await self._resource.create(piece)
            except ApiError as error:
                if namespace_ends(error):
                    return
                raise
            self._remember(owner, answer)
        for piece in changes.updates:
            self._remember(owner, await self._resource.replace(piece))
        for piece in changes.deletes:
            await self.delete(owner, piece)

    async def delete(self, owner: str, piece: Obj) -> None:
        about = piece["metadata"]
        try:
            await self._resource.delete(about["name"], about["namespace"], uid=about["uid"])
        except (NotFound, Conflict):
            return  # deleted, or another object has its name
        self._expectations.deleted(owner, self._cache, piece)

    def _remember(self, owner: str, answer: Obj) -> None:
        self._expectations.wrote(owner, self._cache, answer)
        self._versions[version_of(answer)] = None
        if len(self._versions) > _REMEMBERED:
            del self._versions[next(iter(self._versions))]
