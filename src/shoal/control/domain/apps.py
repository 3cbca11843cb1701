"""Apps and their revisions in one transaction: what an apply, a delete or a move changes, and where.

A new revision is placed beside the old one, which runs on until the new one has taken its place (``exchange``). In a
region whose containers stay the same nothing is placed: what runs there counts as the new revision.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import delete as sql_delete
from sqlalchemy import func, select

from shoal.control.database import tables
from shoal.control.database.tables import Deployment, Sentinel, Topology
from shoal.control.domain import gateways
from shoal.control.domain.adoption import adopted_by, place_of_adopted, warn_of_ignored
from shoal.control.domain.app_facts import load_apps
from shoal.control.domain.deployments import (
    count_of,
    new_row,
    place_of,
    remove_row,
    resources_of,
    retire,
    revision_of,
    running_deployments,
    state_of,
    topology_of,
    want_row,
)
from shoal.control.domain.kinds.app import AppSpec, RegionSpec
from shoal.control.domain.objects import ObjectScope
from shoal.control.domain.placement.facts import size_of
from shoal.control.domain.placement.model import PlacedLoad, Placement, PlacementRequest
from shoal.control.domain.placement.plan import place
from shoal.control.domain.plan import (
    ADOPTED,
    NEWEST_RENDER,
    RENDER,
    RESTARTS,
    AppPlan,
    RegionState,
    cluster_name,
    containers_of,
    plan_app,
    recorded_template,
    region_state,
    template_hash,
    template_of,
)
from shoal.control.domain.registries import with_defaults
from shoal.control.domain.rollouts import engine
from shoal.control.domain.rollouts.beginning import begin_rollout, end_rollout
from shoal.control.domain.rollouts.records import forget_rollouts
from shoal.control.domain.work import PendingWork
from shoal.sync.keys import Place

KEPT_REVISIONS = 20


async def apply_app(
    work: PendingWork, app: tables.App, within: ObjectScope, spec: AppSpec, before: Mapping[str, Any] | None,
    *, is_going_back: bool = False,
) -> None:  # fmt: skip
    """Make revisions and their rows fit ``spec``, which was just written; ``before`` is what it replaces. A restart
    stays when a spec that does not know of it is written, but for one that goes back to an earlier revision."""
    spec = with_defaults(spec, within.environment)
    warn_of_ignored(work, spec, before)
    known = {each.id: each for each in await running_deployments(work, app.id)}
    rows = await topology_of(work, list(known))
    here = _by_region([row for row in rows if revision_of(row, known[row.deployment_id]) == app.revision])
    newest = known.get(app.deployment_id)
    if newest is not None and not spec.restarts and not is_going_back:
        spec = replace(spec, restarts=int(newest.template.get(RESTARTS) or 0))
    names = {id_: work.infrastructure.region_name(id_) for id_ in here}
    plan = plan_app(
        spec,
        app.template_hash,
        {names[id_]: state_of(row) for id_, row in here.items()},
        {names[id_]: _containers(known, row) for id_, row in here.items()},
    )
    wanted = {row.id for row in here.values()}
    removed = await _change_older(work, spec, known, [row for row in rows if row.id not in wanted])
    if plan.new_revision or newest is None:
        removed |= await _change_older(work, spec, known, list(here.values()))
        left = [row for row in rows if row.id not in removed]
        newest = await _new_revision(work, app, within, spec, known, left)
    else:
        drifted = before is not None and before.get("drift") != app.spec.get("drift")
        await _change_in_place(work, app, within, newest, spec, plan, here, known, again=drifted)
    await work.flush()  # what is wanted comes before what it replaces goes
    if spec.desired == "stopped":  # of a stopped app nothing has to go on running
        await end_rollout(work, app, "the app is stopped")
        await _keep_only(work, app)
    for route in await gateways.routes_of_app(work.session, app) if plan.remove else ():
        await gateways.config_changed(work, "route", route)  # gateways there lead elsewhere now
    for each in await load_apps(work.session, {app.id}):
        await engine.advance(work, each)
    if work.removed:
        await settle_environment(work, app.environment_id)


async def _keep_only(work: PendingWork, app: tables.App) -> None:
    """Remove everything but the newest revision."""
    for known in await load_apps(work.session, {app.id}):
        for row in [row for row in known.rows if not known.is_wanted(row)]:
            async with work.as_user():
                await remove_row(work, row)
            known.rows.remove(row)
        used = {row.deployment_id for row in known.rows} | {app.deployment_id}
        for old in [each for each in known.deployments.values() if each.id not in used]:
            await retire(work, old)


async def delete_app(work: PendingWork, app: tables.App) -> None:
    """Remove an app with all its revisions; the tombstones in ``desired`` tell the agents. Where it ``keeps_running``,
    they are told to take their labels off what runs, and to leave it."""
    ids = list(await work.session.scalars(select(Deployment.id).where(Deployment.app_id == app.id)))
    for deployment_id in ids:
        await work.unwant_everywhere("deployment", deployment_id, action="release" if work.keeps_running else "delete")
    await _forget(work, ids)
    await forget_rollouts(work.session, app.id)
    await work.session.execute(sql_delete(tables.BadRevision).where(tables.BadRevision.app_id == app.id))
    await work.session.execute(sql_delete(tables.App).where(tables.App.id == app.id))
    await settle_environment(work, app.environment_id)


async def settle_environment(work: PendingWork, environment_id: str) -> None:
    """After rows of an environment were removed: gateways that have nothing left go too."""
    environment = await work.session.get(tables.Environment, environment_id)
    if environment is not None:
        await work.session.flush()
        await gateways.settle(work, environment, {})


async def _new_revision(
    work: PendingWork,
    app: tables.App,
    within: ObjectScope,
    spec: AppSpec,
    known: Mapping[str, Deployment],
    rows: Sequence[Topology],
) -> Deployment:
    app.revision += 1
    deployment_id = work.new_id("Deployment")
    hash_ = template_hash(template_of(spec))
    occupied = {work.infrastructure.region_name(row.region_id) for row in rows}
    adopted = adopted_by(work, spec, {row.region for row in spec.topology} - occupied)
    template = recorded_template(spec, await _render_of(work, app, hash_)) | ({ADOPTED: adopted} if adopted else {})
    deployment = Deployment(
        id=deployment_id,
        workspace_id=app.workspace_id,
        project_id=app.project_id,
        environment_id=app.environment_id,
        app_id=app.id,
        revision=app.revision,
        # Not from the number: after a restore, a cluster may still run another revision that had this number.
        k8s_name=cluster_name(f"{app.name}-{app.revision}", deployment_id),
        namespace=within.environment.namespace if within.environment else "",
        image=spec.image,
        template=template,
        template_hash=hash_,
        git=spec.git or None,
        desired_state="running",
        status="deploying",
        created_at=work.now,
        updated_at=work.now,
    )
    app.deployment_id, app.template_hash = deployment.id, deployment.template_hash
    work.session.add(deployment)
    await work.session.flush()
    placed = [
        _take_over(work, app, spec, region, known, rows)
        or await _add_region(work, app, within, deployment, spec, region, _places(rows))
        for region in spec.topology
    ]
    await work.session.flush()
    if spec.desired == "stopped":
        deployment.status = "stopped"
    elif not any(placed):
        deployment.status = "pending"
    if spec.desired != "stopped":
        await begin_rollout(work, app, within, deployment, known, rows)
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


async def _render_of(work: PendingWork, app: tables.App, hash_: str) -> int:
    """The rules for a new revision: the newest ones, but those of an earlier revision with the same contents, which ran
    by them."""
    earlier = await work.session.scalar(
        select(Deployment.template)
        .where(Deployment.app_id == app.id, Deployment.template_hash == hash_)
        .order_by(Deployment.revision.desc())
        .limit(1)
    )
    return NEWEST_RENDER if earlier is None else int(earlier.get(RENDER) or 1)


def _take_over(
    work: PendingWork,
    app: tables.App,
    spec: AppSpec,
    region: RegionSpec,
    known: Mapping[str, Deployment],
    rows: Sequence[Topology],
) -> bool:
    """Where the same containers run already, they count as the new revision; False where none do."""
    found = work.infrastructure.region_named(region.region)
    assert found is not None  # the names of the regions were checked
    here = [row for row in rows if row.region_id == found.id]
    wanted = containers_of(template_of(spec), region.overrides.as_json())
    same = [row for row in here if _containers(known, row) == wanted]
    if not same:
        return False
    best = max(same, key=lambda row: (row.routed, row.id)).deployment_id
    for row in here:
        if row.deployment_id == best:
            row.revision = app.revision
    return True


def _places(rows: Sequence[Topology]) -> dict[str, Place]:
    """By region, where what gets most requests runs."""
    staying = [row for row in rows if row.desired_status != "leaving"]
    return {row.region_id: place_of(row) for row in sorted(staying, key=lambda row: (row.routed, row.revision))}


async def _change_in_place(
    work: PendingWork,
    app: tables.App,
    within: ObjectScope,
    deployment: Deployment,
    spec: AppSpec,
    plan: AppPlan,
    here: Mapping[str, Topology],
    known: Mapping[str, Deployment],
    *,
    again: bool,
) -> None:
    named = {work.infrastructure.region_name(region_id): row for region_id, row in here.items()}
    wanted = {row.region: row for row in spec.topology}
    for region in plan.remove:
        await remove_row(work, named[region])
    for region in plan.change if not again else (*plan.change, *plan.keep):
        row = named[region]
        _change_row(work, known[row.deployment_id], row, region_state(spec, wanted[region]))
    places = {row.region_id: place_of(row) for row in here.values()}
    if adopted := adopted_by(work, spec, plan.add):
        kept = deployment.template.get(ADOPTED) or {}
        deployment.template = {**deployment.template, ADOPTED: {**kept, **adopted}}
    added = [await _add_region(work, app, within, deployment, spec, wanted[region], places) for region in plan.add]
    await work.session.flush()
    stopped = spec.desired == "stopped"
    if stopped != (deployment.status == "stopped"):
        deployment.status, deployment.updated_at = "stopped" if stopped else "deploying", work.now
    elif (deployment.status == "pending" and any(added)) or (
        deployment.status == "failed" and (added or plan.change or plan.remove)
    ):
        deployment.status, deployment.reason, deployment.updated_at = "deploying", "", work.now


async def _change_older(
    work: PendingWork, spec: AppSpec, known: Mapping[str, Deployment], rows: Sequence[Topology]
) -> set[str]:
    """What holds for the app holds for its older revisions too while they run: regions, scale, running. Returns the
    rows that are gone."""
    wanted = {row.region: row for row in spec.topology}
    removed: set[str] = set()
    for row in rows:
        region = wanted.get(work.infrastructure.region_name(row.region_id))
        if region is None:
            removed.add(row.id)
            await remove_row(work, row)
            continue
        state = region_state(spec, region)
        kept = RegionState(state.replicas, state.autoscaling, row.overrides, state.desired_status)
        if row.desired_status != "leaving" and kept != state_of(row):
            _change_row(work, known[row.deployment_id], row, kept)
    return removed


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
    adopted, why = await place_of_adopted(work, deployment.template, region.region)
    if adopted.cluster:
        placement = Placement(adopted, why)
    else:
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


def _change_row(work: PendingWork, deployment: Deployment, row: Topology, state: RegionState) -> None:
    """Change what can be changed in place; the overrides of a row never change."""
    row.replicas, row.autoscaling = state.replicas, state.autoscaling
    row.desired_status, row.updated_at = state.desired_status, work.now
    want_row(work, deployment, row)


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


def _by_region(rows: Sequence[Topology]) -> dict[str, Topology]:
    """The rows that count; those that are being left do not."""
    return {row.region_id: row for row in rows if row.desired_status != "leaving"}


def _containers(known: Mapping[str, Deployment], row: Topology) -> dict[str, Any]:
    return containers_of(known[row.deployment_id].template, row.overrides)
