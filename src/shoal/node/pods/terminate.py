"""Stops the containers of a pod: main containers together, then sidecars in reverse order, in one grace period.

preStop hook ─▶ stop signal ─▶ rest of the grace period, at least two seconds ─▶ kill
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from shoal.base.deadline import within
from shoal.kube.objects import Obj
from shoal.node.containers import find, is_sidecar
from shoal.node.errors import HookFault
from shoal.node.pods.deps import PodWorkerDeps
from shoal.node.pods.start import run_hook
from shoal.node.runtime.model import Container, ContainerPhase, NoSuchContainer, Sandbox

LEAST_S = 2.0  # also after a hook that used up the grace period


class Terminator:
    """Stops containers of one pod. ``shorten_grace`` applies to stops in progress."""

    def __init__(self, deps: PodWorkerDeps) -> None:
        self._deps = deps
        self._deadline: float | None = None  # monotonic; of the termination in progress
        self._ending: set[str] = set()

    @property
    def active(self) -> bool:
        return self._deadline is not None

    async def end_all(self, pod: Obj, sandbox: Sandbox | None, containers: Iterable[Container], grace_s: float) -> None:
        """Stop all running containers; return when all have exited."""
        self._deadline = self._deps.clock.monotonic() + grace_s
        sidecars = [each["name"] for each in pod["spec"].get("initContainers") or () if is_sidecar(each)]
        running = [each for each in containers if each.phase is ContainerPhase.RUNNING]
        try:
            first = [each for each in running if each.name not in sidecars]
            await asyncio.gather(*(self._end(pod, sandbox, each, grace_s) for each in first))
            for name in reversed(sidecars):
                for each in running:
                    if each.name == name:
                        await self._end(pod, sandbox, each, grace_s)
        finally:
            self._deadline = None

    async def end(self, pod: Obj, sandbox: Sandbox | None, container: Container, grace_s: float, message: str) -> None:
        """Stop one container, with its preStop hook; ``message`` is the reason in the event."""
        self._deadline = self._deps.clock.monotonic() + grace_s
        try:
            await self._end(pod, sandbox, container, grace_s, message)
        finally:
            self._deadline = None

    async def shorten_grace(self, grace_s: float) -> None:
        """Shorten the remaining grace period."""
        if self._deadline is None:
            return
        deadline = self._deps.clock.monotonic() + grace_s
        if deadline < self._deadline:
            self._deadline = deadline
            await asyncio.gather(*(self._stop(each, grace_s) for each in tuple(self._ending)))

    def _left_s(self) -> float:
        return 0.0 if self._deadline is None else self._deadline - self._deps.clock.monotonic()

    async def _end(
        self, pod: Obj, sandbox: Sandbox | None, container: Container, grace_s: float, message: str = ""
    ) -> None:
        deps, name = self._deps, container.name
        deps.prober.keep_readiness_only(container.id)
        deps.events.normal(pod, "Killing", message or f"Stopping container {name}", container=name)
        if grace_s > 0 and sandbox is not None:
            await self._pre_stop(pod, sandbox, container)
        self._ending.add(container.id)
        try:
            await self._stop(container.id, max(self._left_s(), LEAST_S) if grace_s > 0 else 0.0)
        finally:
            self._ending.discard(container.id)

    async def _stop(self, container_id: str, grace_s: float) -> None:
        try:
            await self._deps.runtime.stop(container_id, grace_s=grace_s)
        except NoSuchContainer:
            pass

    async def _pre_stop(self, pod: Obj, sandbox: Sandbox, container: Container) -> None:
        found = find(pod, container.name)
        hook = ((found[0].get("lifecycle") or {}) if found is not None else {}).get("preStop")
        if found is None or not hook:
            return
        try:
            async with within(self._deps.clock, max(0.0, self._left_s())):
                await run_hook(self._deps, hook, found[0], container, sandbox)
        except TimeoutError:
            pass  # the grace period is over: stop the container
        except HookFault:
            self._deps.events.warning(pod, "FailedPreStopHook", "PreStopHook failed", container=container.name)
