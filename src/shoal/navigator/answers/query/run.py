"""Runs a query over a view: finds rows by the plan, tests them, sorts them and cuts a page.

A page continues after the last row of the previous page, by that row's sort key and not by an offset, so that rows that
are added or removed in between cause neither repetitions nor gaps.
"""

from __future__ import annotations

import base64
import binascii
import heapq
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import Any, Protocol

import orjson

from shoal.errors import BadRequest
from shoal.navigator.answers.apps import app_rows
from shoal.navigator.answers.fleet import Deployments
from shoal.navigator.answers.joins import KINDS_OF_JOIN, joins_for
from shoal.navigator.answers.query.compiled import BY_NAME, Matching, columns, key_of, matching, order_key
from shoal.navigator.answers.query.fields import APPS, CLUSTERS
from shoal.navigator.answers.query.model import Expr, FieldRef, FieldType, Order, Query, QueryField, refs_of
from shoal.navigator.answers.query.plan import ByField, ByKey, ByLabel, ByNamespace, ByService, Lookup, QueryPlan, plan
from shoal.navigator.model import FORBIDDEN, Cluster, Row
from shoal.navigator.summaries import SliceSummary
from shoal.navigator.view import View

SERVICE_NAME_LABEL = "kubernetes.io/service-name"
_COUNT = "count"
KINDS_OF_KIND = {APPS: ("pods",)}  # of what is made of other kinds
_TURN = 20_000  # rows: a few milliseconds
_UNKNOWN = QueryField(name="", type=FieldType.TEXT, code="", nullable=True)
_by_key = attrgetter(*BY_NAME)


class Having(Protocol):
    """What a view may have besides: rows by the value of a field, from an index."""

    def __call__(self, kind: str, field: str, value: str, *, cluster: str = "") -> Iterable[Row]: ...


@dataclass(frozen=True, slots=True)
class Column:
    name: str
    type: str


@dataclass(frozen=True, slots=True)
class ForbiddenKind:
    """A kind that the edge of a cluster may not read. Its rows, if any, are from before, or of some namespaces."""

    cluster: str
    kind: str
    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryResult:
    """``total`` is how many there are, on all pages; ``position`` is where the next page begins, empty on the last."""

    kind: str
    columns: tuple[Column, ...]
    items: list[dict[str, Any]]
    total: int
    position: str = ""
    plan: str = ""
    rows: Sequence[Row] = field(default=(), repr=False)  # those of the page; none for counts
    forbidden: Sequence[ForbiddenKind] = ()  # what the answer needed and an edge may not read: there may be more


@dataclass(frozen=True, slots=True)
class QueryPage:
    limit: int | None = None
    after: str = ""


ALL = QueryPage()


