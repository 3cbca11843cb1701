"""What a caller may read of the manager's state: the one place that leaves out everything else.

Each source of answers has a counterpart here that takes an ``Access``. Answers are computed from these, so counts,
suggestions and errors come from what the caller may read, and an object outside of it does not exist for them.

An object belongs to the workspace that its label names, else to that of its namespace. What belongs to no namespace
(nodes) and what is about a whole cluster (the settings of its edge, the configuration of a proxy) needs a scope of
whole clusters.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Any

import orjson

from shoal.base.access import Access, matches
from shoal.errors import ApiError, Forbidden, NotFound, ServiceUnavailable
from shoal.kube.objects import Obj
from shoal.navigator.answers.asking import as_items, parts_of, whole_answer
from shoal.navigator.answers.checks import CheckStore, ConcealedCheck, SavedCheck
from shoal.navigator.answers.query.fields import DEPLOYMENT_LABEL, WORKSPACE_LABEL
from shoal.navigator.connections import UNKNOWN, CallEndpoint, ServiceConnection, connections_json, read_connections
from shoal.navigator.model import KINDS, Cluster, KindStatus, Row
from shoal.navigator.summary_base import Summary
from shoal.navigator.view import ClusterAdmin, EdgeAdmin, Edges, EdgeState, Fleet, History, Moment, View
from shoal.wire.navigator.v1.navigator_pb import ClusterEvents, PodLogs, ProxyConfig, ServiceConnections

_NO_LABELS: Mapping[str, str] = {}
_NAMESPACES = "namespaces"
_MOST_MOMENTS = 100_000
_PLURALS = {kind.kind: name for name, kind in KINDS.items() if kind.namespaced}
_HIDDEN = CallEndpoint(UNKNOWN, UNKNOWN, UNKNOWN)


class ScopedView:
    """Implements ``View``, for one request: it remembers what it has decided."""

    def __init__(self, view: View, access: Access) -> None:
        self._view = view
        self._access = access
        self._places: dict[tuple[str, str], bool | tuple[str, ...]] = {}
        self._workspaces: dict[tuple[str, str], str | None] = {}
        self._known: dict[str, bool] = {}

    @property
    def at_s(self) -> float:
        return self._view.at_s

    def clusters(self) -> Sequence[Cluster]:
        return [self._shown(each) for each in self._view.clusters() if self._has(each.name)]

    def cluster(self, name: str) -> Cluster | None:
        found = self._view.cluster(name)
        return self._shown(found) if found is not None and self._has(name) else None

    def rows(self, kind: str, *, cluster: str = "", namespace: str = "") -> Iterable[Row]:
        return self._seen(self._view.rows(kind, cluster=cluster, namespace=namespace))

    def row(self, cluster: str, kind: str, key: str) -> Row | None:
        found = self._view.row(cluster, kind, key)
        return found if found is not None and self._sees(found) else None

    def labelled(self, kind: str, label: str, value: str, *, cluster: str = "") -> Iterable[Row]:
        return self._seen(self._view.labelled(kind, label, value, cluster=cluster))

    def having(self, kind: str, field: str, value: str, *, cluster: str = "") -> Iterable[Row]:
        having = getattr(self._view, "having", None)
        found = (
            self._view.rows(kind, cluster=cluster) if having is None else having(kind, field, value, cluster=cluster)
        )
        return self._seen(found)

    async def objects(self, rows: Sequence[Row]) -> list[Obj | None]:
        return await self._view.objects(rows)

    def is_whole(self, cluster: str) -> bool:
        """Whether everything in a cluster may be read."""
        return any(scope.is_of_whole_clusters for scope in self._access.of_cluster(cluster))

    def sees(self, cluster: str, kind: str, namespace: str, name: str, labels: Mapping[str, str]) -> bool:
        place = name if kind == _NAMESPACES else namespace
        limits = self._limits(cluster, place)
        if isinstance(limits, bool):
            return limits
        workspace = labels.get(WORKSPACE_LABEL)
        if workspace is None and kind != _NAMESPACES:
            workspace = self._workspace(cluster, place)
        return workspace is not None and matches(limits, workspace)

    def sees_namespace(self, cluster: str, namespace: str) -> bool:
        """Whether all that is in a namespace may be read, but for what is labelled as another workspace's."""
        limits = self._limits(cluster, namespace)
        if isinstance(limits, bool):
            return limits
        workspace = self._workspace(cluster, namespace)
        return workspace is not None and matches(limits, workspace)

    def may_have(self, cluster: str, namespace: str) -> bool:
        """Whether something in a namespace may be read."""
        return self._limits(cluster, namespace) is not False

    def _seen(self, rows: Iterable[Row]) -> Iterator[Row]:
        return filter(self._sees, rows)

    def _sees(self, row: Row) -> bool:
        labels = row.summary.labels if isinstance(row.summary, Summary) else _NO_LABELS
        return self.sees(row.cluster, row.kind, row.namespace, row.name, labels)

    def _limits(self, cluster: str, namespace: str) -> bool | tuple[str, ...]:
        """True: all of it, False: nothing, else what belongs to workspaces of these patterns."""
        place = cluster, namespace
        found = self._places.get(place)
        if found is None:
            scopes = [
                scope for scope in self._access.of_cluster(cluster)
                if not scope.namespaces or (namespace and matches(scope.namespaces, namespace))
            ]  # fmt: skip
            found = (
                any(not scope.workspaces for scope in scopes)
                or tuple(pattern for scope in scopes for pattern in scope.workspaces)
                or False
            )
            self._places[place] = found
        return found

    def _workspace(self, cluster: str, namespace: str) -> str | None:
        place = cluster, namespace
        if place not in self._workspaces:
            row = self._view.row(cluster, _NAMESPACES, namespace) if namespace else None
            labels = row.summary.labels if row is not None and isinstance(row.summary, Summary) else _NO_LABELS
            self._workspaces[place] = labels.get(WORKSPACE_LABEL)
        return self._workspaces[place]

    def _has(self, cluster: str) -> bool:
        """A cluster in which only a workspace may be read is known only if it has something of it."""
        found = self._known.get(cluster)
        if found is None:
            scopes = self._access.of_cluster(cluster)
            found = self._known[cluster] = any(not scope.workspaces for scope in scopes) or (
                bool(scopes)
                and any(True for kind in (_NAMESPACES, "deployments", "pods") for _ in self.rows(kind, cluster=cluster))
            )
        return found

    def _shown(self, cluster: Cluster) -> Cluster:
        if self.is_whole(cluster.name):
            return cluster
        reason = "its API server cannot be used" if cluster.reason else ""
        return replace(cluster, kinds=tuple(_concealed(each) for each in cluster.kinds), reason=reason)


