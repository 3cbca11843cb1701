"""Reads the counters of calls from a proxy's page of metrics (Prometheus' text format). Pure.

A gateway counts requests per deployment of the fleet: ``shoal_sentinel_requests_total`` and
``shoal_sentinel_request_duration_seconds``. The page does not say where a deployment's pods are, so the destination
has only its id, and the manager, which sees the pods of all clusters, fills in the rest. Istio's proxies name both ends
in the labels of ``istio_requests_total`` and ``istio_request_duration_milliseconds``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import inf, isfinite

from shoal.navigator.connections import DESTINATION, SOURCE, CallEndpoint, LatencyHistogram, ServiceConnection

Pair = tuple[str, CallEndpoint, CallEndpoint]  # which end measured it, source, destination
Labels = Mapping[str, str]

_GATEWAY_REQUESTS, _GATEWAY_TIMES = "shoal_sentinel_requests_total", "shoal_sentinel_request_duration_seconds_bucket"
_ISTIO_REQUESTS, _ISTIO_TIMES = "istio_requests_total", "istio_request_duration_milliseconds_bucket"
_SAMPLE = re.compile(r"([A-Za-z_:][\w:]*)\{(.*)\}\s+(\S+)")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_ESCAPED = re.compile(r"\\(.)")
_FAILED = ("4", "5")


@dataclass(slots=True)
class Calls:
    """Counts of one pair. ``buckets`` are cumulative: upper bound in milliseconds → requests at or below it."""

    requests: float = 0.0
    errors: float = 0.0
    buckets: dict[float, float] = field(default_factory=dict)

    def since(self, before: Calls | None) -> Calls:
        """What was added after ``before``; everything when the counters have restarted."""
        if before is None or self.requests < before.requests:
            return self
        return Calls(
            self.requests - before.requests,
            max(0.0, self.errors - before.errors),
            {bound: max(0.0, count - before.buckets.get(bound, 0.0)) for bound, count in self.buckets.items()},
        )

    def add(self, other: Calls) -> None:
        self.requests += other.requests
        self.errors += other.errors
        for bound, count in other.buckets.items():
            self.buckets[bound] = self.buckets.get(bound, 0.0) + count


Counted = dict[Pair, Calls]


def gateway_calls(page: str, gateway: CallEndpoint) -> Counted:
    """The calls of one gateway to the deployments of the fleet."""
    found: Counted = {}
    for name, labels, value in samples(page, (_GATEWAY_REQUESTS, _GATEWAY_TIMES)):
        deployment = labels.get("deployment", "")
        if not deployment.startswith("dep_"):
            continue  # the sum of those without series of their own
        calls = found.setdefault((SOURCE, gateway, CallEndpoint("", "", "", deployment)), Calls())
        _count(
            calls,
            value,
            is_requests=name == _GATEWAY_REQUESTS,
            code=labels.get("code", ""),
            le_ms=_bound_ms(labels, 1000),
        )
    return {pair: calls for pair, calls in found.items() if calls.requests}


def istio_calls(page: str) -> Counted:
    """The calls that one of Istio's proxies has measured, as source or as destination."""
    found: Counted = {}
    for name, labels, value in samples(page, (_ISTIO_REQUESTS, _ISTIO_TIMES)):
        if labels.get("reporter") not in (SOURCE, DESTINATION):
            continue  # a waypoint's, which both ends count as well
        pair = (
            labels["reporter"],
            _end(labels, "source_cluster", "source_workload_namespace", "source_canonical_service"),
            _end(labels, "destination_cluster", "destination_service_namespace", "destination_canonical_service"),
        )
        calls = found.setdefault(pair, Calls())
        code = labels.get("response_code", "")
        _count(calls, value, is_requests=name == _ISTIO_REQUESTS, code=code, le_ms=_bound_ms(labels, 1))
    return {pair: calls for pair, calls in found.items() if calls.requests}


def connection_of(pair: Pair, calls: Calls, seconds: float) -> ServiceConnection:
    """The rates of calls that were counted in so many seconds."""
    rising = sorted(calls.buckets.items())
    return ServiceConnection(
        source=pair[1],
        destination=pair[2],
        requests=calls.requests / seconds,
        errors=min(calls.requests, calls.errors) / seconds,
        latency_ms=LatencyHistogram(
            tuple(bound for bound, _ in rising), tuple(count / seconds for _, count in rising)
        ),
        reporter=pair[0],
    )  # fmt: skip


def samples(page: str, names: tuple[str, ...]) -> Iterator[tuple[str, Labels, float]]:
    """The samples with these names. Lines that cannot be read are left out: the page is another program's."""
    for line in page.splitlines():
        if not line.startswith(names):
            continue
        sample = _SAMPLE.match(line)
        if sample is None or sample[1] not in names:
            continue
        try:
            value = float(sample[3])
        except ValueError:
            continue
        if isfinite(value):
            yield sample[1], {name: _ESCAPED.sub(_unescaped, text) for name, text in _LABEL.findall(sample[2])}, value


def _count(calls: Calls, value: float, *, is_requests: bool, code: str, le_ms: float) -> None:
    if not is_requests:
        calls.buckets[le_ms] = calls.buckets.get(le_ms, 0.0) + value
        return
    calls.requests += value
    if code.startswith(_FAILED):
        calls.errors += value


def _bound_ms(labels: Labels, factor: float) -> float:
    try:
        return round(float(labels.get("le", "+Inf")) * factor, 6)
    except ValueError:
        return inf


def _end(labels: Labels, cluster: str, namespace: str, service: str) -> CallEndpoint:
    return CallEndpoint(
        *("" if (text := labels.get(name, "")) == "unknown" else text for name in (cluster, namespace, service))
    )


def _unescaped(found: re.Match[str]) -> str:
    return "\n" if found[1] == "n" else found[1]
