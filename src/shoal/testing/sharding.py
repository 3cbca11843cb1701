"""A sharded controller without a shard manager, and a measure of how long slots had no owner at work.

    world = SlotWorld(client)
    await world.begin()                                              # the kinds, a ShardConfig, an empty slot table
    world.start("one", controller)                                   # a worker in this process
    await world.give(SlotEntry(slot=0, owner="one", term=await world.held("one"), epoch=2))

The test writes the slot table as the shard manager would. ``SlotWatch`` observes a controller with a real manager.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Sequence
from random import Random
from typing import Any

from shoal.base.clock import Clock, RealClock
from shoal.base.ids import Ids
from shoal.base.metrics import Metrics
from shoal.base.tasks import cancel_all
from shoal.client import Client, Scope, builtin
from shoal.crds.shard import GROUP, VERSION, definitions
from shoal.errors import Conflict
from shoal.kube.objects import Obj
from shoal.reconcile import Informer
from shoal.sharding.leases import read_lease, taken
from shoal.sharding.model import (
    CONFIG_LABEL,
    SLOTS,
    SLOTS_PER_TABLE,
    TABLES,
    SlotDuty,
    SlotEntry,
    read_table,
    slot_duty,
    slot_label,
    table_name,
    table_object,
)
from shoal.sharding.worker import ShardedController, Worker, WorkerConfig
from shoal.testing.waiting import eventually

CONFIG = "sites"
_LEASES = builtin("leases", "coordination.k8s.io")
_LOOK_S = 0.1


def tables_of(entries: Sequence[SlotEntry], config: str = CONFIG) -> list[Obj]:
    """The objects of a slot table; ``entries`` are all slots in order."""
    cuts = [entries[index * SLOTS_PER_TABLE : (index + 1) * SLOTS_PER_TABLE] for index in range(TABLES)]
    return [table_object(config, "default", index, cut) for index, cut in enumerate(cuts)]


class SlotWorld:
    """A ShardConfig and its slot table, of which the test assigns slots 0 to 9."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.tables = client.resource(GROUP, VERSION, "shardslots")
        self.states = client.resource(GROUP, VERSION, "shardstates")
        self.maps = client.of(builtin("configmaps"))
        self.entries = [SlotEntry(slot=slot, epoch=1) for slot in range(SLOTS)]
        self.workers: dict[str, tuple[Worker, asyncio.Event, asyncio.Task[None]]] = {}

    async def begin(self, *more: Obj, targets: list[Obj] | None = None) -> None:
        """Install the kinds and ``more`` definitions; the targets are ConfigMaps by default."""
        for definition in (*definitions(), *more):
            await (await self.client.by_kind("CustomResourceDefinition", "apiextensions.k8s.io/v1")).create(definition)
        configs = self.client.resource(GROUP, VERSION, "shardconfigs")
        spec = {"minShards": 1, "maxShards": 4, "leaseDuration": "3s", "heartbeatInterval": "1s",
                "targets": targets or [{"kind": "ConfigMap"}], "healthCheckInterval": "3s"}  # fmt: skip
        about = {"name": CONFIG, "namespace": "default"}
        config = {"apiVersion": "shard.io/v1", "kind": "ShardConfig", "metadata": about, "spec": spec}
        await eventually(lambda: _made(configs.create(config)))
        for table in tables_of(self.entries):
            await self.tables.create(table)

    async def give(self, *entries: SlotEntry) -> None:
        for entry in entries:
            self.entries[entry.slot] = entry
        table = await self.tables.get(table_name(CONFIG, 0), "default")
        table["spec"] = tables_of(self.entries)[0]["spec"]
        await self.tables.replace(table)

    async def site(self, name: str, slot: int) -> Obj:
        labels = {slot_label(CONFIG): str(slot)}
        return await self.maps.create({"metadata": {"name": name, "namespace": "default", "labels": labels}})

    def start(
        self,
        shard: str,
        app: ShardedController,
        *,
        client: Client | None = None,
        clock: Clock | None = None,
        metrics: Metrics | None = None,
        **settings: Any,
    ) -> Worker:
        """Start a worker in this process; ``client`` and ``clock`` replace the common ones."""
        config = WorkerConfig(config=CONFIG, shard=shard, **settings)
        worker = Worker(
            client or self.client, app, config, clock=clock or RealClock(), random=Random(1).random,
            new_id=Ids().new_suffix, metrics=metrics,
        )  # fmt: skip
        stop = asyncio.Event()
        self.workers[shard] = worker, stop, asyncio.create_task(worker.run(stop), name=shard)
        return worker

    async def end(self) -> None:
        await cancel_all(*(task for _, _, task in self.workers.values()))

    async def held(self, shard: str) -> int:
        """Wait until the shard holds its Lease; returns the term."""

        async def look() -> int:
            lease = read_lease(await self.client.of(_LEASES).get(shard, "default"))
            return lease.term if lease.held else 0

        found: int = await eventually(look)
        return found

    async def take(self, shard: str) -> None:
        """Take the shard's Lease as the shard manager does, also from a worker that holds it."""
        leases = self.client.of(_LEASES)

        async def one() -> bool:
            try:
                await leases.replace(taken(await leases.get(shard, "default"), "2026-01-01T00:00:00.000000Z"))
            except Conflict:
                return False
            return True

        await eventually(one)

    async def acks(self, shard: str) -> dict[int, str]:
        lease = read_lease(await self.client.of(_LEASES).get(shard, "default"))
        return {slot: ack.kind.value for slot, ack in lease.acks.items()}