def _concealed(status: KindStatus) -> KindStatus:
    """Without the number of rows, and without what an error may name."""
    return replace(status, rows=None, error="the kind cannot be read" if status.error else "")


class ScopedHistory:
    """Implements ``History``."""

    def __init__(self, history: History, now: ScopedView, access: Access) -> None:
        self._history = history
        self._now = now
        self._access = access

    async def at(self, at_s: float, *, cluster: str = "") -> View:
        return ScopedView(await self._history.at(at_s, cluster=cluster), self._access)

    async def first_s(self) -> float | None:
        """Not known: it is the beginning of all clusters."""
        return None

    async def between(
        self, from_s: float, to_s: float, *, cluster: str = "", kind: str = "", key: str = "", limit: int = 1000
    ) -> list[Moment]:
        wanted = limit
        while True:
            found = await self._history.between(from_s, to_s, cluster=cluster, kind=kind, key=key, limit=wanted)
            seen = [self._shown(each) for each in found if self._sees(each, each.data or each.before)]
            if len(seen) >= limit or len(found) < wanted or wanted >= _MOST_MOMENTS:
                return seen[:limit]
            wanted = min(wanted * 8, _MOST_MOMENTS)

    def _shown(self, moment: Moment) -> Moment:
        return moment if self._sees(moment, moment.before) else replace(moment, before=None)

    def _sees(self, moment: Moment, data: bytes | None) -> bool:
        namespace, slash, name = moment.key.partition("/")
        if not slash:
            namespace, name = "", moment.key
        labels = (orjson.loads(data).get("metadata") or {}).get("labels") if data is not None else None
        return self._now.sees(moment.cluster, moment.kind, namespace, name, labels or _NO_LABELS)


