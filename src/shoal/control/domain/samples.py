"""Reads what gateways counted: samples of traffic, and up to when they are known."""

from __future__ import annotations

from collections.abc import Collection

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from shoal.control.database.tables import Desired, Environment, Sentinel, Traffic
from shoal.control.database.traffic import SAMPLE_MS, read_origins
from shoal.control.rollout.samples import BOUNDS_MS, TrafficSample
from shoal.sync.counters import Counts

LIVE_MS = 15_000  # a gateway whose newest sample is this much older than another's does not hold up the others


async def read_samples(
    session: AsyncSession,
    environment_id: str,
    deployments: Collection[str],
    after_ms: int,
    until_ms: int,
    *,
    origin: str = "entry",
) -> list[TrafficSample]:
    """Those that lie within the time from ``after_ms`` to ``until_ms``, oldest first; spans without requests are left
    out. ``origin``: ``entry`` for what users sent, ``peer`` for what other regions passed on, ``mirror`` for copies."""
    wanted = frozenset(deployments)
    rows = await session.execute(
        select(Traffic.from_at, Traffic.span_ms, Traffic.region_id, Traffic.deployments)
        .where(
            Traffic.environment_id == environment_id,
            Traffic.from_at >= after_ms,
            Traffic.from_at < until_ms,
            Traffic.from_at + Traffic.span_ms <= until_ms,
        )
        .order_by(Traffic.from_at, Traffic.region_id, Traffic.span_ms)
    )
    found: list[TrafficSample] = []
    for row in rows:
        for id_ in sorted(wanted & row.deployments.keys()):
            counts = read_origins(row.deployments[id_]).get(origin)
            if counts is not None and not counts.is_empty:
                found.append(_sample(id_, row.region_id, row.from_at, row.span_ms, counts))
    return found


def _sample(deployment: str, region: str, from_ms: int, span_ms: int, counts: Counts) -> TrafficSample:
    one, two, three, four, five = counts.codes
    return TrafficSample(
        deployment=deployment,
        region=region,
        from_ms=from_ms,
        until_ms=from_ms + span_ms,
        codes=(one, two, three, four, five),
        latency=tuple(counts.times.get(bucket, 0) for bucket in range(len(BOUNDS_MS) + 1)),
        latency_ms=float(counts.latency_ms),
        retried=counts.retried,
    )


async def newest_sample(session: AsyncSession, environment_id: str) -> dict[str, int]:
    """By region id, the end of the newest samples, in the database's time: later ones may still come. Gateways that
    count nothing have samples too. It ends a span of 5 s, so it divides samples into those before and those after.

    Of several gateways of a region it is the one that lags; a gateway that fell silent is left out."""
    workspace = select(Environment.workspace_id).where(Environment.id == environment_id).scalar_subquery()
    rows = await session.execute(
        select(Sentinel.region_id, Desired.observed["counted"].label("counted"))
        .join(Desired, (Desired.workspace_id == Sentinel.workspace_id) & (Desired.object_id == Sentinel.id))
        .where(
            Sentinel.workspace_id == workspace,
            Sentinel.environment_id.in_((environment_id, "")),
            Desired.kind == "sentinel",
            Desired.action == "apply",
        )
    )
    ends: dict[str, list[int]] = {}
    for row in rows:
        ends.setdefault(row.region_id, []).extend(int(pod["until"]) for pod in (row.counted or {}).values())
    return {region: _aligned(known) for region, known in ends.items() if known}


def _aligned(ends: list[int]) -> int:
    last = max(ends)
    least = min(end for end in ends if last - end <= LIVE_MS)
    return least - least % SAMPLE_MS
