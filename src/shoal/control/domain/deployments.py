"""Rows of deployments and of their topology: made, told to agents, removed. Others decide what they should be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import delete as sql_delete
from sqlalchemy import select

from shoal.control.database.tables import Deployment, Topology
from shoal.control.domain.plan import RegionState, needed_instances
from shoal.control.domain.work import PendingWork
from shoal.sync.keys import Place, key_of


async def running_deployments(work: PendingWork, app_id: str) -> list[Deployment]:
    """The revisions of an app that are wanted somewhere, oldest first."""
    rows = await work.session.scalars(
        select(Deployment)
        .where(Deployment.app_id == app_id, Deployment.desired_state == "running")
        .order_by(Deployment.revision)
        .execution_options(populate_existing=True)
    )
    return list(rows)


async def topology_of(work: PendingWork, deployment_ids: Sequence[str]) -> list[Topology]:
    rows = await work.session.scalars(
        select(Topology)
        .where(Topology.deployment_id.in_(deployment_ids))
        .order_by(Topology.id)
        .execution_options(populate_existing=True)
    )
    return list(rows)


async def retire(work: PendingWork, deployment: Deployment, status: str = "superseded") -> None:
    """A revision is not wanted any more, anywhere."""
    async with work.as_user():
        await work.unwant_everywhere("deployment", deployment.id)
    await work.session.execute(sql_delete(Topology).where(Topology.deployment_id == deployment.id))
    deployment.desired_state, deployment.status, deployment.updated_at = "archived", status, work.now
    await work.session.flush()


async def want_again(work: PendingWork, deployments: Sequence[Deployment]) -> None:
    """Send deployments once more, because something they are rendered from has changed."""
    named = {each.id: each for each in deployments}
    for row in await topology_of(work, list(named)):
        want_row(work, named[row.deployment_id], row)


def new_row(
    work: PendingWork, deployment: Deployment, region_id: str, at: Place, reason: dict[str, Any], state: RegionState
) -> Topology:
    return Topology(
        id=work.new_id("Topology"),
        workspace_id=deployment.workspace_id,
        deployment_id=deployment.id,
        region_id=region_id,
        cluster_id=at.cluster,
        shard=at.shard,
        reason=reason,
        replicas=state.replicas,
        autoscaling=state.autoscaling,
        overrides=state.overrides,
        desired_status=state.desired_status,
        moved_from="",
        revision=deployment.revision,
        weight=0,
        routed=0,
        instances=None,
        target=0,
        updated_at=work.now,
    )


def want_row(work: PendingWork, deployment: Deployment, row: Topology) -> None:
    key = key_of("deployment", deployment.id)
    if not row.cluster_id:
        work.waits(work.infrastructure.region_name(row.region_id), key, str(row.reason.get("because", "")))
        return
    work.want(
        place_of(row),
        key,
        workspace_id=deployment.workspace_id,
        namespace=deployment.namespace,
        name=deployment.k8s_name,
    )


async def remove_row(work: PendingWork, row: Topology) -> None:
    if row.cluster_id:
        await work.unwant(place_of(row), key_of("deployment", row.deployment_id))
    await work.session.delete(row)
    await work.session.flush()


def state_of(row: Topology) -> RegionState:
    return RegionState(row.replicas, row.autoscaling, row.overrides, row.desired_status)


def place_of(row: Topology) -> Place:
    return Place(row.cluster_id, row.shard)


def revision_of(row: Topology, deployment: Deployment) -> int:
    """The revision that a row counts as."""
    return row.revision or deployment.revision


def resources_of(template: Mapping[str, Any], overrides: Mapping[str, Any] | None) -> dict[str, str]:
    return {**(template.get("resources") or {}), **((overrides or {}).get("resources") or {})}


def count_of(state: RegionState) -> int:
    return needed_instances(state.replicas, state.autoscaling)
