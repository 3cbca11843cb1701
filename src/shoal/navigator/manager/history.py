"""The state at a past moment, and the changes between two moments.

Rows that have not changed since come from memory; only the changed ones are read from the disk. So the cost grows with
the number of changes since that moment.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from sys import intern

from shoal.base.clock import Clock
from shoal.errors import BadRequest, Expired
from shoal.kube.objects import Obj
from shoal.navigator.manager.clusters import Clusters
from shoal.navigator.manager.index import Index, terms
from shoal.navigator.manager.live import decoded
from shoal.navigator.manager.objects import make_row
from shoal.navigator.manager.rows import RowKey, Rows, StoredSession
from shoal.navigator.model import Cluster, Freshness, KindStatus, Row
from shoal.navigator.summary_base import Summary
from shoal.navigator.view import Moment, View

MOST_MOMENTS = 100_000
_PIECE = 500
_SLICE = 100

_Tables = dict[str, dict[str, dict[str, Row]]]  # cluster → kind → key


class ManagerHistory:
    """Implements ``History``."""

    def __init__(self, index: Index, clusters: Clusters, rows: Rows, *, clock: Clock, retention_s: float) -> None:
        self._index = index
        self._clusters = clusters
        self._rows = rows
        self._clock = clock
        self._retention_s = retention_s

    async def at(self, at_s: float, *, cluster: str = "") -> View:
        at_ms = self._checked_ms(at_s)
        # Memory first: a row that changes between the two reads is then found in at least one of them.
        tables = await self._unchanged(at_ms, cluster)
        number = 0
        async for piece in self._rows.past(at_ms, cluster):
            for row in piece:
                kinds = tables.setdefault(intern(row.cluster), {})
                kinds.setdefault(intern(row.kind), {})[row.key] = make_row(
                    intern(row.cluster), intern(row.kind), row.key, row.fingerprint, row.since_ms, row.data
                )
                number += 1
                if number % _SLICE == 0:
                    await asyncio.sleep(0)
        sessions = await self._rows.sessions(at_ms)
        metadata = {known.name: known.metadata for known in self._clusters.known.values()}
        described = {
            session.cluster: _cluster(session, at_ms, metadata.get(session.cluster, {}), tables)
            for session in sessions
            if not cluster or session.cluster == cluster
        }
        return PastView(at_ms, described, tables, self._rows)

    async def first_s(self) -> float | None:
        first_ms = await self._rows.first_session_ms()
        return first_ms / 1000 if first_ms else None

    async def between(
        self, from_s: float, to_s: float, *, cluster: str = "", kind: str = "", key: str = "", limit: int = 1000
    ) -> list[Moment]:
        if to_s < from_s:
            raise BadRequest("the second moment is before the first")
        found = await self._rows.between(
            self._checked_ms(from_s),
            int(to_s * 1000),
            cluster=cluster,
            kind=kind,
            key=key,
            limit=max(1, min(limit, MOST_MOMENTS)),
        )
        return await self._with_before(found)

    async def _with_before(self, moments: list[Moment]) -> list[Moment]:
        """The first moment of each object gets what it replaced, which the list itself does not hold."""
        first: dict[RowKey, int] = {}
        for number, moment in enumerate(moments):
            first.setdefault(RowKey(moment.cluster, moment.kind, moment.key), number)
        wanted = [(key, round(moments[number].at_s * 1000)) for key, number in first.items()]
        for start in range(0, len(wanted), _PIECE):
            piece = wanted[start : start + _PIECE]
            for (key, _), data in zip(piece, await self._rows.replaced(piece), strict=True):
                if data is not None:
                    moments[first[key]] = replace(moments[first[key]], before=data)
        return moments

    def _checked_ms(self, at_s: float) -> int:
        oldest_s = self._clock.wall_s() - self._retention_s
        if at_s < oldest_s:
            raise Expired(f"only the last {self._retention_s / 3600:g} hours are kept")
        return int(at_s * 1000)

    async def _unchanged(self, at_ms: int, cluster: str) -> _Tables:
        at_s = at_ms / 1000
        tables: _Tables = {}
        for name in (cluster,) if cluster else tuple(self._index.clusters):
            found = self._index.clusters.get(name)
            if found is not None:
                tables[name] = {
                    kind: {key: row for key, row in kind_index.rows.items() if row.changed_at_s <= at_s}
                    for kind, kind_index in found.kind_indexes.items()
                }
            await asyncio.sleep(0)
        return tables


class PastView:
    """Implements ``View`` for a past moment, for one query. It has no indexes."""

    def __init__(self, at_ms: int, clusters: Mapping[str, Cluster], tables: _Tables, rows: Rows) -> None:
        self._at_ms = at_ms
        self._clusters = clusters
        self._tables = tables
        self._rows = rows

    @property
    def at_s(self) -> float:
        return self._at_ms / 1000

    def clusters(self) -> Sequence[Cluster]:
        return [self._clusters[name] for name in sorted(self._clusters)]

    def cluster(self, name: str) -> Cluster | None:
        return self._clusters.get(name)

    def rows(self, kind: str, *, cluster: str = "", namespace: str = "") -> Iterator[Row]:
        for name, kinds in self._tables.items():
            if not cluster or name == cluster:
                for row in kinds.get(kind, {}).values():
                    if not namespace or row.namespace == namespace:
                        yield row

    def row(self, cluster: str, kind: str, key: str) -> Row | None:
        return self._tables.get(cluster, {}).get(kind, {}).get(key)

    def labelled(self, kind: str, label: str, value: str, *, cluster: str = "") -> Iterator[Row]:
        for row in self.rows(kind, cluster=cluster):
            if isinstance(row.summary, Summary) and row.summary.labels.get(label) == value:
                yield row

    def having(self, kind: str, field: str, value: str, *, cluster: str = "") -> Iterator[Row]:
        for row in self.rows(kind, cluster=cluster):
            if (field, value) in terms(row):
                yield row

    async def objects(self, rows: Sequence[Row]) -> list[Obj | None]:
        found: list[Obj | None] = []
        for start in range(0, len(rows), _PIECE):
            wanted = [
                (RowKey(row.cluster, row.kind, row.key), round(row.changed_at_s * 1000))
                for row in rows[start : start + _PIECE]
            ]
            found += await decoded(await self._rows.versions(wanted))
        return found


def _cluster(session: StoredSession, at_ms: int, metadata: Mapping[str, str], tables: _Tables) -> Cluster:
    connected = session.ended_ms == 0 or at_ms < session.ended_ms
    return Cluster(
        name=session.cluster, region=metadata.get("region", ""), metadata=metadata,
        freshness=Freshness.HEALTHY if connected else Freshness.DISCONNECTED, edge=session.edge, epoch=session.epoch,
        connected_at_s=session.connected_ms / 1000 if connected else 0.0,
        heard_at_s=(at_ms if connected else session.ended_ms) / 1000,
        kinds=tuple(
            KindStatus(kind=kind, state="synced", rows=len(rows))
            for kind, rows in sorted(tables.get(session.cluster, {}).items())
        ),
    )  # fmt: skip
