"""Chooses the clusters and indexes for a query, so that not all rows are scanned.

A plan yields at least the matching rows, and the whole expression is then tested on each row. So a plan affects only
the speed; a test compares its results with a full scan.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from shoal.navigator.answers.query.fields import APP_LABELS, DEPLOYMENT_LABEL, ROUTE_KINDS, ROUTES
from shoal.navigator.answers.query.model import And, Compare, Expr, FieldRef, Not, Or, Query, Truth, refs_of
from shoal.navigator.model import KINDS

MOST_LOOKUPS = 500


@dataclass(frozen=True, slots=True)
class ByKey:
    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class ByLabel:
    label: str
    value: str


@dataclass(frozen=True, slots=True)
class ByField:
    """By what the manager's index has besides labels; see ``INDEXED``."""

    field: str
    value: str


@dataclass(frozen=True, slots=True)
class ByNamespace:
    namespace: str


@dataclass(frozen=True, slots=True)
class ByService:
    """Pods that are endpoints of a service."""

    service: str


Lookup = ByKey | ByLabel | ByField | ByNamespace | ByService
_RANK: tuple[type, ...] = (ByKey, ByService, ByLabel, ByField, ByNamespace)

_BY_HOST = {"host": "host"}
INDEXED: Mapping[str, Mapping[str, str]] = {
    **{kind.name: _BY_HOST for kind in KINDS.values() if kind.istio},
    **dict.fromkeys((ROUTES, *ROUTE_KINDS), _BY_HOST),
    "pods": {"node": "node", "ip": "ip", "owner": "owner", "image": "image"},
    "services": {"cluster_ip": "ip", "external_ip": "ip"},
    "nodes": {"address": "ip"},
    "deployments": {"image": "image"},
}
"""Fields of queries that have an index, by kind, with the name of that index. A lookup finds at least those rows."""

DeploymentsOf = Callable[[str, str], Sequence[str]]
"""Ids of the fleet's deployments whose field (app, project, environment) has a value."""


@dataclass(frozen=True, slots=True)
class QueryPlan:
    """``of_clusters`` must hold for a cluster; ``lookups`` None means everything in it."""

    of_clusters: Expr | None
    lookups: tuple[Lookup, ...] | None

    def shown(self, clusters: int, of: int) -> str:
        where = f"{clusters} of {of} clusters" if clusters != of else f"all {of} clusters"
        if self.lookups is None:
            return f"scan everything in {where}"
        first = ", ".join(_shown(each) for each in self.lookups[:3])
        more = f" and {len(self.lookups) - 3} more" if len(self.lookups) > 3 else ""
        return f"{first}{more} in {where}"


def plan(query: Query, deployments_of: DeploymentsOf) -> QueryPlan:
    parts = query.where.parts if isinstance(query.where, And) else (query.where,) if query.where is not None else ()
    of_clusters = [part for part in parts if all(ref.field.of_cluster for ref in refs_of(part))]
    where = query.where if query.kind.reported else None  # what is made of other kinds has no index
    found = _lookups(where, query, deployments_of) if where is not None else None
    return QueryPlan(_all(of_clusters), found)


def _all(parts: Sequence[Expr]) -> Expr | None:
    return None if not parts else parts[0] if len(parts) == 1 else And(tuple(parts))


def _lookups(expr: Expr, query: Query, deployments_of: DeploymentsOf) -> tuple[Lookup, ...] | None:
    match expr:
        case Compare(ref, op, values) if op in ("=", "in"):
            return _compared(ref, [str(value) for value in values], query, deployments_of)
        case And(parts):
            keys = _keys(parts)
            if keys is not None:
                return keys
            found = [each for part in parts if (each := _lookups(part, query, deployments_of)) is not None]
            return min(found, key=_cost, default=None)
        case Or(parts):
            each_part = [_lookups(part, query, deployments_of) for part in parts]
            return _bounded([each for found in each_part for each in found or ()]) if all(
                found is not None for found in each_part
            ) else None  # fmt: skip
        case Compare() | Truth() | Not():
            return None


def _compared(
    ref: FieldRef, values: Sequence[str], query: Query, deployments_of: DeploymentsOf
) -> tuple[Lookup, ...] | None:
    name = ref.field.name
    if name == "labels" and ref.key:
        return _bounded([ByLabel(ref.key, value) for value in values])
    if name == "deployment":
        return _bounded([ByLabel(DEPLOYMENT_LABEL, value) for value in values])
    if name == "namespace":
        return _bounded([ByNamespace(value) for value in values if value]) if all(values) else None
    if name == "name" and query.kind.name == "nodes":
        return _bounded([ByKey("", value) for value in values])
    if name == "service" and query.kind.name == "pods":
        return _bounded([ByService(value) for value in values])
    if name in INDEXED.get(query.kind.name, {}) and all(values):
        return _bounded([ByField(INDEXED[query.kind.name][name], value) for value in values])
    if name in ("app", "project", "environment") and not ref.field.of_cluster:
        ids = [id_ for value in values for id_ in deployments_of(name, value)]
        labels = APP_LABELS if name == "app" else ()
        return _bounded(
            [
                *(ByLabel(label, value) for label in labels for value in values),
                *(ByLabel(DEPLOYMENT_LABEL, id_) for id_ in ids),
            ]
        )
    return None


def _keys(parts: Sequence[Expr]) -> tuple[Lookup, ...] | None:
    """Namespace and name together name an object."""
    names, namespaces = _values(parts, "name"), _values(parts, "namespace")
    if names is None or namespaces is None or not all(namespaces):
        return None
    return _bounded([ByKey(namespace, name) for namespace in namespaces for name in names])


def _values(parts: Sequence[Expr], field: str) -> Sequence[str] | None:
    for part in parts:
        if isinstance(part, Compare) and part.ref.field.name == field and part.op in ("=", "in"):
            return [str(value) for value in part.values]
    return None


def _bounded(lookups: Sequence[Lookup]) -> tuple[Lookup, ...] | None:
    once = tuple(dict.fromkeys(lookups))
    return once if len(once) <= MOST_LOOKUPS else None


def _cost(lookups: tuple[Lookup, ...]) -> tuple[int, int]:
    return max((_RANK.index(type(each)) for each in lookups), default=-1), len(lookups)


def _shown(lookup: Lookup) -> str:
    match lookup:
        case ByKey(namespace, name):
            return f"{namespace}/{name}" if namespace else name
        case ByLabel(label, value):
            return f"index of label {label}={value}"
        case ByField(field, value):
            return f"index of {field} {value}"
        case ByNamespace(namespace):
            return f"namespace {namespace}"
        case ByService(service):
            return f"endpoints of service {service}"
