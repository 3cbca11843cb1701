"""Both revisions of a rollout in each region, in numbers: instances, weights, and what gateways counted lately."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from sqlalchemy.ext.asyncio import AsyncSession

from shoal.control.domain.app_facts import KnownApp
from shoal.control.domain.samples import newest_sample, read_samples
from shoal.control.rollout.model import RevisionFacts
from shoal.control.rollout.samples import TrafficSample, added, quantile

LATELY_MS = 60_000  # up to the newest sample of the region: samples are late by up to 15 s


async def region_numbers(session: AsyncSession, known: KnownApp, now_ms: int) -> dict[str, dict[str, Any]]:
    """By region id, ``candidate`` and ``stable``. A revision that is not in a region is absent there; one without
    requests has zeros."""
    assert known.rollout is not None
    found: dict[str, dict[str, RevisionFacts]] = {}
    for region_id, rows in known.regions().items():
        stable = known.stable_row(rows)
        for each in known.exchange(rows).revisions:
            if each.revision == known.rollout.row.revision:
                found.setdefault(region_id, {})["candidate"] = each
            elif stable is not None and each.id == stable.deployment_id:
                found.setdefault(region_id, {})["stable"] = each
    return await numbers_of(session, known.app.environment_id, found, now_ms)


async def numbers_of(
    session: AsyncSession, environment: str, found: Mapping[str, Mapping[str, RevisionFacts]], now_ms: int
) -> dict[str, dict[str, Any]]:
    """The same for these revisions, by region's id and what they are of the rollout."""
    ends = {
        id_: end
        for id_, end in (await newest_sample(session, environment)).items()
        if id_ in found and end > now_ms - LATELY_MS
    }
    samples: list[TrafficSample] = []
    copies: list[TrafficSample] = []
    if ends:
        deployments = {each.id for facts in found.values() for each in facts.values()}
        first, last = min(ends.values()) - LATELY_MS, max(ends.values())
        where = (session, environment, deployments, first, last)
        samples = await read_samples(*where)
        copies = await read_samples(*where, origin="mirror")

    def of(all_: Iterable[TrafficSample], region_id: str, id_: str) -> TrafficSample:
        since = ends.get(region_id, now_ms) - LATELY_MS
        wanted = (id_, region_id)
        return added(each for each in all_ if (each.deployment, each.region) == wanted and each.from_ms >= since)

    return {
        region_id: {
            name: _shown(each, of(samples, region_id, each.id)) | _copies(of(copies, region_id, each.id))
            for name, each in facts.items()
        }
        for region_id, facts in found.items()
    }


def _copies(counted: TrafficSample) -> dict[str, Any]:
    """Of copies, which are no requests of users; nothing where there are none."""
    return {"copies": _counted(counted)} if counted.requests else {}


def _shown(revision: RevisionFacts, counted: TrafficSample) -> dict[str, Any]:
    return {
        "ready": revision.ready,
        "instances": revision.count,
        "weight": revision.weight,
        "routed": revision.routed,
        **_counted(counted),
    }


def _counted(counted: TrafficSample) -> dict[str, Any]:
    requests = counted.requests
    return {
        "requests": requests,
        "failed": counted.codes[4],
        "p50": round(quantile(counted.latency, 0.5), 1) if requests else None,
        "p99": round(quantile(counted.latency, 0.99), 1) if requests else None,
    }
