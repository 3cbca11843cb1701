"""One change of the fleet in progress: its transaction, the cluster facts, and its effects per place."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from shoal.control.database.tables import Desired
from shoal.control.database.transaction import DesiredObject, Removal, Tx
from shoal.control.domain.model import Effect, GatewayDefaults
from shoal.control.domain.objects import PREFIX
from shoal.control.domain.placement.facts import Infrastructure, with_one_more
from shoal.control.domain.placement.model import ClusterFacts, PlacedLoad
from shoal.sync.keys import Place, key_of, split_key

ID_LETTERS = 20


@dataclass(slots=True, kw_only=True)
class PendingWork:
    """Wants are gathered and written together: by ``flush``, and before anything is read or removed."""

    tx: Tx
    new_suffix: Callable[[int], str]
    workspace_id: str = ""  # of the caller
    database: str = ""
    infrastructure: Infrastructure = field(default_factory=Infrastructure)
    read_facts: Callable[[], Awaitable[list[ClusterFacts]]] | None = None
    gateways: GatewayDefaults = GatewayDefaults()
    is_forced: bool = False  # a revision that was taken back may be applied again
    is_hurried: bool = False  # the rollout that begins leaves out its steps
    keeps_running: bool = False  # an app that is deleted: what runs of it goes on, and is nobody's
    why: str = ""  # what a person said of it
    effects: list[Effect] = field(default_factory=list)
    used_elsewhere: set[str] = field(default_factory=set)  # shards of the cluster at hand, in other databases
    warnings: list[str] = field(default_factory=list)
    removed: bool = False  # something is not wanted any more
    homes: dict[str, dict[str, str]] = field(default_factory=dict)  # environment → region → cluster, as read
    _facts: dict[str, list[ClusterFacts]] | None = None
    _wanted: list[DesiredObject] = field(default_factory=list)

    @property
    def session(self) -> AsyncSession:
        return self.tx.session

    @property
    def now(self) -> int:
        return self.tx.now

    @asynccontextmanager
    async def as_user(self) -> AsyncIterator[None]:
        """What is removed in here follows from what a user asked for, so agents need no confirmation of it."""
        await self.flush()
        before, self.tx.by_user = self.tx.by_user, True
        try:
            yield
        finally:
            self.tx.by_user = before

    def new_id(self, kind: str) -> str:
        return f"{PREFIX[kind]}_{self.new_suffix(ID_LETTERS)}"

    def want(self, place: Place, key: str, *, workspace_id: str, namespace: str = "", name: str = "") -> None:
        self._wanted.append(
            DesiredObject(
                place=place,
                key=key,
                workspace_id=workspace_id,
                namespace=namespace,
                name=name,
                correlation=self.tx.correlation,
            )  # fmt: skip
        )
        self._note(place, key, "apply", name)

    async def flush(self) -> None:
        """Write the wants that were gathered."""
        wanted, self._wanted = self._wanted, []
        await self.tx.want_many(wanted)

    async def unwant(self, place: Place, key: str) -> None:
        await self.unwant_many([(place, key)])

    async def unwant_many(self, objects: Sequence[tuple[Place, str]], *, action: Removal = "delete") -> None:
        await self.flush()
        for (place, key), number in zip(objects, await self.tx.unwant_many(objects, action=action), strict=True):
            if number:
                self.removed = True
                self._note(place, key, action, "")

    async def unwant_everywhere(
        self, kind: str, object_id: str, *, but: Iterable[Place] = (), action: Removal = "delete"
    ) -> None:
        """Remove an object from every place that has it, except these."""
        kept, key = set(but), key_of(kind, object_id)
        places = [place for place in await self.places_of(kind, object_id) if place not in kept]
        await self.unwant_many([(place, key) for place in places], action=action)

    async def places_of(self, kind: str, object_id: str) -> list[Place]:
        """Where an object is wanted now."""
        await self.flush()
        key = key_of(kind, object_id)
        query = (
            select(Desired.cluster_id, Desired.shard)
            .where(Desired.object_id == object_id, Desired.key == key, Desired.action == "apply")
            .order_by(Desired.cluster_id, Desired.shard)
        )
        return [Place(row.cluster_id, row.shard) for row in await self.session.execute(query)]

    def waits(self, region: str, key: str, why: str) -> None:
        """Note that something has nowhere to go yet."""
        self.effects.append(Effect(region, "", "", key, "wait", split_key(key)[0]))
        self.warnings.append(f"{key} waits in region {region}: {why}")

    async def facts(self, region: str) -> list[ClusterFacts]:
        """The clusters of a region and their load, read when first asked for."""
        if self._facts is None:
            self._facts = {}
            for each in await self.read_facts() if self.read_facts is not None else []:
                self._facts.setdefault(each.region, []).append(each)
        return self._facts.get(region, [])

    def took(self, region: str, place: Place, size: PlacedLoad) -> None:
        """Something was placed in a region."""
        if self._facts is not None:
            self._facts[region] = with_one_more(self._facts.get(region, []), place, size)

    def _note(self, place: Place, key: str, action: str, name: str) -> None:
        known = self.infrastructure
        self.effects.append(
            Effect(
                region=known.region_of_cluster(place.cluster),
                cluster=known.cluster_name(place.cluster),
                shard=place.shard,
                key=key,
                action=action,
                kind=split_key(key)[0],
                name=name,
            )
        )
