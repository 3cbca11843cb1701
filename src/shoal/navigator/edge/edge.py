"""The edge: identifies its cluster, watches it, reports it and answers requests.

cluster ─▶ watching ─▶ machine ─▶ stream ─▶ manager
                          ▲                    │ requests
                          └──── replies ◀── pool
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from shoal.base.backoff import Backoff
from shoal.base.clock import Clock
from shoal.base.logs import get_logger
from shoal.base.supervision import Run, supervise
from shoal.base.tasks import run_all
from shoal.client import Client, TransportError
from shoal.client.reach import Outage
from shoal.errors import ApiError, ConfigError
from shoal.navigator.edge.calls.reading import ProxyCalls
from shoal.navigator.edge.config import EdgeConfig, EdgeJoinFile
from shoal.navigator.edge.identity import ClusterIdentity, identify
from shoal.navigator.edge.kind_rows import FAILING, FORBIDDEN, SYNCED, WAITING
from shoal.navigator.edge.mesh.watching import ControlPlanes
from shoal.navigator.edge.metrics import EdgeMetrics
from shoal.navigator.edge.options import shown_options, with_options
from shoal.navigator.edge.probe import HangProbe
from shoal.navigator.edge.protocol import Claim, EdgeMachine
from shoal.navigator.edge.reading import ROW
from shoal.navigator.edge.requests.answers import Answers
from shoal.navigator.edge.requests.connections import Connections
from shoal.navigator.edge.requests.pool import RequestPool
from shoal.navigator.edge.requests.proxies import PodPorts, Proxies
from shoal.navigator.edge.stream import EdgeStream, GaveUp, StreamDeps
from shoal.navigator.edge.watching import Watching
from shoal.navigator.model import KINDS
from shoal.reconcile.keys import ObjectKey
from shoal.wire.navigator.v1 import navigator_pb as pb

log = get_logger("navigator.edge")


@dataclass(frozen=True, slots=True, kw_only=True)
class EdgeDeps:
    """Dependencies of an edge. ``join`` is called for each connection."""

    config: EdgeConfig
    join: Callable[[], EdgeJoinFile]
    client: Client
    ports: PodPorts
    prometheus: Connections | None
    name: str  # of this process, unique among the standbys
    software: str
    metrics: EdgeMetrics
    clock: Clock
    random: Callable[[], float]
    outage: Outage  # of the cluster's API server


class _Reports:
    """Passes rows and statuses to the machine."""

    def __init__(self, machine: EdgeMachine, clock: Clock, outage: Outage) -> None:
        self._machine = machine
        self._outage = outage
        self._clock = clock
        self.wake: Callable[[], None] = lambda: None

    def put(self, kind: str, key: str, data: bytes) -> None:
        if self._machine.put(kind, key, data):
            self.wake()

    def remove(self, kind: str, key: str) -> None:
        if self._machine.remove(kind, key):
            self.wake()

    def ready(self, kind: str) -> None:
        self._machine.ready(kind)
        self.wake()

    def status(self, kind: str, state: str, error: str) -> None:
        if self._machine.status(kind, state, error, int(self._clock.wall_s() * 1000)):
            if state in (FORBIDDEN, FAILING):
                known = state == FAILING and self._outage.problem()  # it is in the log already, once for all kinds
                say = log.debug if known else log.warning
                say("a kind cannot be read", kind=kind, state=state, reason=error)
            self.wake()


class Edge:
    def __init__(self, parts: EdgeDeps) -> None:
        self._deps = parts
        config, clock = parts.config, parts.clock
        self._own = config  # without the manager's options
        self._options: dict[str, str] = {}
        self._revision = 0  # of the options that the manager sent last
        self.config = config
        self.machine = EdgeMachine(KINDS, sync=config.sync, connection=config.connection)
        self._identity: ClusterIdentity | None = None
        self._unidentified = ""  # why the cluster is not known
        reports = _Reports(self.machine, clock, parts.outage)
        self.watching = Watching(
            parts.client, reports, namespaces=config.namespaces, kubernetes=config.kubernetes,
            events=config.events, clock=clock, random=parts.random, discovery_s=config.discovery_s,
        )  # fmt: skip
        self.control_planes = ControlPlanes(
            parts.client, reports, self.watching.objects("deployments"), clock=clock, random=parts.random,
            backoff=self._backoff(),
        )  # fmt: skip
        self._probe = HangProbe(
            parts.client, parts.outage, clock=clock, hangs=self.watching.unreachable, answers=self.watching.reachable
        )
        self._proxies = Proxies(parts.ports, self._pod, admin_port=config.requests.envoy_admin_port)
        self.calls = ProxyCalls(parts.ports, self.watching.objects("pods"), config.calls, clock=clock)
        answers = Answers(parts.client, self._proxies, self.calls, lambda: self.watching.namespaces, parts.prometheus)
        self._pool = RequestPool(answers, config.requests, parts.metrics, clock=clock)
        self.stream = EdgeStream(
            StreamDeps(
                machine=self.machine, join=parts.join, claim=self._claim, requests=self._pool,
                take_options=self._on_options, config=config.connection,
                metrics=parts.metrics, clock=clock, random=parts.random,
            )
        )  # fmt: skip
        reports.wake = self.stream.wake

    def configure(self, own: EdgeConfig) -> None:
        """Take the settings of the process, which were read again. ``ConfigError`` when they do not go with the
        manager's options; then nothing changes."""
        self._take(own, self._options)
        self._tell_taken("")

    def _on_options(self, revision: int, options: Mapping[str, str]) -> None:
        self._revision = revision
        try:
            self.take_options(options)
        except ConfigError as error:
            log.error("the manager's options were not taken", reason=str(error))
            self._tell_taken(str(error))
        else:
            self._tell_taken("")

    def _tell_taken(self, error: str) -> None:
        if self._revision:
            settings = shown_options(self.config)
            self.machine.options_taken(pb.OptionsTaken(revision=self._revision, error=error, settings=settings))
            self.stream.wake()

    def take_options(self, options: Mapping[str, str]) -> None:
        """Take the manager's options instead of those before. ``ConfigError`` when one is wrong; then nothing
        changes."""
        self._take(self._own, dict(options))

    def _take(self, own: EdgeConfig, options: dict[str, str]) -> None:
        config = with_options(own, options)
        self._own, self._options = own, options
        if config == self.config:
            return
        self.config = config
        self.machine.configure(config.sync, config.connection, self._deps.clock.monotonic())
        self.watching.configure(config.namespaces, config.kubernetes, config.events, config.discovery_s)
        self.calls.configure(config.calls)
        self._proxies.admin_port = config.requests.envoy_admin_port
        self._pool.configure(config.requests)
        self.stream.configure(config.connection)
        log.info("settings taken", options=sorted(options))

    def _backoff(self) -> Backoff:
        return Backoff(base_s=self.config.kubernetes.retry_base_s, cap_s=self.config.kubernetes.retry_cap_s)

    async def run(self) -> None:
        """Until cancelled; ``GaveUp`` when the settings limit the attempts to reach the manager."""
        self._follow()
        loops: dict[str, Run] = {
            "edge/watching": self.watching.run,
            "edge/control-planes": self.control_planes.run,
            "edge/calls": self.calls.run,
            "edge/stream": self._report,
            "edge/probe": self._probe.run,
        }
        await run_all(
            {name: supervise(name, loop, clock=self._deps.clock, ends=(GaveUp,)) for name, loop in loops.items()}
        )

    async def _report(self) -> None:
        await self._identify()
        await self.stream.run()

    async def _identify(self) -> None:
        failures = 0
        while self._identity is None:
            try:
                self._identity = await identify(self._deps.client, self._deps.join())
            except (ApiError, TransportError) as error:
                failures += 1
                if str(error) != self._unidentified:
                    log.warning("the cluster's identity cannot be read; trying again", reason=str(error))
                self._unidentified = str(error)
                await self._deps.clock.sleep(self._backoff().delay_s(failures, self._deps.random))
        log.info("cluster identified", cluster=self._identity.cluster, **self._identity.metadata)

    def _claim(self) -> Claim:
        assert self._identity is not None
        metadata = dict(self._identity.metadata)
        for istiod in self.control_planes.found:
            if istiod.cluster_id:
                metadata["mesh_cluster_id"] = istiod.cluster_id
        return Claim(
            edge=self._deps.name, cluster=self._identity.cluster, metadata=metadata, software=self._deps.software
        )

    def _pod(self, namespace: str, name: str) -> dict[str, Any] | None:
        found = self.watching.objects("pods").get(ObjectKey(namespace, name))
        return orjson.loads(found[ROW]) if found is not None else None

    def _follow(self) -> None:
        metrics, machine = self._deps.metrics, self.machine
        for kind, own_rows in machine.kind_rows.items():
            metrics.rows.follow(lambda own_rows=own_rows: float(len(own_rows.rows)), kind)  # type: ignore[misc]
            metrics.kinds.follow(lambda own_rows=own_rows: float(own_rows.state == SYNCED), kind)  # type: ignore[misc]
        metrics.connected.follow(lambda: float(self.stream.state == "connected"))
        metrics.epoch.follow(lambda: float(machine.epoch))
        metrics.unsent.follow(lambda: float(machine.unsent))
        metrics.interval_s.follow(lambda: machine.interval_s)
        metrics.resyncs.follow(lambda: float(machine.resyncs))
        metrics.overflows.follow(lambda: float(machine.overflows))

    # health

    def livez(self) -> tuple[bool, dict[str, str]]:
        """Always true: the process answers."""
        return True, {"process": "ok"}

    def readyz(self) -> tuple[bool, dict[str, str]]:
        """Whether it does its work: it has seen what it can of the cluster, and the manager has it as the edge of the
        cluster or as a standby."""
        waiting = [kind for kind, own_rows in self.machine.kind_rows.items() if own_rows.state == WAITING]
        manager = "ok" if self.stream.state in ("connected", "standby") else self.stream.reason or self._unidentified
        problem = self._deps.outage.problem()
        checks = {
            "api": problem or "ok",
            "cluster": "ok" if not waiting else f"not read yet: {', '.join(waiting)}",
            "manager": manager or "not connected yet",
        }
        return all(text == "ok" for text in checks.values()), checks

    def status(self) -> dict[str, Any]:
        """Everything about this edge, for people."""
        identity = self._identity
        return {
            "edge": self._deps.name,
            "cluster": identity.cluster if identity is not None else "",
            "metadata": identity.metadata if identity is not None else {},
            "manager": {"state": self.stream.state, "name": self.stream.manager, "reason": self.stream.reason},
            "epoch": self.machine.epoch,
            "intervalSeconds": self.machine.interval_s,
            "unsent": self.machine.unsent,
            "options": dict(sorted(self._options.items())),
            "settings": shown_options(self.config),
            "kinds": {
                kind: {"state": own_rows.state, "rows": len(own_rows.rows)}
                | ({"error": own_rows.error} if own_rows.error else {})
                for kind, own_rows in self.machine.kind_rows.items()
            },
        }
