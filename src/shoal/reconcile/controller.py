"""A controller: informers put keys into a queue, workers reconcile them, and the outcome decides about retries.

A reconcile gets a key, never an event, and ends in one of three ways: done, again after a delay, or an exception, which
backs off. ``Terminal`` is an exception that is reported and not retried. One worker at a time reconciles a key; a
change during the reconcile makes it run again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass

from shoal.base.bounded import Closed
from shoal.base.clock import Clock
from shoal.base.deadline import within
from shoal.base.logs import correlated, get_logger
from shoal.base.tracing import span
from shoal.client import LostLease
from shoal.errors import ConfigError, Conflict, NotFound, ShoalError
from shoal.kube.objects import Obj
from shoal.reconcile.cache import Cache, Change
from shoal.reconcile.informer import Informer
from shoal.reconcile.keys import ObjectKey, controller_of
from shoal.reconcile.metrics import Outcome, ReconcileMetrics
from shoal.reconcile.queue import RateLimit, WorkQueue

log = get_logger("reconcile.controller")

_CACHE_LAG_RETRIES = 5  # retries within which a cache usually sees a deletion
_RESYNC_SPREAD = 0.1  # a controller's own resync enqueues its keys over this part of the period, not at once
_REQUEUED, _REQUEUE_PAUSE_S = 50, 0.1  # after a resync of an informer: so many keys, then a pause


class Terminal(ShoalError):
    """Retrying cannot help until something changes; the message says what."""


@dataclass(frozen=True, slots=True)
class Result:
    """The outcome of a reconcile: done, or run again after ``after_s`` (0: at once)."""

    after_s: float | None = None


DONE = Result()

Reconcile = Callable[[ObjectKey], Awaitable[Result]]
Predicate = Callable[[Change], bool]
Mapper = Callable[[Obj], Iterable[ObjectKey]]


def always(_: Change) -> bool:
    return True


def spec_changed(change: Change) -> bool:
    """A predicate that ignores changes of only status or metadata, for kinds with ``metadata.generation``."""
    if change.old is None or change.new is None:
        return True
    before, after = change.old["metadata"], change.new["metadata"]
    return bool(
        before.get("generation") != after.get("generation")
        or before.get("deletionTimestamp") != after.get("deletionTimestamp")
        or "generation" not in after
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerConfig:
    """Settings of a controller."""

    workers: int = 1
    timeout_s: float = 60.0  # timeout of one reconcile
    resync_s: float = 0.0  # period after which every object is reconciled again, besides resyncs of informers; 0: never
    limit: RateLimit = RateLimit()

    def __post_init__(self) -> None:
        if self.workers < 1:
            raise ConfigError(f"controller.workers is {self.workers}: must be 1 or more")
        if self.timeout_s <= 0 or self.resync_s < 0:
            raise ConfigError("controller.timeout_s must be more than 0 and controller.resync_s 0 or more")


class Controller:
    """Wire it with ``watches``, ``owns`` and ``maps``; then ``run`` it, once."""

    def __init__(
        self,
        name: str,
        reconcile: Reconcile,
        *,
        clock: Clock,
        random: Callable[[], float],
        new_id: Callable[[], str],
        metrics: ReconcileMetrics,
        config: ControllerConfig | None = None,
    ) -> None:
        self.name = name
        self._reconcile = reconcile
        self._clock = clock
        self._random = random
        self._new_id = new_id
        self._config = config or ControllerConfig()
        self.queue: WorkQueue[ObjectKey] = WorkQueue(
            clock=clock, limit=self._config.limit, waits=metrics.queued_s.labels(name)
        )
        self._caches: list[Cache] = []  # all must be synced before work starts
        self._roots: list[Cache] = []  # their keys are the controller's keys
        self._requeues: dict[Callable[[], Iterable[ObjectKey]], None] = {}  # whose keys a resync wants reconciled
        self._resynced = asyncio.Event()  # set when _requeues is not empty
        self._outcomes = {outcome: metrics.reconciles.labels(name, outcome.value) for outcome in Outcome}
        self._duration_s = metrics.duration_s.labels(name)
        self._resyncs = metrics.resyncs.labels(name)
        metrics.depth.follow(lambda: float(len(self.queue)), name)
        metrics.adds.follow(lambda: float(self.queue.adds), name)
        metrics.retries.follow(lambda: float(self.queue.retries), name)
        metrics.delayed.follow(lambda: float(self.queue.waiting), name)

    # wiring

    def watches(self, informer: Informer, *, when: Predicate = always) -> Controller:
        """Reconcile the objects of this informer when they change."""
        self._roots.append(informer.cache)
        self.resyncs(informer, informer.cache.keys)
        return self._wire(informer.cache, lambda change: (change.key,), when)

    def resyncs(self, informer: Informer, keys: Callable[[], Iterable[ObjectKey]]) -> Controller:
        """Reconcile ``keys`` after each resync of this informer; ``watches`` does that for the informer's own keys."""

        def requeue() -> None:
            self._requeues[keys] = None
            self._resynced.set()

        informer.on_resync.append(requeue)
        return self

    def owns(self, informer: Informer, *, kind: str, group: str = "", when: Predicate = always) -> Controller:
        """Reconcile the controlling owner, of this kind and group, of the objects of this informer."""

        def owner_keys(obj: Obj) -> Iterable[ObjectKey]:
            reference = controller_of(obj)
            if reference is None or reference["kind"] != kind:
                return ()
            if reference["apiVersion"].rpartition("/")[0] != group:
                return ()
            return (ObjectKey(obj["metadata"].get("namespace") or "", reference["name"]),)

        return self.maps(informer, owner_keys, when=when)

    def maps(self, informer: Informer, mapper: Mapper, *, when: Predicate = always) -> Controller:
        """Reconcile the keys that ``mapper`` returns for an object; for a change, for its old and its new state."""

        def keys(change: Change) -> Iterable[ObjectKey]:
            states = [state for state in (change.old, change.new) if state is not None]
            return dict.fromkeys(key for state in states for key in mapper(state))

        return self._wire(informer.cache, keys, when)

    def _wire(self, cache: Cache, keys: Callable[[Change], Iterable[ObjectKey]], when: Predicate) -> Controller:
        def enqueue(change: Change) -> None:
            if when(change):
                for key in keys(change):
                    self.queue.add(key)

        self._caches.append(cache)
        cache.add_handler(enqueue)
        return self

    # running

    async def run(self) -> None:
        """Work until ``stop``, or until cancelled. Waits for the caches first."""
        for cache in self._caches:
            await cache.synced.wait()
        async with asyncio.TaskGroup() as group:
            resyncs = [
                group.create_task(self._resync(), name=f"{self.name}/resync"),
                group.create_task(self._requeue(), name=f"{self.name}/requeue"),
            ]
            workers = [
                group.create_task(self._work(), name=f"{self.name}/worker/{number}")
                for number in range(self._config.workers)
            ]
            await asyncio.wait(workers)
            for resync in resyncs:
                resync.cancel()

    def stop(self) -> None:
        """Start no more reconciles; ``run`` returns when the running ones have ended."""
        self.queue.shut_down()

    async def _work(self) -> None:
        while True:
            try:
                key = await self.queue.get()
            except Closed:
                return
            try:
                with correlated(controller=self.name, key=str(key), reconcile_id=self._new_id()):
                    with span("reconcile", controller=self.name, key=str(key)):
                        await self._process(key)
            finally:
                self.queue.done(key)

    async def _process(self, key: ObjectKey) -> None:
        started = self._clock.monotonic()
        try:
            async with within(self._clock, self._config.timeout_s):
                result = await self._reconcile(key)
        except Terminal as error:
            self.queue.forget(key)
            log.error("reconcile cannot succeed until something changes", reason=str(error))
            outcome = Outcome.TERMINAL
        except Exception as error:
            outcome = self._failed(key, error)
        else:
            outcome = self._succeeded(key, result)
        self._outcomes[outcome].inc()
        self._duration_s.observe(self._clock.monotonic() - started)

    def _succeeded(self, key: ObjectKey, result: Result) -> Outcome:
        self.queue.forget(key)
        if result.after_s is None:
            return Outcome.DONE
        self.queue.add_after(key, result.after_s)
        return Outcome.AGAIN

    def _failed(self, key: ObjectKey, error: Exception) -> Outcome:
        delay_s = round(self.queue.add_rate_limited(key), 3)
        if isinstance(error, Conflict):
            log.info("conflict: the object has changed, reconciling again", reason=str(error), delay_s=delay_s)
            return Outcome.CONFLICT
        if isinstance(error, NotFound) and self.queue.failures(key) <= _CACHE_LAG_RETRIES:
            log.info("not found: an object was deleted, reconciling again", reason=str(error), delay_s=delay_s)
            return Outcome.CONFLICT
        if isinstance(error, TimeoutError):
            log.warning("reconcile timed out", limit_s=self._config.timeout_s, delay_s=delay_s)
            return Outcome.TIMED_OUT
        if isinstance(error, LostLease):
            log.info("lost leadership", reason=str(error))
        else:
            log.error("reconcile failed", error=error, failures=self.queue.failures(key), delay_s=delay_s)
        return Outcome.FAILED

    async def _resync(self) -> None:
        """Periodically enqueue every object, spread over a part of the period."""
        period_s = self._config.resync_s
        while period_s:
            await self._clock.sleep(period_s)
            self._resyncs.inc()
            for cache in self._roots:
                for key in cache.keys():
                    self.queue.add_after(key, self._random() * period_s * _RESYNC_SPREAD)

    async def _requeue(self) -> None:
        """After each resync of an informer enqueue its keys, a few at a time: current changes go first."""
        while True:
            await self._resynced.wait()
            self._resynced.clear()
            self._resyncs.inc()
            while self._requeues:
                keys = next(iter(self._requeues))
                del self._requeues[keys]
                for count, key in enumerate(tuple(keys()), start=1):
                    self.queue.add(key)
                    if count % _REQUEUED == 0:
                        await self._clock.sleep(_REQUEUE_PAUSE_S)
