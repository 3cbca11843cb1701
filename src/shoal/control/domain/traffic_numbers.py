"""What gateways counted lately, as numbers for people: rates, shares of errors, latencies, and series of them.

The numbers of users' requests only (``entry``). A window ends with the newest sample; when nothing was counted for a
while, it ends a little before now, and what had requests before has none in it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from shoal.control.database.tables import Deployment, Traffic
from shoal.control.database.traffic import SAMPLE_MS, read_origins
from shoal.control.rollout.samples import quantile
from shoal.sync.counters import BUCKETS, NOTHING, Counts, plus

WINDOW_MS = 30_000
LATE_MS = 20_000  # samples are late by up to so much, and those of some gateways later than of others


class CountedSpan(NamedTuple):
    """Requests of users to a deployment, as the gateways of a region counted them."""

    environment: str  # id
    deployment: str  # id
    region: str  # id
    from_ms: int
    span_ms: int
    counts: Counts


@dataclass(frozen=True, slots=True)
class TrafficNumbers:
    """What was counted from a moment to another."""

    counts: Counts
    from_ms: int
    until_ms: int

    def as_json(self) -> dict[str, Any]:
        codes, seconds = self.counts.codes, max(1, self.until_ms - self.from_ms) / 1000
        requests = sum(codes)
        found: dict[str, Any] = {
            "requests": requests,
            "failed": codes[4],
            "rate": round(requests / seconds, 3),
            "errorRate": round(codes[4] / seconds, 3),
            "until": self.until_ms,
        }
        if requests:
            latency = [self.counts.times.get(bucket, 0) for bucket in range(BUCKETS)]
            found |= {
                "errorShare": round(codes[4] / requests, 5),
                "p50Ms": round(quantile(latency, 0.5), 1),
                "p99Ms": round(quantile(latency, 0.99), 1),
            }
        return found


async def read_spans(
    session: AsyncSession,
    workspace_id: str,
    since_ms: int,
    *,
    environments: Collection[str] | None = None,
    deployments: Collection[str] | None = None,
) -> list[CountedSpan]:
    """Those of 5 s that began at a moment or later: of a workspace, or of some of its environments or deployments."""
    asked = select(
        Traffic.environment_id, Traffic.from_at, Traffic.span_ms, Traffic.region_id, Traffic.deployments
    ).where(Traffic.span_ms == SAMPLE_MS, Traffic.from_at >= since_ms, Traffic.workspace_id == workspace_id)
    if environments is not None:
        asked = asked.where(Traffic.environment_id.in_(environments))
    found: list[CountedSpan] = []
    for row in await session.execute(asked):
        for id_, stored in row.deployments.items():
            if deployments is None or id_ in deployments:
                counts = read_origins(stored).get("entry")
                if counts is not None and not counts.is_empty:
                    found.append(CountedSpan(row.environment_id, id_, row.region_id, row.from_at, row.span_ms, counts))
    return found


def numbers_by(
    spans: Sequence[CountedSpan], key: Callable[[CountedSpan], Any], now_ms: int
) -> dict[Any, TrafficNumbers]:
    """What was counted in the newest ``WINDOW_MS``, added up by a key; None: left out. Each region has a window of its
    own, since the gateways of some are later than those of others."""
    ends = _ends(spans, now_ms)
    totals: dict[Any, Counts] = {}
    until: dict[Any, int] = {}
    for each in spans:
        end = ends[each.region]
        if end - WINDOW_MS <= each.from_ms < end and (name := key(each)) is not None:
            totals[name] = plus(totals.get(name, NOTHING), each.counts)
            until[name] = max(until.get(name, 0), end)
    return {name: TrafficNumbers(counts, until[name] - WINDOW_MS, until[name]) for name, counts in totals.items()}


def _ends(spans: Sequence[CountedSpan], now_ms: int) -> dict[str, int]:
    """By region, the end of the newest sample."""
    ends: dict[str, int] = {}
    for each in spans:
        ends[each.region] = max(ends.get(each.region, 0), each.from_ms + each.span_ms)
    quiet = now_ms - now_ms % SAMPLE_MS - SAMPLE_MS
    return {region: end if end > now_ms - LATE_MS else quiet for region, end in ends.items()}


@dataclass(slots=True)
class TrafficSeries:
    """Samples of 5 s by a key, over ``keep_ms``. ``add`` is given what was read since ``since``; a span that is given
    again replaces what was known of it, since late gateways add to it."""

    keep_ms: int
    _spans: dict[int, dict[Any, Counts]] = field(default_factory=dict)  # by beginning

    def since(self, now_ms: int) -> int:
        """From when on spans must be read now, for the series and for the numbers of now."""
        newest = max(self._spans, default=0)
        return max(now_ms - self.keep_ms, newest - LATE_MS - WINDOW_MS)

    def add(self, spans: Iterable[CountedSpan], key: Callable[[CountedSpan], Any], now_ms: int) -> None:
        fresh: dict[int, dict[Any, Counts]] = {}
        for each in spans:
            if (name := key(each)) is not None:
                known = fresh.setdefault(each.from_ms, {})
                known[name] = plus(known.get(name, NOTHING), each.counts)
        self._spans |= fresh
        self._spans = {at: known for at, known in self._spans.items() if at >= now_ms - self.keep_ms}

    def rows(self) -> Iterable[tuple[Any, int, dict[str, Any]]]:
        """Key, beginning and numbers, the oldest first."""
        for at in sorted(self._spans):
            for name, counts in self._spans[at].items():
                yield name, at, TrafficNumbers(counts, at, at + SAMPLE_MS).as_json()


class DeploymentName(NamedTuple):
    """Which app and revision a deployment is, by ids and numbers."""

    app: str  # id
    environment: str  # id
    revision: int


async def deployment_names(session: AsyncSession, ids: Collection[str]) -> dict[str, DeploymentName]:
    if not ids:
        return {}
    asked = select(Deployment.id, Deployment.app_id, Deployment.environment_id, Deployment.revision)
    rows = await session.execute(asked.where(Deployment.id.in_(sorted(ids))))
    return {row.id: DeploymentName(row.app_id, row.environment_id, row.revision) for row in rows}
