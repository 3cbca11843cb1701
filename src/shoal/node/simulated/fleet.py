"""Runs a simulated fleet: an informer of pods, one of nodes, a heap of timers, and a few writers.

    pod changed ─▶ progress (in memory) ─▶ due now ─▶ queue ─▶ writer: PUT status, or DELETE
                                        └▶ due later ─▶ timers ─▶ queue

A key is in the queue once, and a writer plans from the newest cached state, so changes in quick succession become one
write. A write that conflicts is dropped: the newer state arrives by watch and is planned again. All state is in the
API, except instants finer than a second.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, replace

from shoal.base.clock import Clock, Timer
from shoal.base.logs import get_logger
from shoal.base.tasks import run_all, wait_first
from shoal.client import EVERYTHING, Scope, TransportError, builtin
from shoal.errors import ApiError, Conflict, Invalid, NotFound
from shoal.kube.objects import Obj
from shoal.node.admission import port_conflict
from shoal.node.runtime.model import ContainerStats
from shoal.node.simulated import plan
from shoal.node.simulated.addresses import Addresses
from shoal.node.simulated.config import FleetConfig
from shoal.node.simulated.model import Behaviour, PodProgress, Stage, Usage, behaviour_of
from shoal.node.simulated.nodes import Nodes, SimulatedNode
from shoal.node.simulated.timers import Timers
from shoal.reconcile import Cache, Change, EventRecorder, EventType, Manager, ObjectKey

log = get_logger("node.simulated")

_BY_NODE = "node"
_RETRY_S = 1.0


@dataclass(slots=True)
class _Pod:
    """The state of a pod besides its object."""

    node: str
    number: int  # of the node, whose address space the pod's address is from
    progress: PodProgress
    behaviour: Behaviour
    ends_at: float | None = None  # it is being deleted; wall seconds
    written: str = ""  # resourceVersion that our last write made: a state before it is old news


def node_of(pod: Obj) -> tuple[str, ...]:
    name = pod["spec"].get("nodeName")
    return (name,) if name else ()


class SimulatedFleet:
    """Simulates the nodes with the fleet's label and the pods that are bound to them. A ``Runnable``."""

    name = "simulated-nodes"

    def __init__(
        self,
        manager: Manager,
        config: FleetConfig,
        *,
        clock: Clock,
        scope: Scope = EVERYTHING,
        events: EventRecorder | None = None,
    ) -> None:
        self.config = config
        self._events = events
        self._clock = clock
        self._resource = manager.client.of(builtin("pods"))
        self._addresses = Addresses(config.node_network, config.pod_network, config.pods)
        self._cache: Cache = manager.informer(builtin("pods"), scope, indexes={_BY_NODE: node_of}).cache
        nodes = manager.informer(builtin("nodes")).cache
        self.nodes = Nodes(manager.client, nodes, config, self._addresses, clock=clock)
        self._pods: dict[ObjectKey, _Pod] = {}
        self._timers: Timers[ObjectKey] = Timers()
        self._alarm: Timer | None = None
        self._alarm_at = plan.NEVER
        self._queue: deque[ObjectKey] = deque()
        self._queued: set[ObjectKey] = set()  # what is in _queue
        self._writing: dict[ObjectKey, bool] = {}  # being written; True: changed meanwhile, plan it again
        self._work = asyncio.Event()
        self._stopped = asyncio.Event()
        self.writes = 0
        self.conflicts = 0
        self._cache.add_handler(self._pod_changed)
        self.nodes.on_change(self._node_changed)

    # facts for reports, metrics and tests

    def usage(self, key: ObjectKey) -> Usage | None:
        """Resource usage of a running pod."""
        pod = self._pods.get(key)
        if pod is None or pod.progress.stage is not Stage.RUNNING:
            return None
        return Usage(pod.behaviour.cpu_milli, pod.behaviour.memory_bytes)

    def has_started(self, key: ObjectKey) -> bool:
        """Whether the pod has run at least once, so that it could have a log."""
        pod = self._pods.get(key)
        return pod is not None and pod.progress.started_at > 0

    def stats(self, node: str) -> tuple[ContainerStats, ...]:
        """Usage of the containers of a node's running pods; the first container has the usage of its pod."""
        now = self._clock.wall_s()
        found: list[ContainerStats] = []
        for pod in self.pods_of(node):
            about = pod["metadata"]
            known = self._pods.get(ObjectKey(about["namespace"], about["name"]))
            if known is None or known.progress.stage is not Stage.RUNNING:
                continue
            ran_s = max(0.0, now - known.progress.started_at)
            for number, each in enumerate(pod["spec"]["containers"]):
                cpu, memory = (known.behaviour.cpu_milli, known.behaviour.memory_bytes) if number == 0 else (0, 0)
                stats = ContainerStats(
                    container_id=plan.container_id(each["name"], known.progress), pod_uid=about["uid"],
                    name=each["name"], at=now, cpu_total_ns=int(ran_s * cpu * 1_000_000),
                    memory_working_set_bytes=memory, memory_rss_bytes=memory, processes=1,
                )  # fmt: skip
                found.append(stats)
        return tuple(found)

    def pods_of(self, node: str) -> tuple[Obj, ...]:
        return self._cache.by_index(_BY_NODE, node)

    @property
    def backlog(self) -> int:
        return len(self._queue)

    # running

    async def run(self) -> None:
        """Register the nodes and simulate until ``stop``."""
        writers = {f"simulated/{n}": self._write() for n in range(self.config.writers)}
        try:
            await wait_first(run_all({**writers, "simulated/leases": self._live()}), self._stopped.wait())
        finally:
            if self._alarm is not None:
                self._alarm.cancel()

    def stop(self) -> None:
        self._stopped.set()

    async def _live(self) -> None:
        await self.nodes.register()
        await self.nodes.live()

    # changes

    def _node_changed(self, name: str) -> None:
        for pod in self._cache.by_index(_BY_NODE, name):
            self._look(ObjectKey(pod["metadata"]["namespace"], pod["metadata"]["name"]), pod)

    def _pod_changed(self, change: Change) -> None:
        if change.new is None:
            self._forget(change.key)
        else:
            self._look(change.key, change.new)

    def _look(self, key: ObjectKey, pod: Obj) -> None:
        """Plan the next write for the pod."""
        name = pod["spec"].get("nodeName")
        if not name:
            return
        node = self.nodes.get(name)
        if node is None or node.down:
            if node is None:
                self._forget(key)
            self._timers.cancel(key)
            return
        if key in self._writing:
            self._writing[key] = True
            return
        known = self._pods.get(key)
        if known is None or known.progress.uid != pod["metadata"]["uid"]:
            known = self._taken(key, pod, node)
        due = self._due(known, pod)
        if due <= self._clock.wall_s():
            self._enqueue(key)
        elif due != plan.NEVER:
            self._set_timer(key, due)
        else:
            self._timers.cancel(key)

    def _taken(self, key: ObjectKey, pod: Obj, node: SimulatedNode) -> _Pod:
        self._forget(key)
        old = (pod.get("status") or {}).get("podIP")
        host = bool(pod["spec"].get("hostNetwork"))
        if old and not host:
            self._addresses.keep(node.number, old)
        address = node.address if host else old or self._addresses.take(node.number)
        now = self._clock.wall_s()
        progress = plan.resume(pod, address, now)
        if progress.stage is Stage.WAITING and (conflict := port_conflict(pod, self._taken_on(node.name))):
            progress = plan.rejected(progress, *conflict, now)
        behaviour = behaviour_of(
            pod, self.config.behaviour, job_run_s=self.config.job_run_s, missing_images=self.config.missing_images
        )  # fmt: skip
        known = self._pods[key] = _Pod(node.name, node.number, progress, behaviour)
        return known

    def _taken_on(self, node: str) -> Iterator[Obj]:
        """The unfinished pods of a node."""
        for pod in self._cache.by_index(_BY_NODE, node):
            known = self._pods.get(ObjectKey(pod["metadata"]["namespace"], pod["metadata"]["name"]))
            if known is not None and known.progress.stage is not Stage.FINISHED:
                yield pod

    def _forget(self, key: ObjectKey) -> None:
        known = self._pods.pop(key, None)
        self._timers.cancel(key)
        if known is not None and known.progress.address:
            self._addresses.free(known.number, known.progress.address)

    def _due(self, known: _Pod, pod: Obj) -> float:
        """When the next write for this pod is due; a time in the past means now."""
        now = self._clock.wall_s()
        about = pod["metadata"]
        if about.get("deletionTimestamp"):
            if known.ends_at is None:
                grace_s = float(about.get("deletionGracePeriodSeconds") or 0)
                known.ends_at = now + min(known.behaviour.stop_s, grace_s)
            return known.ends_at
        if (pod.get("status") or {}).get("phase") in plan.TERMINAL:
            known.progress = replace(known.progress, stage=Stage.FINISHED)  # others may end a pod too
            return plan.NEVER
        step = plan.advance(known.progress, known.behaviour, pod, now)
        known.progress = step.progress
        if plan.is_shown(step.progress, known.behaviour):
            wanted = plan.summary(step.progress, known.behaviour, pod, now)
            if wanted != plan.summary_of(pod.get("status") or {}) and not _is_older(pod, known.written):
                return now
        return step.due

    # timers

    def _set_timer(self, key: ObjectKey, at: float) -> None:
        self._timers.set(key, at)
        if at < self._alarm_at:
            self._arm(at)

    def _arm(self, at: float) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm_at = at
        self._alarm = self._clock.call_later(max(0.0, at - self._clock.wall_s()), self._ring)

    def _ring(self) -> None:
        self._alarm, self._alarm_at = None, plan.NEVER
        for key in self._timers.pop_due(self._clock.wall_s()):
            pod = self._cache.get(key)
            if pod is not None:
                self._look(key, pod)
        next_at = self._timers.next_at
        if next_at is not None and next_at < self._alarm_at:
            self._arm(next_at)

    # writing

    def _enqueue(self, key: ObjectKey) -> None:
        if key not in self._queued:
            self._queued.add(key)
            self._queue.append(key)
            self._work.set()

    async def _write(self) -> None:
        queue = self._queue
        while True:
            while not queue:
                self._work.clear()
                await self._work.wait()
            key = queue.popleft()
            self._queued.discard(key)
            self._writing[key] = False
            done = False
            try:
                done = await self._attempt(key)
            finally:
                changed = self._writing.pop(key)
            pod = self._cache.get(key)
            if pod is not None and (done or changed):
                self._look(key, pod)

    async def _attempt(self, key: ObjectKey) -> bool:
        """Write the pod's status or delete it. Return whether to plan again without a change from outside."""
        try:
            await self._act(key)
        except (Conflict, NotFound):
            self.conflicts += 1  # a newer state is on its way
            return False
        except Invalid as error:
            log.error("the API server refused a simulated status", pod=str(key), reason=str(error))
            return False
        except (ApiError, TransportError) as error:
            log.warning("writing a simulated pod failed", pod=str(key), reason=str(error))
            self._set_timer(key, self._clock.wall_s() + _RETRY_S)
            return False
        return True

    async def _act(self, key: ObjectKey) -> None:
        pod, known = self._cache.get(key), self._pods.get(key)
        if pod is None or known is None or known.progress.uid != pod["metadata"]["uid"]:
            return
        node = self.nodes.get(known.node)
        if node is None or node.down:
            return
        self.writes += 1
        if pod["metadata"].get("deletionTimestamp"):
            if pod["metadata"].get("finalizers") and (pod.get("status") or {}).get("phase") not in plan.TERMINAL:
                # it outlives its containers, and those who keep it want to know how they ended
                known.progress = plan.stopped(known.progress, self._clock.wall_s())
                await self._show(pod, known, node)
            await self._resource.delete(key.name, key.namespace, grace_period_s=0, uid=known.progress.uid)
            known.ends_at = plan.NEVER
            return
        await self._show(pod, known, node)

    async def _show(self, pod: Obj, known: _Pod, node: SimulatedNode) -> None:
        """Write the status of a pod according to its progress."""
        status = plan.status_of(known.progress, known.behaviour, pod, node.address, self._clock.wall_s())
        answer = await self._resource.replace_status({**pod, "status": status})
        known.written = answer["metadata"]["resourceVersion"]
        failure = plan.failure_event(known.progress, known.behaviour, pod)
        if failure is not None and self._events is not None:
            self._events.record(pod, EventType.WARNING, *failure)


def _is_older(pod: Obj, written: str) -> bool:
    """Whether this version of the pod is older than our last write."""
    version = pod["metadata"].get("resourceVersion", "")
    return bool(written) and version.isdigit() and written.isdigit() and int(version) < int(written)
