"""The sweep: assigns a slot to every object without one, and counts objects per slot.

A watch that selects objects without a slot finds new ones. Every few minutes the sweep lists all objects, metadata only
and in pages: to find those that the watch missed, to label children with the slot of their owner, and to count. Only
the leader sweeps.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from shoal.base.backoff import Backoff
from shoal.base.clock import Clock
from shoal.base.logs import get_logger
from shoal.base.tasks import OwnedTasks, cancel_all, run_all, wait_first
from shoal.client import Client, LostLease, ResourceType, Scope, TransportError
from shoal.client.verbs import MetadataClient
from shoal.client.watch import ADDED, MODIFIED
from shoal.crds.shard import ConfigSpec, Controlled, ShardTarget
from shoal.errors import ApiError, Conflict, Expired, NotFound
from shoal.kube.labels import Selector, from_object
from shoal.kube.objects import Obj
from shoal.reconcile import Change, Informer
from shoal.reconcile.keys import ObjectKey, controller_of, key_of
from shoal.sharding.manager.assigning import SlotChooser, label_patch, shown_name
from shoal.sharding.manager.counting import TargetCounts
from shoal.sharding.manager.memory import ManagerMemory, SlotCounts
from shoal.sharding.manager.metrics import ShardMetrics
from shoal.sharding.model import SlotEntry, slot_label, slot_of, unassigned_selector

log = get_logger("sharding.sweep")

WORKERS = 32  # patches of one target at a time
_PAGE = 500
_WATCH_S = 300
_SHORT_S = 1.0  # a watch that ends sooner is not opened again at once
_RETRY_AT_MOST_S = 10.0
_RETRY_S = 5.0  # after a failure: retries must not overload a busy server


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepDeps:
    client: Client  # fenced
    clock: Clock
    random: Callable[[], float]
    metrics: ShardMetrics
    namespaces: Informer
    period_s: float = 300.0  # between two rounds over all objects


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepContext:
    """Shared by all sweeps of one config. The functions return the current value."""

    key: ObjectKey
    memory: ManagerMemory
    chooser: SlotChooser
    spec: Callable[[], ConfigSpec | None]
    entries: Callable[[], Sequence[SlotEntry]]
    counted: Callable[[], None]  # a target has been counted


def find_type(types: Sequence[ResourceType], group: str, kind: str) -> ResourceType | None:
    return next((each for each in types if each.group == group and each.kind == kind), None)


class TargetSweep:
    """Sweeps one target of one config, until cancelled. It keeps no objects in memory but those it is writing."""

    def __init__(self, deps: SweepDeps, shared: SweepContext, target: ShardTarget) -> None:
        self._deps = deps
        self._clock = deps.clock
        self._shared = shared
        self._target = target
        self._config = shared.key.name
        self._selector = from_object(target.selector or {})
        self._namespaces = from_object(target.namespace_selector) if target.namespace_selector is not None else None
        self._unassigned = Scope(label_selector=_both(unassigned_selector(self._config), self._selector))
        self._backoff = Backoff(base_s=1.0, cap_s=_RETRY_AT_MOST_S, floor_s=0.5)
        self._busy = asyncio.Semaphore(WORKERS)
        self._writing: set[asyncio.Task[None]] = set()
        self._tasks = OwnedTasks()
        self._rescan = asyncio.Event()  # unassigned objects have to be listed again
        self._failed = False  # whether assigning a slot failed
        self._tally = TargetCounts(lambda: shared.memory.objects)

    @property
    def counts(self) -> SlotCounts:
        """The objects of the target, per slot."""
        return self._tally.counts

    async def run(self) -> None:
        """Until cancelled. Waits for the kind if the server does not serve it yet."""
        try:
            await self._run()
        finally:
            self._problem("")  # the target may have left the config

    async def _run(self) -> None:
        resource = MetadataClient(self._deps.client, await self._resolve(self._target.group, self._target.kind))
        namespaces = self._deps.namespaces.cache
        if self._namespaces is not None:
            namespaces.add_handler(self._on_namespace)
        try:
            await run_all(
                {
                    f"sweep/{self._config}/new": self.assign_slots(resource),
                    f"sweep/{self._config}/rounds": self._rounds(resource),
                }
            )
        finally:
            if self._namespaces is not None:
                namespaces.remove_handler(self._on_namespace)
            await cancel_all(*self._writing)

    def _problem(self, text: str) -> None:
        """Keep the reason why objects get no slots, for the conditions; empty: they do."""
        problems, name = self._shared.memory.target_problems, f"{self._target.kind}.{self._target.group}".rstrip(".")
        if text:
            problems[name] = text
        else:
            problems.pop(name, None)

    async def _resolve(self, group: str, kind: str) -> ResourceType:
        while True:
            try:
                found = find_type(await self._deps.client.resource_types(), group, kind) or find_type(
                    await self._deps.client.resource_types(refresh=True), group, kind
                )
                if found is not None:
                    return found
                self._problem("the server does not serve this kind: apply its CustomResourceDefinition")
                log.info("the kind of a target does not exist yet", config=self._config, group=group, kind=kind)
            except (ApiError, TransportError) as error:
                self._problem(f"the server's kinds cannot be read: {error}")
                log.warning("reading the server's kinds failed", reason=str(error))
            await self._clock.sleep(_RETRY_S)

    # new objects

    def _on_namespace(self, change: Change) -> None:
        before, after = change.old or {}, change.new or {}
        if (before.get("metadata") or {}).get("labels") != (after.get("metadata") or {}).get("labels"):
            self._rescan.set()

    async def assign_slots(self, resource: MetadataClient) -> None:
        """Assign slots to all objects without one, then to new ones as they are created; until cancelled."""
        failures = 0
        while True:
            self._failed = False
            self._rescan.clear()
            try:
                version = await self._list_unassigned(resource)
                failures = 0
                self._problem("")
                await wait_first(self._watch_unassigned(resource, version), self._wait_for_rescan())
            except Expired:
                continue
            except (ApiError, TransportError) as error:
                failures += 1
                self._problem(f"its objects cannot be listed: {error}")
                self._deps.metrics.errors.labels("sweep").inc()
                log.warning("listing objects without a slot failed", config=self._config, reason=str(error))
                await self._clock.sleep(self._backoff.delay_s(failures, self._deps.random))

    async def _wait_for_rescan(self) -> None:
        await self._rescan.wait()
        if self._failed:
            await self._clock.sleep(_RETRY_S)

    async def _list_unassigned(self, resource: MetadataClient) -> str:
        """Assign slots to all objects without one; returns the revision to watch from. After many it lists again, since
        a watch from the first list would show each of them."""
        while True:
            version, begun = "", 0
            async for page in resource.pages(self._unassigned, limit=_PAGE):
                version = version or page.resource_version
                for obj in page.items:
                    begun += await self._begin(resource, obj)
            if begun <= _PAGE:
                return version
            if self._writing:
                await asyncio.wait(tuple(self._writing))

    async def _watch_unassigned(self, resource: MetadataClient, version: str) -> None:
        while True:
            began_s = self._clock.monotonic()
            async with await resource.watch(self._unassigned, resource_version=version, timeout_s=_WATCH_S) as watch:
                async for event in watch:
                    version = event.resource_version or version
                    if event.type in (ADDED, MODIFIED):
                        await self._begin(resource, event.object)
            if self._clock.monotonic() - began_s < _SHORT_S:
                await self._clock.sleep(_SHORT_S)

    async def _begin(self, resource: MetadataClient, obj: Obj) -> bool:
        """Assign a slot in a task of its own, if the object is selected; waits while too many are being written."""
        if not self._selected(obj):
            return False
        await self._busy.acquire()
        task = self._tasks.start(self._give(resource, obj), name=f"sweep/{self._config}/object")
        self._writing.add(task)
        task.add_done_callback(self._ended)
        return True

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._writing.discard(task)
        self._busy.release()

    async def _give(self, resource: MetadataClient, obj: Obj) -> None:
        spec = self._shared.spec()
        if spec is None or obj["metadata"].get("deletionTimestamp"):
            return
        target = self._target
        slot = self._shared.chooser.choose(spec, self._shared.entries, target.group, target.kind, obj)
        chosen = self._tally.chosen()
        name, revision = shown_name(obj, self._shared.key.namespace), 0
        try:
            revision = await self._label(resource, obj, slot)
        except (Conflict, NotFound):
            return  # the watch shows its current state
        except LostLease:  # the next leader assigns it, or this one if it still leads
            self._failed = True
            self._rescan.set()
        except (ApiError, TransportError) as error:
            self._deps.metrics.errors.labels("sweep").inc()
            log.warning("assigning a slot failed", key=str(key_of(obj)), reason=str(error))
            self._failed = True
            self._rescan.set()
        finally:
            self._tally.settle(slot, name, revision, chosen)

    def _selected(self, obj: Obj) -> bool:
        namespace = obj["metadata"].get("namespace")
        if self._namespaces is None or not namespace:
            return True
        found = self._deps.namespaces.cache.get(ObjectKey("", namespace))
        return found is not None and self._namespaces.matches(found["metadata"].get("labels") or {})

    async def _label(self, resource: MetadataClient, obj: Obj, slot: int) -> int:
        """The revision at which the object got the slot."""
        about = obj["metadata"]
        patch = label_patch(obj, self._config, slot)
        made = await resource.patch(about["name"], patch, about.get("namespace") or "")
        self._deps.metrics.assignments.labels("sweep").inc()
        return _number(made["metadata"].get("resourceVersion", ""))

    # all objects, periodically

    async def _rounds(self, resource: MetadataClient) -> None:
        while True:
            try:
                await self._round(resource)
                pause_s = self._deps.period_s * (0.9 + 0.2 * self._deps.random())
            except (ApiError, TransportError) as error:
                self._deps.metrics.errors.labels("sweep").inc()
                log.warning("a round of the sweep failed", config=self._config, reason=str(error))
                pause_s = _RETRY_S
            await self._clock.sleep(pause_s)

    async def _round(self, resource: MetadataClient) -> None:
        counts, listed = SlotCounts(known=True), 0
        scope = Scope(label_selector=_both(slot_label(self._config), self._selector))
        self._tally.begin_list()
        async for page in resource.pages(scope, limit=_PAGE):
            listed = listed or _number(page.resource_version)
            for obj in page.items:
                slot = slot_of(obj, self._config)
                if slot is not None:
                    counts.add(slot, shown_name(obj, self._shared.key.namespace))
        self._tally.end_list(counts, listed)
        self._shared.counted()
        for controlled in self._target.controlled:
            await self._children(resource, controlled)

    async def _children(self, owners: MetadataClient, controlled: Controlled) -> None:
        """Label objects that a target controls with its slot."""
        found = find_type(await self._deps.client.resource_types(), controlled.group, controlled.kind)
        if found is None:
            return
        resource = MetadataClient(self._deps.client, found)
        limit = asyncio.Semaphore(WORKERS)
        async for page in resource.pages(Scope(label_selector=unassigned_selector(self._config)), limit=_PAGE):
            children = [obj for obj in page.items if self._is_child(obj)]
            await asyncio.gather(*(self._follow(owners, resource, child, limit) for child in children))

    def _is_child(self, obj: Obj) -> bool:
        reference = controller_of(obj)
        if reference is None or reference["kind"] != self._target.kind:
            return False
        return bool(reference["apiVersion"].rpartition("/")[0] == self._target.group)

    async def _follow(
        self, owners: MetadataClient, resource: MetadataClient, child: Obj, limit: asyncio.Semaphore
    ) -> None:
        reference = controller_of(child)
        assert reference is not None
        async with limit:
            with suppress(NotFound, Conflict):
                namespace = child["metadata"].get("namespace") or "" if owners.type.namespaced else ""
                owner = await owners.get(reference["name"], namespace, resource_version="0")
                slot = slot_of(owner, self._config)
                if slot is not None and owner["metadata"]["uid"] == reference["uid"]:
                    await self._label(resource, child, slot)


def _number(revision: str) -> int:
    """Revisions of one resource rise; text that is no number counts as later than every list."""
    return int(revision) if revision.isdecimal() else sys.maxsize


def _both(text: str, selector: Selector) -> str:
    return text if selector.everything else f"{text},{selector}"
