"""A worker: holds its Lease, follows the slot table, watches the objects of its slots and runs handlers on them.

    Lease ──term──▶ slot table ──steps──▶ caches of owned slots ──keys──▶ queue ──▶ handlers ──guarded writes──▶

A term ends when the Lease is lost. The worker then cancels all handlers and starts again without slots. On ``stop`` it
reports that it is leaving, works until its slots have moved, and releases the Lease.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

from shoal.base.clock import Clock
from shoal.base.logs import get_logger
from shoal.base.metrics import Metrics
from shoal.base.supervision import supervise
from shoal.base.tasks import OwnedTasks, run_all
from shoal.client import Client, ResourceClient, Scope, TransportError, builtin
from shoal.crds.shard import GROUP, VERSION, ConfigSpec, read_config, seconds
from shoal.errors import ApiError
from shoal.kube.objects import Obj
from shoal.reconcile import Change, Informer
from shoal.sharding.leases import WorkerReport
from shoal.sharding.model import CONFIG_LABEL, read_table, slot_of
from shoal.sharding.reflector_config import REFLECTOR_CONFIG
from shoal.sharding.worker.app import ShardedController
from shoal.sharding.worker.config import WorkerConfig, limits_of
from shoal.sharding.worker.gauges import Gauges
from shoal.sharding.worker.handling import HandlerRunner
from shoal.sharding.worker.lease_keeper import LeaseKeeper, LeaseTiming, TermEnded
from shoal.sharding.worker.metrics import WorkerMetrics
from shoal.sharding.worker.moving import SlotTransfer
from shoal.sharding.worker.owned import Kind, OwnershipLost
from shoal.sharding.worker.slot_cache import BY_OWNER, SlotCache
from shoal.sharding.worker.slots import SlotMachine, SlotStep, SlotStepKind

log = get_logger("shard.worker")

_DISCOVERY_S = 2.0  # a kind that the server does not have yet is looked for this often


class Worker:
    """One shard in one process. ``run`` it once."""

    def __init__(
        self,
        client: Client,
        app: ShardedController,
        config: WorkerConfig,
        *,
        clock: Clock,
        random: Callable[[], float],
        new_id: Callable[[], str],
        metrics: Metrics | None = None,
    ) -> None:
        self.config = config.config
        self._settings = config
        self._app = app
        self._reading = client
        self._clock = clock
        self._random = random
        limits = limits_of(config, None)
        self._gauges = Gauges(
            clock, handlers=limits.concurrency, cpus=config.cpus, memory_limit_bytes=config.memory_limit_bytes
        )
        self._machine = SlotMachine(config.shard, -1)
        self.lease = LeaseKeeper(
            client,
            namespace=config.namespace,
            config=config.config,
            shard=config.shard,
            identity=f"{config.shard}_{new_id()}",
            clock=clock,
            report=self.report,
            acks=lambda: self._machine.acks,
        )
        self.client = client.fenced(self.lease.fence)
        self._caches: dict[Kind, SlotCache] = {}
        counts = WorkerMetrics(metrics or Metrics())
        counts.slots.follow(lambda: float(len(self.owned)))
        counts.objects.follow(lambda: float(self.report().objects))
        self._handling = HandlerRunner(self, app, limits, clock=clock, gauges=self._gauges, metrics=counts)
        self._moving = SlotTransfer(client, app, config, handling=self._handling, clock=clock)
        self._rewatch = asyncio.Event()
        self._emptied = asyncio.Event()
        self._spec: ConfigSpec | None = None
        self._listeners: list[Callable[[], None]] = []
        here = Scope(namespace=config.namespace, label_selector=f"{CONFIG_LABEL}={config.config}")
        named = Scope(namespace=config.namespace, field_selector=f"metadata.name={config.config}")

        def informer(plural: str, scope: Scope) -> Informer:
            resource = client.resource(GROUP, VERSION, plural)
            return Informer(resource, clock=clock, random=random, scope=scope, config=REFLECTOR_CONFIG)

        self._tables, self._configs = informer("shardslots", here), informer("shardconfigs", named)

    # state

    @property
    def ready(self) -> bool:
        """Whether it holds its Lease and sees the slot table."""
        return self.lease.term >= 0 and self._tables.synced

    @property
    def owned(self) -> frozenset[int]:
        """The slots that are worked on now."""
        return self._machine.owned

    @property
    def spec(self) -> ConfigSpec | None:
        """The ShardConfig as last seen; None before that and once it is deleted."""
        return self._spec

    def listen(self, changed: Callable[[], None]) -> None:
        """Call ``changed`` when what is owned, or the ShardConfig, may have changed."""
        self._listeners.append(changed)

    def report(self) -> WorkerReport:
        app = self._app
        healthy, message = app.health() if app.health is not None else (True, "")
        said = WorkerReport(
            queue_depth=self._handling.depth,
            objects=self._objects,
            cpu=round(self._gauges.cpu(), 3),
            memory=round(self._gauges.memory(), 3),
            busy=round(self._gauges.busy(), 3),
            latency_s=round(self._gauges.latency_s, 4),
            metrics=dict(app.figures()) if app.figures is not None else {},
            healthy=healthy,
            message=message,
        )
        return app.adjust(said) if app.adjust is not None else said

    @property
    def _objects(self) -> int:
        """The number of handled objects, children not counted."""
        handled = self._handling.kinds
        return sum(len(slot_cache.cache) for kind, slot_cache in self._caches.items() if kind in handled)

    def epoch_of(self, slot: int) -> int | None:
        return self._machine.epoch_of(slot)

    def check(self, slot: int, epoch: int) -> None:
        if self._machine.epoch_of(slot) != epoch or not self.lease.time.may_run(self._clock.monotonic()):
            raise OwnershipLost(f"slot {slot} is not owned with epoch {epoch} any more")

    def children_of(self, uid: str, kind: Kind) -> list[Obj]:
        slot_cache = self._caches.get(kind)
        return list(slot_cache.cache.by_index(BY_OWNER, uid)) if slot_cache is not None else []

    def slot_cache(self, kind: Kind) -> SlotCache:
        return self._caches[kind]

    def resource(self, kind: Kind) -> ResourceClient:
        return self.client.of(self._caches[kind].resource.type)

    def wrote(self, owner_uid: str, written: Obj, epoch: int) -> None:
        if self._app.journal is not None:
            self._app.journal(owner_uid, written, epoch)
        slot = slot_of(written, self.config)
        if slot is not None and self._machine.epoch_of(slot) == epoch:  # else its objects are not watched any more
            self._caches[written["apiVersion"].rpartition("/")[0], written["kind"]].wrote(written)

    # running

    async def run(self, stop: asyncio.Event) -> None:
        """Until ``stop``, and then until its slots have moved or the grace period has ended."""
        self._tables.cache.add_handler(self._table_changed)
        self._configs.cache.add_handler(self._config_changed)
        parts: dict[str, Any] = {
            "worker/config": self._configs.run(),
            "worker/caches": self._watch(),
            "worker/handlers": self._handling.run(),
        }
        tasks = OwnedTasks()
        # not supervised: a worker that cannot follow its slots must give them up, so the process ends
        background = tasks.start(run_all(parts), name="worker/background", awaited=True)
        try:
            await self._discover()
            await self._configs.cache.synced.wait()
            while not stop.is_set():
                await self._term(stop, background)
        finally:
            await self._moving.close()
            await tasks.close()
            for slot_cache in self._caches.values():
                await slot_cache.close()

    async def _discover(self) -> None:
        """Find the kinds that are handled and controlled; waits for those that the server does not serve yet."""
        kinds = dict.fromkeys(kind for each in self._app.handlers for kind in ((each.group, each.kind), *each.controls))
        for kind in kinds:
            self._caches[kind] = SlotCache(await self._found(kind), self.config, clock=self._clock, random=self._random)
            self._handling.attach(kind, self._caches[kind])

    async def _found(self, kind: Kind) -> ResourceClient:
        group, name = kind
        while True:
            try:
                return self._reading.of(builtin(name, group))
            except KeyError:
                pass
            try:
                for found in await self._reading.resource_types(refresh=True):
                    if (found.group, found.kind) == kind:
                        return self._reading.of(found)
                log.warning("the server does not serve a kind yet", kind=name, group=group)
            except (ApiError, TransportError) as error:
                log.warning("the server's kinds could not be read", reason=str(error))
            await self._clock.sleep(_DISCOVERY_S)

    async def _term(self, stop: asyncio.Event, background: asyncio.Task[None]) -> None:
        """One term of the Lease."""
        tasks = OwnedTasks()
        acquiring = tasks.start(self.lease.acquire(), name="worker/acquire", awaited=True)
        stopping = tasks.start(stop.wait(), name="worker/stop")
        try:
            await asyncio.wait({acquiring, stopping, background}, return_when=asyncio.FIRST_COMPLETED)
            if background.done():
                background.result()
            if not acquiring.done():
                return
            acquiring.result()
            self._machine = SlotMachine(self._settings.shard, self.lease.term)
            self._rewatch.set()
            await self._serve(stopping, background)
        finally:
            await tasks.close()

    async def _serve(self, stopping: asyncio.Task[bool], background: asyncio.Task[None]) -> None:
        tasks = OwnedTasks()
        renewing = tasks.start(self.lease.renew(), name="worker/lease", awaited=True)
        # a new watch: that of the previous term may wait on a dead connection
        watching = supervise("worker/tables", self._tables.run, clock=self._clock)
        tasks.start(watching, name="worker/tables")
        try:
            for table in self._tables.cache:
                self._do(self._machine.table(read_table(table)))
            self.lease.renew_soon()
            await asyncio.wait({renewing, stopping, background}, return_when=asyncio.FIRST_COMPLETED)
            if stopping.done() and not renewing.done():
                await self._leave(renewing)
            if background.done():
                background.result()
            if renewing.done():
                renewing.result()
        except TermEnded as over:
            log.warning("the term has ended", shard=self._settings.shard, reason=str(over))
        finally:
            self._do(self._machine.lost())
            await self._moving.stop_all()
            await self._handling.stop_all()
            await tasks.close()
            await self.lease.release()
            self.lease.leaving = False

    async def _leave(self, renewing: asyncio.Task[None]) -> None:
        """Hand over all slots, within the grace period of the ShardConfig."""
        self.lease.leaving = True
        self.lease.renew_soon()
        if self._machine.empty or self._spec is None:
            return
        self._emptied.clear()
        tasks = OwnedTasks()
        emptied = tasks.start(self._emptied.wait(), name="worker/emptied")
        late = tasks.start(self._clock.sleep(_grace_s(self._spec)), name="worker/grace")
        try:
            await asyncio.wait({emptied, late, renewing}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            await tasks.close()

    # changes

    def _config_changed(self, change: Change) -> None:
        if change.new is None:  # no manager will move the slots: a worker that is leaving need not wait for it
            self._spec = None
            self._emptied.set()
            return
        spec = read_config(change.new)
        self.lease.timing = LeaseTiming(lease_s=spec.lease_s, heartbeat_s=min(spec.heartbeat_s, spec.lease_s / 3))
        before, self._spec = self._spec, spec
        self._handling.limit(limits_of(self._settings, spec))
        if before is not None and before.handler != spec.handler:
            for slot in self._machine.owned:  # what failed with the old handler may succeed now
                self._handling.handle_slot(slot)
        self._tell()

    def _tell(self) -> None:
        for changed in self._listeners:
            changed()

    def _table_changed(self, change: Change) -> None:
        if change.new is not None and self.lease.term >= 0:
            self._do(self._machine.table(read_table(change.new)))

    def _do(self, steps: Iterable[SlotStep]) -> None:
        for step in steps:
            match step.kind:
                case SlotStepKind.WATCH:
                    self._rewatch.set()
                case SlotStepKind.WORK:
                    self._handling.handle_slot(step.slot)
                case SlotStepKind.STOP:
                    self._moving.stop(step.slot)
                    self._handling.stop(step.slot)
                case SlotStepKind.DRAIN:
                    self._moving.drain(step.slot, step.epoch, self._drained)
                case SlotStepKind.RESTORE:
                    self._moving.restore(step, self._restored, self._failed)
        if self._machine.empty:
            self._emptied.set()
        if self._machine.acks:
            self.lease.renew_soon()
        self._tell()

    def _drained(self, slot: int, epoch: int, digest: str) -> None:
        self._machine.drained(slot, epoch, digest)
        self.lease.renew_soon()

    def _restored(self, slot: int, epoch: int, digest: str) -> None:
        self._do(self._machine.restored(slot, epoch, digest))
        self.lease.renew_soon()

    def _failed(self, slot: int, epoch: int) -> None:
        self._machine.failed(slot, epoch)
        self.lease.renew_soon()

    async def _watch(self) -> None:
        """Keep the caches on the slots that the machine wants."""
        following: frozenset[int] | None = None
        while True:
            await self._rewatch.wait()
            self._rewatch.clear()
            machine = self._machine
            wanted = machine.wanted
            if wanted != following:
                await asyncio.gather(*(slot_cache.follow(wanted) for slot_cache in self._caches.values()))
                following = wanted
            if machine is self._machine:
                self._do(machine.watched(wanted))


def _grace_s(spec: ConfigSpec | None) -> float:
    return seconds((spec or ConfigSpec()).graceful_shutdown_timeout)
