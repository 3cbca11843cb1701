"""Rows of traffic: numbers of now by revision and region, and samples over time. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from shoal.control.database.traffic import SAMPLE_MS
from shoal.control.domain.live_reads import CountedTraffic
from shoal.control.domain.traffic_numbers import TrafficSeries, numbers_by
from shoal.dashboard.live.plan import Row

SERIES_MS = 600_000
_SAMPLED = ("requests", "failed", "rate", "errorShare", "p50Ms", "p99Ms")


def revision_rows(counted: CountedTraffic, now_ms: int) -> dict[tuple[str, int, str], Row]:
    """By app, revision and region, what users asked for lately."""
    found = numbers_by(
        counted.spans,
        lambda each: (each.deployment, each.region) if each.deployment in counted.revisions else None,
        now_ms,
    )
    rows: dict[tuple[str, int, str], Row] = {}
    for (deployment, region_id), numbers in found.items():
        name, revision = counted.revisions[deployment]
        region = counted.regions.get(region_id, region_id)
        where = {"project": name.project, "environment": name.environment, "app": name.app}
        key = f"{name.project}/{name.environment}/{name.app}", revision, region
        rows[key] = {**where, "revision": revision, "region": region, **numbers.as_json()}
    return rows


def app_numbers(counted: CountedTraffic, now_ms: int) -> dict[str, Mapping[str, Any]]:
    """By app, over all regions and revisions."""
    names = {id_: f"{name.project}/{name.environment}/{name.app}" for id_, (name, _) in counted.revisions.items()}
    found = numbers_by(counted.spans, lambda each: names.get(each.deployment), now_ms)
    return {name: numbers.as_json() for name, numbers in found.items()}


def sample_rows(series: TrafficSeries) -> dict[str, Row]:
    """By ``sample/KEY/AT``; the key of a series may be empty."""
    rows: dict[str, Row] = {}
    for name, at, numbers in series.rows():
        text = "/".join(("sample", *((str(name),) if name != "" else ()), str(at)))
        rows[text] = {"at": at, "seconds": SAMPLE_MS // 1000} | {
            field: numbers[field] for field in _SAMPLED if field in numbers
        }
    return rows
