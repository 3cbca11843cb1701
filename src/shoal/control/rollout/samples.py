"""What gateways counted of a deployment in a span of time, and sums and quantiles of it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate

from shoal.sync.counters import GROUPS, LATENCY_MS

BOUNDS_MS: tuple[float, ...] = LATENCY_MS
"""Bucket n counts requests that took less than bound n, and not less than the bound before it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrafficSample:
    """Requests that users sent, where they came in: those that failed over to another region count here, not there."""

    deployment: str  # id
    region: str  # id of the region whose gateways counted it
    from_ms: int
    until_ms: int  # exclusive
    codes: tuple[int, int, int, int, int]  # 1xx to 5xx
    latency: tuple[int, ...]  # requests per bucket of ``BOUNDS_MS`` and beyond all
    latency_ms: float  # sum
    retried: int = 0  # answered without 5xx after more than one try

    @property
    def requests(self) -> int:
        return sum(self.codes)

    @property
    def failed(self) -> int:
        """Requests that the deployment failed to answer at the first try."""
        return self.codes[4] + self.retried


def added(samples: Iterable[TrafficSample]) -> TrafficSample:
    """Everything together, over the whole time. Deployment and region are empty where they differ."""
    known = list(samples)
    deployments, regions = {each.deployment for each in known}, {each.region for each in known}
    codes, latency = [0] * GROUPS, [0] * (len(BOUNDS_MS) + 1)
    for each in known:
        codes = [a + b for a, b in zip(codes, each.codes, strict=True)]
        latency = [a + b for a, b in zip(latency, each.latency, strict=True)]
    one, two, three, four, five = codes
    return TrafficSample(
        deployment=deployments.pop() if len(deployments) == 1 else "",
        region=regions.pop() if len(regions) == 1 else "",
        from_ms=min((each.from_ms for each in known), default=0),
        until_ms=max((each.until_ms for each in known), default=0),
        codes=(one, two, three, four, five),
        latency=tuple(latency),
        latency_ms=sum(each.latency_ms for each in known),
        retried=sum(each.retried for each in known),
    )


def quantile(latency: Sequence[int], q: float) -> float:
    """The time in ms that a share ``q`` of the requests did not take, interpolated within its bucket. The last bound
    for what is beyond all bounds; 0 without requests."""
    total = sum(latency)
    if not total:
        return 0.0
    wanted = min(max(q, 0.0), 1.0) * total
    for bucket, until in enumerate(accumulate(latency)):
        if latency[bucket] and until >= wanted:
            if bucket == len(BOUNDS_MS):
                break
            lower = BOUNDS_MS[bucket - 1] if bucket else 0.0
            share = 1 - (until - wanted) / latency[bucket]
            return lower + (BOUNDS_MS[bucket] - lower) * max(0.0, share)
    return BOUNDS_MS[-1]