class Runner:
    """Answers queries over one view. ``deployments`` is asked at most once."""

    def __init__(self, view: View, deployments: Callable[[], Deployments]) -> None:
        self._view = view
        self._now_s = view.at_s
        self._read = deployments
        self._deployments: Deployments | None = None

    def run(self, query: Query, page: QueryPage = ALL) -> QueryResult:
        steps = self.steps(query, page)
        while True:
            try:
                next(steps)
            except StopIteration as stop:
                result: QueryResult = stop.value
                return result

    def steps(self, query: Query, page: QueryPage = ALL) -> Generator[None, None, QueryResult]:
        """The same with regular pauses, so that other tasks can run: 200 000 rows take a while. The set of rows is
        fixed before the first pause, and rows never change."""
        made = plan(query, lambda name, value: self._fleet().having(name, value))
        clusters = self._clusters(made.of_clusters)
        shown = made.shown(len(clusters), len(self._view.clusters()))
        candidates = [row for rows in self._candidates(query, made, clusters) for row in rows]
        test = self._test(query)
        found: list[Row] = []
        for start in range(0, len(candidates), _TURN):
            found += test(candidates[start : start + _TURN])
            yield
        result = self._counted(query, found, shown) if query.counted else self._listed(query, found, page, shown)
        return replace(result, forbidden=self._forbidden(query, clusters))

    def _forbidden(self, query: Query, clusters: Sequence[Cluster]) -> tuple[ForbiddenKind, ...]:
        needs = {need for ref in refs_of(query.where) for need in ref.field.needs}
        kinds = {*query.kind.reported, *KINDS_OF_KIND.get(query.kind.name, ())}
        kinds |= {kind for need in needs for kind in KINDS_OF_JOIN.get(need, ())}
        return tuple(
            ForbiddenKind(cluster.name, status.kind, status.error)
            for cluster in clusters
            for status in cluster.kinds
            if status.kind in kinds and status.state == FORBIDDEN
        )

    def scan(self, query: Query) -> list[Row]:
        """Every row that matches, found without a plan: what plans are compared with."""
        view, kind = self._view, query.kind.name
        if kind == CLUSTERS:
            return self._test(query)(cluster_row(each) for each in view.clusters())
        if kind == APPS:
            return self._test(query)(app_rows(view, self._fleet(), self._places("")))
        return self._test(query)(row for each in query.kind.reported for row in view.rows(each))

    def _fleet(self) -> Deployments:
        if self._deployments is None:
            self._deployments = self._read()
        return self._deployments

    def _joins(self, refs: Iterable[FieldRef]) -> dict[str, Any]:
        return joins_for((name for ref in refs for name in ref.field.needs), self._view, self._fleet)

    def _clusters(self, of_clusters: Expr | None) -> list[Cluster]:
        known = list(self._view.clusters())
        if of_clusters is None:
            return known
        test = matching(of_clusters, self._joins(refs_of(of_clusters)), now_s=self._now_s)
        allowed = {row.cluster for row in test(cluster_row(each) for each in known)}
        return [each for each in known if each.name in allowed]

    def _candidates(self, query: Query, made: QueryPlan, clusters: Sequence[Cluster]) -> Iterator[Iterable[Row]]:
        view, kind = self._view, query.kind.name
        if kind == CLUSTERS:
            yield [cluster_row(each) for each in clusters]
        elif kind == APPS:
            yield app_rows(view, self._fleet(), [each.name for each in clusters])
        elif made.lookups is None and made.of_clusters is None:
            for each in query.kind.reported:
                yield view.rows(each)
        else:
            once = made.lookups is None or len(made.lookups) == 1
            seen: set[tuple[str, ...]] = set()
            for place in [""] if made.of_clusters is None else [each.name for each in clusters]:
                for lookup in made.lookups or (None,):
                    for reported in query.kind.reported:
                        rows = self._rows(reported, lookup, place)
                        yield rows if once else _unseen(rows, seen)

    def _rows(self, kind: str, lookup: Lookup | None, cluster: str) -> Iterable[Row]:
        """``cluster`` may be empty: all of them."""
        view = self._view
        match lookup:
            case None:
                return view.rows(kind, cluster=cluster)
            case ByNamespace(namespace):
                return view.rows(kind, cluster=cluster, namespace=namespace)
            case ByLabel(label, value):
                return view.labelled(kind, label, value, cluster=cluster)
            case ByField(field, value):
                having: Having | None = getattr(view, "having", None)
                return (
                    view.rows(kind, cluster=cluster) if having is None else having(kind, field, value, cluster=cluster)
                )
            case ByKey(namespace, name):
                return self._by_key(kind, [(place, namespace, name) for place in self._places(cluster)])
            case ByService(service):
                slices = view.labelled("endpointslices", SERVICE_NAME_LABEL, service, cluster=cluster)
                return self._by_key(kind, dict.fromkeys(_pods_of(slices)))

    def _places(self, cluster: str) -> list[str]:
        return [cluster] if cluster else [each.name for each in self._view.clusters()]

    def _by_key(self, kind: str, keys: Iterable[tuple[str, str, str]]) -> list[Row]:
        found = (
            self._view.row(cluster, kind, f"{namespace}/{name}" if namespace else name)
            for cluster, namespace, name in keys
        )
        return [row for row in found if row is not None]

    def _test(self, query: Query) -> Matching:
        return matching(query.where, self._joins(refs_of(query.where)), now_s=self._now_s)

    def _listed(self, query: Query, found: list[Row], page: QueryPage, shown: str) -> QueryResult:
        refs = query.select or tuple(FieldRef(query.kind.fields[name]) for name in query.kind.columns)
        key, done, rest = self._key(query), 0, found
        if page.after:
            place, done = _position(page.after, len(query.order))
            after = key_of(place, query.order)
            rest = [row for row in found if key(row) > after]
        most = [each for each in (page.limit, None if query.limit is None else query.limit - done) if each is not None]
        chosen = heapq.nsmallest(max(0, min(most)), rest, key=key) if most else sorted(rest, key=key)
        done += len(chosen)
        more = len(rest) > len(chosen) and (query.limit is None or done < query.limit)
        read = columns(refs, self._joins(refs), now_s=self._now_s)
        names = [ref.name for ref in refs]
        return QueryResult(
            kind=query.kind.name,
            columns=tuple(Column(ref.name, str(ref.type)) for ref in refs),
            items=[dict(zip(names, read(row), strict=True)) for row in chosen],
            total=len(found) if query.limit is None else min(len(found), query.limit),
            position=self._position_of(query, chosen[-1], done) if chosen and more else "",
            plan=shown,
            rows=chosen,
        )

    def _key(self, query: Query) -> Callable[[Row], Any]:
        if not query.order:
            return _by_key
        return order_key(query.order, self._joins(_ordered(query)), now_s=self._now_s)

    def _position_of(self, query: Query, row: Row, done: int) -> str:
        refs = _ordered(query)
        read = columns(refs, self._joins(refs), now_s=self._now_s, to_order=True)
        place = [*read(row), *_by_key(row)]
        return base64.urlsafe_b64encode(orjson.dumps([done, place])).decode().rstrip("=")

    def _counted(self, query: Query, found: list[Row], shown: str) -> QueryResult:
        refs = query.count_by
        read = columns(refs, self._joins(refs), now_s=self._now_s)
        if len(refs) == 1 and refs[0].many:
            counts = Counter((one,) for row in found for one in dict.fromkeys(read(row)[0]) or (None,))
        elif any(ref.many for ref in refs):
            counts = Counter(group for row in found for group in _groups(read(row)))
        else:
            counts = Counter(map(read, found))
        names = [ref.name for ref in refs]
        items = [{**dict(zip(names, group, strict=True)), _COUNT: number} for group, number in counts.items()]
        if not refs:
            items = [{_COUNT: len(found)}]
        order = query.order or (Order(_COUNT, descending=True),)
        items.sort(key=lambda item: _group_key(item, names, order))
        cut = items if query.limit is None else items[: query.limit]
        return QueryResult(
            kind=query.kind.name,
            columns=(*(Column(ref.name, str(ref.type).removesuffix("s")) for ref in refs), Column(_COUNT, "number")),
            items=cut,
            total=len(cut),
            plan=shown,
        )


