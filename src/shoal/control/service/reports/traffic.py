"""Writes what the gateways of a batch of reports have counted into the table of traffic."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import select

from shoal.control.database.tables import Deployment, Sentinel
from shoal.control.database.traffic import SAMPLE_MS, TrafficKey, TrafficTotals, gateway_version
from shoal.control.database.transaction import Tx
from shoal.control.service.reports.counting import UNROUTED, CountedPart

_USED = ("entry", "peer")  # copies that fail fail nobody
KEPT_MS = 24 * 3_600_000  # what is older would be removed at once


@dataclass(frozen=True, slots=True)
class CountedTraffic:
    """What one gateway has counted."""

    workspace_id: str
    sentinel_id: str
    region_id: str
    parts: tuple[CountedPart, ...]


async def write_traffic(tx: Tx, counted: Sequence[CountedTraffic]) -> None:
    """Any number of gateways cost two statements, and one more where gateways are shared by environments. While another
    version of a gateway is rolled out, what both of them counted is added up beside."""
    if not counted:
        return
    ids = {each.sentinel_id for each in counted}
    asked = select(Sentinel.id, Sentinel.environment_id, Sentinel.rollout).where(Sentinel.id.in_(sorted(ids)))
    found = list(await tx.session.execute(asked))
    homes = {row.id: row.environment_id for row in found}
    split = {row.id for row in found if row.rollout}
    shared = await _environments(tx, [each for each in counted if homes.get(each.sentinel_id) == ""])
    totals = TrafficTotals()
    for each in counted:
        for part in each.parts:
            home = homes.get(each.sentinel_id) or shared.get((each.workspace_id, part.deployment))
            if home and part.from_ms > tx.now - KEPT_MS:
                key = TrafficKey(home, part.from_ms, SAMPLE_MS, each.region_id)
                if part.deployment:
                    totals.add(key, each.workspace_id, part.deployment, {part.origin: part.counts})
                if each.sentinel_id in split and part.origin in _USED:
                    totals.add(key, each.workspace_id, gateway_version(part.revision), {"entry": part.counts})
    await totals.write(tx)


async def _environments(tx: Tx, counted: Sequence[CountedTraffic]) -> dict[tuple[str, str], str]:
    """Whose deployments a shared gateway counted, by workspace and id. Others may not be in its workspace."""
    named = {part.deployment for each in counted for part in each.parts} - {UNROUTED}
    if not named:
        return {}
    asked = select(Deployment.workspace_id, Deployment.id, Deployment.environment_id).where(Deployment.id.in_(named))
    return {(row.workspace_id, row.id): row.environment_id for row in await tx.session.execute(asked)}