class ScopedEdges:
    """Implements ``Edges``. A request that names its object is passed on if the object may be read; of the answers
    about a whole cluster only a part is."""

    def __init__(self, edges: Edges, view: ScopedView) -> None:
        self._edges = edges
        self._view = view

    async def ask(self, cluster: str, request: object, *, deadline_s: float) -> AsyncIterator[bytes]:
        if self._view.cluster(cluster) is None:
            raise ServiceUnavailable(f"no edge is connected for cluster {cluster!r}")
        if self._view.is_whole(cluster):
            async with aclosing(parts_of(self._edges, cluster, request, deadline_s=deadline_s)) as parts:
                async for part in parts:
                    yield part
            return
        match request:
            case PodLogs():
                if self._view.row(cluster, "pods", f"{request.namespace}/{request.pod}") is None:
                    raise NotFound(f"cluster {cluster!r} has no pod {request.namespace}/{request.pod}")
                async with aclosing(parts_of(self._edges, cluster, request, deadline_s=deadline_s)) as parts:
                    async for part in parts:
                        yield part
            case ClusterEvents():
                yield await self._events(cluster, request, deadline_s)
            case ServiceConnections():
                yield await self._connections(cluster, request, deadline_s)
            case ProxyConfig():
                raise Forbidden("the configuration of a proxy names services of the whole cluster, of which your token "
                                "may read only a part")  # fmt: skip
            case _:
                raise Forbidden(f"your token may read only a part of cluster {cluster!r}")

    async def _events(self, cluster: str, request: ClusterEvents, deadline_s: float) -> bytes:
        if request.namespace and not self._view.may_have(cluster, request.namespace):
            return b""
        answer = await self._asked(cluster, request, deadline_s)
        seen = [each for each in as_items(answer) if isinstance(each, dict) and self._sees_event(cluster, each)]
        return b"\n".join(orjson.dumps(each) for each in seen)

    def _sees_event(self, cluster: str, event: dict[str, Any]) -> bool:
        metadata = event.get("metadata") or {}
        about = event.get("involvedObject") or event.get("regarding") or {}
        namespace = metadata.get("namespace") or about.get("namespace") or ""
        labels = metadata.get("labels") or _NO_LABELS
        if self._view.sees(cluster, "events", namespace, metadata.get("name") or "", labels):
            return True
        kind = _PLURALS.get(about.get("kind") or "", "")  # else it may be about an object that may be read
        return self._view.row(cluster, kind, f"{namespace}/{about.get('name') or ''}") is not None

    async def _connections(self, cluster: str, request: ServiceConnections, deadline_s: float) -> bytes:
        found, _ = read_connections(orjson.loads(await self._asked(cluster, request, deadline_s)), cluster)
        return orjson.dumps(connections_json(filter(None, (self._shown(each) for each in found))))

    def _shown(self, connection: ServiceConnection) -> ServiceConnection | None:
        """An end that may not be read is unknown; None when both are."""
        source, destination = self._sees_end(connection.source), self._sees_end(connection.destination)
        if not source and not destination:
            return None
        return replace(
            connection,
            source=connection.source if source else _HIDDEN,
            destination=connection.destination if destination else _HIDDEN,
        )

    def _sees_end(self, end: CallEndpoint) -> bool:
        if end.deployment:
            labelled = self._view.labelled("pods", DEPLOYMENT_LABEL, end.deployment, cluster=end.cluster)
            return any(True for _ in labelled)
        return self._view.sees_namespace(end.cluster, end.namespace)

    async def _asked(self, cluster: str, request: object, deadline_s: float) -> bytes:
        """An error about the whole cluster may name what the caller may not read."""
        try:
            return await whole_answer(self._edges, cluster, request, deadline_s=deadline_s)
        except ApiError:
            raise ServiceUnavailable(f"the edge of cluster {cluster!r} could not answer") from None


