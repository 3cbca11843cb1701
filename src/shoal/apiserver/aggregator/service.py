"""The aggregator: follows the APIServices in the store."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress

from shoal.apiserver import objects
from shoal.apiserver.aggregator import plan
from shoal.apiserver.aggregator.registration import Registration
from shoal.apiserver.context import Core
from shoal.apiserver.write import Writer
from shoal.kube.objects import Obj
from shoal.store import Event, EventType, StoreReadOnly


class Aggregator:
    """``start`` once the store and the definitions are loaded."""

    def __init__(self, core: Core, writer: Writer) -> None:
        self._core = core
        self.registration = Registration(core, writer)
        self.version = 0  # counts changes that discovery shows
        self.priorities: dict[plan.GroupVersion, tuple[int, int]] = {}
        self._unsubscribe: Callable[[], None] | None = None

    async def start(self) -> None:
        self._unsubscribe = self._core.store.subscribe(plan.API_SERVICES, self._on_events)
        for entry in self._core.store.range(plan.API_SERVICES).entries:
            self._follow(objects.decode(entry), gone=False)
        with suppress(StoreReadOnly):  # reads are served all the same
            await self.registration.ensure(starting=True)
        self.registration.start()

    async def stop(self) -> None:
        if self._unsubscribe is not None:
            self._unsubscribe()
        await self.registration.stop()

    def _on_events(self, events: Sequence[Event]) -> None:
        for event in events:
            self._follow(objects.decode(event.entry), gone=event.type is EventType.DELETED)

    def _follow(self, api_service: Obj, *, gone: bool) -> None:
        place, spec = plan.group_version(api_service), api_service.get("spec") or {}
        priorities = None if gone else (spec.get("groupPriorityMinimum") or 0, spec.get("versionPriority") or 0)
        if self.priorities.get(place) != priorities:
            self.version += 1
            if priorities is None:
                del self.priorities[place]
            else:
                self.priorities[place] = priorities
