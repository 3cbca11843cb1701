"""Samples of traffic, as gateways would have told them."""

from __future__ import annotations

from fleet_world import World

from shoal.control.database import tables
from shoal.control.database.traffic import SAMPLE_MS

BEFORE_5_MS, BEFORE_20_MS = 4, 15  # buckets


async def told(world: World, at_ms: int, *, copies: int = 0, **requests: dict[int, tuple[int, int]]) -> None:
    """Gateways have told of requests up to 5 s after ``at_ms``: by region, of each revision how many there were and
    how many of them failed. All took 4 to 5 ms, one took 16 to 18 ms. Those to the revision ``copies`` were copies."""
    regions = {row.name: row.id for row in await world.rows(tables.Region)}
    ids = {row.revision: row.id for row in await world.rows(tables.Deployment)}
    environment = (await world.rows(tables.Environment))[0].id
    for name, counted in requests.items():
        for sentinel in await world.rows(tables.Sentinel, tables.Sentinel.region_id == regions[name]):
            counts = {"pod": {"until": at_ms + SAMPLE_MS}}
            await world.report_sentinel(sentinel.id, health="healthy", available=1, desired=1, counted=counts)
        shown = {}
        for revision, (total, failed) in counted.items():
            codes, times = [0, total - failed, 0, 0, failed], [BEFORE_5_MS, total - 1, BEFORE_20_MS, 1]
            one = {"codes": codes, "times": times, "latencyMs": total * 5}
            shown[ids[revision]] = {"mirror": one} if revision == copies else one
        async with world.databases.of("default").transaction() as tx:
            tx.session.add(
                tables.Traffic(
                    environment_id=environment, from_at=at_ms, span_ms=SAMPLE_MS, region_id=regions[name],
                    workspace_id="default", deployments=shown,
                )
            )  # fmt: skip
