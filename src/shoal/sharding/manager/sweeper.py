"""Runs a sweep for every target of every config, as they come and go; and forgets states that nobody needs."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from functools import partial

import msgspec

from shoal.base.logs import get_logger
from shoal.base.tasks import cancel_all
from shoal.client import Scope, TransportError
from shoal.crds.shard import ConfigSpec, Target, read_config
from shoal.errors import ApiError, NotFound
from shoal.kube.objects import Obj
from shoal.reconcile import Change
from shoal.reconcile.keys import ObjectKey
from shoal.sharding.manager.assigning import Chooser
from shoal.sharding.manager.books import Books, SlotCounts
from shoal.sharding.manager.desk import STATES
from shoal.sharding.manager.observed import Sources
from shoal.sharding.manager.sweep import Shared, SweepTools, TargetSweep
from shoal.sharding.model import CONFIG_LABEL, TABLES, Entry, read_table, table_name

log = get_logger("sharding.sweeper")

_RESTART_S = 5.0


class Sweeper:
    """A part that a manager runs while it leads."""

    name = "sharding/sweeper"

    def __init__(self, tools: SweepTools, sources: Sources, books: dict[ObjectKey, Books]) -> None:
        self._tools = tools
        self._clock = tools.clock
        self._sources = sources
        self._books = books
        self._changed = asyncio.Event()
        self._stopping = False
        self._sweeps: dict[tuple[ObjectKey, bytes], tuple[TargetSweep, asyncio.Task[None]]] = {}
        self._choosers: dict[ObjectKey, Chooser] = {}
        self._specs: dict[ObjectKey, tuple[Obj, ConfigSpec]] = {}  # the cached object, and what it says

    async def run(self) -> None:
        """Until ``stop``."""
        configs = self._sources.configs.cache
        configs.add_handler(self._on_change)
        tidying = asyncio.create_task(self._tidy(), name="sharding/tidy")
        try:
            while not self._stopping:
                self._changed.clear()
                await self._adjust()
                await self._changed.wait()
        finally:
            configs.remove_handler(self._on_change)
            await cancel_all(tidying, *(task for _, task in self._sweeps.values()))

    def stop(self) -> None:
        self._stopping = True
        self._changed.set()

    def _on_change(self, _: Change) -> None:
        self._changed.set()

    async def _adjust(self) -> None:
        wanted: dict[tuple[ObjectKey, bytes], Target] = {}
        for key in self._sources.configs.cache.keys():
            spec = self._spec(key)
            for target in spec.targets if spec is not None else ():
                wanted[key, msgspec.json.encode(target)] = target
        gone = [self._sweeps.pop(place)[1] for place in tuple(self._sweeps) if place not in wanted]
        await cancel_all(*gone)
        for place, target in wanted.items():
            if place not in self._sweeps:
                sweep = TargetSweep(self._tools, self._shared(place[0]), target)
                task = asyncio.create_task(self._keep(sweep), name=f"sweep/{place[0].name}/{target.kind}")
                self._sweeps[place] = sweep, task

    async def _keep(self, sweep: TargetSweep) -> None:
        """One sweep, again whenever it fails."""
        while True:
            try:
                await sweep.run()
            except Exception as error:
                self._tools.metrics.errors.labels("sweep").inc()
                log.error("a sweep failed; starting it again", error=error)
            await self._clock.sleep(_RESTART_S)

    def _shared(self, key: ObjectKey) -> Shared:
        books = self._books.setdefault(key, Books())
        return Shared(
            key=key,
            books=books,
            chooser=self.chooser(key),
            spec=partial(self._spec, key),
            entries=partial(entries_of, self._sources, key),
            counted=partial(self._counted, key),
        )

    def chooser(self, key: ObjectKey) -> Chooser:
        found = self._choosers.get(key)
        if found is None:
            found = self._choosers[key] = Chooser(self._books.setdefault(key, Books()))
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
        """Put the counts of all targets of a config together."""
        whole = SlotCounts(known=True)
        for (place, _), (sweep, _) in self._sweeps.items():
            if place == key:
                whole.merge(sweep.counts)
        self._books.setdefault(key, Books()).objects = whole

    async def _tidy(self) -> None:
        """States whose move is over, and that were not removed with it."""
        states = self._tools.client.of(STATES)
        while True:
            await self._clock.sleep(self._tools.period_s)
            try:
                for obj in (await states.list(Scope(label_selector=CONFIG_LABEL))).items:
                    about, spec = obj["metadata"], obj["spec"]
                    key = ObjectKey(about["namespace"], spec["config"])
                    entries = entries_of(self._sources, key)
                    if not entries or _is_over(entries[spec["slot"]], about["name"], spec["epoch"]):
                        with suppress(NotFound):
                            await states.delete(about["name"], about["namespace"], uid=about["uid"])
            except (ApiError, TransportError) as error:
                log.warning("looking for states that are left over failed", reason=str(error))


def _is_over(entry: Entry, name: str, epoch: int) -> bool:
    if entry.move is not None and (entry.move.state == name or entry.move.next_epoch == epoch):
        return False
    return entry.epoch >= epoch


def entries_of(sources: Sources, key: ObjectKey) -> Sequence[Entry]:
    """The slot table as the cache shows it; empty unless all of it is there."""
    tables = [sources.tables.cache.get(ObjectKey(key.namespace, table_name(key.name, n))) for n in range(TABLES)]
    if any(table is None for table in tables):
        return ()
    return [entry for table in tables if table is not None for entry in read_table(table)]
