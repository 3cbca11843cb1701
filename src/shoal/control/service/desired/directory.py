"""The known clusters, regions and agents: a copy of a few small tables, refreshed periodically.

A name that is not in the copy is looked up at once, because it may be new; absence is never cached. Epochs that may
have changed are read several times a second.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from shoal.base.clock import Clock
from shoal.control.database.engine import Databases
from shoal.control.database.plain import document
from shoal.control.database.rows import RowQuery
from shoal.sync.keys import Place

_FRESH_S = 5.0
_OVERLAP_MS = 20_000  # a transaction takes its time long before it is committed


class StoredRegion(NamedTuple):
    id: str
    name: str
    spec: Any


class StoredCluster(NamedTuple):
    id: str
    name: str
    region_id: str
    spec: Any


class JoinedAgent(NamedTuple):
    cluster_id: str
    shard: str
    epoch: int
    agent: str
    public_key: bytes
    joined_at: int
    confirmed_deletes: str


_REGIONS = RowQuery("SELECT id, name, spec FROM regions", StoredRegion)
_CLUSTERS = RowQuery("SELECT id, name, region_id, spec FROM clusters", StoredCluster)
_JOINED = RowQuery(
    "SELECT cluster_id, shard, epoch, agent, public_key, joined_at, confirmed_deletes FROM agents "
    "WHERE joined_at >= :since",
    JoinedAgent,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterFacts:
    id: str
    name: str
    region_id: str
    region: str
    spec: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class RegionFacts:
    name: str
    distances: Mapping[str, int]  # to other regions, by name
    service: str = ""  # of its gateways, by kind
    entries: tuple[str, ...] = ()  # where its gateways let those of other regions in, if that is not as they report


@dataclass(slots=True)
class AgentFacts:
    epoch: int
    agent: str
    public_key: bytes
    joined_at: int
    confirmed_deletes: str


class _ReadCluster(NamedTuple):
    row: StoredCluster
    facts: ClusterFacts


class Directory:
    def __init__(self, databases: Databases, clock: Clock) -> None:
        self._databases = databases
        self._clock = clock
        self._clusters: dict[str, ClusterFacts] = {}  # by name
        self._by_id: dict[str, ClusterFacts] = {}
        self._regions: dict[str, RegionFacts] = {}  # by id
        self._agents: dict[Place, AgentFacts] = {}
        self._seen: dict[Place, int] = {}  # epochs in reports, where they are newer than those that were issued
        self._read: dict[str, _ReadCluster] = {}  # by id
        self._read_at = float("-inf")  # when the last reading began
        self._places = asyncio.Lock()
        self._since_ms = 0  # who joined before is known
        self.joined: Callable[[Place, int], None] = lambda _place, _epoch: None  # called when a newer epoch is seen

    async def cluster(self, name: str) -> ClusterFacts | None:
        if name not in self._clusters:
            await self.refresh_places(self._clock.monotonic())
        return self._clusters.get(name)

    def cluster_of(self, id_: str) -> ClusterFacts | None:
        """As far as known."""
        return self._by_id.get(id_)

    async def regions(self) -> Mapping[str, RegionFacts]:
        """By id."""
        if not self._regions:
            await self.refresh_places(self._clock.monotonic())
        return self._regions

    def epoch(self, place: Place) -> int:
        """The newest epoch of a place as far as known; 0 before its first."""
        agent = self._agents.get(place)
        return max(agent.epoch if agent is not None else 0, self._seen.get(place, 0))

    def public_key(self, place: Place) -> bytes:
        agent = self._agents.get(place)
        return agent.public_key if agent is not None else b""

    def agent(self, place: Place) -> AgentFacts | None:
        return self._agents.get(place)

    async def refresh_agents(self) -> None:
        """Notice who joined, here or at another control plane."""
        began_ms = self._databases.fleet.time.now_ms()
        async with self._databases.fleet.moment() as ask:
            found = await ask(_JOINED, {"since": self._since_ms})
        for row in found:
            place = Place(row.cluster_id, row.shard)
            known = self._agents.get(place)
            if known is None or row.epoch > known.epoch:
                facts = AgentFacts(row.epoch, row.agent, row.public_key, row.joined_at, row.confirmed_deletes)
                self.saw_agent(place, facts)
        self._since_ms = began_ms - _OVERLAP_MS

    def saw_agent(self, place: Place, facts: AgentFacts) -> None:
        known = self._agents.get(place)
        if known is not None and known.epoch > facts.epoch:
            return
        self._agents[place] = facts
        if known is None or facts.epoch > known.epoch:
            self.joined(place, facts.epoch)

    def saw_epoch(self, place: Place, epoch: int) -> None:
        """A database has a report of this epoch, or the epoch was issued elsewhere: who has an older one is fenced, and
        the next who joins gets a newer one."""
        if epoch > self.epoch(place):
            self._seen[place] = epoch
            self.joined(place, epoch)

    def saw_confirmation(self, place: Place, confirmed_deletes: str) -> None:
        agent = self._agents.get(place)
        if agent is not None:
            agent.confirmed_deletes = confirmed_deletes

    async def refresh_places(self, since: float) -> None:
        """Read clusters and regions, unless that began after ``since``: of many who ask at once, one or two read."""
        async with self._places:
            if self._read_at < since:
                began = self._clock.monotonic()
                await self._read_places()
                self._read_at = began

    def now(self) -> float:
        """The moment to hand to ``refresh_places`` later."""
        return self._clock.monotonic()

    async def refresh_old(self) -> None:
        """To be called often; reads now and then."""
        now = self._clock.monotonic()
        if now - self._read_at > _FRESH_S:
            await self.refresh_places(now)

    async def _read_places(self) -> None:
        async with self._databases.fleet.moment() as ask:
            regions, clusters = await ask(_REGIONS, {}), await ask(_CLUSTERS, {})
        self._regions = {row.id: _region(row.name, document(row.spec) or {}) for row in regions}
        found = [self._facts(row) for row in clusters]
        self._clusters = {facts.name: facts for facts in found}
        self._by_id = {facts.id: facts for facts in found}
        if len(self._read) > len(found):
            self._read = {id_: self._read[id_] for id_ in self._by_id}

    def _facts(self, row: StoredCluster) -> ClusterFacts:
        """What has not changed is not read again: there are many, and they are looked at often."""
        known = self._read.get(row.id)
        region = self._name_of(row.region_id)
        if known is not None and known.row == row and known.facts.region == region:
            return known.facts
        facts = ClusterFacts(
            id=row.id, name=row.name, region_id=row.region_id, region=region, spec=document(row.spec) or {}
        )
        self._read[row.id] = _ReadCluster(row, facts)
        return facts

    def _name_of(self, region_id: str) -> str:
        region = self._regions.get(region_id)
        return region.name if region is not None else ""


def _region(name: str, spec: Mapping[str, Any]) -> RegionFacts:
    gateways = spec.get("gateways") or {}
    return RegionFacts(
        name, spec.get("distances") or {}, gateways.get("service") or "", tuple(gateways.get("entries") or ())
    )