class ScopedFleet:
    """Implements ``Fleet``: deployments of which an object may be read."""

    def __init__(self, fleet: Fleet, view: ScopedView) -> None:
        self._fleet = fleet
        self._view = view

    def deployments(self) -> Iterator[Obj]:
        for each in self._fleet.deployments():
            id_ = str(each.get("id") or "")
            rows = (self._view.labelled(kind, DEPLOYMENT_LABEL, id_) for kind in ("deployments", "pods"))
            if any(True for found in rows for _ in found):
                yield each


class ScopedOptions:
    """Implements ``EdgeAdmin``: the settings of an edge name namespaces, so they need a scope of its whole cluster."""

    def __init__(self, options: EdgeAdmin, view: ScopedView) -> None:
        self._options = options
        self._view = view

    def for_all(self) -> Mapping[str, str]:
        return {}

    def edges(self) -> list[EdgeState]:
        return [each for each in self._options.edges() if self._view.is_whole(each.cluster)]

    def edge(self, cluster: str) -> EdgeState:
        need_whole(self._view, cluster)
        return self._options.edge(cluster)

    async def change(self, cluster: str, put: Mapping[str, str], remove: Iterable[str]) -> None:
        if not cluster:
            raise Forbidden("options of all edges need a token that may read everything")
        need_whole(self._view, cluster)
        await self._options.change(cluster, put, remove)


class ScopedAdmin:
    """Implements ``ClusterAdmin``."""

    def __init__(self, admin: ClusterAdmin, view: ScopedView) -> None:
        self._admin = admin
        self._view = view

    async def forget(self, cluster: str, *, revoke: bool = False) -> None:
        need_whole(self._view, cluster)
        await self._admin.forget(cluster, revoke=revoke)

    async def edge_token(self, cluster: str) -> str:
        self._need_scope(cluster)
        return await self._admin.edge_token(cluster)

    async def revoke_edge_tokens(self, cluster: str) -> None:
        self._need_scope(cluster)
        await self._admin.revoke_edge_tokens(cluster)

    def _need_scope(self, cluster: str) -> None:
        """An edge reports a whole cluster. The cluster may not be known yet."""
        if not self._view.is_whole(cluster):
            raise Forbidden(f"your token has no scope for the whole of cluster {cluster[:100]!r}")


class ScopedChecks:
    """Implements ``CheckStore``: checks can be run, but not changed, and their queries are not shown."""

    def __init__(self, checks: CheckStore) -> None:
        self._checks = checks

    def all(self) -> Mapping[str, SavedCheck]:
        return {name: ConcealedCheck.of(each) for name, each in self._checks.all().items()}

    def put(self, check: SavedCheck) -> None:
        raise self._refused()

    def remove(self, name: str) -> None:
        raise self._refused()

    @staticmethod
    def _refused() -> Forbidden:
        return Forbidden("checks are for all clusters: to change them use a token that may read everything")


def need_whole(view: ScopedView, cluster: str) -> None:
    if view.cluster(cluster) is None:
        raise NotFound(f"cluster {cluster[:100]!r} not found")
    if not view.is_whole(cluster):
        raise Forbidden(f"your token may read only a part of cluster {cluster!r}")
