"""Differences between two moments, or between two clusters: objects added and removed, fields changed.

Two moments are compared by fingerprints, so only changed objects are read. Objects of two clusters are never equal, so
that comparison leaves out fields that a cluster or its agent writes (uids, versions, addresses, status), and kinds with
generated names.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from shoal.navigator.model import LASTING, Row
from shoal.navigator.view import View

Json = dict[str, Any]

OF_MACHINES = frozenset({"pods", "endpointslices", "nodes", "shardinstances", "shardslots", "istiocontrolplaneconfigs"})
MOST_READ = 500  # objects whose fields are compared
MOST_FIELDS = 50  # that are shown of one object
_NOISE = frozenset({"resourceVersion", "managedFields", "generation"})
_OF_A_CLUSTER = _NOISE | {"uid", "creationTimestamp", "selfLink", "ownerReferences"}
_OF_AN_AGENT = frozenset({"shoal.dev/applied", "shoal.dev/version", "shoal.dev/cluster", "shoal.dev/shard"})
_ADDRESSES = frozenset({"clusterIP", "clusterIPs", "healthCheckNodePort", "nodePort", "loadBalancerIP"})


@dataclass(frozen=True, slots=True)
class FieldChange:
    """A changed value; None where the field is absent."""

    path: str
    before: Any
    after: Any

    def as_json(self) -> Json:
        return {"path": self.path, "before": self.before, "after": self.after}


@dataclass(frozen=True, slots=True, kw_only=True)
class DiffScope:
    """The objects to compare; empty: all."""

    kinds: tuple[str, ...] = ()
    namespace: str = ""
    cluster: str = ""  # for two moments


@dataclass(frozen=True, slots=True)
class DiffSide:
    """One side of a comparison: a view, or one cluster of it."""

    view: View
    cluster: str = ""


async def diff_moments(before: View, after: View, scope: DiffScope, *, limit: int = MOST_READ) -> Json:
    kinds = scope.kinds or LASTING
    return await _diff(
        DiffSide(before, scope.cluster), DiffSide(after, scope.cluster), kinds, scope, limit, by_cluster=True
    )


async def diff_clusters(view: View, left: str, right: str, scope: DiffScope, *, limit: int = MOST_READ) -> Json:
    kinds = scope.kinds or tuple(name for name in LASTING if name not in OF_MACHINES)
    return await _diff(DiffSide(view, left), DiffSide(view, right), kinds, scope, limit, by_cluster=False)


async def _diff(
    left: DiffSide, right: DiffSide, kinds: Sequence[str], scope: DiffScope, limit: int, *, by_cluster: bool
) -> Json:  # fmt: skip
    added: list[Row] = []
    removed: list[Row] = []
    pairs: list[tuple[Row, Row]] = []
    for kind in kinds:
        old, new = (_rows(side, kind, scope.namespace, by_cluster=by_cluster) for side in (left, right))
        added += [new[key] for key in sorted(new.keys() - old.keys())]
        removed += [old[key] for key in sorted(old.keys() - new.keys())]
        for key in sorted(old.keys() & new.keys()):
            if not by_cluster or old[key].fingerprint != new[key].fingerprint:
                pairs.append((old[key], new[key]))
    changed, unread = await _changed(left.view, right.view, pairs, limit, by_cluster=by_cluster)
    return {
        "added": [_ref(row) for row in added[:limit]],
        "removed": [_ref(row) for row in removed[:limit]],
        "changed": changed,
        "totals": {"added": len(added), "removed": len(removed), "changed": len(changed) + unread},
        "complete": max(len(added), len(removed)) <= limit and not unread,
    }


def _rows(side: DiffSide, kind: str, namespace: str, *, by_cluster: bool) -> dict[tuple[str, str, str], Row]:
    return {
        (row.cluster if by_cluster else "", row.namespace, row.name): row
        for row in side.view.rows(kind, cluster=side.cluster, namespace=namespace)
    }


async def _changed(
    before: View, after: View, pairs: Sequence[tuple[Row, Row]], limit: int, *, by_cluster: bool
) -> tuple[list[Json], int]:
    """The objects whose fields differ, and how many were not compared."""
    found: list[Json] = []
    looked = 0
    while looked < len(pairs) and len(found) < limit:
        part = pairs[looked : looked + 100]
        looked += len(part)
        old = await before.objects([each for each, _ in part])
        new = await after.objects([each for _, each in part])
        for (row, _), left, right in zip(part, old, new, strict=True):
            if left is None or right is None:
                continue
            fields = field_changes(left, right, between_clusters=not by_cluster)
            if fields:
                shown = [each.as_json() for each in fields[:MOST_FIELDS]]
                found.append({**_ref(row), "fields": shown, "fieldCount": len(fields)})
    return found, len(pairs) - looked


def _ref(row: Row) -> Json:
    return {"kind": row.kind, "cluster": row.cluster, "namespace": row.namespace, "name": row.name}


def field_changes(before: Any, after: Any, *, between_clusters: bool = False) -> list[FieldChange]:
    """The paths at which two objects differ. List items with names are matched by name."""
    if between_clusters:
        before, after = _comparable(before), _comparable(after)
    else:
        before, after = _without(before, _NOISE), _without(after, _NOISE)
    return list(_walk("", before, after))


def _without(obj: Any, names: Iterable[str]) -> Any:
    if not isinstance(obj, Mapping) or not isinstance(obj.get("metadata"), Mapping):
        return obj
    left_out = frozenset(names)
    return {**obj, "metadata": {key: value for key, value in obj["metadata"].items() if key not in left_out}}


def _comparable(obj: Any) -> Any:
    obj = _without(obj, _OF_A_CLUSTER)
    if not isinstance(obj, Mapping):
        return obj
    return {key: _stripped(value) for key, value in obj.items() if key != "status"}


def _stripped(value: Any) -> Any:
    if isinstance(value, Mapping):
        left_out = _ADDRESSES | _OF_AN_AGENT
        return {key: _stripped(inner) for key, inner in value.items() if key not in left_out}
    return [_stripped(inner) for inner in value] if isinstance(value, list) else value


def _walk(path: str, before: Any, after: Any) -> Iterator[FieldChange]:
    if before == after:
        return
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        for key in sorted(before.keys() | after.keys()):
            yield from _walk(_joined(path, str(key)), before.get(key), after.get(key))
    elif isinstance(before, list) and isinstance(after, list):
        yield from _lists(path, before, after)
    else:
        yield FieldChange(path, before, after)


def _lists(path: str, before: list[Any], after: list[Any]) -> Iterator[FieldChange]:
    old, new = _named(before), _named(after)
    if old is not None and new is not None:
        for name in dict.fromkeys([*old, *new]):
            yield from _walk(f"{path}[{name}]", old.get(name), new.get(name))
        return
    for number in range(max(len(before), len(after))):
        yield from _walk(
            f"{path}[{number}]",
            before[number] if number < len(before) else None,
            after[number] if number < len(after) else None,
        )


def _named(items: list[Any]) -> dict[str, Any] | None:
    """By name, when each has one of its own."""
    found: dict[str, Any] = {}
    for item in items:
        name = item.get("name", item.get("type")) if isinstance(item, Mapping) else None
        if not isinstance(name, str) or name in found:
            return None
        found[name] = item
    return found


def _joined(path: str, key: str) -> str:
    plain = key.replace("_", "").isalnum()
    if not plain:
        return f"{path}['{key}']"
    return f"{path}.{key}" if path else key
