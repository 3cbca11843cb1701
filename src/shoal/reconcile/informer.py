"""An informer: one cache and the reflector that feeds it."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from shoal.base.clock import Clock
from shoal.client import EVERYTHING, ResourceClient, ResourceType, Scope
from shoal.reconcile.cache import Cache, IndexFunction, Transform, without_managed_fields
from shoal.reconcile.reflector import Reflector, ReflectorConfig


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
    ) -> None:
        self.type: ResourceType = resource.type
        self.scope = scope
        self.cache = Cache(transform=transform, indexes=indexes)
        self.reflector = Reflector(resource, self.cache, clock=clock, random=random, scope=scope, config=config)

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
        await self.reflector.run()
