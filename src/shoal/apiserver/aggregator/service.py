"""The aggregator: follows the APIServices in the store, and knows which group versions other servers serve."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress

from shoal.apiserver import objects
from shoal.apiserver.admission.webhooks.target import Resolver
from shoal.apiserver.aggregator import plan
from shoal.apiserver.aggregator.availability import SLICES, AvailabilityCheck
from shoal.apiserver.aggregator.proxy import AggregatorProxy
from shoal.apiserver.aggregator.registration import Registration
from shoal.apiserver.aggregator.routes import Route, is_remote
from shoal.apiserver.context import Core
from shoal.apiserver.messages import Answer, Request
from shoal.apiserver.nodes.proxy import wants_upgrade
from shoal.apiserver.user import User
from shoal.apiserver.write import Writer
from shoal.base.supervision import supervise
from shoal.base.tasks import OwnedTasks
from shoal.kube.discovery import AggregatedVersion
from shoal.kube.objects import Obj
from shoal.store import Event, EventType, StoreReadOnly


class Aggregator:
    """``start`` once the store and the definitions are loaded."""

    def __init__(self, core: Core, writer: Writer) -> None:
        self._core, self._writer = core, writer
        self._proxy = AggregatorProxy(core.clock, Resolver(core.store), core.config.nodes.dial_s)
        self.registration = Registration(core, writer)
        self.version = 0  # counts changes that discovery shows
        self.priorities: dict[plan.GroupVersion, tuple[int, int]] = {}
        self.routes: dict[plan.GroupVersion, Route] = {}  # of group versions that other servers serve
        self._checks: dict[plan.GroupVersion, tuple[AvailabilityCheck, asyncio.Task[None]]] = {}
        self._tasks = OwnedTasks()
        self._unsubscribe: list[Callable[[], None]] = []

    async def start(self) -> None:
        store = self._core.store
        self._unsubscribe = [
            store.subscribe(plan.API_SERVICES, self._on_events),
            store.subscribe("services", self._on_services),
            store.subscribe(SLICES, self._on_slices),
        ]
        for entry in store.range(plan.API_SERVICES).entries:
            self._follow(objects.decode(entry), gone=False)
        with suppress(StoreReadOnly):  # reads are served all the same
            await self.registration.ensure(starting=True)
        self.registration.start()

    async def stop(self) -> None:
        for unsubscribe in self._unsubscribe:
            unsubscribe()
        await self.registration.stop()
        await self._tasks.close()

    # -- requests ----------------------------------------------------------------------------------------------------

    def route_of(self, path: str) -> Route | None:
        """The route of a path that names no resource: the discovery of a group version."""
        parts = path.split("/", 4)
        if len(parts) < 4 or parts[1] != "apis":
            return None
        return self.routes.get((parts[2], parts[3]))

    async def pass_on(self, route: Route, request: Request, user: User, verb: str) -> Answer:
        request.unhurried = verb == "watch" or wants_upgrade(request)
        return await self._proxy.pass_on(route, request, user)

    def elsewhere(self) -> list[AggregatedVersion]:
        """What other servers serve, for discovery."""
        return [route.discovered for route in self.routes.values()]

    # -- the store ---------------------------------------------------------------------------------------------------

    def _on_events(self, events: Sequence[Event]) -> None:
        for event in events:
            self._follow(objects.decode(event.entry), gone=event.type is EventType.DELETED)

    def _on_services(self, events: Sequence[Event]) -> None:
        if self.routes:
            self._wake({(event.entry.key.namespace, event.entry.key.name) for event in events})

    def _on_slices(self, events: Sequence[Event]) -> None:
        if self.routes:
            label = "kubernetes.io/service-name"
            self._wake({(each.entry.key.namespace, each.entry.attrs.labels.get(label, "")) for each in events})

    def _wake(self, services: set[tuple[str, str]]) -> None:
        for check, _ in self._checks.values():
            if (check.route.service["namespace"], check.route.service["name"]) in services:
                check.wake()

    def _follow(self, api_service: Obj, *, gone: bool) -> None:
        place, spec = plan.group_version(api_service), api_service.get("spec") or {}
        priorities = None if gone else (spec.get("groupPriorityMinimum") or 0, spec.get("versionPriority") or 0)
        if self.priorities.get(place) != priorities:
            self.version += 1
            if priorities is None:
                del self.priorities[place]
            else:
                self.priorities[place] = priorities
        self._follow_route(place, api_service if is_remote(api_service) and not gone else None)

    def _follow_route(self, place: plan.GroupVersion, api_service: Obj | None) -> None:
        known = self.routes.get(place)
        if known is None and api_service is None:
            return
        if known is not None and api_service is not None and known.spec == api_service["spec"]:
            available = plan.is_available(api_service)
            if known.available != available:
                known.available = available
                self._changed()
            return
        ended = self._checks.pop(place, None)
        if ended is not None:
            ended[1].cancel()
        self.routes.pop(place, None)
        if api_service is not None:
            route = self.routes[place] = Route(api_service, self._core.config.front_proxy)
            check = AvailabilityCheck(self._core, self._writer, self._proxy, route, self._changed)
            checking = supervise("apiservices/availability", check.run, clock=self._core.clock, detail=route.name)
            self._checks[place] = check, self._tasks.start(checking, name=f"apiservices/{route.name}")
        self._core.registry.set_elsewhere(frozenset(self.routes))
        self._changed()

    def _changed(self) -> None:
        self.version += 1
