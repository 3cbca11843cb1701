"""Real manager and workers together: every object is handled by its owner while workers start and stop; and a worker
uses exactly the rights of its account."""

from __future__ import annotations

import asyncio
from itertools import count
from random import Random
from typing import Any

from shard_world import NAMESPACE, world
from test_shard_rbac import Recording, allowed, prepared
from test_shard_sweep import kind, website

from shoal.apiserver.inprocess import InProcessTransport
from shoal.apiserver.user import User
from shoal.base.clock import RealClock
from shoal.base.tasks import cancel_all
from shoal.client import Client
from shoal.sharding import rbac
from shoal.sharding.model import epoch_of, slot_of
from shoal.sharding.worker import Owned, ShardedController, Worker, WorkerConfig
from shoal.testing.waiting import eventually

ACCOUNT = User(
    f"system:serviceaccount:{NAMESPACE}:{rbac.WORKER}",
    ("system:serviceaccounts", f"system:serviceaccounts:{NAMESPACE}", "system:authenticated"),
)
KINDS = [rbac.TargetKind("example.com", "websites", verbs=("list", "patch", "watch"))]
OBJECTS = 40


class Sites:
    """A controller that counts, per object and over all its owners; the counts move with the slots."""

    def __init__(self, handled: dict[str, str]) -> None:
        self.app = ShardedController(save=self.save, restore=self.restore)
        self.counts: dict[int, int] = {}
        self.app.reconcile("example.com", "Website")(self.handle)
        self._handled = handled
        self.name = ""

    async def handle(self, owned: Owned) -> None:
        if self._handled.get(owned.key.name) != self.name:
            self._handled[owned.key.name] = self.name
            self.counts[owned.slot] = self.counts.get(owned.slot, 0) + 1
        if (owned.object.get("status") or {}).get("by") != self.name:
            await owned.update_status({"by": self.name})

    async def save(self, slot: int) -> bytes | None:
        count = self.counts.pop(slot, None)
        return None if count is None else str(count).encode()

    async def restore(self, slot: int, data: bytes) -> None:
        self.counts[slot] = int(data)


class Running:
    def __init__(self, client: Client, name: str, handled: dict[str, str]) -> None:
        numbers = count(1)
        self.sites = Sites(handled)
        self.sites.name = name
        self.stop = asyncio.Event()
        worker = Worker(
            client, self.sites.app, WorkerConfig(config="web", shard=name, namespace=NAMESPACE), clock=RealClock(),
            random=Random(1).random, new_id=lambda: str(next(numbers)),
        )  # fmt: skip
        self.task = asyncio.create_task(worker.run(self.stop), name=f"worker/{name}")


async def test_objects_are_handled_by_their_owner_while_workers_come_leave_and_die() -> None:
    async with world() as w:
        websites = await kind(w, "Website", "websites")
        await prepared(w, rbac.worker_rights(KINDS, namespace=NAMESPACE))
        recording = Recording(InProcessTransport(w.server.server.handler, ACCOUNT))
        client = Client(recording, clock=RealClock(), field_manager="websites")  # type: ignore[arg-type]
        targets = [{"group": "example.com", "kind": "Website"}]
        await w.config("web", targets=targets, leaseDuration="4s", heartbeatInterval="500ms")
        for number in range(OBJECTS):
            await websites.create(website(f"site-{number}"))
        handled: dict[str, str] = {}
        workers = {name: Running(client, name, handled) for name in ("a", "b")}

        async def served_by(*names: str) -> bool:
            """Each object carries the name of the owner of its slot, and its epoch."""
            entries = await w.entries("web")
            assert {entry.owner for entry in entries} == set(names)
            for obj in (await websites.list()).items:
                slot = slot_of(obj, "web")
                assert slot is not None
                assert (obj.get("status") or {}).get("by") == entries[slot].owner
                assert 0 < epoch_of(obj, "web") <= entries[slot].epoch
            return True

        try:
            await eventually(lambda: served_by("a", "b"), timeout_s=30.0)
            workers["c"] = Running(client, "c", handled)
            await eventually(lambda: served_by("a", "b", "c"), timeout_s=30.0)
            workers["a"].stop.set()  # as SIGTERM does: everything is handed over, then it ends by itself
            await asyncio.wait_for(workers["a"].task, 30.0)
            await eventually(lambda: served_by("b", "c"), timeout_s=30.0)
            kept = sum(sum(workers[name].sites.counts.values()) for name in ("b", "c"))
            assert kept >= OBJECTS  # what "a" had counted went with its slots
            await cancel_all(workers["b"].task)
            await eventually(lambda: served_by("c"), timeout_s=30.0)
        finally:
            await cancel_all(*(worker.task for worker in workers.values()))
        everything: set[Any] = allowed((*rbac.WORKER_RULES, *rbac.target_rules(KINDS)))
        assert not recording.refused
        assert recording.uses <= everything, recording.uses - everything
        assert not {use for use in allowed(rbac.WORKER_RULES) if use not in recording.uses}
