"""Apps and their revisions in one transaction: what an apply, a delete or a move changes, and where.

A new revision is placed beside the old one, which runs on until the readiness gate has let the new one pass
(``readiness``). What never became ready is replaced at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import delete as sql_delete
from sqlalchemy import func, select

from shoal.control.database import tables
from shoal.control.database.tables import Deployment, Sentinel, Topology
from shoal.control.domain import gateways
from shoal.control.domain.kinds.app import AppSpec, RegionSpec
from shoal.control.domain.objects import ObjectScope
from shoal.control.domain.placement.facts import size_of
from shoal.control.domain.placement.model import PlacedLoad, Placement, PlacementRequest
from shoal.control.domain.placement.plan import place
from shoal.control.domain.plan import (
    AppPlan,
    RegionState,
    cluster_name,
    needed_instances,
    plan_app,
    region_state,
    template_hash,
    template_of,
)
from shoal.control.domain.work import PendingWork
from shoal.sync.keys import Place, key_of

KEPT_REVISIONS = 20


async def apply_app(
    work: PendingWork, app: tables.App, within: ObjectScope, spec: AppSpec, before: Mapping[str, Any] | None
) -> None:
    """Make revisions and their rows fit ``spec``, which was just written; ``before`` is what it replaces."""
    known = await running_deployments(work, app.id)
    newest = next((each for each in known if each.id == app.deployment_id), None)
    rows = await topology_of(work, [each.id for each in known])
    here = _by_region(rows, newest)
    plan = plan_app(spec, app.template_hash, {work.infrastructure.region_name(k): state_of(r) for k, r in here.items()})
    for old in known:
        if old is not newest:
            await _change_older(work, old, spec, [row for row in rows if row.deployment_id == old.id])
    if plan.new_revision:
        if newest is not None:
            await _change_older(work, newest, spec, [row for row in rows if row.deployment_id == newest.id])
        newest = await _new_revision(work, app, within, spec, {id_: place_of(row) for id_, row in here.items()})
    elif newest is not None:
        drifted = before is not None and before.get("drift") != app.spec.get("drift")
        await _change_in_place(work, app, within, newest, spec, plan, here, again=drifted)
    await work.flush()  # what is wanted comes before what it replaces goes
    for old in known:  # those that are neither the newest nor live; of a stopped app nothing has to go on running
        if (
            newest is not None
            and old.id != newest.id
            and (spec.desired == "stopped" or old.id != app.live_deployment_id)
        ):
            await retire(work, old)
    if work.removed:
        await settle_environment(work, app.environment_id)


async def delete_app(work: PendingWork, app: tables.App) -> None:
    """Remove an app with all its revisions; the tombstones in ``desired`` tell the agents."""
    ids = list(await work.session.scalars(select(Deployment.id).where(Deployment.app_id == app.id)))
    for deployment_id in ids:
        await work.unwant_everywhere("deployment", deployment_id)
    await _forget(work, ids)
    await work.session.execute(sql_delete(tables.App).where(tables.App.id == app.id))
    await settle_environment(work, app.environment_id)


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


async def running_deployments(work: PendingWork, app_id: str) -> list[Deployment]:
    """The revisions of an app that are wanted somewhere, oldest first."""
    rows = await work.session.scalars(
        select(Deployment)
        .where(Deployment.app_id == app_id, Deployment.desired_state == "running")
        .order_by(Deployment.revision)
    )
    return list(rows)


async def topology_of(work: PendingWork, deployment_ids: Sequence[str]) -> list[Topology]:
    rows = await work.session.scalars(
        select(Topology).where(Topology.deployment_id.in_(deployment_ids)).order_by(Topology.id)
    )
    return list(rows)


async def settle_environment(work: PendingWork, environment_id: str) -> None:
    """After rows of an environment were removed: gateways that have nothing left go too."""
    environment = await work.session.get(tables.Environment, environment_id)
    if environment is not None:
        await work.session.flush()
        await gateways.settle(work, environment, {})


async def _new_revision(
    work: PendingWork, app: tables.App, within: ObjectScope, spec: AppSpec, places: Mapping[str, Place]
) -> Deployment:
    template = template_of(spec)
    app.revision += 1
    deployment = Deployment(
        id=work.new_id("Deployment"),
        workspace_id=app.workspace_id,
        project_id=app.project_id,
        environment_id=app.environment_id,
        app_id=app.id,
        revision=app.revision,
        k8s_name=cluster_name(f"{app.name}-{app.revision}", app.id, app.revision),
        namespace=within.environment.namespace if within.environment else "",
        image=spec.image,
        template=template,
        template_hash=template_hash(template),
        git=spec.git or None,
        desired_state="running",
        status="deploying",
        created_at=work.now,
        updated_at=work.now,
    )
    app.deployment_id, app.template_hash = deployment.id, deployment.template_hash
    work.session.add(deployment)
    await work.session.flush()
    placed = [await _add_region(work, app, within, deployment, spec, region, places) for region in spec.topology]
    await work.session.flush()
    if spec.desired == "stopped":
        deployment.status = "stopped"
    elif not any(placed):
        deployment.status = "pending"
    work.tx.event(
        workspace_id=app.workspace_id,
        kind="App",
        object_id=app.id,
        name=f"{within.project_name}/{within.environment_name}/{app.name}",
        reason="NewRevision",
        message=f"revision {app.revision}: {spec.image} in {len(spec.topology)} regions",
    )
    await _prune(work, app)
    return deployment


async def _change_in_place(
    work: PendingWork,
    app: tables.App,
    within: ObjectScope,
    deployment: Deployment,
    spec: AppSpec,
    plan: AppPlan,
    here: Mapping[str, Topology],
    *,
    again: bool,
) -> None:
    named = {work.infrastructure.region_name(region_id): row for region_id, row in here.items()}
    wanted = {row.region: row for row in spec.topology}
    for region in plan.remove:
        await _remove_region(work, deployment.id, named[region].region_id)
    for region in plan.change if not again else (*plan.change, *plan.keep):
        _change_row(work, deployment, named[region], region_state(spec, wanted[region]))
    places = {row.region_id: place_of(row) for row in here.values()}
    added = [await _add_region(work, app, within, deployment, spec, wanted[region], places) for region in plan.add]
    await work.session.flush()
    stopped = spec.desired == "stopped"
    if stopped != (deployment.status == "stopped"):
        deployment.status, deployment.updated_at = "stopped" if stopped else "deploying", work.now
    elif (deployment.status == "pending" and any(added)) or (
        deployment.status == "failed" and (added or plan.change or plan.remove)
    ):
        deployment.status, deployment.reason, deployment.updated_at = "deploying", "", work.now


async def _change_older(work: PendingWork, deployment: Deployment, spec: AppSpec, rows: Sequence[Topology]) -> None:
    """Until the newest revision is ready the older one follows what holds for the app: regions, scale, running."""
    wanted = {row.region: row for row in spec.topology}
    for row in rows:
        region = wanted.get(work.infrastructure.region_name(row.region_id))
        if region is None:
            await remove_row(work, row)
            continue
        state = region_state(spec, region)
        kept = RegionState(state.replicas, state.autoscaling, row.overrides, state.desired_status)
        if row.desired_status != "leaving" and kept != state_of(row):
            _change_row(work, deployment, row, kept)


async def _add_region(
    work: PendingWork,
    app: tables.App,
    within: ObjectScope,
    deployment: Deployment,
    spec: AppSpec,
    region: RegionSpec,
    places: Mapping[str, Place],
) -> bool:
    """Place and write the row of a region; False when there is no place for it yet."""
    found = work.infrastructure.region_named(region.region)
    assert found is not None  # the names of the regions were checked
    state = region_state(spec, region)
    size = size_of(resources_of(deployment.template, state.overrides), count_of(state))
    placement = await choose(work, app, within, spec, found.id, size, places.get(found.id))
    target = placement.place or Place("", "")
    row = new_row(work, deployment, found.id, target, placement.reason, state)
    work.session.add(row)
    want_row(work, deployment, row)
    if placement.place is not None:
        work.took(region.region, placement.place, size)
    return placement.place is not None


async def choose(
    work: PendingWork,
    app: tables.App,
    within: ObjectScope,
    spec: AppSpec,
    region_id: str,
    size: PlacedLoad,
    current: Place | None,
) -> Placement:
    region = work.infrastructure.region_name(region_id)
    want = PlacementRequest(
        region=region,
        labels=spec.placement.labels,
        cel=spec.placement.cel,
        tolerations=spec.placement.tolerations,
        app={
            "name": app.name,
            "project": within.project_name,
            "environment": within.environment_name,
            "labels": app.labels,
        },
        size=size,
        current=current if current and current.cluster else None,
        home=(await _homes(work, app.environment_id)).get(region_id, "") if spec.placement.spread == "together" else "",
    )
    found = place(want, await work.facts(region))
    return Placement(found.place, {**found.reason, "region": region})


async def _homes(work: PendingWork, environment_id: str) -> dict[str, str]:
    """By region, the cluster of an environment: where its gateway is, or else most of what it runs there."""
    if environment_id not in work.homes:
        most = await work.session.execute(
            select(Topology.region_id, Topology.cluster_id)
            .join(Deployment, Deployment.id == Topology.deployment_id)
            .where(Deployment.environment_id == environment_id, Topology.cluster_id != "")
            .group_by(Topology.region_id, Topology.cluster_id)
            .order_by(func.count(), Topology.cluster_id.desc())
        )
        sentinels = await work.session.execute(
            select(Sentinel.region_id, Sentinel.cluster_id).where(Sentinel.environment_id == environment_id)
        )
        found = {row.region_id: row.cluster_id for row in most}
        work.homes[environment_id] = found | {row.region_id: row.cluster_id for row in sentinels}
    return work.homes[environment_id]


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
        updated_at=work.now,
    )


def _change_row(work: PendingWork, deployment: Deployment, row: Topology, state: RegionState) -> None:
    row.replicas, row.autoscaling, row.overrides = state.replicas, state.autoscaling, state.overrides
    row.desired_status, row.updated_at = state.desired_status, work.now
    want_row(work, deployment, row)


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


async def _remove_region(work: PendingWork, deployment_id: str, region_id: str) -> None:
    rows = await work.session.scalars(
        select(Topology).where(Topology.deployment_id == deployment_id, Topology.region_id == region_id)
    )
    for row in list(rows):
        await remove_row(work, row)


async def remove_row(work: PendingWork, row: Topology) -> None:
    if row.cluster_id:
        await work.unwant(place_of(row), key_of("deployment", row.deployment_id))
    await work.session.delete(row)
    await work.session.flush()


async def _prune(work: PendingWork, app: tables.App) -> None:
    """Forget archived revisions beyond the newest few."""
    old = await work.session.scalars(
        select(Deployment.id).where(
            Deployment.app_id == app.id,
            Deployment.desired_state == "archived",
            Deployment.revision <= app.revision - KEPT_REVISIONS,
        )
    )
    await _forget(work, list(old))


async def _forget(work: PendingWork, deployment_ids: Sequence[str]) -> None:
    if not deployment_ids:
        return
    session = work.session
    await session.execute(sql_delete(tables.Instance).where(tables.Instance.deployment_id.in_(deployment_ids)))
    await session.execute(sql_delete(Topology).where(Topology.deployment_id.in_(deployment_ids)))
    await session.execute(sql_delete(Deployment).where(Deployment.id.in_(deployment_ids)))


def _by_region(rows: Sequence[Topology], deployment: Deployment | None) -> dict[str, Topology]:
    """The rows of a deployment that count; those it is leaving do not."""
    if deployment is None:
        return {}
    return {
        row.region_id: row for row in rows if row.deployment_id == deployment.id and row.desired_status != "leaving"
    }


def state_of(row: Topology) -> RegionState:
    return RegionState(row.replicas, row.autoscaling, row.overrides, row.desired_status)


def place_of(row: Topology) -> Place:
    return Place(row.cluster_id, row.shard)


def resources_of(template: Mapping[str, Any], overrides: Mapping[str, Any] | None) -> dict[str, str]:
    return {**(template.get("resources") or {}), **((overrides or {}).get("resources") or {})}


def count_of(state: RegionState) -> int:
    return needed_instances(state.replicas, state.autoscaling)
