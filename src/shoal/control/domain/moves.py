"""Moves of deployments from one place to another, and placement of those that had no place before.

A move is make-before-break: the new row is written first; the old one is marked as leaving and removed when the new one
is ready (``readiness``). Between shards of one cluster both rows mean the same objects, under the same names. The agent
of the new row is told from which shard it may take them over. The other agent then finds no objects of its own when it
is told to delete them. So such a move cannot be cancelled halfway, unlike one to another cluster: objects that were
taken over return only by a move back.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from shoal.control.database import tables
from shoal.control.database.tables import Deployment, Topology
from shoal.control.domain.apps import choose
from shoal.control.domain.deployments import (
    count_of,
    new_row,
    place_of,
    remove_row,
    resources_of,
    running_deployments,
    state_of,
    topology_of,
    want_row,
)
from shoal.control.domain.model import GROUP
from shoal.control.domain.objects import withins
from shoal.control.domain.placement.facts import size_of
from shoal.control.domain.placement.model import SILENT, ClusterFacts, PlacementRequest
from shoal.control.domain.placement.plan import refusal
from shoal.control.domain.specs import read_app_spec
from shoal.control.domain.work import PendingWork
from shoal.errors import Invalid, invalid, not_found
from shoal.sync.keys import Place


async def move_app(work: PendingWork, app: tables.App, region_id: str, to: Place) -> list[str]:
    """Begin to move an app's deployments of a region; the old rows stay until the new are ready. Returns the ids."""
    deployments = await running_deployments(work, app.id)
    rows = [row for row in await topology_of(work, [each.id for each in deployments]) if row.region_id == region_id]
    moved: list[str] = []
    for deployment in deployments:
        own = [row for row in rows if row.deployment_id == deployment.id]
        current = next((row for row in own if row.desired_status != "leaving"), None)
        if current is None or place_of(current) == to:
            continue
        taken_from = next((row for row in own if _is_taken_over(current, row)), None)
        if taken_from is not None and place_of(taken_from) != to:
            raise Invalid.of("App", GROUP, app.name, [invalid("cluster", str(to), _under_way(current, taken_from))])
        await _move_row(work, deployment, current, own, to)
        moved.append(deployment.id)
    return moved


def _is_taken_over(row: Topology, other: Topology) -> bool:
    """Whether the row takes the objects of the other one over."""
    return row.moved_from == other.id and row.cluster_id == other.cluster_id


def _under_way(row: Topology, other: Topology) -> str:
    return (
        f"it is being handed over from shard {other.shard} to shard {row.shard} of its cluster: wait until that "
        f"is done, or move it back to {other.shard}"
    )


async def _move_row(
    work: PendingWork, deployment: Deployment, current: Topology, rows: Sequence[Topology], to: Place
) -> None:
    back = next((row for row in rows if row.desired_status == "leaving" and place_of(row) == to), None)
    if back is not None and _is_taken_over(current, back):  # the move is called off: what was handed over comes back
        back.desired_status, back.moved_from, back.updated_at = current.desired_status, current.id, work.now
        current.desired_status, current.moved_from, current.updated_at = "leaving", "", work.now
        await work.session.flush()
        want_row(work, deployment, back)
        return
    if back is not None:  # the move is called off: what was leaving stays, what was coming goes
        back.desired_status = current.desired_status
        await remove_row(work, current)
        return
    came_from = next((row for row in rows if row.id == current.moved_from), None)
    if came_from is not None:  # moved on before it had arrived
        await remove_row(work, current)
        current = came_from
    reason = {**current.reason, "because": f"{work.tx.actor} moved it", "from": str(place_of(current))}
    reason |= {"chosen": work.infrastructure.cluster_name(to.cluster), "shard": to.shard}
    status = "running" if current.desired_status == "leaving" else current.desired_status
    row = new_row(work, deployment, current.region_id, to, reason, state_of(current))
    row.desired_status, row.moved_from = status, current.id
    row.revision, row.weight, row.routed = current.revision, current.weight, current.routed
    row.instances, row.target = current.instances, current.target
    current.desired_status = "leaving"
    current.updated_at = work.now
    work.session.add(row)
    await work.session.flush()
    want_row(work, deployment, row)
    if not current.cluster_id or status == "stopped":  # nothing runs, so nothing has to be ready first
        row.moved_from = ""
        await remove_row(work, current)


async def finish_move(work: PendingWork, row: Topology) -> None:
    """The row that replaces another is ready: the other one goes."""
    old = await work.session.get(Topology, row.moved_from)
    row.moved_from = ""
    if old is not None:
        async with work.as_user():
            await remove_row(work, old)
    await work.session.flush()


async def place_waiting(work: PendingWork) -> int:
    """Place what had nowhere to go; returns how many found a place now."""
    rows = list(await work.session.scalars(select(Topology).where(Topology.cluster_id == "").order_by(Topology.id)))
    found = 0
    for row in rows:
        deployment = await work.session.get(Deployment, row.deployment_id)
        app = await work.session.get(tables.App, deployment.app_id) if deployment else None
        if deployment is None or app is None or row.region_id not in work.infrastructure.regions:
            continue
        spec = read_app_spec(app.spec)
        inside = await withins(work.session, [app])
        state = state_of(row)
        size = size_of(resources_of(deployment.template, state.overrides), count_of(state))
        placement = await choose(work, app, inside[app.id], spec, row.region_id, size, None)
        row.reason, row.updated_at = placement.reason, work.now
        if placement.place is None:
            continue
        row.cluster_id, row.shard = placement.place.cluster, placement.place.shard
        if deployment.status == "pending":
            deployment.status, deployment.updated_at = "deploying", work.now
        await work.session.flush()
        want_row(work, deployment, row)
        work.took(placement.reason["region"], placement.place, size)
        found += 1
    return found


async def waiting_regions(session: AsyncSession) -> set[str]:
    """Ids of the regions in which something has nowhere to go."""
    return set(await session.scalars(select(Topology.region_id).where(Topology.cluster_id == "").distinct()))


def target(known: Sequence[ClusterFacts], app: tables.App, region: str, cluster: str, shard: str) -> Place:
    """The place to move to, or why it cannot be."""
    facts = next((each for each in known if each.name == cluster and each.region == region), None)
    if facts is None:
        raise Invalid.of("App", GROUP, app.name, [not_found("cluster", cluster)])
    spec = read_app_spec(app.spec)
    want = PlacementRequest(
        region=region,
        labels=spec.placement.labels,
        cel=spec.placement.cel,
        tolerations=spec.placement.tolerations,
        app={"name": app.name, "project": "", "environment": "", "labels": app.labels},
    )
    why = refusal(want, facts)
    if why:
        raise Invalid.of("App", GROUP, app.name, [invalid("cluster", cluster, why)])
    shards = [each for each in facts.shards if each.agent not in SILENT and shard in ("", each.name)]
    if not shards:
        raise Invalid.of("App", GROUP, app.name, [not_found("shard", shard)])
    chosen = min(shards, key=lambda each: (each.agent != "joined", each.deployments, each.name))
    return Place(facts.id, chosen.name)
