"""The current state of all clusters: rows from memory, objects from the disk."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence

import orjson

from shoal.base.clock import Clock
from shoal.kube.objects import Obj
from shoal.navigator.manager.clusters import Clusters
from shoal.navigator.manager.index import Index
from shoal.navigator.manager.rows import RowKey, Rows
from shoal.navigator.model import Cluster, Row

_PIECE = 500  # objects read, and decoded, at a time


class LiveView:
    """Implements ``View``; stateless, so one is enough."""

    def __init__(self, index: Index, clusters: Clusters, rows: Rows, *, clock: Clock) -> None:
        self._index = index
        self._clusters = clusters
        self._rows = rows
        self._clock = clock

    @property
    def at_s(self) -> float:
        return self._clock.wall_s()

    def clusters(self) -> Sequence[Cluster]:
        return self._clusters.list_(self._clock.monotonic())

    def cluster(self, name: str) -> Cluster | None:
        return self._clusters.get(name, self._clock.monotonic())

    def rows(self, kind: str, *, cluster: str = "", namespace: str = "") -> Iterable[Row]:
        return self._index.rows(kind, cluster=cluster, namespace=namespace)

    def row(self, cluster: str, kind: str, key: str) -> Row | None:
        return self._index.row(cluster, kind, key)

    def labelled(self, kind: str, label: str, value: str, *, cluster: str = "") -> Iterable[Row]:
        return self._index.labelled(kind, label, value, cluster=cluster)

    def having(self, kind: str, field: str, value: str, *, cluster: str = "") -> Iterable[Row]:
        return self._index.having(kind, field, value, cluster=cluster)

    async def objects(self, rows: Sequence[Row]) -> list[Obj | None]:
        found: list[Obj | None] = []
        for start in range(0, len(rows), _PIECE):
            wanted = [RowKey(row.cluster, row.kind, row.key) for row in rows[start : start + _PIECE]]
            found += await decoded(await self._rows.objects(wanted))
        return found


async def decoded(data: Sequence[bytes | None]) -> list[Obj | None]:
    """The objects, decoded in slices."""
    objects: list[Obj | None] = []
    for number, one in enumerate(data, 1):
        objects.append(orjson.loads(one) if one is not None else None)
        if number % 100 == 0:
            await asyncio.sleep(0)
    return objects
