"""A controller of the agent: one kind of desired state, from the control plane to the cluster and back.

Three loops, which share nothing with the other controller but the agent's identity:

    run_desired_state_apply_loop   reads the stream into the inbox; one task per key applies it to the cluster
    run_actual_state_report_loop   reports the state of the cluster to the control plane, and corrects drift
    run_resync_loop                asks again for every object, and for objects in the cluster that are not desired

The last desired state is on disk; the agent keeps applying it while the control plane is unreachable.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Any, ClassVar

from shoal.base.clock import Clock
from shoal.base.logs import get_logger
from shoal.base.tasks import OwnedTasks, cancel_all, run_all
from shoal.errors import ServiceUnavailable
from shoal.krane.actual import Actual
from shoal.krane.cache import Cache
from shoal.krane.config import Limits
from shoal.krane.context import ControllerContext
from shoal.krane.following import Follower
from shoal.krane.guard import Guard
from shoal.krane.inbox import Inbox
from shoal.krane.key_state import Applied, KeyState
from shoal.krane.metrics import KraneMetrics
from shoal.krane.model import ControlPlane, Report, ReportRequest, StreamHandlers
from shoal.krane.protocol import WatchMachine, is_removal, version_of
from shoal.krane.reports import Reporter, ReporterDeps
from shoal.krane.resync import Resync
from shoal.krane.rights import with_grant
from shoal.krane.session import AgentSession
from shoal.krane.working import Worker, WorkerDeps
from shoal.sync.brake import DeletionBrake
from shoal.sync.buffer import BufferEntry
from shoal.sync.keys import StreamKind
from shoal.sync.versions import BadCursor, Version, read_cursor
from shoal.wire.fleet.v1 import cluster_pb as pb

_HELD_SHOWN = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerDeps:
    """What a controller is made of."""

    plane: ControlPlane
    session: AgentSession
    handlers: StreamHandlers
    cache: Cache
    metrics: KraneMetrics
    clock: Clock
    random: Callable[[], float]
    limits: Limits = Limits()


class Controller(ABC):
    """``start`` and ``stop``, or ``run`` inside a task of one's own. Made anew for every run."""

    stream: ClassVar[StreamKind]

    def __init__(self, deps: ControllerDeps) -> None:
        self.context = context = self._make_context(deps)
        self._actual = Actual(context, blank=self._blank)
        self._reporter = Reporter(
            context,
            self._actual,
            ReporterDeps(
                request=self._request, gone=self._gone, unknown=self._not_known, delivered=context.observer.delivered
            ),
        )
        self._follower = Follower(context, connected=self._connected)
        self._resync = Resync(context, self._follower, self._actual, overdue=self._reporter.mark)
        self._worker = Worker(
            context,
            WorkerDeps(
                apply=self.apply,
                delete=self.delete,
                finished=lambda key: self._reporter.mark(key, again=True),
                failed=self._reporter.mark,
                recheck=self._resync.recheck,
                cached=self._follower.changed_cache,
            ),
        )
        self._task: asyncio.Task[None] | None = None
        self.connected = asyncio.Event()  # set at each welcome; cleared by each heartbeat

    # life

    async def start(self) -> None:
        """Begin in the background. An error that ended a loop is raised by ``stop``."""
        if self._task is not None:
            raise RuntimeError(f"the controller of {self.stream} is already started")
        self._task = OwnedTasks().start(self.run(), name=f"krane/{self.stream}", awaited=True)

    async def stop(self) -> None:
        """Returns when every task of the controller has ended."""
        if self._task is None:
            return
        task, self._task = self._task, None
        await cancel_all(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            raise error

    async def run(self) -> None:
        """The three loops until cancelled."""
        self._follow_metrics()
        try:
            await self._resume()
            await run_all(
                {
                    f"{self.stream}/apply": self.run_desired_state_apply_loop(),
                    f"{self.stream}/report": self.run_actual_state_report_loop(),
                    f"{self.stream}/resync": self.run_resync_loop(),
                }
            )
        finally:
            self._actual.close()
            self.context.cache.close()

    async def run_desired_state_apply_loop(self) -> None:
        """Receives desired state from the control plane and applies it to the cluster."""
        await run_all({f"{self.stream}/follow": self._follower.run(), f"{self.stream}/work": self._worker.run()})

    async def run_actual_state_report_loop(self) -> None:
        """Watches the cluster and reports what it shows to the control plane."""
        observing = self.context.observer.run(self._observed)
        await run_all({f"{self.stream}/observe": observing, f"{self.stream}/send": self._reporter.run()})

    async def run_resync_loop(self) -> None:
        """Asks the control plane again for each object, so that nothing missed stays missed."""
        await self._resync.run()

    async def _resume(self) -> None:
        """Put what the cache holds and the cluster lacks into the inbox."""
        context = self.context
        self._worker.restore_brake()
        live: dict[str, Version | None] = {}
        try:
            live = {key: found.version for key, found in (await context.live()).items()}
        except ServiceUnavailable as error:
            context.log.warning("applying the cached state", reason=str(error))
        for item in context.cache.items():
            version = version_of(item)
            if not is_removal(item) and live.get(item.key) == version:
                context.key_state.applied[item.key] = Applied(version, 0)
                context.key_state.unverified.add(item.key)
            elif not context.inbox.offer(item):
                self._resync.recheck(item.key)  # more is cached than the inbox takes at once: the rest follows

    # the cluster's side

    @property
    @abstractmethod
    def apply(self) -> Callable[[pb.Item], Awaitable[None]]: ...

    @property
    @abstractmethod
    def delete(self) -> Callable[[str, str, str], Awaitable[None]]: ...

    @abstractmethod
    def _blank(self) -> Report: ...

    @abstractmethod
    def _request(self, sequence: int, reports: list[Report]) -> ReportRequest: ...

    def _observed(self, key: str) -> None:
        self._reporter.mark(key)
        self._actual.correct_drift(key)

    # the control plane's side

    def _gone(self, key: str) -> None:
        """The control plane knows that the key is removed: nothing of it has to be kept."""
        applied = self.context.key_state.applied.get(key)
        if applied is not None and applied.removed and key not in self.context.machine.desired:
            self.context.key_state.forget(key)
            self._actual.forget(key)
            self.context.cache.drop(key)
            self._follower.changed_cache()

    def _not_known(self, keys: list[str]) -> None:
        for key in keys:
            if key in self.context.machine.desired:
                self._resync.recheck(key)

    def _connected(self) -> None:
        self._reporter.reconnected()
        self.connected.set()

    # the agent's questions and answers

    def state(self) -> pb.ControllerState:
        """What the heartbeat says of this controller."""
        context, inbox = self.context, self.context.inbox
        held = sorted(context.brake.held)
        brake = pb.Brake(held=bool(held), reason=context.brake.reason(), keys=held[:_HELD_SHOWN], count=len(held))
        return pb.ControllerState(
            cursor=self.version_last_seen,
            connection=self._follower.state,
            breaker=context.guard.state,
            objects=len(context.machine.desired),
            buffered=inbox.depth,
            retrying=len(inbox) - inbox.depth,
            lag_seconds=inbox.lag_s,
            brake=brake,
            reported=self._reporter.digest,
        )

    def status(self) -> dict[str, Any]:
        """The same for people, with every failing key."""
        context, inbox = self.context, self.context.inbox
        return {
            "connection": self._follower.state,
            "reason": self._follower.reason,
            "cursor": self.version_last_seen,
            "breaker": context.guard.state,
            "observeOnly": context.machine.observe_only,
            "objects": len(context.machine.desired),
            "buffered": inbox.depth,
            "lagSeconds": round(inbox.lag_s, 3),
            "unreported": self._reporter.pending,
            "cacheError": self._follower.cache_error,
            "heldDeletes": sorted(context.brake.held),
            "failing": [self._shown(retry_s, entry) for retry_s, entry in inbox.retrying()],
        }

    def _shown(self, retry_s: float, entry: BufferEntry[pb.Item]) -> dict[str, Any]:
        failure = self.context.key_state.failures.get(entry.key)
        return {
            "key": entry.key,
            "version": str(entry.version),
            "attempts": entry.attempts,
            "retrySeconds": round(retry_s, 3),
            "reason": failure.reason if failure is not None else "",
            "message": failure.message if failure is not None else "",
        }

    @property
    def version_last_seen(self) -> str:
        """The cursor: everything up to here is durable in the cache."""
        return self.context.machine.cursor

    @property
    def obstacle(self) -> str:
        """Why the cluster is not seen as it is; empty when it is."""
        observer = self.context.observer
        if observer.refusal:
            return with_grant(observer.refusal)
        return "" if observer.synced else "the cluster's objects are not listed yet"

    def describe(self, key: str) -> Report | None:
        """The report of a key as of now; None when there is nothing to say about it."""
        return self._actual.describe(key)

    def resend(self, buckets: Iterable[int], asked_s: float) -> None:
        """The control plane's reports in these buckets differ from those sent at ``asked_s``."""
        self._reporter.resend(buckets, asked_s)

    def confirm_deletes(self, cursor: str) -> list[str]:
        """A person agrees to the deletions that were held at this cursor: they are done. Returns their keys."""
        return self._worker.confirm_deletes(cursor)

    # making

    def _make_context(self, deps: ControllerDeps) -> ControllerContext:
        limits, cache = deps.limits, deps.cache
        return ControllerContext(
            stream=self.stream,
            plane=deps.plane,
            session=deps.session,
            machine=WatchMachine(cursor=cache.cursor, items=cache.items()),
            cache=cache,
            inbox=Inbox(clock=deps.clock, limit=limits.buffer),
            key_state=KeyState(),
            brake=DeletionBrake(),
            guard=Guard(self.stream, clock=deps.clock, limits=limits),
            applier=deps.handlers.applier,
            observer=deps.handlers.observer,
            limits=limits,
            metrics=deps.metrics,
            clock=deps.clock,
            random=deps.random,
            log=get_logger(f"krane.{self.stream}"),
        )

    def _follow_metrics(self) -> None:
        metrics, context, name = self.context.metrics, self.context, self.stream
        metrics.objects.follow(lambda: len(context.machine.desired), name)
        metrics.buffered.follow(lambda: context.inbox.depth, name)
        metrics.retrying.follow(lambda: len(context.inbox) - context.inbox.depth, name)
        metrics.held.follow(lambda: len(context.brake.held), name)
        metrics.lag_s.follow(lambda: context.inbox.lag_s, name)
        metrics.unreported.follow(lambda: self._reporter.pending, name)
        metrics.connected.follow(lambda: float(self._follower.state == "watching"), name)
        metrics.breaker.follow(lambda: context.guard.number, name)
        metrics.version.follow(lambda: _newest(self.version_last_seen), name)


class DeploymentController(Controller):
    """Deployments of apps."""

    stream = StreamKind.DEPLOYMENTS

    async def apply_deployment(self, item: pb.Item) -> None:
        """Make the cluster's Deployment, with all that belongs to it, equal to the item."""
        await self.context.applier.apply(item)

    async def delete_deployment(self, key: str, namespace: str, name: str) -> None:
        """Remove it; what is not there is fine. Its last report is forgotten with it."""
        await self.context.applier.delete(key, namespace, name)
        self._reporter.removed(key)

    @property
    def apply(self) -> Callable[[pb.Item], Awaitable[None]]:
        return self.apply_deployment

    @property
    def delete(self) -> Callable[[str, str, str], Awaitable[None]]:
        return self.delete_deployment

    def _blank(self) -> Report:
        return pb.DeploymentReport()

    def _request(self, sequence: int, reports: list[Report]) -> pb.ReportDeploymentStatusRequest:
        chosen = [report for report in reports if isinstance(report, pb.DeploymentReport)]
        identity = self.context.session.identity
        return pb.ReportDeploymentStatusRequest(
            identity=identity, sequence=sequence, reports=chosen, times=self.context.key_state.times(chosen)
        )


class SentinelController(Controller):
    """Sentinels, and the routes, policies and keys that they read."""

    stream = StreamKind.SENTINELS

    async def apply_sentinel(self, item: pb.Item) -> None:
        """Make the cluster's sentinel equal to the item, and report its available replicas at once."""
        await self.context.applier.apply(item)
        self._reporter.mark(item.key, again=True)

    async def delete_sentinel(self, key: str, namespace: str, name: str) -> None:
        """Remove its Service and Deployment; what is not there is fine. Its last report is forgotten with it."""
        await self.context.applier.delete(key, namespace, name)
        self._reporter.removed(key)

    @property
    def apply(self) -> Callable[[pb.Item], Awaitable[None]]:
        return self.apply_sentinel

    @property
    def delete(self) -> Callable[[str, str, str], Awaitable[None]]:
        return self.delete_sentinel

    def _blank(self) -> Report:
        return pb.SentinelReport()

    def _request(self, sequence: int, reports: list[Report]) -> pb.ReportSentinelStatusRequest:
        chosen = [report for report in reports if isinstance(report, pb.SentinelReport)]
        identity = self.context.session.identity
        return pb.ReportSentinelStatusRequest(
            identity=identity, sequence=sequence, reports=chosen, times=self.context.key_state.times(chosen)
        )


def _newest(cursor: str) -> float:
    try:
        return float(max((number for _, number in read_cursor(cursor).positions.values()), default=0))
    except BadCursor:
        return 0.0
