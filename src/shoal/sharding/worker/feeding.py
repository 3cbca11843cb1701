"""Caches of a worker: the objects of its slots, of each kind it handles or controls.

Slots come and go by moves. The cache of a kind stays; the list and watch that feed it are replaced by ones for the new
set, and the cache tells only what differs. An object that leaves with its slot looks like a deletion then: who handles
it asks whether the slot is still owned.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from shoal.base.clock import Clock
from shoal.base.tasks import cancel_all
from shoal.client import ResourceClient, Scope
from shoal.kube.objects import Obj
from shoal.reconcile import Cache, Reflector
from shoal.reconcile.keys import controller_of
from shoal.sharding.following import FOLLOWING
from shoal.sharding.model import SLOTS, slot_label, slot_of, slot_selector

BY_SLOT, BY_OWNER = "slot", "owner"


class _Told(Cache):
    """A cache that says when a whole list has been put into it."""

    def __init__(self, config: str) -> None:
        def slots(obj: Obj) -> Iterable[str]:
            found = slot_of(obj, config)
            return () if found is None else (str(found),)

        super().__init__(indexes={BY_SLOT: slots, BY_OWNER: _owner})
        self.listed = asyncio.Event()

    def replace(self, objects: Iterable[Obj], resource_version: str, *, shaped: bool = False) -> None:
        super().replace(objects, resource_version, shaped=shaped)
        self.listed.set()


def _owner(obj: Obj) -> Iterable[str]:
    reference = controller_of(obj)
    return () if reference is None else (reference["uid"],)


class SlotCache:
    """One kind. ``follow`` changes what is watched; ``close`` ends it."""

    def __init__(self, resource: ResourceClient, config: str, *, clock: Clock, random: Callable[[], float]) -> None:
        self.resource = resource
        self.cache = _Told(config)
        self._config = config
        self._clock = clock
        self._random = random
        self._task: asyncio.Task[None] | None = None

    async def follow(self, slots: frozenset[int]) -> None:
        """Return when the cache has the objects of these slots and of no others."""
        await self.close()
        self.cache.listed.clear()
        if not slots:
            self.cache.replace((), self.cache.resource_version)
            return
        selector = slot_label(self._config) if len(slots) == SLOTS else slot_selector(self._config, slots)
        reflector = Reflector(
            self.resource, self.cache, clock=self._clock, random=self._random, scope=Scope(label_selector=selector),
            config=FOLLOWING,
        )  # fmt: skip
        self._task = asyncio.create_task(reflector.run(), name=f"feed/{self.resource.type.qualified}")
        await self.cache.listed.wait()

    def wrote(self, answer: Obj) -> None:
        """The server has taken a write of ours. The watch will say so too, but later than somebody may look."""
        self.cache.upsert(answer)

    async def close(self) -> None:
        if self._task is not None:
            await cancel_all(self._task)
            self._task = None
