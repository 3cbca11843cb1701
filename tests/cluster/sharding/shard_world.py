"""A cluster in this process with a shard manager and simulated workers: they hold a Lease, follow the slot table,
acknowledge moves, and record in a common ledger the slots that they would have worked on."""

from __future__ import annotations

import asyncio
import base64
import hashlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from itertools import count
from random import Random
from typing import Any

from shoal.base.clock import Clock, RealClock
from shoal.base.ids import Ids
from shoal.base.metrics import Metrics
from shoal.base.tasks import cancel_all
from shoal.client import Client, ResourceType, Scope, builtin
from shoal.client.transport import Transport
from shoal.crds.shard import API_VERSION, GROUP, VERSION, definitions
from shoal.errors import AlreadyExists, Conflict, NotFound
from shoal.kube.objects import Obj
from shoal.kube.times import format_micro_time
from shoal.reconcile import Change, ElectionConfig, Elector, EventRecorder, Informer, LeaseLock, Manager
from shoal.sharding.leases import ACKS, LEAVING, MANAGER, REPORT, Ack, AckKind, WorkerReport, encode_acks, encode_report
from shoal.sharding.manager import wiring
from shoal.sharding.manager.writers import CONFIGS, INSTANCES, LEASES, PODS, STATES, TABLE
from shoal.sharding.model import (
    CONFIG_LABEL,
    SHARD_LABEL,
    Move,
    SlotDuty,
    SlotEntry,
    read_table,
    slot_duty,
    state_name,
)
from shoal.sharding.reflector_config import REFLECTOR_CONFIG
from shoal.testing.seeded import seeded_bytes
from shoal.testing.servers import LocalServer, local_server
from shoal.testing.waiting import eventually

NAMESPACE = "default"
WEBSITES = ResourceType("example.com", "v1", "websites", True, "Website")


class Ledger:
    """The slots that workers worked on, in order of time. It checks that the epochs of a slot only rise."""

    def __init__(self) -> None:
        self.newest: dict[int, tuple[int, str]] = {}
        self.faults: list[str] = []

    def works(self, shard: str, slot: int, epoch: int) -> None:
        known = self.newest.get(slot)
        if known is not None and (epoch < known[0] or (epoch == known[0] and shard != known[1])):
            self.faults.append(f"slot {slot}: {shard} works in epoch {epoch} after {known[1]} in {known[0]}")
        self.newest[slot] = epoch, shard


class Tables:
    """The slot tables from a watch, shared by all workers."""

    def __init__(self, client: Client) -> None:
        self._informer = Informer(client.of(TABLE), clock=RealClock(), random=Random(1).random)
        self._informer.cache.add_handler(self._on_change)
        self._parsed: dict[str, tuple[str, tuple[SlotEntry, ...]]] = {}
        self.changed = asyncio.Event()
        self._task = asyncio.create_task(self._informer.run(), name="tables")

    def _on_change(self, _: Change) -> None:
        self.changed.set()
        self.changed = asyncio.Event()

    def entries(self, config: str) -> list[SlotEntry]:
        found: list[SlotEntry] = []
        for table in self._informer.cache:
            name, version = table["metadata"]["name"], table["metadata"]["resourceVersion"]
            if table["spec"]["config"] != config:
                continue
            if self._parsed.get(name, ("",))[0] != version:
                self._parsed[name] = version, read_table(table)
            found += self._parsed[name][1]
        return found

    async def stop(self) -> None:
        await cancel_all(self._task)


