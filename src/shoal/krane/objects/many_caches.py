"""One cache of several namespaces, for agents that may not list the whole cluster: each namespace has its own informer,
and what these see is gathered here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from shoal.kube.objects import Obj
from shoal.reconcile import Cache, Change
from shoal.reconcile.cache import IndexFunction
from shoal.reconcile.keys import is_older


class GatheredCache(Cache):
    """Filled by the ``parts``. Its revision is the lowest of theirs: everything up to there was seen."""

    def __init__(self, parts: Sequence[Cache], indexes: Mapping[str, IndexFunction]) -> None:
        self._parts = tuple(parts)
        super().__init__(transform=_as_it_is, indexes=indexes)
        for part in self._parts:
            part.add_handler(self._changed)

    @property
    def resource_version(self) -> str:
        lowest = self._parts[0].resource_version
        for part in self._parts[1:]:
            if part.resource_version == "" or (lowest and is_older(part.resource_version, lowest)):
                lowest = part.resource_version
        return lowest

    @resource_version.setter
    def resource_version(self, value: str) -> None:
        """The parts have it."""

    async def follow(self) -> None:
        """Return when all parts have synced, and so this one."""
        for part in self._parts:
            await part.synced.wait()
        self.synced.set()

    def _changed(self, change: Change) -> None:
        if change.new is not None:
            self.upsert(change.new)
        elif change.old is not None:
            self.remove(change.old)


def _as_it_is(obj: Obj) -> Obj:
    return obj
