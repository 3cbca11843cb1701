"""Runs handlers for the owned objects in a queue, a bounded number at once, and cancels those of lost slots."""

from __future__ import annotations

import asyncio
from typing import Protocol

from shoal.base.bounded import Closed
from shoal.base.clock import Clock
from shoal.base.logs import get_logger
from shoal.base.tasks import run_all
from shoal.base.tracing import span
from shoal.client import Client, LostLease, ResourceClient, TransportError
from shoal.crds.shard import ConfigSpec
from shoal.errors import Conflict, NotFound
from shoal.kube.objects import Obj
from shoal.reconcile import Change, ObjectKey, RateLimit
from shoal.reconcile.keys import controller_of
from shoal.reconcile.queue import WorkQueue
from shoal.sharding.model import slot_of
from shoal.sharding.worker.app import Handler, RetryLater, ShardedController
from shoal.sharding.worker.config import HandlingLimits
from shoal.sharding.worker.gauges import Gauges
from shoal.sharding.worker.lease_keeper import LeaseKeeper
from shoal.sharding.worker.metrics import WorkerMetrics
from shoal.sharding.worker.owned import Kind, Owned, OwnershipLost
from shoal.sharding.worker.slot_cache import BY_SLOT, SlotCache

log = get_logger("shard.worker")

_LOOK_S = 1.0  # how often handlers that take too long are looked for
_TURN_S = 0.005  # time handlers may run together before other tasks get a turn
_WAIT_S = 0.05  # until a worker whose lease is too old checks again
_LIMIT = RateLimit(base_s=0.05, cap_s=300.0, rate=50.0, burst=200)

_Key = tuple[int, ObjectKey]  # number of the handler, object


class HandlerOwner(Protocol):
    """The part of the worker that handlers use."""

    client: Client
    config: str
    lease: LeaseKeeper

    @property
    def spec(self) -> ConfigSpec | None: ...
    def epoch_of(self, slot: int) -> int | None: ...
    def check(self, slot: int, epoch: int) -> None: ...
    def children_of(self, uid: str, kind: Kind) -> list[Obj]: ...
    def resource(self, kind: Kind) -> ResourceClient: ...
    def wrote(self, owner_uid: str, written: Obj, epoch: int) -> None: ...