class Worker:
    """A simulated worker. Its behaviour can be changed while it runs."""

    def __init__(
        self, client: Client, tables: Tables, config: str, shard: str, ledger: Ledger, *, lease_s: int = 15
    ) -> None:
        self._leases = client.of(LEASES)
        self._tables = tables
        self._states = client.of(STATES)
        self.config = config
        self.shard = shard
        self.ledger = ledger
        self.lease_s = lease_s
        self.report = WorkerReport(load=0.5)
        self.leaving = False
        self.mute: set[AckKind] = set()  # acknowledgements that it does not give
        self.failing = False  # it cannot take over
        self.memory: dict[int, bytes] = {}  # slot -> state
        self.working: dict[int, int] = {}  # slot -> epoch
        self.term = -1
        self._lease: Obj = {}
        self._acks: dict[int, Ack] = {}
        self._clock = RealClock()
        self._sent_s = 0.0
        self._reported: WorkerReport | None = None
        self._task: asyncio.Task[None] | None = None

    def start(self) -> Worker:
        self._task = asyncio.create_task(self._run(), name=f"worker/{self.shard}")
        return self

    async def kill(self) -> None:
        """Stop without releasing the Lease."""
        if self._task is not None:
            await cancel_all(self._task)
            self._task = None
        self.working.clear()

    async def release(self) -> None:
        """Stop, then release the Lease."""
        await self.kill()
        current = await self._leases.get(self.shard, NAMESPACE)
        current["spec"]["holderIdentity"] = ""
        await self._leases.replace(current)

    # holding

    async def _run(self) -> None:
        await self._acquire()
        heartbeat_s = self.lease_s / 8
        while True:
            changed = await self._look()
            if changed or self.report is not self._reported or self._clock.monotonic() - self._sent_s >= heartbeat_s:
                if not await self._renew():
                    self.working.clear()
                    self._acks.clear()
                    await self._acquire()
            with suppress(TimeoutError):
                async with asyncio.timeout(heartbeat_s / 4):
                    await self._tables.changed.wait()
            await asyncio.sleep(0.02)  # what comes together is answered together

    async def _acquire(self) -> None:
        while True:
            sent_s = self._clock.monotonic()
            try:
                found = await self._leases.get(self.shard, NAMESPACE)
            except NotFound:
                labels = {CONFIG_LABEL: self.config, SHARD_LABEL: self.shard}
                about = {"name": self.shard, "namespace": NAMESPACE, "labels": labels}
                self._lease = await self._leases.create({"metadata": about, "spec": self._spec(1)})
            else:
                if (found.get("spec") or {}).get("holderIdentity") not in ("", MANAGER, None):
                    await asyncio.sleep(0.05)
                    continue
                found["spec"] = self._spec(found["spec"].get("leaseTransitions", 0) + 1)
                self._lease = await self._leases.replace(found)
            self.term = self._lease["spec"]["leaseTransitions"]
            self._sent_s = sent_s
            return

    def _spec(self, term: int) -> Obj:
        return {
            "holderIdentity": f"{self.shard}_{term}", "leaseDurationSeconds": self.lease_s, "leaseTransitions": term,
            "renewTime": format_micro_time(self._clock.wall_s()),
        }  # fmt: skip

    async def _renew(self) -> bool:
        sent_s = self._clock.monotonic()
        about = dict(self._lease["metadata"])
        report = self.report
        said = {REPORT: encode_report(report), ACKS: encode_acks(self._acks)}
        if self.leaving:
            said[LEAVING] = "true"
        about["annotations"] = said
        spec = {**self._lease["spec"], "renewTime": format_micro_time(self._clock.wall_s())}
        try:
            self._lease = await self._leases.replace({**self._lease, "metadata": about, "spec": spec})
        except Conflict:
            return False
        self._sent_s, self._reported = sent_s, report
        return True

    # slots

    async def _look(self) -> bool:
        before = dict(self._acks)
        if self._clock.monotonic() - self._sent_s > 0.6 * self.lease_s:
            self.working.clear()
            return False
        for entry in self._tables.entries(self.config):
            await self._acknowledge(entry, slot_duty(entry, self.shard, self.term))
        return self._acks != before

    async def _acknowledge(self, entry: SlotEntry, asked: SlotDuty) -> None:
        slot, move = entry.slot, entry.move
        if asked is not SlotDuty.WORK:
            self.working.pop(slot, None)
        match asked:
            case SlotDuty.WORK:
                self.working[slot] = entry.epoch
                self.ledger.works(self.shard, slot, entry.epoch)
                self._acks.pop(slot, None)
            case SlotDuty.PREPARE:
                assert move is not None
                self._say(Ack(slot, move.next_epoch, AckKind.FAILED if self.failing else AckKind.PREPARED))
            case SlotDuty.DRAIN:
                assert move is not None
                self._say(Ack(slot, move.next_epoch, AckKind.DRAINED, await self._save(slot, move)))
            case SlotDuty.RESTORE:
                assert move is not None
                await self._restore(entry, move)
            case SlotDuty.NONE:
                self._acks.pop(slot, None)

    def _say(self, ack: Ack) -> None:
        if ack.kind not in self.mute:
            self._acks[ack.slot] = ack

    async def _save(self, slot: int, move: Move) -> str:
        if slot not in self.memory:
            return ""
        data = self.memory[slot]
        digest = hashlib.sha256(data).hexdigest()[:16]
        name = state_name(self.config, slot, move.next_epoch)
        spec = {
            "config": self.config, "slot": slot, "epoch": move.next_epoch, "shard": self.shard,
            "data": base64.b64encode(data).decode(), "digest": digest,
        }  # fmt: skip
        about = {"name": name, "namespace": NAMESPACE, "labels": {CONFIG_LABEL: self.config}}
        with suppress(AlreadyExists):
            await self._states.create({"metadata": about, "spec": spec})
        return digest

    async def _restore(self, entry: SlotEntry, move: Move) -> None:
        if self.failing:
            self._say(Ack(entry.slot, entry.epoch, AckKind.FAILED))
            return
        known = self._acks.get(entry.slot)
        if move.state and (known is None or known.kind is not AckKind.RESTORED):
            obj = await self._states.get(move.state, NAMESPACE)
            self.memory[entry.slot] = base64.b64decode(obj["spec"]["data"])
        self._say(Ack(entry.slot, entry.epoch, AckKind.RESTORED, move.digest))
        if AckKind.RESTORED not in self.mute:
            self.working[entry.slot] = entry.epoch
            self.ledger.works(self.shard, entry.slot, entry.epoch)


