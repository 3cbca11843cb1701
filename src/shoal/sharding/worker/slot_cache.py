"""Caches of a worker: the objects of its slots, of each kind it handles or controls.

Moves change the set of slots. The cache of a kind stays; its list and watch are replaced by ones for the new set, and
the cache reports only the differences. An object whose slot has left then looks deleted, so handlers check whether the
slot is still owned.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from shoal.base.clock import Clock
from shoal.base.supervision import SupervisedLoops
from shoal.client import ResourceClient, Scope
from shoal.kube.objects import Obj
from shoal.reconcile import Cache, Reflector
from shoal.reconcile.keys import controller_of
from shoal.sharding.model import SLOTS, slot_label, slot_of, slot_selector
from shoal.sharding.reflector_config import REFLECTOR_CONFIG

BY_SLOT, BY_OWNER = "slot", "owner"


class _ListedCache(Cache):
    """A cache with an event that is set when a complete list has been stored."""

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
    """The cache of one kind. ``follow`` changes the watched slots; ``close`` ends the watch."""

    def __init__(self, resource: ResourceClient, config: str, *, clock: Clock, random: Callable[[], float]) -> None:
        self.resource = resource
        self.cache = _ListedCache(config)
        self._config = config
        self._clock = clock
        self._random = random
        self._loops = SupervisedLoops(clock)

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
            config=REFLECTOR_CONFIG,
        )  # fmt: skip
        self._loops.start("worker/cache", reflector.run, detail=self.resource.type.qualified)
        await self.cache.listed.wait()

    def wrote(self, answer: Obj) -> None:
        """The server has accepted a write of this worker. The cache must show it before the watch does."""
        self.cache.upsert(answer)

    async def close(self) -> None:
        await self._loops.stop()