class SlotWatch:
    """Samples the slot table and the Leases. A slot is *served* while its owner holds its Lease, in the term that the
    slot was given to, and does not hand it over."""

    def __init__(self, client: Client, config: str, namespace: str = "default") -> None:
        scope = Scope(namespace=namespace, label_selector=f"{CONFIG_LABEL}={config}")

        def informer(resource: Any) -> Informer:
            return Informer(resource, clock=RealClock(), random=Random(1).random, scope=scope)

        self._tables = informer(client.resource(GROUP, VERSION, "shardslots"))
        self._leases = informer(client.of(_LEASES))
        self._parsed: dict[str, tuple[str, tuple[SlotEntry, ...]]] = {}
        self._served_s: dict[int, float] = {}  # when a slot was last seen served
        self.longest_s = 0.0  # longest time that a slot, once served, was not served

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._tables.run(), name="slots/tables")
            group.create_task(self._leases.run(), name="slots/leases")
            while True:
                self._measure(time.monotonic())
                await asyncio.sleep(_LOOK_S)

    def entries(self) -> list[SlotEntry]:
        found: list[SlotEntry] = []
        for table in self._tables.cache:
            name, version = table["metadata"]["name"], table["metadata"]["resourceVersion"]
            if self._parsed.get(name, ("",))[0] != version:
                self._parsed[name] = version, read_table(table)
            found += self._parsed[name][1]
        return found

    def served(self) -> dict[str, int]:
        """The number of slots that each shard serves."""
        counts: dict[str, int] = {}
        for entry in self._serving():
            counts[entry.owner] = counts.get(entry.owner, 0) + 1
        return counts

    def _serving(self) -> list[SlotEntry]:
        leases = [read_lease(obj) for obj in self._leases.cache]
        terms = {lease.shard: lease.term for lease in leases if lease.held}
        return [
            entry
            for entry in self.entries()
            if entry.owner in terms and slot_duty(entry, entry.owner, terms[entry.owner]) is SlotDuty.WORK
        ]

    def _measure(self, now_s: float) -> None:
        for entry in self._serving():
            self._served_s[entry.slot] = now_s
        since_s = min(self._served_s.values(), default=now_s)
        self.longest_s = max(self.longest_s, now_s - since_s)


async def _made(creating: Awaitable[Obj]) -> bool:
    await creating
    return True
