"""The scheduler, the controllers and the nodes as parts of a process, each with its own user and rights.

Scheduler and controllers use leader election, and their writes are fenced. A component that loses its lease starts
again with empty caches and queues.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Protocol

from shoal.app.config import ClusterConfig
from shoal.app.connect import NODE, PROXY, SIMULATED_NODES, Connect
from shoal.app.locks import ClusterLocks
from shoal.base.clock import Clock
from shoal.base.ids import Ids
from shoal.base.logs import get_logger
from shoal.base.metrics import Metrics
from shoal.base.supervision import supervise
from shoal.base.tasks import OwnedTasks
from shoal.client import Client, LostLease, TransportError, builtin
from shoal.controllers.context import ControllerContext
from shoal.controllers.nodelifecycle.config import NodeLifecycleConfig
from shoal.controllers.persistentvolume.config import VolumeConfig
from shoal.controllers.wiring import add_all
from shoal.errors import ApiError
from shoal.reconcile import (
    ElectionConfig,
    Elector,
    EventRecorder,
    Manager,
    ReconcileMetrics,
    RecorderConfig,
    ResyncConfig,
)
from shoal.scheduler.config import DEFAULT_SCHEDULER, Profile, SchedulerConfig
from shoal.scheduler.wiring import build as build_scheduler

log = get_logger("components")

NAMESPACE = "kube-system"
SCHEDULER, CONTROLLERS = "system:kube-scheduler", "system:kube-controller-manager"
_EVENTS = RecorderConfig(queue=20_000)  # a storm of pods is a storm of events
_LOOK_AGAIN_S = 0.05
_ACCOUNTS = f"system:serviceaccount:{NAMESPACE}:"


@dataclass(frozen=True, slots=True)
class ComponentDeps:
    """Dependencies of a component. ``connect`` returns a client that acts as a user."""

    connect: Connect
    clock: Clock
    ids: Ids
    random: Random
    metrics: Metrics
    identity: str  # of this process among the candidates for a lease
    volumes: Path
    resync: ResyncConfig | None = None  # None: caches are not compared with the server
    election: ElectionConfig = ElectionConfig()
    lifecycle: NodeLifecycleConfig = NodeLifecycleConfig()
    profiles: tuple[Profile, ...] = (Profile(),)
    lock: str = ""  # URL of the Redis with the locks of elected components; empty: Leases


class Part(Protocol):
    """Whatever runs beside the API server of a process."""

    @property
    def name(self) -> str: ...

    async def run(self) -> None: ...

    def stop(self) -> None: ...

    def problem(self) -> str:
        """Why the part is not ready; empty: it is."""


class Component:
    """One part: ``wire`` is called anew for every term, or for every start of a part that is not elected."""

    def __init__(
        self,
        name: str,
        user: str,
        deps: ComponentDeps,
        wire: Callable[[Manager, EventRecorder], None],
        *,
        elected: bool = True,
    ) -> None:
        self.name = name
        self._deps = deps
        self._wire = wire
        self._client = deps.connect(user)
        self._lock_client = deps.connect(user) if elected else None  # renewals do not queue behind the work
        self._locks = ClusterLocks(deps.lock if elected else "", NAMESPACE, new_id=deps.ids.new_uid)
        self._manager: Manager | None = None
        self._stopping = asyncio.Event()

    async def run(self) -> None:
        """Until ``stop``."""
        try:
            # not ready while the API server is away: that is no reason to start the process again
            await supervise(self.name, self._terms, clock=self._deps.clock, until=self._stopping)
        finally:
            await self._locks.close()

    def stop(self) -> None:
        self._stopping.set()
        if self._manager is not None:
            self._manager.stop()

    def problem(self) -> str:
        """A standby with synced caches is ready."""
        if self._manager is None:
            return "not started"
        health = self._manager.health()
        return "" if health.ready else f"caches are not synced: {', '.join(health.unsynced) or 'starting'}"

    async def _terms(self) -> None:
        while not self._stopping.is_set():
            try:
                await self._term()
            except LostLease:
                log.warning("lost the lease; trying to acquire it again", component=self.name)

    async def _term(self) -> None:
        deps = self._deps
        client = self._client
        random = deps.random.random
        elector = None
        if self._lock_client is not None:
            lock = await self._locks.lock(self._lock_client, self.name)
            elector = Elector(lock, deps.identity, clock=deps.clock, random=random, config=deps.election)
        self._manager = manager = Manager(client, clock=deps.clock, random=random, elector=elector, resync=deps.resync)
        events = EventRecorder(
            client, self.name, deps.identity, clock=deps.clock, new_suffix=deps.ids.new_suffix, config=_EVENTS
        )
        manager.add(events)
        self._wire(manager, events)
        if not self._stopping.is_set():
            await manager.run()


def scheduler(deps: ComponentDeps) -> Component:
    def wire(manager: Manager, events: EventRecorder) -> None:
        build_scheduler(
            manager, clock=deps.clock, random=deps.random.random, metrics=deps.metrics,
            events=events.named(DEFAULT_SCHEDULER), config=SchedulerConfig(profiles=deps.profiles),
        )  # fmt: skip

    return Component("kube-scheduler", SCHEDULER, deps, wire)


def controllers(deps: ComponentDeps) -> Component:
    clients: dict[str, Client] = {}  # by service account; they outlive terms

    def wire(manager: Manager, events: EventRecorder) -> None:
        metrics = ReconcileMetrics(deps.metrics)

        def context_of(account: str) -> ControllerContext:
            own = clients.get(account)
            if own is None:
                own = clients[account] = deps.connect(f"{_ACCOUNTS}{account}")
            return ControllerContext(
                manager, events, deps.clock, deps.random.random, deps.ids.new_uid, metrics, manager.fenced(own)
            )

        add_all(context_of, VolumeConfig(directory=deps.volumes), deps.lifecycle)

    return Component("kube-controller-manager", CONTROLLERS, deps, wire)


def users_of(components: Iterable[str], *, simulated: bool = False) -> list[str]:
    """The users that show whether a server lets these components act as they should."""
    users = {
        "scheduler": (SCHEDULER,),
        "controllers": (CONTROLLERS, f"{_ACCOUNTS}replicaset-controller"),
        "nodes": (SIMULATED_NODES,) if simulated else (f"{NODE}{node_names(1)[0]}", PROXY),
    }
    return [user for name in components for user in users.get(name, ())]


def node_names(count: int) -> list[str]:
    return [f"node-{number}" for number in range(1, count + 1)]


async def until_registered(deps: ComponentDeps, config: ClusterConfig) -> None:
    """Wait until the API server knows every node of this process."""
    simulated = deps.connect(SIMULATED_NODES) if config.runtime == "simulated" else None
    for name in node_names(config.nodes):
        nodes = (simulated or deps.connect(f"{NODE}{name}")).of(builtin("nodes"))
        while True:
            try:
                await nodes.get(name)
            except (ApiError, TransportError):  # registering it reports the error
                await deps.clock.sleep(_LOOK_AGAIN_S)
            else:
                break


async def run_all(components: Sequence[Part], until: Awaitable[object]) -> None:
    """Run them beside each other until ``until`` is over, then stop them in order."""
    tasks = OwnedTasks()
    running = [tasks.start(component.run(), name=component.name) for component in components]
    try:
        await until
    finally:
        for component in components:
            component.stop()
        await asyncio.gather(*running, return_exceptions=True)
