"""The agent: stands by until elected, joins, runs the two controllers, sends heartbeats, and stops when fenced.

    standing by ──elected──▶ acting on the cache ──joined (epoch)──▶ acting ──lease lost, fenced──▶ standing by

While the cluster's API server cannot be used the lease is lost too. The agent acts no more, but goes on with its
heartbeats, which say so, until it is elected again or another agent joins.

Two things decide who acts: the Lease in the cluster elects, the epoch from the control plane fences. An agent that was
fenced stops at once, gives its lease back and waits before it tries again, so that two agents that were set up alike by
mistake do not take the shard from each other all the time. One controller that fails is started again by itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from shoal.base.backoff import Backoff
from shoal.base.clock import Clock
from shoal.base.logs import get_logger
from shoal.base.supervision import supervise
from shoal.base.tasks import run_all, wait_first
from shoal.client import LostLease
from shoal.client.reach import OUTAGE_S, Outage
from shoal.errors import ApiError, Forbidden, Unauthorized
from shoal.krane.cache import Cache, CacheOwner, Offload
from shoal.krane.config import JoinFile, KraneConfig
from shoal.krane.controller import Controller, ControllerDeps, DeploymentController, SentinelController
from shoal.krane.guard import Guard
from shoal.krane.identity import Home, KeyPair
from shoal.krane.metrics import KraneMetrics
from shoal.krane.model import ControlPlane, Fenced, MakeHandlers
from shoal.krane.owner import Owner
from shoal.krane.rights import with_grant
from shoal.krane.session import AgentSession
from shoal.krane.upgrade import Upgrade
from shoal.reconcile.leader import Elector
from shoal.sync.keys import StreamKind
from shoal.wire.fleet.v1 import cluster_pb as pb

log = get_logger("krane.agent")

ABILITIES = ("adopt",)  # that agents of earlier releases do not have

_KINDS: dict[StreamKind, type[Controller]] = {
    StreamKind.DEPLOYMENTS: DeploymentController,
    StreamKind.SENTINELS: SentinelController,
}
_STABLE_S = 60.0  # a term this long was not a quarrel: the next wait is short again
_HEARTBEAT_GAP_S = 1.0  # heartbeats sent early, after a reconnect, are at least this far apart
_FIRST_HEARTBEAT_S = 2.0  # the first heartbeat waits at most this long for the streams, so that it says what is true


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentDeps:
    """What an agent is made of."""

    config: KraneConfig
    join: JoinFile
    plane: ControlPlane
    handlers: MakeHandlers
    elector: Elector | None  # None: no standby, acts at once
    outage: Outage  # of the cluster's API server, as this process sees it
    upgrade: Upgrade
    name: str  # of this process, unique among the standbys
    software: str
    metrics: KraneMetrics
    clock: Clock
    random: Callable[[], float]
    offload: Offload = asyncio.to_thread  # what waits for the disk


class Agent:
    def __init__(self, deps: AgentDeps) -> None:
        self._deps = deps
        self._clock = deps.clock
        self._home = Home(deps.config.dir)
        self._key = KeyPair(b"", b"")
        self._session = self._new_session()
        self._leading = False
        self._guard = Guard("agent", clock=deps.clock, limits=deps.config.limits)
        self._refused = ""  # why the control plane did not let us join, or answer a heartbeat
        self._heard_s: float | None = None  # when it last did
        self.controllers: dict[StreamKind, Controller] = {}
        self._heartbeat_s = deps.config.heartbeat_s
        self._last: dict[StreamKind, pb.ControllerState] = {}  # of the controllers of the last term
        self._made = asyncio.Event()  # there are controllers of all kinds

    async def run(self) -> None:
        """Stand by, join and act, until cancelled."""
        self._home.prepare()
        self._key = self._home.key_pair()
        metrics, elector = self._deps.metrics, self._deps.elector
        metrics.breaker.follow(lambda: self._guard.number, "agent")
        metrics.leading.follow(lambda: float(self._leading))
        metrics.epoch.follow(lambda: float(self._session.epoch if self._leading else 0))
        backoff = Backoff(base_s=2.0, cap_s=300.0, floor_s=0.1)
        failures = 0
        while True:
            began_s = self._clock.monotonic()
            try:
                if elector is not None:
                    await self._stand_by(elector)
                    began_s = self._clock.monotonic()
                    await elector.keep(self._term)
                else:
                    await self._term()
            except LostLease as error:
                log.warning("standing by", reason=str(error))
                continue
            if not self._session.fenced.is_set():
                continue  # the control plane is another fleet's
            failures = 1 if self._clock.monotonic() - began_s >= _STABLE_S else failures + 1
            pause_s = backoff.delay_s(failures, self._deps.random)
            log.warning("fenced: another agent has this shard; standing by", pause_s=round(pause_s, 1))
            await self._clock.sleep(pause_s)

    async def _stand_by(self, elector: Elector) -> None:
        """Return when elected."""
        await wait_first(elector.acquire(), self._stay_present(self._session, self._last))

    async def _stay_present(self, session: AgentSession, last: Mapping[StreamKind, pb.ControllerState]) -> None:
        """Tell of an outage of the cluster, in the name of the last term, until cancelled."""
        while session.joined.is_set() and not session.fenced.is_set():
            if self._deps.outage.problem(OUTAGE_S):
                await self._send_heartbeat(session, last)
            await self._clock.sleep(self._heartbeat_s)
        await asyncio.Event().wait()

    # one term

    async def _term(self) -> None:
        """Act until fenced, or until the control plane turns out to be another fleet's."""
        self._session = session = self._new_session()
        self._leading = True
        try:
            await wait_first(self._report_presence(session), self._act(session), session.fenced.wait())
        finally:
            self._leading = False
            self._last = {stream: _stopped(controller.state()) for stream, controller in self.controllers.items()}
            self.controllers.clear()
            self._made.clear()

    def _new_session(self) -> AgentSession:
        join = self._deps.join
        return AgentSession(cluster=join.cluster, region=join.region, shard=join.shard, agent=self._deps.name)

    async def _report_presence(self, session: AgentSession) -> None:
        fleet = self._home.fleet
        answer = await self._join(session)
        if fleet != answer.control_plane:
            self._home.fleet = answer.control_plane
            if fleet:  # tasks of the other fleet must stop before they can receive messages of this one
                log.warning(
                    "the control plane belongs to another fleet; starting with an empty cache",
                    was=fleet,
                    now=answer.control_plane,
                )
                return
        session.begin(answer.epoch)
        log.info("joined", epoch=answer.epoch, fleet=answer.control_plane)
        self._heartbeat_s = heartbeat_s = answer.heartbeat_seconds or self._deps.config.heartbeat_s
        await wait_first(self._clock.sleep(min(_FIRST_HEARTBEAT_S, heartbeat_s)), self._until_watching())
        while True:
            await self._send_heartbeat(session, {})
            await self._until_next_heartbeat(heartbeat_s)

    async def _join(self, session: AgentSession) -> pb.JoinResponse:
        """Ask for an epoch until there is one."""
        request = pb.JoinRequest(identity=session.identity, public_key=self._key.public, software=self._deps.software)
        limits = self._deps.config.limits
        backoff = Backoff(base_s=limits.reconnect_base_s, cap_s=limits.reconnect_cap_s, floor_s=0.02)
        failures = 0
        while True:
            await self._guard.until_allowed()
            try:
                with self._guard.calling():
                    answer = await self._deps.plane.join(request)
            except ApiError as error:
                failures += 1
                if str(error) != self._refused:
                    log.warning("joining failed; trying again", state=_connection(error), reason=str(error))
                self._refused = str(error)
                await self._clock.sleep(backoff.delay_s(failures, self._deps.random))
                continue
            self._heard()
            return answer

    async def _send_heartbeat(self, session: AgentSession, last: Mapping[StreamKind, pb.ControllerState]) -> None:
        """``last`` are the states of controllers that do not run any more."""
        counts = self._deps.metrics.heartbeats
        if any(controller.connected.is_set() for controller in self.controllers.values()):
            self._guard.heard()  # a stream was opened since the last heartbeat
        if self._guard.paused:
            counts.labels("paused").inc()
            return
        asked_s = self._clock.monotonic()
        for controller in self.controllers.values():
            controller.connected.clear()  # what happens from here on is for the next heartbeat
        request = pb.HeartbeatRequest(
            identity=session.identity,
            deployments=last.get(StreamKind.DEPLOYMENTS) or self._state(StreamKind.DEPLOYMENTS),
            sentinels=last.get(StreamKind.SENTINELS) or self._state(StreamKind.SENTINELS),
            software=self._deps.software,
            outage=self._outage(),
            image=self._deps.upgrade.state(),
            abilities=list(ABILITIES),
        )
        try:
            with self._guard.calling():
                answer = await self._deps.plane.heartbeat(request)
        except Fenced:
            counts.labels("fenced").inc()
            session.end()
        except ApiError as error:
            counts.labels("error").inc()
            if str(error) != self._refused:
                log.warning("a heartbeat failed", state=_connection(error), reason=str(error))
            self._refused = str(error)
        else:
            counts.labels("ok").inc()
            self._heard()
            self._follow_answer(answer, asked_s)
            if self._leading:
                await self._deps.upgrade.follow(answer.image)

    def _follow_answer(self, answer: pb.HeartbeatResponse, asked_s: float) -> None:
        resend = {StreamKind.DEPLOYMENTS: answer.resend_deployments, StreamKind.SENTINELS: answer.resend_sentinels}
        for stream, controller in self.controllers.items():
            if resend[stream]:
                controller.resend(resend[stream], asked_s)
            if answer.confirmed_deletes:
                controller.confirm_deletes(answer.confirmed_deletes)

    async def _until_next_heartbeat(self, heartbeat_s: float) -> None:
        """After a reconnect at once, so that reports that got lost meanwhile are found."""
        await self._clock.sleep(min(_HEARTBEAT_GAP_S, heartbeat_s))
        rest_s = heartbeat_s - _HEARTBEAT_GAP_S
        if rest_s > 0:
            await wait_first(self._clock.sleep(rest_s), *(one.connected.wait() for one in self.controllers.values()))

    async def _until_watching(self) -> None:
        await self._made.wait()
        for controller in list(self.controllers.values()):
            await controller.connected.wait()

    def _heard(self) -> None:
        self._refused = ""
        self._heard_s = self._clock.monotonic()

    def _outage(self) -> pb.ClusterOutage | None:
        outage = self._deps.outage
        reason = outage.problem(OUTAGE_S)
        return pb.ClusterOutage(reason=reason, seconds=outage.problem_s) if reason else None

    def _state(self, stream: StreamKind) -> pb.ControllerState:
        controller = self.controllers.get(stream)
        return controller.state() if controller is not None else pb.ControllerState(connection="stopped")

    # acting

    async def _act(self, session: AgentSession) -> None:
        """Both controllers, for the fleet that is known from last time, or as soon as it is known."""
        if not self._home.fleet:
            await session.joined.wait()
        join = self._deps.join
        owner = Owner(fleet=self._home.fleet, cluster=join.cluster, region=join.region, shard=join.shard)
        await run_all({f"krane/{stream}": self._supervise(session, owner, stream) for stream in _KINDS})

    async def _supervise(self, session: AgentSession, owner: Owner, stream: StreamKind) -> None:
        """One controller, again whenever it fails: the other one never notices."""

        async def run() -> None:
            controller = self._make(session, owner, stream)
            self.controllers[stream] = controller
            if len(self.controllers) == len(_KINDS):
                self._made.set()
            await controller.run()

        await supervise(f"krane/{stream}", run, clock=self._clock)

    def _make(self, session: AgentSession, owner: Owner, stream: StreamKind) -> Controller:
        deps = self._deps
        cache_owner = CacheOwner(
            fleet=owner.fleet,
            cluster=owner.cluster,
            shard=owner.shard,
            stream=stream,
            public_key=self._key.public.hex(),
        )
        return _KINDS[stream](
            ControllerDeps(
                plane=deps.plane,
                session=session,
                handlers=deps.handlers(owner, self._key.private)[stream],
                cache=Cache.open(self._home.path / f"{stream}.cache", cache_owner, offload=deps.offload),
                metrics=deps.metrics,
                clock=deps.clock,
                random=deps.random,
                limits=deps.config.limits,
            )
        )

    # health

    def livez(self) -> tuple[bool, dict[str, str]]:
        """Whether the process works at all: true as long as it can be asked."""
        return True, {"process": "ok"}

    def readyz(self) -> tuple[bool, dict[str, str]]:
        """Whether the agent works. It stays ready while the control plane is unreachable: the cached state keeps
        running."""
        problem = self._deps.outage.problem()
        cluster = f"{problem}, for {self._deps.outage.problem_s:.0f} s" if problem else "ok"
        if not self._leading:
            return not problem, {"election": self._standing_by(), "cluster": cluster}
        checks = {"election": "ok", "cluster": cluster}
        if not self._home.fleet:
            checks["join"] = self._refused or "not joined yet"
        for stream in _KINDS:
            controller = self.controllers.get(stream)
            checks[str(stream)] = "not started yet" if controller is None else controller.obstacle or "ok"
        return all(text == "ok" for text in checks.values()), checks

    def _standing_by(self) -> str:
        why = with_grant(self._deps.elector.failure) if self._deps.elector is not None else ""
        return f"standing by: {why}" if why else "standing by"

    def status(self) -> dict[str, Any]:
        """Everything about this agent, for people."""
        heard = None if self._heard_s is None else round(self._clock.monotonic() - self._heard_s, 3)
        return {
            "agent": self._deps.name,
            "cluster": self._deps.join.cluster,
            "region": self._deps.join.region,
            "shard": self._deps.join.shard,
            "fleet": self._home.fleet,
            "leading": self._leading,
            "epoch": self._session.epoch,
            "controlPlane": {"secondsSinceAnswer": heard, "reason": self._refused, "breaker": self._guard.state},
            "clusterOutage": {"reason": self._deps.outage.problem(), "seconds": round(self._deps.outage.problem_s, 3)},
            "controllers": {str(stream): controller.status() for stream, controller in self.controllers.items()},
        }


def _stopped(state: pb.ControllerState) -> pb.ControllerState:
    state.connection = "stopped"
    return state


def _connection(error: ApiError) -> str:
    return "unauthorized" if isinstance(error, Unauthorized | Forbidden) else "connecting"
