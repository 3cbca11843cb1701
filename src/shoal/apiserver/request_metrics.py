"""Metrics of requests and watches, with the names and labels that Kubernetes uses.

A request costs one look-up, one count and one histogram bucket: the series of a verb on a resource is made at its
first request. Labels come from the resources that the server serves, of which users can define any number, so only the
first ``MAX_SERIES`` combinations are named; the rest are counted together, as are requests to unknown paths.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterator
from functools import partial

from shoal.apiserver.context import Core
from shoal.apiserver.messages import Answer, Relay, Request, Upgrade
from shoal.apiserver.paths import ResourcePath
from shoal.apiserver.protection import RequestContext
from shoal.apiserver.watch import WatchHub
from shoal.base.exposition import fine_bounds
from shoal.base.metrics import Distribution, LabelValues, Metrics

MAX_SERIES = 1000
DURATIONS_S = (
    0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 15.0, 20.0, 30.0,
    45.0, 60.0,
)  # fmt: skip
_CELLS = fine_bounds(DURATIONS_S)
_COMPONENT = "apiserver"
_RESOURCE = ("verb", "group", "version", "resource", "subresource", "scope", "component")
_REQUEST = ("verb", "dry_run", *_RESOURCE[1:])
_VERBS = {
    "get": "GET", "list": "LIST", "watch": "WATCH", "create": "POST", "update": "PUT", "patch": "PATCH",
    "delete": "DELETE", "deletecollection": "DELETECOLLECTION",
}  # fmt: skip
_CONNECTED = frozenset({"exec", "attach", "portforward", "proxy"})
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_PAGES = frozenset(
    {"/", "/api", "/apis", "/healthz", "/livez", "/readyz", "/metrics", "/metrics/slis", "/version", "/openapi/v2",
     "/openapi/v3", "/statusz", "/flagz"}
)  # fmt: skip
_APPLY = b"application/apply-patch"

Table = dict[LabelValues, float]
SeriesKey = tuple[str, str, str, str, str, bool, bool, str]


class RequestSeries:
    """The requests of one verb on one resource in one scope."""

    __slots__ = ("by_status", "durations", "labels", "open")

    def __init__(self, labels: LabelValues) -> None:
        self.labels = labels  # as ``_REQUEST`` names them
        self.by_status: dict[int, int] = {}
        self.durations = Distribution(_CELLS)
        self.open = 0  # connections that go on after the answer has begun


class RequestMetrics:
    """Counts the requests of one server."""

    def __init__(self, core: Core) -> None:
        self._registry = core.registry
        self._now = core.clock.monotonic
        self._series: dict[SeriesKey, RequestSeries] = {}
        self._by_labels: dict[LabelValues, RequestSeries] = {}

    def count(self, context: RequestContext, status: int, began_s: float) -> RequestSeries:
        """Count a request that is answered now."""
        target, request = context.target, context.request
        if target is None:
            series = self._of_page(request)
        else:
            key = (
                context.verb, target.plural, target.subresource, target.group, target.version, not target.name,
                target.namespace is None, "" if request.method == "GET" else _variant(request),
            )  # fmt: skip
            series = self._series.get(key) or self._of_resource(key, target, request)
        by_status = series.by_status
        by_status[status] = by_status.get(status, 0) + 1
        took_s = self._now() - began_s
        durations = series.durations
        durations.counts[bisect_left(_CELLS, took_s)] += 1
        durations.total += took_s
        return series

    def follow(self, series: RequestSeries, answer: Answer) -> None:
        """Count a connection as open until it ends."""
        if isinstance(answer, (Relay, Upgrade)):
            series.open += 1
            answer.on_end = partial(_ended, series, answer.on_end)

    def all(self) -> Collection[RequestSeries]:
        return self._by_labels.values()

    def _of_resource(self, key: SeriesKey, target: ResourcePath, request: Request) -> RequestSeries:
        served = self._registry.get(target.group, target.version, target.plural)
        known = served is not None and (
            not target.subresource or served.resource.subresource(target.subresource) is not None
        )
        if not known or not key[0] or len(self._by_labels) >= MAX_SERIES:
            return self._labelled((_method(request), "", "", "", "other" if known else "", "", "", _COMPONENT))
        verb, variant = key[0], key[7]
        dry_run = "All" if variant.endswith("dry") else ""
        reported = "APPLY" if variant.startswith("apply") else _VERBS[verb]
        if target.subresource in _CONNECTED:
            reported = "CONNECT"
        scope = "cluster" if target.namespace is None else "namespace"
        if target.name or verb == "create":
            scope = "resource"
        labels = (
            reported, dry_run, target.group, target.version, target.plural, target.subresource, scope, _COMPONENT,
        )  # fmt: skip
        series = self._series[key] = self._labelled(labels)
        return series

    def _of_page(self, request: Request) -> RequestSeries:
        path = request.path.rstrip("/") or "/"
        first = path[: path.index("/", 1)] if "/" in path[1:] else path
        page = path if path in _PAGES else first if first in _PAGES else ""
        return self._labelled((_method(request), "", "", "", "", page, "", _COMPONENT))

    def _labelled(self, labels: LabelValues) -> RequestSeries:
        series = self._by_labels.get(labels)
        if series is None:
            series = self._by_labels[labels] = RequestSeries(labels)
        return series


def _ended(series: RequestSeries, then: Callable[[], None] | None) -> None:
    series.open -= 1
    if then is not None:
        then()


def _variant(request: Request) -> str:
    """What makes a write a series of its own."""
    applied = request.method == "PATCH" and request.headers.get(b"content-type", b"").startswith(_APPLY)
    return f"{'apply' if applied else ''}{'dry' if 'dryRun=' in request.query else ''}"


def _method(request: Request) -> str:
    return request.method if request.method in _METHODS else "other"


def define_request_metrics(metrics: Metrics, requests: RequestMetrics, hub: WatchHub) -> None:
    """The metrics of one server's requests and watches."""
    read = RequestTables(requests, hub)
    metrics.counter(
        "apiserver_request_total", "Requests, by verb, resource and status code.", (*_REQUEST, "code")
    ).follow_each(read.totals)
    metrics.histogram(
        "apiserver_request_duration_seconds",
        "From the request until its answer began, queueing included; of a watch, until it began.",
        _REQUEST,
        bounds=DURATIONS_S,
        native=True,
    ).follow_each(read.durations)
    metrics.histogram(
        "apiserver_request_sli_duration_seconds",
        "As apiserver_request_duration_seconds, without dry runs; time in webhooks and queues counts too.",
        _RESOURCE,
        bounds=DURATIONS_S,
        native=True,
    ).follow_each(read.indicators)
    metrics.gauge(
        "apiserver_longrunning_requests", "Watches, logs, sessions and proxied requests under way.", _RESOURCE
    ).follow_each(read.long_running)


class RequestTables:
    """Reads the series of one server."""

    def __init__(self, requests: RequestMetrics, hub: WatchHub) -> None:
        self._requests = requests
        self._hub = hub

    def totals(self) -> Table:
        return {
            (*series.labels, str(status)): count
            for series in self._requests.all()
            for status, count in series.by_status.items()
        }

    def durations(self) -> Iterator[tuple[LabelValues, Distribution]]:
        for series in self._requests.all():
            yield series.labels, series.durations

    def indicators(self) -> Iterator[tuple[LabelValues, Distribution]]:
        for labels, durations in self.durations():
            if not labels[1]:
                yield (labels[0], *labels[2:]), durations

    def long_running(self) -> Table:
        found: Table = {}
        for resource, scope, count in self._hub.counts():
            labels = ("WATCH", resource.group, resource.version, resource.plural, "", scope, _COMPONENT)
            found[labels] = found.get(labels, 0) + count
        for series in self._requests.all():
            if series.labels[5] in _CONNECTED or series.labels[5] == "log":
                found[series.labels[0], *series.labels[2:]] = series.open
        return found
