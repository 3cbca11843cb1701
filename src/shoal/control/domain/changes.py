"""What every change by a user has in common: its transaction, and what it knows of the fleet."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager, suppress
from typing import Any

from shoal.base.ids import Ids
from shoal.control.database.engine import Database, Databases
from shoal.control.domain.access import OPERATORS
from shoal.control.domain.fingerprints import FingerprintKeys
from shoal.control.domain.hosts import HostClaims
from shoal.control.domain.model import Actor, Diff, GatewayDefaults, KeySealer, ObjectRef
from shoal.control.domain.objects import Row, workspace_of
from shoal.control.domain.placement.facts import (
    Infrastructure,
    cluster_facts,
    has_capacity,
    read_counts,
    read_infrastructure,
    read_sizes,
)
from shoal.control.domain.placement.model import ClusterFacts, PlacedLoad
from shoal.control.domain.queries import Queries
from shoal.control.domain.work import PendingWork
from shoal.sync.keys import Place


class _DryRun(Exception):
    pass


class Changes(Queries):
    """``operators`` are the workspaces whose admins run the fleet itself."""

    def __init__(
        self,
        databases: Databases,
        ids: Ids,
        sealer: KeySealer,
        *,
        operators: Collection[str] = OPERATORS,
        gateways: GatewayDefaults = GatewayDefaults(),  # noqa: B008 - frozen
    ) -> None:
        super().__init__(databases)
        self._ids = ids
        self._sealer = sealer
        self.fingerprints = FingerprintKeys(sealer)
        self.hosts = HostClaims(databases)
        self._operators = frozenset(operators)
        self._gateways = gateways

    @asynccontextmanager
    async def _changing(
        self, who: Actor, kind: str, *, dry_run: bool, short: bool = True
    ) -> AsyncIterator[PendingWork]:
        database = self._databases.of(workspace_of(kind, who.workspace_id))
        with suppress(_DryRun):
            async with database.transaction(
                actor=who.actor, by_user=True, trace=who.trace, correlation=who.correlation, short=short
            ) as tx:
                tx.accepted_at = who.accepted_at
                work = self._work(tx, database, who.workspace_id)
                yield work
                if dry_run:
                    raise _DryRun
                await work.flush()

    def _work(self, tx: Any, database: Database, workspace_id: str = "") -> PendingWork:
        return PendingWork(
            tx=tx, new_suffix=self._ids.new_suffix, workspace_id=workspace_id, database=database.name,
            gateways=self._gateways,
        )  # fmt: skip

    def _audit(self, work: PendingWork, action: str, ref: ObjectRef, row: Row, changed: list[Diff]) -> None:
        work.tx.audit(
            workspace_id=row.workspace_id,
            action=action,
            kind=ref.kind,
            object_id=row.id,
            name=str(ref),
            diff=[diff.as_json() for diff in changed],
        )

    async def _infrastructure_for(self, work: PendingWork, regions: Collection[str] | None) -> Infrastructure:
        if self._databases.fleet.name == work.database:
            return await read_infrastructure(work.session, regions)
        async with self._databases.fleet.reading() as session:
            return await read_infrastructure(session, regions)

    async def _read_facts(self, work: PendingWork, regions: Collection[str] | None) -> None:
        """The clusters of these regions now, their load when something is to be placed."""
        work.infrastructure = await self._infrastructure_for(work, regions)
        work.read_facts = lambda: self._facts_of(work)

    async def _facts_of(self, work: PendingWork) -> list[ClusterFacts]:
        known = work.infrastructure
        measured = [cluster.id for cluster in known.clusters.values() if has_capacity(cluster)]
        counts: dict[Place, int] = {}
        sizes: dict[str, PlacedLoad] = {}
        for database in self._databases.all:
            if database.name == work.database:
                more, larger = await read_counts(work.session, known.clusters), await read_sizes(work.session, measured)
            else:
                async with database.reading() as session:
                    more, larger = await read_counts(session, known.clusters), await read_sizes(session, measured)
            counts |= {at: counts.get(at, 0) + count for at, count in more.items()}
            sizes |= {id_: sizes.get(id_, PlacedLoad()).plus(load) for id_, load in larger.items()}
        return cluster_facts(known, counts, sizes)
