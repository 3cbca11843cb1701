"""Calls between services, from a Prometheus with Istio's metrics: rates and a latency histogram per pair.

Rates come from ``istio_requests_total``, errors from its responses of 4xx and 5xx, latencies from the buckets of
``istio_request_duration_milliseconds``. With a cluster label in the settings every query is limited to this cluster;
otherwise a Prometheus of several clusters would return all of them. Measurements of both ends and whole histograms are
passed on: the manager merges them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from math import inf, isfinite
from urllib.parse import urlencode

import orjson

from shoal.errors import BadRequest, ServiceUnavailable
from shoal.kube.objects import Obj
from shoal.navigator.connections import CallEndpoint, LatencyHistogram, ServiceConnection

Fetch = Callable[[str], Awaitable[bytes]]  # (path and query) -> body

_SOURCE = ("source_cluster", "source_workload_namespace", "source_canonical_service")
_DESTINATION = ("destination_cluster", "destination_service_namespace", "destination_canonical_service")
_PAIR = ("reporter", *_SOURCE, *_DESTINATION)
_SHORTEST_S = 60.0

Pair = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ConnectionQueries:
    """The three queries of one answer."""

    requests: str
    errors: str
    buckets: str


def queries(
    window_s: float, *, cluster: tuple[str, str] | None, namespace: str, service: str
) -> list[ConnectionQueries]:
    """All calls, or the calls to and from one service."""
    limits = [f"{cluster[0]}={_quoted(cluster[1])}"] if cluster is not None else []
    sides: list[list[str]] = [[]]
    if namespace or service:
        sides = [
            [f"{label}={_quoted(value)}" for label, value in zip(side[1:], (namespace, service), strict=True) if value]
            for side in (_DESTINATION, _SOURCE)
        ]
    return [_queries(",".join([*limits, *side]), f"[{max(1, round(window_s))}s]") for side in sides]


def _queries(chosen: str, window: str) -> ConnectionQueries:
    by = ",".join(_PAIR)
    failed = ",".join(part for part in (chosen, 'response_code=~"[45].."') if part)
    return ConnectionQueries(
        f"sum by ({by}) (rate(istio_requests_total{{{chosen}}}{window}))",
        f"sum by ({by}) (rate(istio_requests_total{{{failed}}}{window}))",
        f"sum by ({by},le) (rate(istio_request_duration_milliseconds_bucket{{{chosen}}}{window}))",
    )


def connections(
    requests: Iterable[Obj], errors: Iterable[Obj], buckets: Iterable[Obj]
) -> dict[Pair, ServiceConnection]:
    """The results of the three queries, by pair and by which end measured; pairs without requests are left out."""
    rates = {_pair(sample): _value(sample) for sample in requests}
    failed = {_pair(sample): _value(sample) for sample in errors}
    latencies: dict[Pair, list[tuple[float, float]]] = {}
    for sample in buckets:
        bound = sample["metric"].get("le", "+Inf")
        latencies.setdefault(_pair(sample), []).append((inf if bound == "+Inf" else float(bound), _value(sample)))
    return {
        pair: ServiceConnection(
            source=CallEndpoint(*pair[1:4]),
            destination=CallEndpoint(*pair[4:7]),
            requests=rate,
            errors=min(rate, failed.get(pair, 0.0)),  # rates are floats: never more than all
            latency_ms=_histogram(latencies.get(pair, [])),
            reporter=pair[0],
        )
        for pair, rate in rates.items()
        if rate > 0
    }


def _histogram(buckets: list[tuple[float, float]]) -> LatencyHistogram:
    rising = sorted(buckets)
    return LatencyHistogram(tuple(bound for bound, _ in rising), tuple(count for _, count in rising))


class Connections:
    def __init__(self, fetch: Fetch, *, cluster: tuple[str, str] | None) -> None:
        self._fetch = fetch
        self._cluster = cluster

    async def between(self, start_s: float, end_s: float, *, namespace: str, service: str) -> list[ServiceConnection]:
        """Rates over the whole period."""
        if not 0 <= start_s < end_s:
            raise BadRequest("the start must be before the end")
        window_s = max(_SHORTEST_S, end_s - start_s)
        found: dict[Pair, ServiceConnection] = {}
        for asked in queries(window_s, cluster=self._cluster, namespace=namespace, service=service):
            results = [await self._query(query, end_s) for query in (asked.requests, asked.errors, asked.buckets)]
            found |= connections(*results)
        return list(found.values())

    async def _query(self, query: str, at_s: float) -> list[Obj]:
        body = await self._fetch(f"/api/v1/query?{urlencode({'query': query, 'time': f'{at_s:.3f}'})}")
        try:
            answer = orjson.loads(body)
            if answer["status"] != "success":
                raise BadRequest(f"Prometheus: {answer.get('error', 'no reason')}")
            found: list[Obj] = answer["data"]["result"]
        except (ValueError, KeyError, TypeError) as error:
            raise ServiceUnavailable(f"unexpected answer from Prometheus: {body[:80]!r}") from error
        return found


def _pair(sample: Obj) -> Pair:
    return tuple(_known(sample["metric"].get(label, "")) for label in _PAIR)


def _known(text: str) -> str:
    return "" if text == "unknown" else text


def _value(sample: Obj) -> float:
    value = float(sample["value"][1])
    return value if isfinite(value) and value > 0 else 0.0  # NaN: there was no second sample


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