def cluster_row(cluster: Cluster) -> Row:
    """A cluster as a row, so that it can be queried like objects."""
    return Row(cluster.name, CLUSTERS, "", cluster.name, 0, cluster.heard_at_s, cluster)


def _ordered(query: Query) -> list[FieldRef]:
    return [each.ref for each in query.order if each.ref is not None]


def _unseen(rows: Iterable[Row], seen: set[tuple[str, ...]]) -> Iterator[Row]:
    for row in rows:
        key = _by_key(row)
        if key not in seen:
            seen.add(key)
            yield row


def _pods_of(slices: Iterable[Row]) -> Iterator[tuple[str, str, str]]:
    for row in slices:
        if isinstance(row.summary, SliceSummary):
            for endpoint in row.summary.endpoints:
                if endpoint.pod:
                    yield row.cluster, row.namespace, endpoint.pod


def _groups(values: tuple[Any, ...]) -> list[tuple[Any, ...]]:
    """A row with several values in a field counts once for each of them."""
    groups: list[tuple[Any, ...]] = [()]
    for value in values:
        each = (dict.fromkeys(value) or (None,)) if isinstance(value, list) else (value,)
        groups = [(*group, one) for group in groups for one in each]
    return groups


def _group_key(item: dict[str, Any], names: Sequence[str], order: Sequence[Order]) -> tuple[Any, ...]:
    by_names = [Order(name, ref=FieldRef(_UNKNOWN)) for name in names]
    place = [item[each.column] for each in (*order, *by_names)]
    return key_of(place, [*order, *by_names])


def _position(text: str, ordered: int) -> tuple[tuple[Any, ...], int]:
    try:
        done, place = orjson.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
        if isinstance(done, int) and isinstance(place, list) and len(place) == ordered + len(BY_NAME):
            return tuple(place), done
    except (ValueError, TypeError, binascii.Error):
        pass
    raise BadRequest("invalid continue token: use the one of the previous page, with the same query")
