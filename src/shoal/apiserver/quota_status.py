"""The status of quotas: limits and usage, also after deletions and changes that no charge covers.

A quota gets its status in the transaction that creates it, so that it applies at once. Later
charges keep it current, and this task recounts after deletions. A count is written only if the quota is
still at the revision it had when the objects were read: each charge moves it, so no charge is ever lost.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Final

from shoal.apiserver import objects
from shoal.apiserver.admission.builtin.resource_quota import QUOTAS
from shoal.apiserver.context import Core
from shoal.apiserver.effects import NOTHING, Extra
from shoal.apiserver.write import Writer
from shoal.apiserver.writing.model import Author, Retry, Write
from shoal.base.logs import get_logger
from shoal.base.supervision import SupervisedLoops
from shoal.errors import ApiError
from shoal.kube.kinds.checks import quantity_of
from shoal.kube.objects import Obj
from shoal.kube.quota import Count, evaluator_of, resources_behind
from shoal.store import Event, EventType, Key, StoreReadOnly, StoreUnavailable

_AUTHOR: Final = Author("shoal-apiserver", "status")
_SETTLE_S: Final = 0.05  # deletions come in groups: one count for all within this time
_LAZY_S: Final = 5.0  # after creations, which are charged already unless they overtook the quota
_EVERYTHING_S: Final = 300.0  # pods can stop counting without a change
_AT_ONCE: Final = 200  # objects to count before yielding to the event loop
_TOO_MANY: Final = 2000  # objects to count while a request waits


def _objects_of(core: Core, namespace: str, resource: str) -> Iterator[Obj]:
    reads = evaluator_of(resource).reads
    for entry in core.store.range(resource, namespace).entries:
        yield objects.decode(entry) if reads else {}


def _status(quota: Obj, counted: dict[str, str]) -> Obj:
    """The status with this count in it; resources that are not counted keep their value."""
    spec, status = quota.get("spec") or {}, quota.get("status") or {}
    hard = spec.get("hard") or {}
    before = status.get("used") or {}
    new = {name: amount for name, amount in counted.items() if not _same(amount, before.get(name))}
    return {"hard": dict(hard), "used": {name: amount for name, amount in {**before, **new}.items() if name in hard}}


def _same(amount: str, known: str | None) -> bool:
    """Compare quantities by value: equal sums can be written in different ways."""
    return known is not None and quantity_of(amount) == quantity_of(known)


class QuotaEffects:
    """Sets the status of new quotas, and recounts at once when their limits change."""

    before_validation = False

    def __init__(self, core: Core) -> None:
        self._core = core

    def on_create(self, obj: Obj) -> Extra:
        self._count(obj)
        return NOTHING

    def on_update(self, new: Obj, old: Obj) -> Extra:
        if (new.get("spec") or {}).get("hard") != (old.get("spec") or {}).get("hard"):
            self._count(new)
        return NOTHING

    def on_delete(self, old: Obj) -> Extra:
        return NOTHING

    def _count(self, quota: Obj) -> None:
        count = Count(quota.get("spec") or {})
        now, namespace = self._core.clock.wall_s(), quota["metadata"]["namespace"]
        if sum(self._core.store.count(resource, namespace) for resource in count.resources) > _TOO_MANY:
            return  # the background task counts it in pieces
        for resource in count.resources:
            for obj in _objects_of(self._core, namespace, resource):
                count.add(resource, obj, now)
        status = _status(quota, count.used())
        if status["hard"]:
            quota["status"] = status


class QuotaStatus:
    """Runs as one supervised loop beside the server; several servers may run it at the same time."""

    def __init__(self, core: Core, writer: Writer) -> None:
        self._core = core
        self._writer = writer
        self._due: dict[Key, float] = {}  # quota -> when to count
        self._wake = asyncio.Event()
        self._followed: dict[str, Callable[[], None]] = {}  # resource -> how to stop
        self._tracking: dict[str, dict[str, frozenset[str]]] = {}  # namespace -> quota -> resources behind it
        self._loops = SupervisedLoops(core.clock)
        self._log = get_logger("quota")

    def start(self) -> None:
        """Follow the quotas of the store, which must be started, and count all of them once."""
        self._followed[QUOTAS] = self._core.store.subscribe(QUOTAS, self._on_quotas)
        for entry in self._core.store.range(QUOTAS).entries:
            self._track(entry.key, objects.decode(entry))
        self._loops.start("quota/status", self._run)

    async def stop(self) -> None:
        for unsubscribe in self._followed.values():
            unsubscribe()
        self._followed.clear()
        await self._loops.stop()

    # -- store events ----------------------------------------------------------------------------------------------

    def _on_quotas(self, events: Sequence[Event]) -> None:
        for event in events:
            key = event.entry.key
            if event.type is not EventType.DELETED:
                self._track(key, objects.decode(event.entry))
                if event.type is EventType.ADDED:
                    self._schedule(key, _SETTLE_S)  # something may have been created meanwhile, itself to begin with
                continue
            kept = self._tracking.get(key.namespace, {})
            kept.pop(key.name, None)
            if not kept:
                self._tracking.pop(key.namespace, None)
        self._on_objects(QUOTAS, events)

    def _track(self, key: Key, quota: Obj) -> None:
        spec, status = quota.get("spec") or {}, quota.get("status") or {}
        resources = frozenset(resources_behind(spec.get("hard") or ()))
        self._tracking.setdefault(key.namespace, {})[key.name] = resources
        for resource in resources - self._followed.keys():
            follow = partial(self._on_objects, resource)
            self._followed[resource] = self._core.store.subscribe(resource, follow)
        hard, used = spec.get("hard") or {}, status.get("used") or {}
        if (status.get("hard") or {}) != hard or (not used and hard):
            self._schedule(key, 0.0)

    def _on_objects(self, resource: str, events: Sequence[Event]) -> None:
        if not self._tracking:
            return
        for event in events:
            key = event.entry.key
            quotas = self._tracking.get(key.namespace)
            if quotas is None:
                continue
            if event.type is EventType.MODIFIED and not self._matters(resource, event):
                continue
            delay_s = _LAZY_S if event.type is EventType.ADDED else _SETTLE_S
            for name, resources in quotas.items():
                if resource in resources:
                    self._schedule(Key(QUOTAS, key.namespace, name), delay_s)

    def _matters(self, resource: str, event: Event) -> bool:
        """Whether an update changes the usage of an object or the quotas it belongs to."""
        evaluator = evaluator_of(resource)
        if not evaluator.reads or event.previous is None:
            return False
        new, old, now = objects.decode(event.entry), objects.decode(event.previous), self._core.clock.wall_s()
        if evaluator.usage(new, now) != evaluator.usage(old, now):
            return True
        return evaluator.changes(new, old, "" if resource == "pods" else "status")

    def _schedule(self, quota: Key, delay_s: float) -> None:
        at = self._core.clock.monotonic() + delay_s
        if at < self._due.get(quota, at + 1):
            self._due[quota] = at
            self._wake.set()

    # -- the work --------------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        clock = self._core.clock
        everything = clock.monotonic()  # all of them at the start
        while True:
            now = clock.monotonic()
            if now >= everything:
                everything = now + _EVERYTHING_S
                for entry in self._core.store.range(QUOTAS).entries:
                    self._schedule(entry.key, 0.0)
            ready = [quota for quota, at in self._due.items() if at <= now]
            for quota in ready:
                del self._due[quota]
                await self._count(quota)
            if not ready:
                await self._wait(min([everything, *self._due.values()]) - now)

    async def _wait(self, at_most_s: float) -> None:
        self._wake.clear()
        timer = self._core.clock.call_later(at_most_s, self._wake.set)
        try:
            await self._wake.wait()
        finally:
            timer.cancel()

    async def _count(self, key: Key) -> None:
        """Read all objects at one revision, count, and write the status if it differs."""
        core = self._core
        entry, served = core.store.get(key), core.registry.stored(QUOTAS)
        if entry is None or served is None:
            return
        quota = objects.decode(entry)
        count = Count(quota.get("spec") or {})
        pages = {resource: core.store.range(resource, key.namespace).entries for resource in count.resources}
        now = core.clock.wall_s()
        for resource, entries in pages.items():
            reads = evaluator_of(resource).reads
            for index, found in enumerate(entries, 1):
                count.add(resource, objects.decode(found) if reads else {}, now)
                if index % _AT_ONCE == 0:
                    await asyncio.sleep(0)
        status = _status(quota, count.used())
        if status == (quota.get("status") or {"hard": {}, "used": {}}):
            return
        quota["status"] = status
        try:
            await self._writer.store(Write.own(served, quota, entry, _AUTHOR))
        except Retry:
            self._schedule(key, _SETTLE_S)
        except (ApiError, StoreReadOnly, StoreUnavailable) as error:
            self._log.info("quota count failed, will retry", namespace=key.namespace, name=key.name, error=str(error))
            self._schedule(key, _LAZY_S)
