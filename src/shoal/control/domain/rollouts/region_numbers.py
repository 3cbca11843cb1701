"""Both revisions of a rollout in each region, in numbers: instances, weights, and what gateways counted lately."""

from __future__ import annotations

from collections.abc import Iterable
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
    ends = {
        id_: end
        for id_, end in (await newest_sample(session, known.app.environment_id)).items()
        if id_ in found and end > now_ms - LATELY_MS
    }
    samples: list[TrafficSample] = []
    if ends:
        deployments = {each.id for facts in found.values() for each in facts.values()}
        first, last = min(ends.values()) - LATELY_MS, max(ends.values())
        samples = await read_samples(session, known.app.environment_id, deployments, first, last)
    return {
        region_id: {
            name: _shown(each, (
                sample for sample in samples
                if (sample.deployment, sample.region) == (each.id, region_id)
                and sample.from_ms >= ends.get(region_id, now_ms) - LATELY_MS
            ))
            for name, each in facts.items()
        }
        for region_id, facts in found.items()
    }  # fmt: skip


def _shown(revision: RevisionFacts, samples: Iterable[TrafficSample]) -> dict[str, Any]:
    counted = added(samples)
    requests = sum(counted.codes)
    return {
        "ready": revision.ready,
        "instances": revision.count,
        "weight": revision.weight,
        "routed": revision.routed,
        "requests": requests,
        "failed": counted.codes[4],
        "p50": round(quantile(counted.latency, 0.5), 1) if requests else None,
        "p99": round(quantile(counted.latency, 0.99), 1) if requests else None,
    }
