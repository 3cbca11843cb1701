"""The navigator's view, history, edges and fleet in memory, for tests of its queries and answers.

view = MemoryView([a_cluster("east", "eu")])
view.put("east", "pods", {"metadata": {"name": "web", "namespace": "default"}})
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import orjson

from shoal.errors import ApiError, BadRequest, ConfigError, Conflict, Expired, NotFound, ServiceUnavailable
from shoal.kube.objects import Obj
from shoal.navigator.digest import fingerprint
from shoal.navigator.edge.options import check_options
from shoal.navigator.manager.index import terms
from shoal.navigator.model import Cluster, Freshness, Row
from shoal.navigator.summaries import summarize
from shoal.navigator.summary_base import Summary
from shoal.navigator.view import EdgeState, Moment, View

AT_S = 1_800_000_000.0


def a_cluster(name: str, region: str = "", **metadata: str) -> Cluster:
    return Cluster(
        name=name, region=region, metadata={"region": region, **metadata}, freshness=Freshness.HEALTHY,
        edge=f"edge-{name}", epoch=1, connected_at_s=AT_S - 3600, heard_at_s=AT_S - 1,
    )  # fmt: skip


@dataclass
class MemoryView:
    """Implements ``View`` over objects that tests put in. It has the indexes of the real view: keys and labels."""

    known: list[Cluster] = field(default_factory=list)
    at_s: float = AT_S

    def __post_init__(self) -> None:
        self._objects: dict[tuple[str, str, str], Obj] = {}
        self._rows: dict[tuple[str, str], dict[str, Row]] = {}  # by kind and cluster
        self._labels: dict[tuple[str, str, str], dict[tuple[str, str], Row]] = {}
        self.scanned = 0  # rows returned, which shows whether a query used an index

    def put(self, cluster: str, kind: str, *objects: Obj, changed_at_s: float | None = None) -> None:
        for obj in objects:
            metadata = obj["metadata"]
            namespace, name = metadata.get("namespace", ""), metadata["name"]
            key = f"{namespace}/{name}" if namespace else name
            self.remove(cluster, kind, key)
            data = orjson.dumps(obj)
            at_s = self.at_s if changed_at_s is None else changed_at_s
            row = Row(cluster, kind, namespace, name, fingerprint(kind, key, data), at_s, summarize(kind, obj))
            self._objects[cluster, kind, key] = obj
            self._rows.setdefault((kind, cluster), {})[key] = row
            for label in _labels(row).items():
                self._labels.setdefault((kind, *label), {})[cluster, key] = row

    def remove(self, cluster: str, kind: str, key: str) -> None:
        row = self._rows.get((kind, cluster), {}).pop(key, None)
        if row is not None:
            del self._objects[cluster, kind, key]
            for label in _labels(row).items():
                del self._labels[(kind, *label)][cluster, key]

    def clusters(self) -> Sequence[Cluster]:
        return sorted(self.known, key=lambda each: each.name)

    def cluster(self, name: str) -> Cluster | None:
        return next((each for each in self.known if each.name == name), None)

    def rows(self, kind: str, *, cluster: str = "", namespace: str = "") -> Iterable[Row]:
        found = list(self._all(kind, cluster))
        self.scanned += len(found)
        return [row for row in found if row.namespace == namespace] if namespace else found

    def _all(self, kind: str, cluster: str) -> Iterator[Row]:
        places = [cluster] if cluster else [each.name for each in self.known]
        return chain.from_iterable(self._rows.get((kind, place), {}).values() for place in places)

    def row(self, cluster: str, kind: str, key: str) -> Row | None:
        return self._rows.get((kind, cluster), {}).get(key)

    def labelled(self, kind: str, label: str, value: str, *, cluster: str = "") -> Iterable[Row]:
        for row in self._labels.get((kind, label, value), {}).values():
            if cluster in ("", row.cluster):
                self.scanned += 1
                yield row

    def having(self, kind: str, field: str, value: str, *, cluster: str = "") -> Iterable[Row]:
        return [row for row in self._all(kind, cluster) if (field, value) in terms(row)]

    async def objects(self, rows: Sequence[Row]) -> list[Obj | None]:
        return [self._objects.get((row.cluster, row.kind, row.key)) for row in rows]


def _labels(row: Row) -> Mapping[str, str]:
    return row.summary.labels if isinstance(row.summary, Summary) else {}


@dataclass
class MemoryHistory:
    """Implements ``History``: views by the time from which they hold, and a list of moments. ``begins_s`` is the time
    of the first data."""

    views: dict[float, View] = field(default_factory=dict)
    moments: list[Moment] = field(default_factory=list)
    begins_s: float | None = None

    async def at(self, at_s: float, *, cluster: str = "") -> View:
        found = [since_s for since_s in self.views if since_s <= at_s]
        if not found:
            raise Expired("the history does not go back that far")
        return self.views[max(found)]

    async def first_s(self) -> float | None:
        return self.begins_s

    async def between(
        self, from_s: float, to_s: float, *, cluster: str = "", kind: str = "", key: str = "", limit: int = 1000
    ) -> list[Moment]:
        found = [
            each for each in sorted(self.moments, key=lambda each: each.at_s)
            if from_s <= each.at_s <= to_s and cluster in ("", each.cluster) and kind in ("", each.kind)
            and key in ("", each.key)
        ]  # fmt: skip
        return found[:limit]


Answer = Callable[[object], Iterable[bytes]] | ApiError


@dataclass
class MemoryEdges:
    """Implements ``Edges``: the answer, or the error, of each cluster's edge."""

    answers: dict[str, Answer] = field(default_factory=dict)
    asked: list[tuple[str, object]] = field(default_factory=list)

    async def ask(self, cluster: str, request: object, *, deadline_s: float) -> AsyncIterator[bytes]:
        self.asked.append((cluster, request))
        answer = self.answers.get(cluster)
        if answer is None:
            raise ServiceUnavailable(f"no edge is connected for cluster {cluster!r}")
        if isinstance(answer, ApiError):
            raise answer
        for part in answer(request):
            yield part


