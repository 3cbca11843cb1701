"""Agents: joining and epochs, heartbeats, lost and returned agents, and checks that run every second.

The epoch of a place is a number in its row, raised by every join. Calls with an older epoch are refused, and streams
with one end. Heartbeats are kept in memory and stored together, so a thousand agents cost one statement per interval.
Any number of control planes do this in parallel: every step compares before it sets.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from connectrpc.code import Code
from connectrpc.errors import ConnectError
from sqlalchemy import Update, bindparam, select, update

from shoal.base.backoff import Backoff
from shoal.base.clock import Clock
from shoal.base.logs import get_logger
from shoal.base.tasks import run_all
from shoal.control.database.engine import Databases
from shoal.control.database.plain import clean, listed
from shoal.control.database.rows import RowQuery
from shoal.control.database.tables import FLEET, Agent, Desired, Instance, Token
from shoal.control.database.tokens import Principal
from shoal.control.database.transaction import Tx
from shoal.control.domain import gateways
from shoal.control.service.agents.auth import Caller, check_identity
from shoal.control.service.agents.outages import Outages
from shoal.control.service.agents.presence import Heard, judge
from shoal.control.service.agents.token_cache import TokenCache
from shoal.control.service.config import ServiceConfig
from shoal.control.service.desired.directory import AgentFacts, ClusterFacts, Directory
from shoal.control.service.desired.reported import Reported
from shoal.control.service.metrics import ServiceMetrics
from shoal.control.service.stream.hub import Hub
from shoal.control.service.stream.opened import fenced
from shoal.errors import ServiceUnavailable
from shoal.sync.keys import Place, StreamKind
from shoal.sync.versions import MAX_CURSOR_LENGTH
from shoal.wire.fleet.v1 import cluster_pb as pb

PUBLIC_KEY_LENGTH = 32
_JOINS = 200  # in one transaction
_BRAKE_KEYS = 100
_IMAGE_LENGTH = 500
_OVERLAP_MS = 60_000  # a transaction takes its time long before it is committed
_EVERY_TOKEN_S = 30.0
_LATE_S = 1.0  # at least: a busy machine may be this late
_REREAD_S = 5.0  # a place whose reports differ is read again at most this often
_BACKOFF = Backoff(base_s=0.2, cap_s=5.0, floor_s=0.1)

_log = get_logger("control.service.agents")

_BEATS = {
    "sqlite": (
        "UPDATE agents SET last_heartbeat_at = max(last_heartbeat_at, json_extract(r.value, '$[3]')), "
        "state = coalesce(json_extract(r.value, '$[4]'), agents.state), "
        "software = coalesce(json_extract(r.value, '$[5]'), agents.software) "
        "FROM json_each(:rows) AS r WHERE agents.cluster_id = json_extract(r.value, '$[0]') "
        "AND agents.shard = json_extract(r.value, '$[1]') AND agents.epoch = json_extract(r.value, '$[2]') "
    ),
    "postgresql": (
        "UPDATE agents SET last_heartbeat_at = greatest(last_heartbeat_at, CAST(r.value->>3 AS bigint)), "
        "state = coalesce(nullif(r.value->4, CAST('null' AS jsonb)), agents.state), "
        "software = coalesce(r.value->>5, agents.software) "
        "FROM jsonb_array_elements(CAST(:rows AS jsonb)) AS r(value) WHERE agents.cluster_id = r.value->>0 "
        "AND agents.shard = r.value->>1 AND agents.epoch = CAST(r.value->>2 AS bigint) "
    ),
}
# Of several control planes that hear a lost agent at once, only one finds it marked.
_RETURN = {
    "sqlite": (
        "UPDATE agents SET lost = false FROM json_each(:rows) AS r WHERE agents.lost "
        "AND agents.cluster_id = json_extract(r.value, '$[0]') AND agents.shard = json_extract(r.value, '$[1]') "
        "AND agents.epoch = json_extract(r.value, '$[2]') "
    ),
    "postgresql": (
        "UPDATE agents SET lost = false FROM jsonb_array_elements(CAST(:rows AS jsonb)) AS r(value) WHERE agents.lost "
        "AND agents.cluster_id = r.value->>0 AND agents.shard = r.value->>1 "
        "AND agents.epoch = CAST(r.value->>2 AS bigint) "
    ),
}


class SavedHeartbeat(NamedTuple):
    cluster_id: str
    shard: str
    confirmed_deletes: str


class ReturnedAgent(NamedTuple):
    cluster_id: str
    shard: str


class HeardAgent(NamedTuple):
    cluster_id: str
    shard: str
    last_heartbeat_at: int
    lost: bool | int


class EndedToken(NamedTuple):
    """A token that ended, or whose text was replaced."""

    id: str
    is_over: bool | int
    digest: str
    previous_digest: str
    previous_until: int


_SAVE_HEARTBEATS = {
    dialect: RowQuery(statement + "RETURNING agents.cluster_id, agents.shard, agents.confirmed_deletes", SavedHeartbeat)
    for dialect, statement in _BEATS.items()
}
_RETURNED = {
    dialect: RowQuery(statement + "RETURNING agents.cluster_id, agents.shard", ReturnedAgent)
    for dialect, statement in _RETURN.items()
}
_HEARD = RowQuery("SELECT cluster_id, shard, last_heartbeat_at, lost FROM agents", HeardAgent)
_OVER = "revoked_at > :since OR (expires_at > :since AND expires_at <= :now)"
_ENDED = RowQuery(
    f"SELECT id, {_OVER} AS is_over, digest, previous_digest, previous_until FROM tokens "
    f"WHERE {_OVER} OR previous_until > :since",
    EndedToken,
)


@dataclass(frozen=True, slots=True)
class Member:
    """An agent that may speak: the newest epoch of its place."""

    place: Place
    cluster: ClusterFacts
    epoch: int
    agent: str


@dataclass(frozen=True, slots=True)
class _Heartbeat:
    """That an agent was heard; ``None`` where it did not say how it is."""

    epoch: int
    at_ms: int
    state: dict[str, Any] | None = None
    software: str | None = None


@dataclass(frozen=True, slots=True)
class _Joining:
    identity: pb.Identity
    place: Place
    cluster: ClusterFacts
    request: pb.JoinRequest
    done: asyncio.Future[AgentFacts]


class Agents:
    def __init__(
        self,
        databases: Databases,
        directory: Directory,
        hub: Hub,
        reported: Reported,
        token_cache: TokenCache,
        config: ServiceConfig,
        metrics: ServiceMetrics,
        *,
        clock: Clock,
        random: Callable[[], float],
    ) -> None:
        self._databases = databases
        self._directory = directory
        self._hub = hub
        self._reported = reported
        self._token_cache = token_cache
        self._config = config
        self._metrics = metrics
        self._clock = clock
        self._random = random
        self._joining: list[_Joining] = []
        self._joins = asyncio.Event()
        self._heartbeats: dict[Place, _Heartbeat] = {}  # not stored yet
        self._outages = Outages()
        self._reread_at: dict[Place, float] = {}
        self._hearing_since = clock.monotonic()  # heartbeats were taken and stored without a gap since then
        self._judged_at = clock.monotonic()
        self._lost_at: deque[float] = deque()
        self._frozen = False
        self._guarded_ms = 0  # tokens that ended before were dealt with
        self._tokens_at = float("-inf")
        directory.joined = hub.fence

    def use(self, config: ServiceConfig) -> None:
        """Replace the settings."""
        self._config = config

    async def run(self) -> None:
        await run_all(
            {
                "control-joins": self.take_joins(),
                "control-heartbeats": self._repeat(self._config.heartbeat_flush_s, self.flush, "heartbeats"),
                "control-presence": self._repeat(self._config.heartbeat_flush_s, self.judge, "presence"),
                "control-guard": self._repeat(self._config.guard_s, self.guard, "guard"),
            }
        )

    # calls

    async def locate(self, caller: Caller, identity: pb.Identity | None) -> tuple[pb.Identity, Place, ClusterFacts]:
        """The place an identity speaks for, once the token has been found to allow it."""
        identity = check_identity(caller.principal, identity)
        cluster = await self._directory.cluster(identity.cluster)
        if cluster is None:
            raise ConnectError(
                Code.NOT_FOUND, f"cluster {identity.cluster!r} not found: apply a document of kind Cluster first"
            )
        if cluster.region != identity.region:
            raise ConnectError(
                Code.PERMISSION_DENIED,
                f"cluster {cluster.name!r} is in region {cluster.region!r}, not {identity.region!r}",
            )
        if not _has_shard(cluster.spec, identity.shard):
            raise ConnectError(Code.NOT_FOUND, f"cluster {cluster.name!r} has no shard {identity.shard!r}")
        return identity, Place(cluster.id, identity.shard), cluster

    async def member(self, caller: Caller, identity: pb.Identity | None) -> Member:
        """Accept only the agent with the newest epoch of its place."""
        identity, place, cluster = await self.locate(caller, identity)
        newest = self._directory.epoch(place)
        if identity.epoch > newest:
            await self._directory.refresh_agents()  # it joined at another control plane
            newest = self._directory.epoch(place)
        if identity.epoch == 0 or identity.epoch > newest:
            raise ConnectError(
                Code.FAILED_PRECONDITION,
                f"epoch {identity.epoch} of {place} was not issued by this control plane: join first",
            )
        if identity.epoch < newest:
            raise fenced(place, identity.epoch, newest)
        return Member(place, cluster, identity.epoch, identity.agent)

    async def join(self, caller: Caller, request: pb.JoinRequest) -> pb.JoinResponse:
        identity, place, cluster = await self.locate(caller, request.identity)
        if request.public_key and len(request.public_key) != PUBLIC_KEY_LENGTH:
            raise ConnectError(Code.INVALID_ARGUMENT, f"public_key: must have {PUBLIC_KEY_LENGTH} bytes")
        joining = _Joining(identity, place, cluster, request, asyncio.get_running_loop().create_future())
        self._joining.append(joining)
        self._joins.set()
        facts = await joining.done
        _log.info("agent joined", cluster=cluster.name, shard=place.shard, epoch=facts.epoch, agent=facts.agent,
                  trace=caller.trace, correlation=caller.correlation)  # fmt: skip
        return pb.JoinResponse(
            epoch=facts.epoch,
            control_plane=self._databases.fleet.fleet,
            heartbeat_seconds=self._config.heartbeat_s,
        )

    async def take_joins(self) -> None:
        """Agents of a restarted fleet join at once: all that wait share one transaction."""
        while True:
            await self._joins.wait()
            self._joins.clear()
            while batch := self._joining[:_JOINS]:
                del self._joining[:_JOINS]
                await self._commit_joins([joining for joining in batch if not joining.done.done()])

    async def _commit_joins(self, batch: list[_Joining]) -> None:
        facts: list[AgentFacts] = []
        try:
            async with self._databases.fleet.transaction(actor="agents") as tx:
                clusters = sorted({joining.place.cluster for joining in batch})
                found = await tx.session.scalars(select(Agent).where(Agent.cluster_id.in_(clusters)))
                rows = {Place(row.cluster_id, row.shard): row for row in found}
                facts = [_raise_epoch(tx, rows, joining, self._directory.epoch(joining.place)) for joining in batch]
        except Exception as error:
            for joining in batch:
                if not joining.done.done():
                    joining.done.set_exception(error)
            return
        for joining, known in zip(batch, facts, strict=True):
            self._directory.saw_agent(joining.place, known)
            if not joining.done.done():
                joining.done.set_result(known)

    async def heartbeat(self, caller: Caller, request: pb.HeartbeatRequest) -> pb.HeartbeatResponse:
        return await self.take_heartbeat(await self.member(caller, request.identity), request)

    def heard(self, member: Member) -> None:
        """Count any message on a stream as a sign of life, however late the heartbeats are."""
        known = self._heartbeats.get(member.place)
        if known is None or known.epoch < member.epoch:
            self._heartbeats[member.place] = _Heartbeat(member.epoch, self._now_ms())

    async def take_heartbeat(self, member: Member, request: pb.HeartbeatRequest) -> pb.HeartbeatResponse:
        """What an agent says of itself, by a call of its own or on a stream."""
        states = {StreamKind.DEPLOYMENTS: request.deployments, StreamKind.SENTINELS: request.sentinels}
        said: dict[str, Any] = {str(stream): _controller(one) for stream, one in states.items() if one is not None}
        if request.image is not None:
            said["image"] = _image(request.image)
        said["abilities"] = [clean(each, 64) for each in request.abilities[:20]]
        said |= self._outages.note(member.place, request.outage, self._now_ms())
        self._heartbeats[member.place] = _Heartbeat(member.epoch, self._now_ms(), said, clean(request.software, 64))
        resend = await self._compare(member.place, {stream: state for stream, state in states.items() if state})
        for stream, buckets in resend.items():
            self._metrics.resends.labels(stream).inc(len(buckets))
        agent = self._directory.agent(member.place)
        return pb.HeartbeatResponse(
            resend_deployments=resend.get(StreamKind.DEPLOYMENTS, []),
            resend_sentinels=resend.get(StreamKind.SENTINELS, []),
            confirmed_deletes=agent.confirmed_deletes if agent is not None else "",
            image=str((self._directory.cluster_of(member.cluster.id) or member.cluster).spec.get("agentImage") or ""),
        )

    async def _compare(
        self, place: Place, states: Mapping[StreamKind, pb.ControllerState]
    ) -> dict[StreamKind, list[int]]:
        """Buckets in which the database has other reports than the agent says it sent."""
        differ = {
            stream: buckets
            for stream, state in states.items()
            if (buckets := self._reported.differing(place, stream, state.reported))
        }
        now = self._clock.monotonic()
        if not differ or now < self._reread_at.get(place, float("-inf")):
            return {}
        self._reread_at[place] = now + _REREAD_S
        await self._reread(place)
        return {stream: self._reported.differing(place, stream, states[stream].reported) for stream in differ}

    async def _reread(self, place: Place) -> None:
        """Reports may have reached another control plane: what the database has counts."""
        asked = select(Desired.stream, Desired.key, Desired.fingerprint).where(
            Desired.cluster_id == place.cluster, Desired.shard == place.shard, Desired.fingerprint != 0
        )
        found: dict[str, list[tuple[str, int]]] = {stream: [] for stream in StreamKind}
        for database in self._databases.all:
            async with database.reading() as session:
                for row in await session.execute(asked):
                    found[row.stream].append((row.key, row.fingerprint))
        for stream, rows in found.items():
            self._reported.replace(place, stream, rows)

    # by itself

    async def flush(self) -> None:
        """Store the heartbeats since the last time, and mark returned agents as alive."""
        heartbeats, self._heartbeats = self._heartbeats, {}
        if not heartbeats:
            return
        news = self._outages.take()
        rows = [
            [place.cluster, place.shard, heartbeat.epoch, heartbeat.at_ms, heartbeat.state, heartbeat.software]
            for place, heartbeat in sorted(heartbeats.items())
        ]

        async def save(tx: Tx) -> tuple[list[SavedHeartbeat], set[Place]]:
            said = {"rows": listed(rows)}
            back = {Place(row.cluster_id, row.shard) for row in await tx.ask(_RETURNED[tx.dialect], said)}
            saved = await tx.ask(_SAVE_HEARTBEATS[tx.dialect], said)
            for place in sorted(back):
                self._tell(tx, place, "AgentReturned", "Normal", "heartbeats are back")
            for place, (reason, kind, message) in sorted(news.items()):
                self._tell(tx, place, reason, kind, message)
            return saved, back

        try:
            saved, back = await self._databases.fleet.run(save, serial=False, short=True)
        except ServiceUnavailable:
            self._heartbeats = heartbeats | self._heartbeats
            self._outages.put_back(news)
            self._hearing_since = self._clock.monotonic()
            raise
        for row in saved:
            self._directory.saw_confirmation(Place(row.cluster_id, row.shard), row.confirmed_deletes)
        for place in back:  # the control plane that marked it as lost has dropped its reports too
            self._reported.clear(place)

    async def judge(self) -> None:
        """Mark silent agents as lost; none after an outage of this process or if too many are silent."""
        async with self._databases.fleet.moment() as ask:
            rows = await ask(_HEARD, {})
        agents = [Heard(Place(row.cluster_id, row.shard), row.last_heartbeat_at, bool(row.lost)) for row in rows]
        now = self._clock.monotonic()
        if now - self._judged_at > self._config.heartbeat_flush_s + max(_LATE_S, self._config.heartbeat_s / 2):
            self._hearing_since = now  # we are late ourselves, and what agents said may wait to be read
        # When the database's clock jumps, all heartbeats before are of another time.
        self._hearing_since = max(self._hearing_since, self._databases.fleet.time.jumped_at)
        self._judged_at = now
        now_ms, lost_after_ms = self._now_ms(), round(self._config.lost_after_s * 1000)
        if any(agent.at_ms > now_ms + lost_after_ms for agent in agents):
            await self._databases.fleet.run(lambda tx: tx.session.execute(_no_later_than(now_ms)), serial=False)
        while self._lost_at and self._lost_at[0] < now - self._config.lost_after_s:
            self._lost_at.popleft()
        found = judge(
            agents,
            now_ms,
            lost_after_ms=lost_after_ms,
            recently_lost=len(self._lost_at),
            fraction=self._config.freeze_fraction,
        )
        lost = sum(agent.lost for agent in agents)
        self._metrics.agents.labels("alive").set(len(agents) - lost - found.vanished)
        self._metrics.agents.labels("lost").set(lost + found.vanished)
        self._metrics.frozen.set(1.0 if found.frozen else 0.0)
        if now - self._hearing_since <= self._config.lost_after_s:
            return
        frozen, self._frozen = self._frozen, found.frozen
        if found.frozen and not frozen:
            _log.warning("too many agents vanished together to be believed", vanished=found.vanished, of=len(agents))
        for heard in found.lost:
            await self._mark_lost(heard)

    async def _mark_lost(self, heard: Heard) -> None:
        place = heard.place
        async with self._databases.fleet.transaction() as tx:
            marked = await tx.session.execute(
                update(Agent)
                .where(
                    Agent.cluster_id == place.cluster, Agent.shard == place.shard, Agent.lost.is_(False),
                    Agent.last_heartbeat_at == heard.at_ms,
                )
                .values(lost=True)
                .returning(Agent.epoch)
                .execution_options(synchronize_session=False)
            )  # fmt: skip
            if marked.first() is None:
                return  # it was heard, or another control plane has marked it
            self._tell(tx, place, "AgentLost", "Warning", f"no heartbeat for {self._config.lost_after_s:g} s")
            await _forget_reports(tx, place)
        for database in self._databases.all[1:]:
            async with database.transaction() as tx:
                await _forget_reports(tx, place)
        self._reported.clear(place)
        self._lost_at.append(self._clock.monotonic())
        _log.warning("agent lost", place=str(place))

    async def guard(self) -> None:
        """Streams of replaced agents and of tokens that were revoked must end within a second."""
        await self._directory.refresh_agents()
        await self._directory.refresh_old()
        asked_at, now_ms = self._clock.monotonic(), self._now_ms()
        since_ms = self._guarded_ms
        async with self._databases.fleet.moment() as ask:
            found = await ask(_ENDED, {"since": since_ms, "now": now_ms})
        self._token_cache.looked(asked_at, {row.id for row in found})
        self._hub.revoke({row.id for row in found if row.is_over})
        self._hub.replaced(
            {
                row.id: frozenset((row.digest, row.previous_digest) if row.previous_until > now_ms else (row.digest,))
                for row in found
                if row.previous_until
            }
        )
        self._guarded_ms = now_ms - _OVERLAP_MS
        if self._clock.monotonic() - self._tokens_at > _EVERY_TOKEN_S:
            self._tokens_at = self._clock.monotonic()
            await self._read_tokens(now_ms)

    async def _read_tokens(self, now_ms: int) -> None:
        """Know all tokens of agents before they call: a fleet that returns at once then causes no thousand look-ups.
        Streams whose token is not among those that work end."""
        asked_at = self._clock.monotonic()
        async with self._databases.fleet.reading() as session:
            rows = await session.execute(
                select(Token.id, Token.digest, Token.previous_until, Token.workspace_id, Token.role, Token.cluster,
                       Token.region, Token.shard, Token.name, Token.kind)
                .where(Token.kind.in_(("agent", "relay")), Token.revoked_at == 0,
                       (Token.expires_at == 0) | (Token.expires_at > now_ms))
            )  # fmt: skip
            found = rows.all()
        for row in found:
            if row.previous_until <= now_ms - _OVERLAP_MS:
                principal = Principal(
                    kind=row.kind, workspace_id=row.workspace_id, role=row.role, cluster=row.cluster,
                    region=row.region, shard=row.shard, token_id=row.id, name=row.name,
                )  # fmt: skip
                self._token_cache.put(row.digest, principal, asked_at)
        self._hub.revoke({stream.token_id for stream in self._hub.streams} - {row.id for row in found})

    def _tell(self, tx: Tx, place: Place, reason: str, kind: str, message: str) -> None:
        cluster = self._directory.cluster_of(place.cluster)
        name = cluster.name if cluster is not None else place.cluster
        tx.event(
            workspace_id=FLEET, kind="Agent", object_id=place.cluster, name=f"{name}/{place.shard}", reason=reason,
            type=kind, message=message, region=cluster.region if cluster is not None else "",
        )  # fmt: skip

    async def _repeat(self, every_s: float, work: Callable[[], Any], what: str) -> None:
        failures = 0
        while True:
            await self._clock.sleep(every_s + _BACKOFF.delay_s(failures, self._random))
            try:
                await work()
                failures = 0
            except ServiceUnavailable as error:
                failures += 1
                _log.warning("agent bookkeeping waits for the database", what=what, error=str(error))

    def _now_ms(self) -> int:
        return self._databases.fleet.time.now_ms()


def _raise_epoch(tx: Tx, rows: dict[Place, Agent], joining: _Joining, known: int) -> AgentFacts:
    """``known`` is the newest epoch seen so far: a database that went back must not make us refuse who joins now."""
    place, identity, cluster = joining.place, joining.identity, joining.cluster
    row = rows.get(place)
    if row is None:
        row = rows[place] = Agent(
            cluster_id=place.cluster, shard=place.shard, workspace_id=FLEET, agent="", epoch=0, public_key=b"",
            software="", joined_at=0, last_heartbeat_at=0, lost=False, confirmed_deletes="",
        )  # fmt: skip
        tx.session.add(row)
    before, last = row.agent, row.epoch
    row.epoch = max(row.epoch, known) + 1
    row.agent = clean(identity.agent)
    row.public_key = bytes(joining.request.public_key)
    row.software = clean(joining.request.software, 64)
    row.joined_at = row.last_heartbeat_at = tx.now
    joined = f"{row.agent} joined with epoch {row.epoch}"
    if last:
        reason, message = "ClusterRestarted", f"{joined}, after {before} with epoch {last}"
    else:
        reason, message = "AgentJoined", joined
    tx.event(
        workspace_id=FLEET, kind="Agent", object_id=place.cluster, name=f"{cluster.name}/{place.shard}",
        reason=reason, message=message, region=cluster.region,
    )  # fmt: skip
    return AgentFacts(row.epoch, row.agent, row.public_key, row.joined_at, row.confirmed_deletes)


async def _forget_reports(tx: Tx, place: Place) -> None:
    """What runs there is not known now. Reports count as lost, so that all of them are asked for when it is back.
    What runs goes on running, with the traffic of its own region; gateways of other regions no longer send to it."""
    await tx.session.execute(
        update(Instance)
        .where(Instance.cluster_id == place.cluster, Instance.shard == place.shard)
        .values(status="unknown")
        .execution_options(synchronize_session=False)
    )
    await tx.session.execute(
        update(Desired)
        .where(Desired.cluster_id == place.cluster, Desired.shard == place.shard)
        .values(fingerprint=bindparam("nothing", 0))
        .execution_options(synchronize_session=False)
    )
    await gateways.lose(tx, place)


def _no_later_than(now_ms: int) -> Update:
    """Heartbeats from the future would keep a dead agent until then."""
    return (
        update(Agent)
        .where(Agent.last_heartbeat_at > now_ms)
        .values(last_heartbeat_at=now_ms)
        .execution_options(synchronize_session=False)
    )


def _has_shard(spec: Mapping[str, Any], shard: str) -> bool:
    """A cluster without a list of shards takes any."""
    shards = spec.get("shards")
    if not shards:
        return True
    return any(shard == (each.get("name") if isinstance(each, Mapping) else each) for each in shards)


def _image(image: pb.AgentImage) -> dict[str, Any]:
    return {
        "running": clean(image.running, _IMAGE_LENGTH),
        "error": clean(image.error, _IMAGE_LENGTH),
        "waiting": [clean(each, 63) for each in image.waiting[:8]],
    }


def _controller(state: pb.ControllerState) -> dict[str, Any]:
    """One controller of an agent as people see it; what was reported is compared, not stored."""
    brake = state.brake
    return {
        "cursor": clean(state.cursor, MAX_CURSOR_LENGTH),
        "connection": clean(state.connection),
        "breaker": clean(state.breaker),
        "objects": state.objects,
        "buffered": state.buffered,
        "retrying": state.retrying,
        "lagSeconds": state.lag_seconds,
        "brake": {
            "held": brake.held,
            "reason": clean(brake.reason),
            "keys": [clean(key) for key in list(brake.keys)[:_BRAKE_KEYS]],
            "count": brake.count,
        }
        if brake is not None
        else None,
    }