class PodWorkers:
    """Simulates the nodes: a worker for every pod of a shard, which ends with the pod."""

    def __init__(self, world: World, config: str, *, lease_s: int = 15) -> None:
        self._world = world
        self._config = config
        self._lease_s = lease_s
        self.load = 0.5
        self.workers: dict[str, Worker] = {}
        self._task = asyncio.create_task(self._run(), name="pods/workers")

    async def _run(self) -> None:
        w = self._world
        while True:
            scope = Scope(namespace=NAMESPACE, label_selector=f"{CONFIG_LABEL}={self._config}")
            pods = {pod["metadata"]["name"]: pod for pod in (await w.pods.list(scope)).items}
            for name in [name for name in self.workers if name not in pods]:
                await self.workers.pop(name).kill()
            for name in pods:
                if name not in self.workers:
                    status = {"status": {"phase": "Running", "podIP": "127.0.0.1"}}
                    with suppress(NotFound):
                        await w.pods.patch(name, status, NAMESPACE, subresource="status")
                        self.workers[name] = w.worker(self._config, name, lease_s=self._lease_s).start()
            for worker in self.workers.values():
                if worker.report.load != self.load:
                    worker.report = WorkerReport(load=self.load)
            await asyncio.sleep(0.1)

    async def stop(self) -> None:
        await cancel_all(self._task)


class World:
    """The cluster, its administrator, the managers and the workers."""

    def __init__(self, server: LocalServer) -> None:
        self.server = server
        self.client = Client(_transport(server), clock=RealClock(), field_manager="administrator")
        self.configs = self.client.of(CONFIGS)
        self.instances = self.client.of(INSTANCES)
        self.tables = self.client.of(TABLE)
        self.states = self.client.of(STATES)
        self.leases = self.client.of(LEASES)
        self.pods = self.client.of(PODS)
        self.ledger = Ledger()
        self.workers: dict[str, Worker] = {}
        self.players: list[PodWorkers] = []
        self.watched = Tables(self.client)
        self.metrics = Metrics()

    def pod_workers(self, config: str, *, lease_s: int = 15) -> PodWorkers:
        made = PodWorkers(self, config, lease_s=lease_s)
        self.players.append(made)
        return made

    def worker(self, config: str, shard: str, *, lease_s: int = 15) -> Worker:
        made = Worker(self.client, self.watched, config, shard, self.ledger, lease_s=lease_s)
        self.workers[shard] = made
        return made

    async def config(self, name: str, **spec: Any) -> Obj:
        """A ShardConfig. Without a template its workers are those that the test starts."""
        spec = spec if "template" in spec else {"externalWorkers": True, **spec}
        given = {"leaseDuration": "15s", "heartbeatInterval": "2s", "cooldown": "1h", "sustainedFor": "1h", **spec}
        return await self.configs.create({"metadata": {"name": name, "namespace": NAMESPACE}, "spec": given})

    async def entries(self, config: str) -> list[SlotEntry]:
        tables = await self.tables.list(Scope(namespace=NAMESPACE, label_selector=f"{CONFIG_LABEL}={config}"))
        return [entry for table in tables.items for entry in read_table(table)]

    async def owners(self, config: str) -> dict[str, int]:
        """Shard -> how many slots it owns, when nothing moves."""
        found: dict[str, int] = {}
        for entry in await self.entries(config):
            assert entry.move is None, entry
            found[entry.owner] = found.get(entry.owner, 0) + 1
        return found

    async def shared_by(self, config: str, *shards: str, timeout_s: float = 20.0) -> dict[str, int]:
        """Wait until these shards, and no others, own all slots, and none moves."""

        async def check() -> dict[str, int]:
            owners = await self.owners(config)
            assert set(owners) == set(shards), owners
            return owners

        found: dict[str, int] = await eventually(check, timeout_s=timeout_s)
        return found

    async def status(self, config: str) -> Obj:
        found: Obj = (await self.configs.get(config, NAMESPACE)).get("status") or {}
        return found

    async def messages(self, reason: str) -> list[str]:
        events = await self.client.of(builtin("events")).list(Scope(namespace=NAMESPACE))
        return [event["message"] for event in events.items if event["reason"] == reason]

    async def phase(self, shard: str) -> str:
        found = await self.instances.get(shard, NAMESPACE)
        return str((found.get("status") or {}).get("phase", ""))


