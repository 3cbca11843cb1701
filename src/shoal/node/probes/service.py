"""Runs the probes of all containers of a node, one task per probe, and keeps their results.

Other probes wait for the startup probe. After a startup or liveness probe has failed for good it is not repeated, since
the container will be killed. After a restart of the agent, ready containers stay ready until a probe fails.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from shoal.base.clock import Clock
from shoal.base.logs import get_logger
from shoal.base.supervision import supervise
from shoal.base.tasks import OwnedTasks, cancel_all
from shoal.kube.objects import Obj
from shoal.node.probes.handlers import Handlers, Target
from shoal.node.probes.model import Probe, ProbeAnswer, Probed, ProbeKind, ProbeResult, ProbeSeries, probe_of
from shoal.node.runtime.model import Container

log = get_logger("node.probes")

Warn = Callable[[Obj, str, str, str], None]  # pod, container, reason, message of a warning event


@dataclass(slots=True)
class _Followed:
    pod: Obj
    container: Container
    series: dict[ProbeKind, ProbeSeries] = field(default_factory=dict)
    probes: dict[ProbeKind, Probe] = field(default_factory=dict)
    tasks: dict[ProbeKind, asyncio.Task[None]] = field(default_factory=dict)
    was_ready: bool = False  # before a restart of the agent
    begun: asyncio.Event = field(default_factory=asyncio.Event)  # the startup probe, if there is one, has succeeded

    @property
    def started(self) -> bool:
        return ProbeKind.STARTUP not in self.probes or self.series[ProbeKind.STARTUP].verdict is True

    def probed(self) -> Probed:
        failed = ""
        for kind in (ProbeKind.LIVENESS, ProbeKind.STARTUP):
            if kind in self.probes and self.series[kind].verdict is False:
                failed = kind.value
        ready = True
        if ProbeKind.READINESS in self.probes:
            verdict = self.series[ProbeKind.READINESS].verdict
            ready = self.was_ready if verdict is None else verdict
        return Probed(started=self.started, ready=self.started and ready, failed=failed)


class Prober:
    """Probes of all containers of a node."""

    def __init__(
        self,
        handlers: Handlers,
        *,
        clock: Clock,
        random: Callable[[], float],
        changed: Callable[[str], None],
        warn: Warn,
    ) -> None:
        self._handlers = handlers
        self._clock = clock
        self._random = random
        self._changed = changed  # called with the pod's uid
        self._warn = warn
        self._followed: dict[str, _Followed] = {}  # by container id
        self._tasks = OwnedTasks()

    def follow(self, pod: Obj, spec: Obj, container: Container, address: str, *, was_ready: bool = False) -> None:
        """Start to probe a running container; no effect if it is probed already."""
        if container.id in self._followed:
            self._followed[container.id].pod = pod
            return
        probes = {kind: probe for kind in ProbeKind if (probe := probe_of(spec, kind)) is not None}
        followed = _Followed(pod, container, {kind: ProbeSeries() for kind in probes}, probes, was_ready=was_ready)
        if was_ready and ProbeKind.STARTUP in probes:
            followed.series[ProbeKind.STARTUP] = ProbeSeries(True, 1, True)
        if followed.started:
            followed.begun.set()
        self._followed[container.id] = followed
        target = Target(container=container, spec=spec, address=address)
        for kind, probe in probes.items():
            name = f"probe/{kind}/{container.name}/{container.id}"
            probing = supervise(
                "node/probe", partial(self._probe, followed, probe, target), clock=self._clock, detail=container.name,
                may_return=True,
            )  # fmt: skip
            followed.tasks[kind] = self._tasks.start(probing, name=name)

    def keep_readiness_only(self, container_id: str) -> None:
        """The container is being stopped: continue only its readiness probe."""
        followed = self._followed.get(container_id)
        if followed is not None:
            for kind in (ProbeKind.LIVENESS, ProbeKind.STARTUP):
                if kind in followed.tasks:
                    followed.tasks[kind].cancel()

    async def forget(self, container_id: str) -> None:
        """The container has exited: end its probes."""
        followed = self._followed.pop(container_id, None)
        if followed is not None:
            await cancel_all(*followed.tasks.values())

    def of_pod(self, uid: str) -> dict[str, Probed]:
        """The results of a pod's containers, by container id."""
        return {each.container.id: each.probed() for each in self._followed.values() if each.container.pod_uid == uid}

    async def close(self) -> None:
        for container_id in tuple(self._followed):
            await self.forget(container_id)

    async def _probe(self, followed: _Followed, probe: Probe, target: Target) -> None:
        """Probe until the result is final."""
        started_at = followed.container.started_at or self._clock.wall_s()
        delay_s = started_at + probe.delay_s - self._clock.wall_s()
        if followed.was_ready:
            delay_s = max(delay_s, self._random() * probe.period_s)
        if delay_s > 0:
            await self._clock.sleep(delay_s)
        if probe.kind is not ProbeKind.STARTUP:
            await followed.begun.wait()
        while True:
            self._record(followed, probe, await self._handlers.ask(probe, target))
            verdict = followed.series[probe.kind].verdict
            if verdict is not None and (
                probe.kind is ProbeKind.STARTUP or (probe.kind is ProbeKind.LIVENESS and not verdict)
            ):
                return
            await self._clock.sleep(probe.period_s)

    def _record(self, followed: _Followed, probe: Probe, answer: ProbeAnswer) -> None:
        title = probe.kind.value.capitalize()
        if answer.result is ProbeResult.WARNING:
            self._warn(
                followed.pod, followed.container.name, "ProbeWarning", f"{title} probe warning: {answer.message}"
            )
        elif answer.result is ProbeResult.FAILURE:
            self._warn(followed.pod, followed.container.name, "Unhealthy", f"{title} probe failed: {answer.message}")
        before = followed.probed()
        series = followed.series[probe.kind]
        followed.series[probe.kind] = series.after(probe, answer.result is not ProbeResult.FAILURE)
        if followed.started:
            followed.begun.set()
        if followed.probed() != before:
            log.debug("the result of a probe changed", container=followed.container.name, kind=probe.kind.value)
            self._changed(followed.container.pod_uid)