class HandlerRunner:
    def __init__(
        self,
        owner: HandlerOwner,
        app: ShardedController,
        limits: HandlingLimits,
        *,
        clock: Clock,
        gauges: Gauges,
        metrics: WorkerMetrics,
    ) -> None:
        self._owner = owner
        self._handlers = app.handlers
        self.limits = limits
        self._clock = clock
        self._gauges = gauges
        self._metrics = metrics
        self._queue: WorkQueue[_Key] = WorkQueue(clock=clock, limit=_LIMIT)
        self._caches: dict[Kind, SlotCache] = {}
        self._gone: dict[_Key, tuple[int, Obj]] = {}  # slot and last state of deleted objects that were not handled yet
        self._running: dict[asyncio.Task[None], tuple[frozenset[int], float]] = {}  # its slots, when it began
        self._cancelled: dict[asyncio.Task[None], bool] = {}  # whether because of the timeout
        self._ended = asyncio.Event()  # a handler has ended
        self._paused_s = clock.monotonic()
        self._numbers: set[int] = set()  # of the tasks that run handlers
        self._resized = asyncio.Event()
        metrics.queue_length.follow(lambda: float(self.depth))
        metrics.waiting.follow(lambda: float(self._queue.waiting))

    @property
    def kinds(self) -> frozenset[Kind]:
        return frozenset((each.group, each.kind) for each in self._handlers)

    @property
    def depth(self) -> int:
        return len(self._queue)

    # changes

    def attach(self, kind: Kind, slot_cache: SlotCache) -> None:
        """Queue objects when a handled or controlled kind changes."""
        self._caches[kind] = slot_cache
        for number, handler in enumerate(self._handlers):
            if (handler.group, handler.kind) == kind:
                slot_cache.cache.add_handler(lambda change, number=number: self._changed(number, change))  # type: ignore[misc]
            if kind in handler.controls:
                slot_cache.cache.add_handler(lambda change, number=number: self._child_changed(number, change))  # type: ignore[misc]

    def _changed(self, number: int, change: Change) -> None:
        slot = slot_of(change.object, self._owner.config)
        if slot is None or self._owner.epoch_of(slot) is None:
            return  # when a slot becomes owned, all its objects are queued
        key = (number, change.key)
        if change.new is None:
            if self._handlers[number].gone is None:
                return
            self._gone[key] = (slot, change.object)
        else:
            self._gone.pop(key, None)
        self._queue.add(key)

    def _child_changed(self, number: int, change: Change) -> None:
        reference = controller_of(change.object)
        handler = self._handlers[number]
        if reference is None or reference["kind"] != handler.kind:
            return
        if reference["apiVersion"].rpartition("/")[0] == handler.group:
            self._queue.add((number, ObjectKey(change.key.namespace, reference["name"])))

    def handle_slot(self, slot: int) -> None:
        """Queue all objects of a slot that is owned with a new epoch."""
        for number, handler in enumerate(self._handlers):
            slot_cache = self._caches.get((handler.group, handler.kind))
            for obj in slot_cache.cache.by_index(BY_SLOT, str(slot)) if slot_cache is not None else ():
                about = obj["metadata"]
                self._queue.add((number, ObjectKey(about.get("namespace") or "", about["name"])))

    # lost slots

    def stop(self, slot: int) -> None:
        """Cancel the handlers of the slot."""
        for task, (slots, _) in self._running.items():
            if slot in slots:
                self._cancel(task)
        self._gone = {key: gone for key, gone in self._gone.items() if gone[0] != slot}

    def runs(self, slot: int) -> bool:
        return any(slot in slots for slots, _ in self._running.values())

    async def ended(self, slot: int) -> None:
        """Return when no handler of the slot runs."""
        while self.runs(slot):
            self._ended.clear()
            await self._ended.wait()

    async def stop_all(self) -> None:
        """Cancel all handlers and wait for their end."""
        for task in tuple(self._running):
            self._cancel(task)
        while self._running:
            self._ended.clear()
            await self._ended.wait()

    def _cancel(self, task: asyncio.Task[None], *, overdue: bool = False) -> None:
        if task not in self._cancelled:
            self._cancelled[task] = overdue
            task.cancel()

    # handlers

    def limit(self, limits: HandlingLimits) -> None:
        """Use other limits from now on. With fewer handlers, those that run now finish."""
        self.limits = limits
        self._gauges.handlers = limits.concurrency
        self._resized.set()

    async def run(self) -> None:
        await run_all({"worker/handlers/pool": self._pool(), "worker/overdue": self._look()})

    async def _pool(self) -> None:
        """Run as many tasks as there may be handlers at once."""
        async with asyncio.TaskGroup() as group:
            while True:
                for number in set(range(self.limits.concurrency)) - self._numbers:
                    self._numbers.add(number)
                    group.create_task(self._work(number), name=f"worker/handler/{number}")
                self._resized.clear()
                await self._resized.wait()

    async def _look(self) -> None:
        while True:
            await self._clock.sleep(_LOOK_S)
            now_s = self._clock.monotonic()
            for task, (_, since_s) in tuple(self._running.items()):
                if now_s - since_s > self.limits.handler_timeout_s:
                    log.warning("a handler takes too long and is cancelled", limit_s=self.limits.handler_timeout_s)
                    self._cancel(task, overdue=True)

    async def _work(self, number: int) -> None:
        task = asyncio.current_task()
        assert task is not None
        try:
            while number < self.limits.concurrency:
                keys = await self._next()
                if number < self.limits.concurrency:
                    await self._work_on(task, keys)
                else:  # there may be fewer handlers by now
                    for key in keys:
                        self._queue.add(key)
                        self._queue.done(key)
        except Closed:
            return
        finally:
            self._numbers.discard(number)

    async def _work_on(self, task: asyncio.Task[None], keys: list[_Key]) -> None:
        try:
            await self._run(task, keys)
        finally:
            for key in keys:
                self._queue.done(key)
        if self._clock.monotonic() - self._paused_s > _TURN_S:
            await asyncio.sleep(0)  # handlers that never wait must not delay the renewal of the lease
            self._paused_s = self._clock.monotonic()

    async def _next(self) -> list[_Key]:
        """The next key, or several for a handler that takes many."""
        first = await self._queue.get()
        keys = [first]
        if self._handlers[first[0]].reconcile_many is not None:
            while len(keys) < self.limits.batch:
                more = self._queue.take(lambda key: key[0] == first[0])
                if more is None:
                    break
                keys.append(more)
        return keys

    async def _run(self, task: asyncio.Task[None], keys: list[_Key]) -> None:
        now_s = self._clock.monotonic()
        while not self._owner.lease.time.may_start(now_s):
            if self._owner.lease.term < 0:
                return  # no slot is owned; a new term queues its objects
            await self._clock.sleep(_WAIT_S)
            now_s = self._clock.monotonic()
        number = keys[0][0]
        handler = self._handlers[number]
        owned = [found for key in keys if (found := self._owned(handler, key[1])) is not None]
        told = [self._gone.pop(key) for key in keys if key in self._gone]
        gone = [each for each in told if self._owner.epoch_of(each[0]) is not None]
        if not owned and not gone:
            return
        self._running[task] = frozenset((*(each.slot for each in owned), *(slot for slot, _ in gone))), now_s
        self._gauges.began(now_s)
        try:
            with span("shard.handle", kind=handler.kind, key=str(keys[0][1]), objects=len(keys)):
                await self._call(handler, keys, owned, [obj for _, obj in gone])
        except asyncio.CancelledError:
            if task not in self._cancelled:
                raise
            task.uncancel()
            if self._cancelled[task]:
                self._again(keys, TimeoutError("the handler took too long"))
            else:
                for key in keys:  # the slots of other objects of a batch may still be owned
                    self._queue.add(key)
        finally:
            self._cancelled.pop(task, None)
            del self._running[task]
            self._ended.set()
            ended_s = self._clock.monotonic()
            self._gauges.ended(ended_s, ended_s - now_s)
            self._metrics.handler_s.observe(ended_s - now_s)

    def _owned(self, handler: Handler, key: ObjectKey) -> Owned | None:
        kind = (handler.group, handler.kind)
        obj = self._caches[kind].cache.get(key)
        slot = None if obj is None else slot_of(obj, self._owner.config)
        epoch = None if slot is None else self._owner.epoch_of(slot)
        if obj is None or slot is None or epoch is None:
            return None
        return Owned(self._owner, kind, handler.controls, obj, slot, epoch)

    async def _call(self, handler: Handler, keys: list[_Key], owned: list[Owned], gone: list[Obj]) -> None:
        try:
            after_s = None
            for obj in gone:
                assert handler.gone is not None
                await handler.gone(obj)
            if handler.reconcile_many is not None and owned:
                after_s = await handler.reconcile_many(owned)
            elif handler.reconcile is not None and owned:
                after_s = await handler.reconcile(owned[0])
        except Exception as error:
            late = isinstance(error, OwnershipLost | LostLease)
            if late and not any(self._owner.epoch_of(each.slot) == each.epoch for each in owned):
                log.info("the slot is not owned any more", reason=str(error))  # the next owner handles it
            else:
                self._again(keys, error)
            return
        self._metrics.handled.inc(len(keys))
        for key in keys:
            self._queue.forget(key)
            if after_s is not None:
                self._queue.add_after(key, after_s)

    def _again(self, keys: list[_Key], error: Exception) -> None:
        """Queue the keys again, with a longer delay each time."""
        self._metrics.failed.inc(len(keys))
        for key in keys:
            if isinstance(error, RetryLater):
                delay_s = error.after_s
                self._queue.add_after(key, delay_s)
            else:
                delay_s = self._queue.add_rate_limited(key)
            if isinstance(error, Conflict | NotFound | OwnershipLost | LostLease | TransportError | RetryLater):
                log.info("retrying an object", key=str(key[1]), reason=str(error), delay_s=round(delay_s, 3))
            else:
                log.error("a handler failed", error=error, key=str(key[1]), delay_s=round(delay_s, 3))
