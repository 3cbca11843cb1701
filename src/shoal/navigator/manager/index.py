"""The rows of all clusters in memory, without their objects, with indexes for queries.

Every cluster has its own tables, and a change updates only the entries of its row: no index is ever rebuilt. Each kind
has a table by key, and *postings* for common conditions: the keys with a given label, namespace, node, address, image,
owner, service or host. A posting is one key, a tuple of a few keys or a set of many.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from sys import intern

from shoal.navigator.digest import KindDigest
from shoal.navigator.model import Row
from shoal.navigator.route_summaries import RouteSummary
from shoal.navigator.summaries import (
    DeploymentSummary,
    IstioSummary,
    NodeSummary,
    PodSummary,
    ServiceSummary,
    SliceSummary,
)
from shoal.navigator.summary_base import Summary

_Posting = str | tuple[str, ...] | set[str]
_FEW = 24  # keys in a tuple: copying it is as fast as an insertion into a set, and it takes a sixth of the memory
_NO_KEYS: Set[str] = frozenset()


class Postings:
    """Keys by value."""

    __slots__ = ("_values",)

    def __init__(self) -> None:
        self._values: dict[str, _Posting] = {}

    def add(self, value: str, key: str) -> None:
        found = self._values.get(value)
        if type(found) is set:
            found.add(key)
        elif found is None:
            self._values[value] = key
        elif isinstance(found, str):
            self._values[value] = (found, key)
        elif len(found) < _FEW:
            self._values[value] = (*found, key)
        else:
            self._values[value] = {*found, key}

    def discard(self, value: str, key: str) -> None:
        found = self._values.get(value)
        if isinstance(found, set):
            found.discard(key)
            if not found:
                del self._values[value]
        elif isinstance(found, tuple):
            rest = tuple(other for other in found if other != key)
            self._values[value] = rest[0] if len(rest) == 1 else rest
        elif found == key:
            del self._values[value]

    def keys(self, value: str) -> Sequence[str]:
        """A copy, which does not change with the index."""
        found = self._values.get(value)
        if found is None:
            return ()
        return (found,) if isinstance(found, str) else tuple(found)

    def values(self) -> list[str]:
        return list(self._values)

    def __len__(self) -> int:
        return len(self._values)


class KindIndex:
    """The rows of one kind in one cluster."""

    __slots__ = ("_fields", "_labels", "_namespaces", "digest", "rows")

    def __init__(self) -> None:
        self.rows: dict[str, Row] = {}
        self.digest = KindDigest()
        self._namespaces = Postings()
        self._labels: dict[str, Postings] = {}
        self._fields: dict[str, Postings] = {}

    def put(self, key: str, row: Row) -> None:
        before = self.rows.get(key)
        if before is None:
            self.digest.add(row.fingerprint)
            self._namespaces.add(row.namespace, key)
            self._relabel(key, {}, _labels(row))
            self._refield(key, (), terms(row))
        else:
            self.digest.change(before.fingerprint, row.fingerprint)
            self._relabel(key, _labels(before), _labels(row))
            self._refield(key, terms(before), terms(row))
        self.rows[key] = row

    def remove(self, key: str) -> None:
        row = self.rows.pop(key, None)
        if row is not None:
            self.digest.remove(row.fingerprint)
            self._namespaces.discard(row.namespace, key)
            self._relabel(key, _labels(row), {})
            self._refield(key, terms(row), ())

    def of_namespace(self, namespace: str) -> list[Row]:
        return self._found(self._namespaces.keys(namespace))

    def labelled(self, label: str, value: str) -> list[Row]:
        postings = self._labels.get(label)
        return self._found(postings.keys(value)) if postings is not None else []

    def having(self, field: str, value: str) -> list[Row]:
        postings = self._fields.get(field)
        return self._found(postings.keys(value)) if postings is not None else []

    def namespaces(self) -> list[str]:
        return self._namespaces.values()

    def _found(self, keys: Sequence[str]) -> list[Row]:
        rows = self.rows
        return [rows[key] for key in keys]

    def _relabel(self, key: str, before: Mapping[str, str], after: Mapping[str, str]) -> None:
        if before is after or before == after:
            return
        for label, value in before.items():
            if after.get(label) != value:
                self._labels[label].discard(value, key)
                if not self._labels[label]:
                    del self._labels[label]
        for label, value in after.items():
            if before.get(label) != value:
                postings = self._labels.get(label)
                if postings is None:
                    postings = self._labels[intern(label)] = Postings()
                postings.add(value, key)

    def _refield(self, key: str, before: Sequence[tuple[str, str]], after: Sequence[tuple[str, str]]) -> None:
        if before == after:
            return
        for field, value in before:
            if (field, value) not in after:
                self._fields[field].discard(value, key)
        for field, value in after:
            if (field, value) not in before:
                self._fields.setdefault(field, Postings()).add(value, key)


class ClusterIndex:
    """The indexes of one cluster, by kind. Implements ``Held`` for the stream of its edge."""

    __slots__ = ("changes", "name", "kind_indexes")

    def __init__(self, name: str) -> None:
        self.name = name
        self.kind_indexes: dict[str, KindIndex] = {}
        self.changes = 0  # so far

    def fingerprint(self, kind: str, key: str) -> int | None:
        kind_index = self.kind_indexes.get(kind)
        row = kind_index.rows.get(key) if kind_index is not None else None
        return row.fingerprint if row is not None else None

    def keys(self, kind: str) -> Set[str]:
        kind_index = self.kind_indexes.get(kind)
        return kind_index.rows.keys() if kind_index is not None else _NO_KEYS

    def digest(self, kind: str) -> tuple[int, int]:
        kind_index = self.kind_indexes.get(kind)
        return (kind_index.digest.count, kind_index.digest.value) if kind_index is not None else (0, 0)

    def put(self, key: str, row: Row) -> None:
        kind_index = self.kind_indexes.get(row.kind)
        if kind_index is None:
            kind_index = self.kind_indexes[intern(row.kind)] = KindIndex()
        kind_index.put(key, row)
        self.changes += 1

    def remove(self, kind: str, key: str) -> None:
        kind_index = self.kind_indexes.get(kind)
        if kind_index is not None:
            kind_index.remove(key)
            self.changes += 1

    def counts(self) -> dict[str, int]:
        return {kind: len(kind_index.rows) for kind, kind_index in self.kind_indexes.items()}


class Index:
    """The indexes of all clusters. Results are copies, so that readers may pause while the index changes."""

    def __init__(self) -> None:
        self.clusters: dict[str, ClusterIndex] = {}

    def cluster(self, name: str) -> ClusterIndex:
        """The index of a cluster, created if needed."""
        found = self.clusters.get(name)
        if found is None:
            name = intern(name)
            found = self.clusters[name] = ClusterIndex(name)
        return found

    def forget(self, name: str) -> None:
        self.clusters.pop(name, None)

    def rows(self, kind: str, *, cluster: str = "", namespace: str = "") -> Iterator[Row]:
        for kind_index in self._kind_indexes(kind, cluster):
            yield from kind_index.of_namespace(namespace) if namespace else list(kind_index.rows.values())

    def row(self, cluster: str, kind: str, key: str) -> Row | None:
        found = self.clusters.get(cluster)
        kind_index = found.kind_indexes.get(kind) if found is not None else None
        return kind_index.rows.get(key) if kind_index is not None else None

    def labelled(self, kind: str, label: str, value: str, *, cluster: str = "") -> Iterator[Row]:
        for kind_index in self._kind_indexes(kind, cluster):
            yield from kind_index.labelled(label, value)

    def having(self, kind: str, field: str, value: str, *, cluster: str = "") -> Iterator[Row]:
        for kind_index in self._kind_indexes(kind, cluster):
            yield from kind_index.having(field, value)

    def __len__(self) -> int:
        return sum(
            len(kind_index.rows) for cluster in self.clusters.values() for kind_index in cluster.kind_indexes.values()
        )

    def _kind_indexes(self, kind: str, cluster: str) -> Iterable[KindIndex]:
        clusters = self.clusters
        names = (cluster,) if cluster else tuple(clusters)
        found = (clusters[name].kind_indexes.get(kind) for name in names if name in clusters)
        return [kind_index for kind_index in found if kind_index is not None]


def _labels(row: Row) -> Mapping[str, str]:
    summary = row.summary
    return summary.labels if isinstance(summary, Summary) else {}


def terms(row: Row) -> tuple[tuple[str, str], ...]:
    """(field, value) pairs that are indexed besides labels and namespace."""
    match row.summary:
        case PodSummary() as pod:
            found = [("node", pod.node), ("ip", pod.ip), ("owner", pod.owner)]
            found += [("image", container.image) for container in pod.containers]
        case SliceSummary() as slice_:
            found = [("service", f"{row.namespace}/{slice_.service}")] if slice_.service else []
        case ServiceSummary() as service:
            found = [("ip", service.cluster_ip), *(("ip", address) for address in service.external_ips)]
        case NodeSummary() as node:
            found = [("ip", node.address)]
        case DeploymentSummary() as deployment:
            found = [("image", image) for image in deployment.images]
        case IstioSummary() | RouteSummary() as routed:
            found = [("host", host) for host in routed.hosts]
        case _:
            return ()
    return tuple(dict.fromkeys(term for term in found if term[1]))
