"""The scheduler's loop: pops pods, decides, and carries decisions out.

Deciding is synchronous and fast; binding is asynchronous and concurrent. After a decision the pod is assumed to be on
its node at once, so that the next decision counts it; if binding fails, the assumption is dropped and the pod retried.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

from shoal.base.clock import Clock
from shoal.base.logs import get_logger
from shoal.client import Client, LostLease, TransportError
from shoal.errors import ApiError, Conflict, NotFound
from shoal.reconcile.events import EventRecorder
from shoal.reconcile.keys import ObjectKey
from shoal.scheduler import messages
from shoal.scheduler.actions import Actions, VolumesFailed
from shoal.scheduler.config import SchedulerConfig
from shoal.scheduler.intake import Intake
from shoal.scheduler.metrics import ScheduleResult, SchedulerMetrics
from shoal.scheduler.model import Explanation, SchedulingDecision
from shoal.scheduler.plan import Placed, Planner, Unplaced
from shoal.scheduler.queue import QueuedPod, QueueState, SchedulingQueue, gates_of
from shoal.scheduler.shapes import PodInfo
from shoal.scheduler.snapshot import Snapshot
from shoal.scheduler.volumes import TakeVolume

log = get_logger("scheduler")

_UNSCHEDULABLE, _ERROR = "Unschedulable", "SchedulerError"
_FAILURES = (ApiError, TransportError, VolumesFailed)


class Scheduler:
    """One scheduler. A manager runs it while this process leads; its ``intake`` follows the informers in any case."""

    name = "scheduler"

    def __init__(
        self,
        client: Client,
        *,
        clock: Clock,
        random: Callable[[], float],
        events: EventRecorder,
        metrics: SchedulerMetrics,
        config: SchedulerConfig | None = None,
    ) -> None:
        self.config = config or SchedulerConfig()
        self.queue = SchedulingQueue(self.config)
        self.planner = Planner(Snapshot(), self.config)
        self.intake = Intake(self.planner, self.queue, clock=clock, wake=self._wake)
        self._actions = Actions(client, self.planner.volumes, clock=clock, events=events)
        self.intake.on_storage = self._actions.storage_changed
        self._clock = clock
        self._random = random
        self._metrics = metrics
        metrics.follow(self.queue)
        self._decisions: OrderedDict[ObjectKey, SchedulingDecision] = OrderedDict()  # the oldest first
        self._ready = asyncio.Event()  # set when a pod may be ready
        self._room = asyncio.Event()  # set while the number of writes in flight is below the limit
        self._room.set()
        self._writes = 0
        self._stopping = False
        self._lost: LostLease | None = None

    # running

    async def run(self) -> None:
        """Place pods until ``stop``; then finish writes in flight. Raises ``LostLease`` when another process leads."""
        async with asyncio.TaskGroup() as group:
            upkeep = group.create_task(self._upkeep(), name="scheduler/upkeep")
            try:
                await self._place_pods(group)
            finally:
                upkeep.cancel()
        if self._lost is not None:
            raise self._lost

    def stop(self) -> None:
        self._stopping = True
        self._wake()
        self._room.set()

    def _deposed(self, error: LostLease) -> None:
        """Another process leads: decisions made here are no longer valid."""
        self._lost = error
        self.stop()

    def _wake(self) -> None:
        self._ready.set()

    async def _place_pods(self, group: asyncio.TaskGroup) -> None:
        clock, slice_s = self._clock, self.config.slice_s
        began = clock.monotonic()
        while not self._stopping:
            if self._writes >= self.config.binds_in_flight:
                self._room.clear()
                await self._room.wait()
                began = clock.monotonic()
                continue
            now = clock.monotonic()
            waiting = self.queue.pop(now)
            if waiting is None:
                await self._until_ready()
                began = clock.monotonic()
                continue
            self._place(waiting, now, group)
            if clock.monotonic() - began > slice_s:
                await clock.sleep(0)  # yield to other tasks, above all to the API server in this process
                began = clock.monotonic()

    async def _until_ready(self) -> None:
        self._ready.clear()
        at = self.queue.next_at()
        timer = self._clock.call_later(at - self._clock.monotonic(), self._wake) if at is not None else None
        try:
            await self._ready.wait()
        finally:
            if timer is not None:
                timer.cancel()

    async def _upkeep(self) -> None:
        """Periodic work: expired assumptions, backoffs, long-stuck pods."""
        while True:
            await self._clock.sleep(self.config.flush_every_s)
            now = self._clock.monotonic()
            if self.queue.flush(now):
                self._wake()
            for pod in self.intake.expire(now):
                self._metrics.expired.inc()
                log.warning("bound pod never appeared as bound", pod=str(pod.key))
                self._again(pod)

    def _again(self, pod: PodInfo) -> None:
        """Put a pod whose placement failed back into the queue."""
        waiting = self.queue.get(pod.key)
        if waiting is not None and waiting.pod.uid == pod.uid and waiting.place is QueueState.IN_FLIGHT:
            self.queue.put_back(waiting, self._clock.monotonic())
            self._wake()

    # one pod

    def _place(self, waiting: QueuedPod, now: float, group: asyncio.TaskGroup) -> None:
        pod = waiting.pod
        try:
            decided = self.planner.place(pod, self._random)
        except Exception as error:  # an error with one pod must not block the others
            log.error("placing a pod failed", error=error, pod=str(pod.key))
            self._count(pod, ScheduleResult.ERROR)
            self.queue.put_back(waiting, now)
            return
        self._metrics.placing_s.observe(self._clock.monotonic() - now)
        if isinstance(decided, Placed):
            self._remember(pod.key, self._decision(decided))
            self._count(pod, ScheduleResult.SCHEDULED)
            for step in decided.steps:
                if isinstance(step, TakeVolume):
                    self.planner.volumes.promised[step.volume] = step.claim
            self.intake.assume(pod, decided.node)
            work, name = self._bind(waiting, pod, decided), f"scheduler/bind/{pod.key}"
            if decided.steps:
                group.create_task(work, name=name)  # volumes take long: waiting for them must not block others
            else:
                self._start(group, work, name)
        else:
            self._count(pod, ScheduleResult.UNSCHEDULABLE)
            self._refused(waiting, pod, decided, now, group)

    def _start(self, group: asyncio.TaskGroup, work: Coroutine[Any, Any, None], name: str) -> None:
        """Run writes that count against those in flight."""
        self._writes += 1
        group.create_task(work, name=name).add_done_callback(self._finished)

    def _finished(self, _: object) -> None:
        self._writes -= 1
        if self._writes < self.config.binds_in_flight:
            self._room.set()

    async def _bind(self, waiting: QueuedPod, pod: PodInfo, placed: Placed) -> None:
        began = self._clock.monotonic()
        try:
            if placed.steps:
                await self._actions.bind_volumes(pod, placed.steps, self.config.volumes_s)
            await self._actions.bind(pod, placed.node)
        except LostLease as error:
            self._deposed(error)
        except _FAILURES as error:
            await self._not_bound(waiting, pod, error)
        else:
            self.intake.bound(pod, self.config.assumed_s)
            self._metrics.binding_s.observe(self._clock.monotonic() - began)
        finally:
            for step in placed.steps:
                if isinstance(step, TakeVolume):
                    self.planner.volumes.promised.pop(step.volume, None)

    async def _not_bound(self, waiting: QueuedPod, pod: PodInfo, error: Exception) -> None:
        if not self.intake.forget(pod):
            return  # it was seen on a node or deleted: nothing to do
        self._count(pod, ScheduleResult.ERROR)
        if isinstance(error, NotFound):
            return  # the informer will deliver it
        self._again(pod)
        log.warning("binding a pod failed", reason=str(error), pod=str(pod.key))
        if not isinstance(error, Conflict):
            await self._report(pod, _ERROR, f"binding rejected: {error}", None)

    def _refused(
        self, waiting: QueuedPod, pod: PodInfo, decided: Unplaced, now: float, group: asyncio.TaskGroup
    ) -> None:
        candidate = decided.candidate
        nominated = self.planner.snapshot.nodes[candidate.slot].name if candidate is not None else None
        if nominated is not None:
            self.planner.snapshot.nominate(pod, nominated)
        elif decided.forget_nomination:
            self.planner.snapshot.nominate(pod, "")
        repeated = waiting.message == decided.message and nominated is None
        waiting.message = decided.message
        self._remember(
            pod.key, SchedulingDecision("", self._clock.wall_s(), message=decided.message, nominated=nominated or "")
        )  # fmt: skip
        if candidate is not None and nominated is not None:
            # in flight until the victims are deleted: an earlier retry would choose more victims
            self._start(group, self._make_room(waiting, pod, nominated, decided), f"scheduler/preempt/{pod.key}")
            return
        self.queue.unschedulable(waiting, decided.plugins, now)
        if repeated and not (decided.forget_nomination and pod.nominated):
            return  # already reported
        told = "" if decided.forget_nomination else None
        self._start(group, self._report(pod, _UNSCHEDULABLE, decided.message, told), f"scheduler/refuse/{pod.key}")

    async def _make_room(self, waiting: QueuedPod, pod: PodInfo, node: str, decided: Unplaced) -> None:
        """Delete the victims. The pod is retried when they are gone."""
        assert decided.candidate is not None
        snapshot, victims = self.planner.snapshot, decided.candidate.victims
        try:
            await self._report(pod, _UNSCHEDULABLE, decided.message, node)
            await self._actions.preempt(pod, node, victims, pod.shape.scheduler)
        except LostLease as error:
            self._deposed(error)
            return
        except _FAILURES as error:
            log.warning("preemption failed", reason=str(error), pod=str(pod.key), node=node)
            snapshot.withdraw(pod.uid)
            self._again(pod)
            return
        self._metrics.victims.inc(len(victims))
        now = self._clock.monotonic()
        if self.queue.get(pod.key) is waiting and waiting.place is QueueState.IN_FLIGHT:
            self.queue.unschedulable(waiting, decided.plugins, now)
            left = (snapshot.pods.get(victim.key) for victim in victims)
            if not {each.uid for each in left if each is not None} & {victim.uid for victim in victims}:
                self.queue.activate(pod.key, now)  # they were gone before the writes returned
                self._wake()
        await self._displace(pod, node)

    async def _displace(self, pod: PodInfo, node: str) -> None:
        """Clear the nominations of less important pods to the same node; they are retried."""
        for other in tuple(self.planner.snapshot.nominated.get(node, {}).values()):
            if other.priority < pod.priority:
                self.planner.snapshot.withdraw(other.uid)
                self.queue.activate(other.key, self._clock.monotonic())
                self._wake()
                try:
                    await self._actions.clear_nomination(other)
                except (*_FAILURES, LostLease) as error:
                    log.warning("clearing a nomination failed", reason=str(error), pod=str(other.key))

    async def _report(self, pod: PodInfo, reason: str, message: str, nominated: str | None) -> None:
        try:
            await self._actions.report(pod, reason, message, nominated)
        except (NotFound, Conflict):
            pass  # deleted, or another pod has its name
        except LostLease as error:
            self._deposed(error)
        except (ApiError, TransportError) as error:
            log.warning("writing a pod condition failed", reason=str(error), pod=str(pod.key))

    def _count(self, pod: PodInfo, result: ScheduleResult) -> None:
        self._metrics.attempts.labels(pod.shape.scheduler, result.value).inc()

    # why

    def _decision(self, placed: Placed) -> SchedulingDecision:
        return SchedulingDecision(
            placed.node, self._clock.wall_s(), placed.feasible, placed.looked_at, self.planner.snapshot.present,
            placed.ties, placed.scores,
        )  # fmt: skip

    def _remember(self, key: ObjectKey, decision: SchedulingDecision) -> None:
        decisions = self._decisions
        decisions.pop(key, None)
        decisions[key] = decision
        if len(decisions) > self.config.decisions:
            decisions.popitem(last=False)

    def explain(self, namespace: str, name: str) -> Explanation | None:
        """Explain the placement of a pod: all nodes evaluated now, and the last decision. None for unknown pods."""
        key = ObjectKey(namespace, name)
        waiting = self.queue.get(key)
        pod = waiting.pod if waiting is not None else self.planner.snapshot.pods.get(key)
        if pod is None:
            return None
        found = self.planner.explain(pod)
        place = ""
        if waiting is not None:
            gates = gates_of(pod)
            place = messages.gated(gates) if gates else waiting.place.value
        return replace(found, waiting=place, last=self._decisions.get(key))
