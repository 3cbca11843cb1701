"""An informer: one cache, the reflector that feeds it, and the resync that checks it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from shoal.base.clock import Clock
from shoal.client import EVERYTHING, ResourceClient, ResourceType, Scope
from shoal.reconcile.cache import Cache, IndexFunction, Transform, without_managed_fields
from shoal.reconcile.reflector import Reflector, ReflectorConfig
from shoal.reconcile.resync import Resync, ResyncConfig


class Informer:
    """The objects of one resource in one scope. Shared by all readers; run once."""

    def __init__(
        self,
        resource: ResourceClient,
        *,
        clock: Clock,
        random: Callable[[], float],
        scope: Scope = EVERYTHING,
        transform: Transform = without_managed_fields,
        indexes: Mapping[str, IndexFunction] | None = None,
        config: ReflectorConfig | None = None,
        resync: ResyncConfig | None = None,
    ) -> None:
        self.type: ResourceType = resource.type
        self.scope = scope
        self.cache = Cache(transform=transform, indexes=indexes)
        self.reflector = Reflector(resource, self.cache, clock=clock, random=random, scope=scope, config=config)
        self.on_resync: list[Callable[[], None]] = []  # called after each comparison of the cache with the server
        self._resync: Resync | None = None  # None: the cache is not compared
        if resync is not None:
            self._resync = Resync(
                resource, self.cache, self.reflector, clock=clock, random=random, config=resync, scope=scope,
                resynced=self._resynced,
            )  # fmt: skip

    @property
    def name(self) -> str:
        """For task names and reports."""
        parts = (self.scope.namespace, self.scope.label_selector, self.scope.field_selector)
        narrowed = ",".join(part for part in parts if part)
        return f"{self.type.qualified}[{narrowed}]" if narrowed else self.type.qualified

    @property
    def synced(self) -> bool:
        return self.cache.synced.is_set()

    async def run(self) -> None:
        if self._resync is None:
            await self.reflector.run()
            return
        async with asyncio.TaskGroup() as group:
            group.create_task(self.reflector.run(), name=f"reflector/{self.name}/watch")
            group.create_task(self._resync.run(), name=f"reflector/{self.name}/resync")

    def _resynced(self) -> None:
        for handler in tuple(self.on_resync):
            handler()
