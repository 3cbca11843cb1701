"""Runs a sweep for every target of every config, as they are added and removed; and deletes unused states."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from functools import partial

import msgspec

from shoal.base.logs import get_logger
from shoal.base.supervision import supervise
from shoal.base.tasks import OwnedTasks, cancel_all
from shoal.client import Scope, TransportError
from shoal.crds.shard import ConfigSpec, ShardTarget, read_config
from shoal.errors import ApiError, NotFound
from shoal.kube.objects import Obj
from shoal.reconcile import Change
from shoal.reconcile.keys import ObjectKey
from shoal.sharding.manager.assigning import SlotChooser
from shoal.sharding.manager.memory import ManagerMemory, SlotCounts
from shoal.sharding.manager.observed import ManagerInformers
from shoal.sharding.manager.sweep import SweepContext, SweepDeps, TargetSweep
from shoal.sharding.manager.writers import STATES
from shoal.sharding.model import CONFIG_LABEL, TABLES, SlotEntry, read_table, table_name

log = get_logger("sharding.sweeper")


class Sweeper:
    """Runs while this manager leads."""

    name = "sharding/sweeper"

    def __init__(self, deps: SweepDeps, sources: ManagerInformers, memory: dict[ObjectKey, ManagerMemory]) -> None:
        self._deps = deps
        self._clock = deps.clock
        self._sources = sources
        self._memory = memory
        self._changed = asyncio.Event()
        self._stopping = False
        self._sweeps: dict[tuple[ObjectKey, bytes], tuple[TargetSweep, asyncio.Task[None]]] = {}
        self._tasks = OwnedTasks()
        self._choosers: dict[ObjectKey, SlotChooser] = {}
        self._specs: dict[ObjectKey, tuple[Obj, ConfigSpec]] = {}  # the cached object and its parsed spec

    async def run(self) -> None:
        """Until ``stop``."""
        configs = self._sources.configs.cache
        configs.add_handler(self._on_change)
        cleaning = supervise("sharding/unused-states", self._delete_unused_states, clock=self._clock)
        self._tasks.start(cleaning, name="sharding/unused-states")
        try:
            while not self._stopping:
                self._changed.clear()
                await self._adjust()
                await self._changed.wait()
        finally:
            configs.remove_handler(self._on_change)
            await self._tasks.close()

    def stop(self) -> None:
        self._stopping = True
        self._changed.set()

    def _on_change(self, _: Change) -> None:
        self._changed.set()

    async def _adjust(self) -> None:
        wanted: dict[tuple[ObjectKey, bytes], ShardTarget] = {}
        for key in self._sources.configs.cache.keys():
            spec = self._spec(key)
            for target in spec.targets if spec is not None else ():
                wanted[key, msgspec.json.encode(target)] = target
        gone = [self._sweeps.pop(place)[1] for place in tuple(self._sweeps) if place not in wanted]
        await cancel_all(*gone)
        for place, target in wanted.items():
            if place not in self._sweeps:
                sweep = TargetSweep(self._deps, self._shared(place[0]), target)
                name = f"sweep/{place[0].name}/{target.kind}"
                sweeping = supervise("sharding/sweep", partial(self._sweep, sweep), clock=self._clock, detail=name)
                self._sweeps[place] = sweep, self._tasks.start(sweeping, name=name)

    async def _sweep(self, sweep: TargetSweep) -> None:
        try:
            await sweep.run()
        except Exception:
            self._deps.metrics.errors.labels("sweep").inc()
            raise

    def _shared(self, key: ObjectKey) -> SweepContext:
        memory = self._memory.setdefault(key, ManagerMemory())
        return SweepContext(
            key=key,
            memory=memory,
            chooser=self.chooser(key),
            spec=partial(self._spec, key),
            entries=partial(entries_of, self._sources, key),
            counted=partial(self._counted, key),
        )

    def chooser(self, key: ObjectKey) -> SlotChooser:
        found = self._choosers.get(key)
        if found is None:
            found = self._choosers[key] = SlotChooser(self._memory.setdefault(key, ManagerMemory()), key.namespace)
        return found

    def _spec(self, key: ObjectKey) -> ConfigSpec | None:
        obj = self._sources.configs.cache.get(key)
        if obj is None:
            self._specs.pop(key, None)
            return None
        known = self._specs.get(key)
        if known is None or known[0] is not obj:
            known = self._specs[key] = obj, read_config(obj)
        return known[1]

    def _counted(self, key: ObjectKey) -> None:
        """Add up the counts of all targets of a config."""
        whole = SlotCounts(known=True)
        for (place, _), (sweep, _) in self._sweeps.items():
            if place == key:
                whole.merge(sweep.counts)
        self._memory.setdefault(key, ManagerMemory()).objects = whole

    async def _delete_unused_states(self) -> None:
        """Delete states of ended moves that were not deleted with the move."""
        states = self._deps.client.of(STATES)
        while True:
            await self._clock.sleep(self._deps.period_s)
            try:
                for obj in (await states.list(Scope(label_selector=CONFIG_LABEL))).items:
                    about, spec = obj["metadata"], obj["spec"]
                    key = ObjectKey(about["namespace"], spec["config"])
                    entries = entries_of(self._sources, key)
                    if not entries or _is_over(entries[spec["slot"]], about["name"], spec["epoch"]):
                        with suppress(NotFound):
                            await states.delete(about["name"], about["namespace"], uid=about["uid"])
            except (ApiError, TransportError) as error:
                log.warning("listing leftover states failed", reason=str(error))


def _is_over(entry: SlotEntry, name: str, epoch: int) -> bool:
    if entry.move is not None and (entry.move.state == name or entry.move.next_epoch == epoch):
        return False
    return entry.epoch >= epoch


def entries_of(sources: ManagerInformers, key: ObjectKey) -> Sequence[SlotEntry]:
    """The slot table in the cache; empty unless all its objects are there."""
    tables = [sources.tables.cache.get(ObjectKey(key.namespace, table_name(key.name, n))) for n in range(TABLES)]
    if any(table is None for table in tables):
        return ()
    return [entry for table in tables if table is not None for entry in read_table(table)]
