"""Watches every resource that can be deleted, also those that are added later, and maintains the graph.

A resource that another controller already watches is not watched twice: its informer is shared. For all others only the
metadata is requested, and only the fields of the graph are kept.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from shoal.base.deadline import within
from shoal.base.logs import get_logger
from shoal.base.supervision import supervise
from shoal.base.tasks import OwnedTasks, cancel_all
from shoal.client import MetadataClient, ResourceType, TransportError
from shoal.controllers.context import ControllerContext
from shoal.controllers.discovery import Discovered, ServedResource, discover
from shoal.controllers.garbagecollector.graph import Graph
from shoal.controllers.garbagecollector.model import NodeType, node_of
from shoal.errors import ApiError
from shoal.kube.objects import Obj
from shoal.reconcile import Cache, Change, ChangeType, Informer

DISCOVERY_S = 30.0
REDISCOVER_S = 1.0
SYNC_LIMIT_S = 30.0  # a resource that cannot be listed delays the others at most this long
_KEPT = ("name", "namespace", "uid", "resourceVersion", "ownerReferences", "finalizers", "deletionTimestamp")
_IGNORED = (("", "events"), ("events.k8s.io", "events"))  # many, short-lived, and never owned

log = get_logger("controllers.garbagecollector")


def graph_metadata(obj: Obj) -> Obj:
    """A transform that keeps only the metadata that the graph needs."""
    about = obj["metadata"]
    return {"metadata": {name: about[name] for name in _KEPT if name in about}}


def type_of(resource: ResourceType) -> NodeType:
    return NodeType(
        group=resource.group,
        version=resource.version,
        plural=resource.plural,
        kind=resource.kind,
        namespaced=resource.namespaced,
    )


def is_collected(resource: ServedResource) -> bool:
    return resource.can("delete", "list", "watch") and (resource.type.group, resource.type.plural) not in _IGNORED


@dataclass(slots=True)
class _Monitor:
    cache: Cache
    handler: Callable[[Change], None]
    task: asyncio.Task[None] | None  # None: the informer belongs to the manager
    started_s: float


class Monitors:
    """Run by the manager beside the collector that it feeds."""

    name = "garbage-collector/monitors"

    def __init__(
        self,
        context: ControllerContext,
        graph: Graph,
        enqueue: Callable[[str], None],
        begun: Callable[[Informer], None],
    ) -> None:
        self._context = context
        self._graph = graph
        self._enqueue = enqueue
        self._begun = begun  # called with the informer of each resource
        self._tasks = OwnedTasks()
        self._monitors: dict[ResourceType, _Monitor] = {}
        self._kinds: dict[tuple[str, str], ResourceType] = {}  # (group, kind) -> resource, including unwatched ones
        self._discovery_due = asyncio.Event()  # a new kind may have been defined
        self._discovered = asyncio.Event()
        self._discovered_s = -REDISCOVER_S
        self._discovering = asyncio.Lock()
        self._stopping = False
        definitions = context.informer("customresourcedefinitions", "apiextensions.k8s.io")
        definitions.cache.add_handler(lambda _: self._discovery_due.set())

    def resource_of(self, group: str, kind: str) -> ResourceType | None:
        return self._kinds.get((group, kind))

    async def synced(self) -> None:
        """Return when the graph has all objects that the server can list."""
        await self._discovered.wait()
        for monitor in tuple(self._monitors.values()):
            left_s = monitor.started_s + SYNC_LIMIT_S - self._context.clock.monotonic()
            if monitor.cache.synced.is_set() or left_s <= 0:
                continue
            try:
                async with within(self._context.clock, left_s):
                    await monitor.cache.synced.wait()
            except TimeoutError:
                log.warning("resource could not be listed; its objects are not collected", after_s=SYNC_LIMIT_S)

    async def rediscover(self) -> None:
        """Run discovery now for an unknown kind. Concurrent calls share one request."""
        if self._context.clock.monotonic() - self._discovered_s >= REDISCOVER_S:
            await self._discover()

    async def run(self) -> None:
        try:
            while not self._stopping:
                self._discovery_due.clear()
                try:
                    await self._discover()
                except (ApiError, TransportError) as error:
                    log.warning("discovery failed", reason=str(error))
                await self._pause()
        finally:
            await self._tasks.close()

    def stop(self) -> None:
        self._stopping = True
        self._discovery_due.set()

    async def _pause(self) -> None:
        timer = self._context.clock.call_later(DISCOVERY_S, self._discovery_due.set)
        try:
            await self._discovery_due.wait()
        finally:
            timer.cancel()

    async def _discover(self) -> None:
        async with self._discovering:
            self._discovered_s = self._context.clock.monotonic()
            await self._follow(await discover(self._context.client))

    async def _follow(self, found: Discovered) -> None:
        self._kinds = {(each.type.group, each.type.kind): each.type for each in reversed(found.resources)}
        wanted = {each.type for each in found.resources if is_collected(each)}
        for gone in [each for each in self._monitors if each not in wanted]:
            if not any(stale.startswith(f"{gone.group}/") for stale in found.stale):
                await self._end(gone)
        for new in wanted - self._monitors.keys():
            self._begin(new)
        self._discovered.set()

    def _begin(self, resource: ResourceType) -> None:
        shared = self._context.manager.shared(resource)
        task = None
        if shared is None:
            informer = Informer(
                MetadataClient(self._context.client, resource), clock=self._context.clock, random=self._context.random,
                transform=graph_metadata, resync=self._context.manager.resync,
            )  # fmt: skip
            watching = supervise(
                "garbage-collector/informer", informer.run, clock=self._context.clock, detail=resource.qualified,
                ready=informer.cache.synced.is_set,
            )  # fmt: skip
            task = self._tasks.start(watching, name=f"garbage-collector/{resource.qualified}")
        else:
            informer = shared
        node_type = type_of(resource)

        def on_change(change: Change) -> None:
            if change.type is ChangeType.DELETED:
                due = self._graph.forget(change.object["metadata"]["uid"])
            else:
                due = self._graph.observe(node_of(node_type, change.object))
            for uid in due:
                self._enqueue(uid)

        self._monitors[resource] = _Monitor(informer.cache, on_change, task, self._context.clock.monotonic())
        informer.cache.add_handler(on_change)
        self._begun(informer)

    async def _end(self, resource: ResourceType) -> None:
        monitor = self._monitors.pop(resource)
        monitor.cache.remove_handler(monitor.handler)
        if monitor.task is not None:
            await cancel_all(monitor.task)
        for obj in monitor.cache:
            for uid in self._graph.forget(obj["metadata"]["uid"], deleted=False):
                self._enqueue(uid)
