"""The manager: owns the informers and controllers of a process, starts and stops them in order, and reports their
health.

    start:  informers ─▶ all synced ─▶ (elected) ─▶ controllers
    stop:   controllers finish ─▶ lease released ─▶ informers

Informers are shared: one reflector per resource and scope, however many read it. With an elector only the leader's
controllers run; a standby keeps its caches warm, and losing the lease ends ``run`` with ``LostLease``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from shoal.base.clock import Clock
from shoal.base.deadline import within
from shoal.base.logs import get_logger
from shoal.base.tasks import OwnedTasks, cancel_all
from shoal.client import EVERYTHING, Client, ResourceType, Scope
from shoal.reconcile.cache import IndexFunction
from shoal.reconcile.informer import Informer
from shoal.reconcile.leader import Elector
from shoal.reconcile.reflector import ReflectorConfig
from shoal.reconcile.resync import ResyncConfig

log = get_logger("reconcile.manager")

_STOP_BUDGET_S = 8.0


class Runnable(Protocol):
    """Anything that a manager can run beside controllers; it runs until ``stop``."""

    @property
    def name(self) -> str: ...

    async def run(self) -> None: ...

    def stop(self) -> None: ...


@dataclass(frozen=True, slots=True)
class ManagerHealth:
    """The health for ``/readyz`` and reports. A standby with synced caches is ready."""

    ready: bool
    leading: bool
    unsynced: tuple[str, ...]  # informers without a complete list
    failing: Mapping[str, str]  # informer -> error that ended its last session


class Manager:
    """Controllers are added before ``run``; informers may also be added while it runs."""

    def __init__(
        self,
        client: Client,
        *,
        clock: Clock,
        random: Callable[[], float],
        elector: Elector | None = None,
        reflector: ReflectorConfig | None = None,
        resync: ResyncConfig | None = None,
        stop_budget_s: float = _STOP_BUDGET_S,
    ) -> None:
        # reads use the client directly; writes of controllers need the lease
        self.client = client.fenced(elector.fence) if elector is not None else client
        self._clock = clock
        self._random = random
        self._elector = elector
        self._reflector = reflector
        self.resync = resync  # of all informers; None: caches are not compared with the server
        self._stop_budget_s = stop_budget_s
        self._informers: dict[tuple[ResourceType, Scope], Informer] = {}
        self._runnables: list[Runnable] = []
        self._running: asyncio.TaskGroup | None = None
        self._reflections: list[asyncio.Task[None]] = []
        self._stopping = asyncio.Event()
        self.ready = asyncio.Event()

    def informer(
        self,
        resource_type: ResourceType,
        scope: Scope = EVERYTHING,
        *,
        indexes: Mapping[str, IndexFunction] | None = None,
    ) -> Informer:
        """The shared informer of a resource and scope, created on first use."""
        found = self._informers.get((resource_type, scope))
        if found is None:
            found = Informer(
                self.client.of(resource_type),
                clock=self._clock,
                random=self._random,
                scope=scope,
                config=self._reflector,
                resync=self.resync,
            )
            self._informers[resource_type, scope] = found
            self._reflect(found)
        for name, function in (indexes or {}).items():
            found.cache.add_index(name, function)
        return found

    def fenced(self, client: Client) -> Client:
        """A client of another user whose writes also need the manager's lease."""
        return client.fenced(self._elector.fence) if self._elector is not None else client

    def shared(self, resource_type: ResourceType) -> Informer | None:
        """The informer of all objects of a resource, if it exists."""
        return self._informers.get((resource_type, EVERYTHING))

    def add(self, runnable: Runnable) -> None:
        """Run a controller or another Runnable while this process leads."""
        if self._running is not None:
            raise RuntimeError("the manager is already running: add controllers before run()")
        self._runnables.append(runnable)

    def stop(self) -> None:
        """Ask ``run`` to end in order."""
        self._stopping.set()

    def health(self) -> ManagerHealth:
        unsynced = tuple(each.name for each in self._informers.values() if not each.synced)
        failing = {
            each.name: str(each.reflector.last_error)
            for each in self._informers.values()
            if each.reflector.last_error is not None and not each.reflector.watching
        }
        leading = self._elector is None or self._elector.leading.is_set()
        return ManagerHealth(self.ready.is_set() and not unsynced, leading, unsynced, failing)

    async def run(self) -> None:
        """Run until ``stop``, cancellation, the loss of the lease, or the failure of a controller."""
        try:
            async with asyncio.TaskGroup() as group:
                self._running = group
                for informer in self._informers.values():
                    self._reflect(informer)
                try:
                    if await self._unless_stopped(self._synced(), "manager/sync"):
                        self.ready.set()
                        await self._lead_or_stand_by()
                finally:
                    self.ready.clear()
                    self._running = None
                    await cancel_all(*self._reflections)
        except BaseExceptionGroup as failures:
            if len(failures.exceptions) == 1:
                raise failures.exceptions[0] from None
            raise

    def _reflect(self, informer: Informer) -> None:
        if self._running is not None:
            task = self._running.create_task(informer.run(), name=f"reflector/{informer.name}")
            self._reflections.append(task)

    async def _synced(self) -> None:
        for informer in tuple(self._informers.values()):
            await informer.cache.synced.wait()

    async def _lead_or_stand_by(self) -> None:
        if self._elector is None:
            await self._lead()
        elif await self._unless_stopped(self._elector.acquire(), "manager/campaign"):
            await self._elector.keep(self._lead)

    async def _unless_stopped(self, part: Coroutine[Any, Any, None], name: str) -> bool:
        """Await ``part`` until it ends or ``stop``; return whether it ended."""
        tasks = OwnedTasks()
        task = tasks.start(part, name=name, awaited=True)
        stopping = tasks.start(self._stopping.wait(), name="manager/stopping")
        try:
            await asyncio.wait({task, stopping}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            await tasks.close()
        if task.cancelled():
            return False
        task.result()
        return True

    async def _lead(self) -> None:
        """Run the controllers until ``stop``; then let running reconciles finish, within the budget."""
        owned = OwnedTasks()
        tasks = {owned.start(each.run(), name=each.name, awaited=True) for each in self._runnables}
        stopping = owned.start(self._stopping.wait(), name="manager/stopping")
        try:
            await self._first_failure(tasks, stopping)
            for each in self._runnables:
                each.stop()
            late = await self._finish(tasks)
            if late:
                log.warning("did not stop in time", tasks=late, budget_s=self._stop_budget_s)
        finally:
            await owned.close()

    @staticmethod
    async def _first_failure(tasks: set[asyncio.Task[None]], stopping: asyncio.Task[Literal[True]]) -> None:
        """Return at ``stop``; raise if a task fails before."""
        running = set(tasks)
        while not stopping.done():
            done, _ = await asyncio.wait({*running, stopping}, return_when=asyncio.FIRST_COMPLETED)
            for task in done & running:
                running.discard(task)
                task.result()

    async def _finish(self, tasks: set[asyncio.Task[None]]) -> list[str]:
        """Wait for the tasks within the budget; return the names of those that did not end."""
        try:
            async with within(self._clock, self._stop_budget_s):
                if tasks:
                    await asyncio.wait(tasks)
        except TimeoutError:
            return sorted(task.get_name() for task in tasks if not task.done())
        return []