@dataclass
class MemoryFleet:
    """Implements ``Fleet``."""

    items: list[dict[str, Any]] = field(default_factory=list)

    def deployments(self) -> Iterator[Obj]:
        return iter(self.items)


@dataclass
class MemoryOptions:
    """Implements ``EdgeAdmin`` over a view: every edge takes its options at once."""

    view: MemoryView
    stored: dict[str, dict[str, str]] = field(default_factory=dict)

    def for_all(self) -> Mapping[str, str]:
        return self.stored.get("", {})

    def edges(self) -> list[EdgeState]:
        return [self.edge(each.name) for each in self.view.clusters()]

    def edge(self, cluster: str) -> EdgeState:
        found = self.view.cluster(cluster)
        if found is None:
            raise NotFound(f"cluster {cluster!r} not found")
        own = self.stored.get(cluster, {})
        return EdgeState(
            cluster=cluster, edge=found.edge, connected=True, options=own, taken=True, error="",
            settings={"sync.interval_s": "30.0", **self.for_all(), **own},
        )  # fmt: skip

    async def change(self, cluster: str, put: Mapping[str, str], remove: Iterable[str]) -> None:
        if cluster:
            self.edge(cluster)
        wanted = {name: value for name, value in {**self.stored.get(cluster, {}), **put}.items() if name not in remove}
        try:
            check_options(wanted)
        except ConfigError as error:
            raise BadRequest(str(error)) from None
        self.stored[cluster] = wanted


@dataclass
class MemoryAdmin:
    """Implements ``ClusterAdmin`` over a view. Clusters with an edge that is connected need ``revoke``."""

    view: MemoryView

    async def forget(self, cluster: str, *, revoke: bool = False) -> None:
        found = self.view.cluster(cluster)
        if found is not None and found.freshness is not Freshness.DISCONNECTED and not revoke:
            raise Conflict(f"edge {found.edge!r} reports cluster {cluster!r}")
        self.view.known = [each for each in self.view.known if each.name != cluster]

    async def edge_token(self, cluster: str) -> str:
        return f"shoal_edge_{cluster}"

    async def revoke_edge_tokens(self, cluster: str) -> None:
        """There are none."""