def _transport(server: LocalServer) -> Transport:
    transport: Any = server.transport
    return transport


@asynccontextmanager
async def manager_of(
    world: World,
    *,
    elected: str = "",
    probe: Any = None,
    metrics: Metrics | None = None,
    transport: Any = None,
    kept_s: float = 60.0,
    period_s: float = 300.0,
    namespace: str = NAMESPACE,
    clock: Clock | None = None,
) -> AsyncIterator[wiring.ManagerComponents]:
    """A running manager; with ``elected`` one that takes part in an election under that name."""
    clock, random, ids = clock or RealClock(), Random(1), Ids(seeded_bytes(len(elected) + 7))
    client = Client(transport or _transport(world.server), clock=clock, field_manager="shard-manager")
    elector = None
    if elected:
        elector = Elector(
            LeaseLock(client, namespace, "shard-manager"), elected, clock=clock, random=random.random,
            config=ElectionConfig(lease_s=15, renew_deadline_s=10.0, retry_s=0.3),
        )  # fmt: skip
    manager = Manager(client, clock=clock, random=random.random, elector=elector, reflector=REFLECTOR_CONFIG)
    events = EventRecorder(client, "shard-manager", "test", clock=clock, new_suffix=ids.new_suffix)
    numbers = count(1)
    parts = wiring.add(
        manager, events,
        wiring.ManagerDeps(
            clock=clock, random=random.random, new_id=lambda: str(next(numbers)), new_suffix=ids.new_suffix,
            metrics=metrics or Metrics(), probe=probe, kept_s=kept_s, period_s=period_s,
        ),
    )  # fmt: skip
    manager.add(events)
    task = asyncio.create_task(manager.run(), name="manager")
    ready = asyncio.create_task(manager.ready.wait(), name="manager/ready")
    try:
        await asyncio.wait({task, ready}, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            task.result()
        yield parts
    finally:
        ready.cancel()
        manager.stop()
        await asyncio.wait({task})
        if not task.cancelled():
            task.result()


@asynccontextmanager
async def world(*, manager: bool = True) -> AsyncIterator[World]:
    async with local_server() as server:
        admin = Client(_transport(server), clock=RealClock(), field_manager="administrator")
        crds = admin.of(builtin("customresourcedefinitions", "apiextensions.k8s.io"))
        for definition in definitions():
            await crds.create(definition)
        made = World(server)
        try:
            if manager:
                async with manager_of(made, metrics=made.metrics):
                    yield made
            else:
                yield made
        finally:
            for player in made.players:
                await player.stop()
            for worker in made.workers.values():
                await worker.kill()
            await made.watched.stop()
    assert not made.ledger.faults, made.ledger.faults[:5]


__all__ = ["API_VERSION", "GROUP", "NAMESPACE", "VERSION", "WEBSITES", "World", "Worker", "manager_of", "world"]
