"""A sharded controller by hand: the kinds, a ShardConfig and a slot table that a test writes as a manager would."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from random import Random
from typing import Any

from shoal.base.clock import Clock, RealClock
from shoal.base.ids import Ids
from shoal.base.tasks import cancel_all
from shoal.client import Client, Obj, builtin
from shoal.crds.shard import GROUP, VERSION, definitions
from shoal.errors import Conflict
from shoal.sharding.leases import read_lease, taken
from shoal.sharding.model import SLOTS, Entry, slot_label, table_name, tables_of
from shoal.sharding.worker import ShardedController, Worker, WorkerConfig
from shoal.testing.controllers import eventually

CONFIG = "sites"
_LEASES = builtin("leases", "coordination.k8s.io")


class SlotWorld:
    """A server with the kinds, a ShardConfig and a table of which slots 0 to 9 are given away by hand."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.tables = client.resource(GROUP, VERSION, "shardslots")
        self.states = client.resource(GROUP, VERSION, "shardstates")
        self.maps = client.of(builtin("configmaps"))
        self.entries = [Entry(slot=slot, epoch=1) for slot in range(SLOTS)]
        self.workers: dict[str, tuple[Worker, asyncio.Event, asyncio.Task[None]]] = {}

    async def begin(self, *more: Obj, targets: list[Obj] | None = None) -> None:
        """Install the kinds and ``more`` definitions of kinds; ConfigMaps are shared out unless told otherwise."""
        for definition in (*definitions(), *more):
            await (await self.client.by_kind("CustomResourceDefinition", "apiextensions.k8s.io/v1")).create(definition)
        configs = self.client.resource(GROUP, VERSION, "shardconfigs")
        spec = {"minShards": 1, "maxShards": 4, "leaseDuration": "3s", "heartbeatInterval": "1s",
                "targets": targets or [{"kind": "ConfigMap"}], "healthCheckInterval": "3s"}  # fmt: skip
        about = {"name": CONFIG, "namespace": "default"}
        config = {"apiVersion": "shard.io/v1", "kind": "ShardConfig", "metadata": about, "spec": spec}
        await eventually(lambda: _made(configs.create(config)))
        for table in tables_of(CONFIG, "default", self.entries):
            await self.tables.create(table)

    async def give(self, *entries: Entry) -> None:
        for entry in entries:
            self.entries[entry.slot] = entry
        table = await self.tables.get(table_name(CONFIG, 0), "default")
        table["spec"] = tables_of(CONFIG, "default", self.entries)[0]["spec"]
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
        **settings: Any,
    ) -> Worker:
        """A worker of this process; ``client`` and ``clock`` when they are not to be everybody's."""
        config = WorkerConfig(config=CONFIG, shard=shard, **settings)
        worker = Worker(
            client or self.client, app, config, clock=clock or RealClock(), random=Random(1).random,
            new_id=Ids().new_suffix,
        )  # fmt: skip
        stop = asyncio.Event()
        self.workers[shard] = worker, stop, asyncio.create_task(worker.run(stop), name=shard)
        return worker

    async def end(self) -> None:
        await cancel_all(*(task for _, _, task in self.workers.values()))

    async def held(self, shard: str) -> int:
        """Wait for the shard's Lease; its term."""

        async def look() -> int:
            lease = read_lease(await self.client.of(_LEASES).get(shard, "default"))
            return lease.term if lease.held else 0

        found: int = await eventually(look)
        return found

    async def take(self, shard: str) -> None:
        """Take the shard's Lease as a manager does, whoever holds it."""
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


async def _made(creating: Awaitable[Obj]) -> bool:
    await creating
    return True
