"""Calls between services: rates, errors and latencies per pair, as edges report them and merged. Pure.

An edge answers ``ServiceConnections`` with this JSON, from any source of metrics:

    {"connections": [{
       "source":      {"cluster": "eu-1", "namespace": "shop", "service": "web"},
       "destination": {"cluster": "eu-1", "namespace": "shop", "service": "cart"},
       "reporter": "source",                 # which end measured it: source or destination
       "requests": 12.5, "errors": 0.25,     # per second
       "buckets": [[5, 8.0], [10, 12.0], [null, 12.5]]   # latency: up to so many ms, per second, cumulative; null: any
     }],
     "warnings": ["…"]}

An end that is known by its deployment in the fleet alone has ``"deployment": ID``; the manager finds its namespace and
app.

Latencies of several clusters are merged as histograms, and percentiles are computed from the merged histogram:
percentiles can neither be added nor averaged.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf, isfinite
from typing import Any

SOURCE, DESTINATION = "source", "destination"
UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, order=True)
class CallEndpoint:
    """One end of a connection. With ``deployment``, an id of the fleet, the other fields are not known yet."""

    cluster: str
    namespace: str
    service: str
    deployment: str = ""


@dataclass(frozen=True, slots=True)
class LatencyHistogram:
    """``bounds`` rise, the last is infinite; ``counts`` are how much is at or below each."""

    bounds: tuple[float, ...] = ()
    counts: tuple[float, ...] = ()

    @property
    def total(self) -> float:
        return self.counts[-1] if self.counts else 0.0

    def below(self, bound: float) -> float:
        """How much is at or below a bound, which may lie between two of its own: then it is taken as evenly spread."""
        at = bisect_left(self.bounds, bound)
        if at == len(self.bounds):
            return self.total
        if self.bounds[at] == bound:
            return self.counts[at]
        low_bound, low = (self.bounds[at - 1], self.counts[at - 1]) if at else (0.0, 0.0)
        if not isfinite(self.bounds[at]):
            return low
        return low + (self.counts[at] - low) * (bound - low_bound) / (self.bounds[at] - low_bound)

    def quantile(self, share: float) -> float | None:
        """The latency that this share of requests stays below; None without requests. What lies above the last finite
        bound is given as that bound."""
        if self.total <= 0:
            return None
        rank = share * self.total
        at = min(bisect_left(self.counts, rank), len(self.counts) - 1)
        low_bound, low = (self.bounds[at - 1], self.counts[at - 1]) if at else (0.0, 0.0)
        if not isfinite(self.bounds[at]):
            return low_bound if at else None
        inside = self.counts[at] - low
        return low_bound + (self.bounds[at] - low_bound) * ((rank - low) / inside if inside > 0 else 1.0)

    @classmethod
    def merged(cls, parts: Iterable[LatencyHistogram]) -> LatencyHistogram:
        known = [part for part in parts if part.counts]
        bounds = tuple(sorted({bound for part in known for bound in part.bounds}))
        return cls(bounds, tuple(sum(part.below(bound) for part in known) for bound in bounds))


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceConnection:
    """``requests`` and ``errors`` are per second."""

    source: CallEndpoint
    destination: CallEndpoint
    requests: float
    errors: float = 0.0
    latency_ms: LatencyHistogram = field(default_factory=LatencyHistogram)
    reporter: str = ""

    @property
    def success_rate(self) -> float | None:
        """A share from 0 to 1, whatever the rounding of rates; None without requests."""
        if self.requests <= 0:
            return None
        return min(1.0, max(0.0, 1.0 - self.errors / self.requests))

    @property
    def p99_ms(self) -> float | None:
        return self.latency_ms.quantile(0.99)


def connections_json(connections: Iterable[ServiceConnection], warnings: Sequence[str] = ()) -> dict[str, Any]:
    """For edges."""
    return {"connections": [_connection_json(each) for each in connections], "warnings": list(warnings)}


def read_connections(answer: Any, cluster: str) -> tuple[list[ServiceConnection], list[str]]:
    """What an edge answered; ``cluster`` is the name where it does not say one. Items that make no sense are left out
    and counted in a warning, since one of them must not hide all others."""
    if not isinstance(answer, Mapping) or not isinstance(answer.get("connections"), list):
        raise ValueError("the answer has no list of connections")
    found: list[ServiceConnection] = []
    bad = 0
    for each in answer["connections"]:
        try:
            found.append(_read(each, cluster))
        except (AttributeError, IndexError, KeyError, TypeError, ValueError):
            bad += 1
    warnings = [str(text) for text in answer.get("warnings") or ()]
    return found, [*warnings, f"{bad} connections could not be read"] if bad else warnings


def merged(connections: Iterable[ServiceConnection]) -> list[ServiceConnection]:
    """One for each pair of ends. A call between two clusters is measured at both: the measure of the source counts, and
    that of the destination where the source has none."""
    pairs: dict[tuple[CallEndpoint, CallEndpoint], dict[str, list[ServiceConnection]]] = {}
    for each in connections:
        by_reporter = pairs.setdefault((each.source, each.destination), {})
        by_reporter.setdefault(each.reporter, []).append(each)
    found = []
    for (source, destination), by_reporter in pairs.items():
        reporter = min(by_reporter, key=lambda name: (name != SOURCE, name != DESTINATION, name))
        found.append(summed(source, destination, by_reporter[reporter], reporter))
    return sorted(found, key=lambda each: (each.source, each.destination))


def summed(
    source: CallEndpoint, destination: CallEndpoint, parts: Sequence[ServiceConnection], reporter: str = ""
) -> ServiceConnection:  # fmt: skip
    return ServiceConnection(
        source=source,
        destination=destination,
        requests=sum(each.requests for each in parts),
        errors=sum(each.errors for each in parts),
        latency_ms=LatencyHistogram.merged(each.latency_ms for each in parts),
        reporter=reporter,
    )


def _read(item: Mapping[str, Any], cluster: str) -> ServiceConnection:
    rates = [_rate(item["requests"]), _rate(item.get("errors") or 0.0)]
    return ServiceConnection(
        source=_end(item["source"], cluster),
        destination=_end(item["destination"], cluster),
        requests=rates[0],
        errors=min(rates),
        latency_ms=_histogram(item.get("buckets") or ()),
        reporter=str(item.get("reporter") or ""),
    )


def _end(item: Mapping[str, Any], cluster: str) -> CallEndpoint:
    if item.get("deployment"):
        return CallEndpoint(cluster, "", "", str(item["deployment"]))
    return CallEndpoint(
        str(item.get("cluster") or cluster),
        str(item.get("namespace") or UNKNOWN),
        str(item.get("service") or UNKNOWN),
    )


def _rate(value: Any) -> float:
    """Of a series without samples Prometheus says NaN."""
    number = float(value)
    if not isfinite(number):
        raise ValueError("not a rate")
    return max(0.0, number)


def _histogram(buckets: Sequence[Sequence[Any]]) -> LatencyHistogram:
    pairs = sorted((inf if bound is None else float(bound), _rate(count)) for bound, count in buckets)
    if not pairs:
        return LatencyHistogram()
    counts: list[float] = []
    for _, count in pairs:  # rates of buckets are read one after the other, so a larger one may come out smaller
        counts.append(max(count, counts[-1]) if counts else count)
    bounds = [bound for bound, _ in pairs]
    if bounds[-1] != inf:
        bounds.append(inf)
        counts.append(counts[-1])
    return LatencyHistogram(tuple(bounds), tuple(counts))


def _connection_json(each: ServiceConnection) -> dict[str, Any]:
    pairs = zip(each.latency_ms.bounds, each.latency_ms.counts, strict=True)
    return {
        "source": end_json(each.source),
        "destination": end_json(each.destination),
        "reporter": each.reporter,
        "requests": each.requests,
        "errors": each.errors,
        "buckets": [[None if bound == inf else bound, count] for bound, count in pairs],
    }


def end_json(end: CallEndpoint) -> dict[str, str]:
    if end.deployment:
        return {"cluster": end.cluster, "deployment": end.deployment}
    return {"cluster": end.cluster, "namespace": end.namespace, "service": end.service}
