"""What follows from reports, in the transaction that stores them: the report itself drives the state.

    a revision is ready     its regions pass the gate; routes lead to it; older revisions end once the routes arrived
    a row that moved is     the row it replaces goes
    a first deployment is   its environment gets a gateway in the region, with routes, policies and keys
    a gateway converged     it is ready; one that it replaces elsewhere goes

Everything is decided from what the database says now, so doing it twice, or late, does nothing more. Nothing here is
a user's change: agents get what users changed first.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass

from sqlalchemy import func, or_, select

from shoal.base.ids import Ids
from shoal.control.database import tables
from shoal.control.database.engine import Database
from shoal.control.database.tables import Deployment, Desired, Instance, Sentinel, Topology
from shoal.control.database.transaction import Tx
from shoal.control.domain import apps, candidates, gateways, moves
from shoal.control.domain.gate import WAITING, RowFacts, converged, finished_moves, passes, serving
from shoal.control.domain.gateways import ReadyAt
from shoal.control.domain.model import GatewayDefaults
from shoal.control.domain.plan import needed_instances
from shoal.control.domain.specs import read_app_spec
from shoal.control.domain.work import PendingWork
from shoal.sync.keys import Place, key_of, split_key

DEFAULTS = GatewayDefaults()
ROUTES_GRACE_MS = 60_000  # an old revision waits this long for its routes to be taken elsewhere

_new_suffix: Callable[[int], str] = Ids().new_suffix


@dataclass(slots=True)
class _Known:
    """A deployment with its app and rows."""

    deployment: Deployment
    app: tables.App
    name: str  # project/environment/app
    rows: list[RowFacts]
    correlation: str = ""  # of the request that led to its newest change


async def after_report(tx: Tx, deployment_ids: set[str], *, defaults: GatewayDefaults = DEFAULTS) -> None:
    """Draw the consequences of reports about these deployments."""
    concerned = await candidates.concerned(tx, deployment_ids)
    if not concerned:
        return
    await tx.claim()
    work = PendingWork(tx=tx, new_suffix=_new_suffix, gateways=defaults)
    for each in await _load(tx, concerned):
        with tx.caused_by(each.correlation):
            await _advance(work, each)
    await tx.session.flush()
    await _settle(work, await _load(tx, concerned))
    await work.flush()


async def after_sentinel_report(tx: Tx, keys: set[str], *, defaults: GatewayDefaults = DEFAULTS) -> None:
    """Draw the consequences of reports on the sentinels' stream: gateways, routes, policies and sets of keys."""
    named: dict[str, set[str]] = {}
    for key in keys:
        kind, object_id = split_key(key)
        named.setdefault(kind, set()).add(object_id)
    work = PendingWork(tx=tx, new_suffix=_new_suffix, gateways=defaults)
    if sentinels := named.get("sentinel"):
        rows = await tx.session.scalars(select(Sentinel).where(Sentinel.id.in_(sentinels)))
        for sentinel in list(rows):
            await _sentinel_reported(work, sentinel)
    if routes := named.get("route"):
        environments = set(
            await tx.session.scalars(select(tables.Route.environment_id).where(tables.Route.id.in_(routes)))
        )
        await _retire_superseded(work, Deployment.environment_id.in_(environments))
    await work.flush()


async def has_overdue(database: Database, now: int) -> bool:
    """Whether ``sweep`` may have something to do; costs one read."""
    async with database.reading() as session:
        found = await session.scalar(
            select(func.count())
            .select_from(Deployment)
            .where(
                Deployment.desired_state == "running",
                or_(
                    Deployment.status.in_(("pending", "deploying")),
                    (Deployment.status == "superseded") & (Deployment.updated_at <= now - ROUTES_GRACE_MS),
                ),
            )
        )
    return bool(found)


async def sweep(tx: Tx, *, defaults: GatewayDefaults = DEFAULTS) -> None:
    """What no report brings about: deadlines of revisions, regions given up, routes waited for long enough."""
    work = PendingWork(tx=tx, new_suffix=_new_suffix, gateways=defaults)
    await _retire_superseded(work, Deployment.updated_at <= tx.now - ROUTES_GRACE_MS)
    waiting = select(Deployment.id).where(
        Deployment.desired_state == "running", Deployment.status.in_(("pending", "deploying"))
    )
    ids = set(await tx.session.scalars(waiting))
    for each in await _load(tx, ids):
        with tx.caused_by(each.correlation):
            await _advance(work, each)  # what it waited for may have been given up: then no report says so
    await tx.session.flush()
    ready = [each for each in await _load(tx, ids) if each.deployment.status == "ready"]
    await _settle(work, ready)
    await work.flush()


async def _advance(work: PendingWork, known: _Known) -> None:
    deployment, app = known.deployment, known.app
    if deployment.desired_state != "running":
        return
    for row in finished_moves(known.rows):
        moved = await work.session.get(Topology, row.id)
        if moved is not None and moved.moved_from:
            await moves.finish_move(work, moved)
            _event(work, known, "Moved", f"revision {deployment.revision} is ready in its new place", region=row.region)
    if deployment.status == "superseded":
        await _retire_superseded(work, Deployment.id == deployment.id)
        return
    if deployment.status in WAITING and passes(known.rows, read_app_spec(app.spec).readiness.regions):
        await _became_ready(work, known)
    else:
        _check_deadline(work, known)


async def _became_ready(work: PendingWork, known: _Known) -> None:
    deployment, app = known.deployment, known.app
    deployment.status, deployment.reason = "ready", ""
    deployment.ready_at = deployment.updated_at = work.now
    _event(work, known, "Ready", f"revision {deployment.revision} is ready")
    live = await work.session.get(Deployment, app.live_deployment_id) if app.live_deployment_id else None
    if live is not None and live.revision > deployment.revision:
        return
    changed, app.live_deployment_id = app.live_deployment_id != deployment.id, deployment.id
    await work.session.flush()
    if changed:
        for route in await gateways.routes_of_app(work, app):
            await gateways.config_changed(work, "route", route)
    for old in await apps.running_deployments(work, app.id):
        if old.revision < deployment.revision:
            old.status, old.updated_at = "superseded", work.now
    await work.session.flush()
    await _retire_superseded(work, Deployment.app_id == app.id)


async def _retire_superseded(work: PendingWork, which: object) -> None:
    """End old revisions whose requests go to a newer one by now."""
    rows = await work.session.scalars(
        select(Deployment)
        .where(Deployment.status == "superseded", Deployment.desired_state == "running", which)  # type: ignore[arg-type]
        .order_by(Deployment.id)
    )
    for old in list(rows):
        app = await work.session.get(tables.App, old.app_id)
        if app is None or (old.updated_at > work.now - ROUTES_GRACE_MS and not await _routes_arrived(work, app)):
            continue
        await work.tx.claim()
        live = await _load(work.tx, {app.live_deployment_id})
        with work.tx.caused_by(live[0].correlation if live else work.tx.correlation):
            for known in await _load(work.tx, {old.id}):
                _event(work, known, "Superseded", f"revision {old.revision} is removed: a newer one is ready")
            await apps.retire(work, old)
            await _settle(work, await _load(work.tx, {app.live_deployment_id}))


async def _routes_arrived(work: PendingWork, app: tables.App) -> bool:
    """Whether every gateway has the newest version of the routes that lead to the app."""
    routes = [route.id for route in await gateways.routes_of_app(work, app)]
    if not routes:
        return True
    await work.flush()
    behind = await work.session.scalar(
        select(func.count()).where(
            Desired.kind == "route",
            Desired.object_id.in_(routes),
            Desired.action == "apply",
            Desired.applied_number < Desired.number,
        )
    )
    return not behind


def _check_deadline(work: PendingWork, known: _Known) -> None:
    deployment = known.deployment
    deadline_s = read_app_spec(known.app.spec).readiness.deadline
    if deployment.status not in ("pending", "deploying") or work.now - deployment.updated_at <= deadline_s * 1000:
        return
    deployment.status = "failed"
    deployment.reason = f"not ready after {deadline_s} s"
    _event(work, known, "Failed", f"revision {deployment.revision} is not ready after {deadline_s} s", warning=True)


async def _settle(work: PendingWork, known: Sequence[_Known]) -> None:
    """Gateways of the environments in which something is ready."""
    ready: dict[str, dict[str, ReadyAt]] = {}
    causes: dict[str, str] = {}
    for each in known:
        causes[each.deployment.environment_id] = each.correlation
        if each.deployment.desired_state == "running":
            for region_id, row in serving(each.rows).items():
                ready.setdefault(each.deployment.environment_id, {})[region_id] = ReadyAt(row.place, row.region)
    for environment_id in sorted(ready):
        environment = await work.session.get(tables.Environment, environment_id)
        if environment is not None:
            with work.tx.caused_by(causes[environment_id]):
                await gateways.settle(work, environment, ready[environment_id])


async def _sentinel_reported(work: PendingWork, sentinel: Sentinel) -> None:
    key = key_of("sentinel", sentinel.id)
    desired = await work.session.scalar(
        select(Desired).where(
            Desired.cluster_id == sentinel.cluster_id, Desired.shard == sentinel.shard, Desired.key == key
        )
    )
    if desired is None:
        return
    seen = desired.observed or {}
    sentinel.available_replicas = int(seen.get("available") or 0)
    sentinel.health = str(seen.get("health") or "unknown")
    sentinel.running_image = str(seen.get("image") or "")
    sentinel.address = str(seen.get("address") or sentinel.address)
    sentinel.entries = [str(entry) for entry in seen.get("entries") or ()]
    done = converged(
        applied=desired.applied_number >= desired.number and not desired.error,
        health=sentinel.health,
        running_image=sentinel.running_image,
        image=sentinel.image,
        available=sentinel.available_replicas,
        desired=sentinel.desired_replicas,
    )
    if not done or sentinel.deploy_status != "progressing":
        return
    sentinel.deploy_status = "ready"
    here = Place(sentinel.cluster_id, sentinel.shard)
    if await work.places_of("sentinel", sentinel.id) != [here]:
        await work.tx.claim()
        async with work.as_user():  # as with what it serves, which a user has moved
            await work.unwant_everywhere("sentinel", sentinel.id, but=[here])
            if sentinel.environment_id:
                await apps.settle_environment(work, sentinel.environment_id)
            await work.flush()


async def _load(tx: Tx, deployment_ids: Collection[str]) -> list[_Known]:
    """Deployments that are wanted, with their rows as reported; those that are gone are left out.

    Read anew each time: what was read before the counter was claimed may have been changed by others since."""
    if not deployment_ids:
        return []
    session = tx.session
    found = await session.execute(
        select(
            Deployment, tables.App, tables.Project.name.label("project"), tables.Environment.name.label("environment")
        )
        .join(tables.App, tables.App.id == Deployment.app_id)
        .join(tables.Project, tables.Project.id == Deployment.project_id)
        .join(tables.Environment, tables.Environment.id == Deployment.environment_id)
        .where(Deployment.id.in_(deployment_ids), Deployment.desired_state == "running")
        .order_by(Deployment.app_id, Deployment.revision)
        .execution_options(populate_existing=True)
    )
    running = found.all()
    ids = [row.Deployment.id for row in running]
    rows = await session.scalars(
        select(Topology)
        .where(Topology.deployment_id.in_(ids))
        .order_by(Topology.id)
        .execution_options(populate_existing=True)
    )
    desired = await session.execute(
        select(
            Desired.cluster_id, Desired.shard, Desired.object_id, Desired.number, Desired.applied_number, Desired.error,
            Desired.correlation,
        ).where(Desired.kind == "deployment", Desired.object_id.in_(ids), Desired.action == "apply")
        .order_by(Desired.number)
    )  # fmt: skip
    wanted = desired.all()
    causes = {row.object_id: row.correlation for row in wanted if row.correlation}
    applied = {
        (row.object_id, Place(row.cluster_id, row.shard)): row.applied_number >= row.number and not row.error
        for row in wanted
    }
    ready = await _ready_instances(tx, ids)
    by_deployment: dict[str, list[RowFacts]] = {}
    for row in rows:
        by_deployment.setdefault(row.deployment_id, []).append(_facts(row, applied, ready))
    return [
        _Known(
            each.Deployment,
            each.App,
            f"{each.project}/{each.environment}/{each.App.name}",
            by_deployment.get(each.Deployment.id, []),
            causes.get(each.Deployment.id, ""),
        )
        for each in running
    ]


async def _ready_instances(tx: Tx, deployment_ids: Iterable[str]) -> dict[tuple[str, Place], int]:
    counted = await tx.session.execute(
        select(Instance.deployment_id, Instance.cluster_id, Instance.shard, func.count().label("instances"))
        .where(Instance.deployment_id.in_(deployment_ids), Instance.ready, Instance.status == "running")
        .group_by(Instance.deployment_id, Instance.cluster_id, Instance.shard)
    )
    return {(row.deployment_id, Place(row.cluster_id, row.shard)): row.instances for row in counted}


def _facts(row: Topology, applied: dict[tuple[str, Place], bool], ready: dict[tuple[str, Place], int]) -> RowFacts:
    place = Place(row.cluster_id, row.shard)
    where = (row.deployment_id, place)
    return RowFacts(
        id=row.id,
        region_id=row.region_id,
        region=str(row.reason.get("region") or row.region_id),
        place=place,
        desired_status=row.desired_status,
        needed=0 if row.desired_status == "stopped" else needed_instances(row.replicas, row.autoscaling),
        ready=ready.get(where, 0),
        applied=applied.get(where, False),
        moved_from=row.moved_from,
    )


def _event(
    work: PendingWork, known: _Known, reason: str, message: str, *, warning: bool = False, region: str = ""
) -> None:
    work.tx.event(
        workspace_id=known.app.workspace_id,
        kind="App",
        object_id=known.app.id,
        name=known.name,
        reason=reason,
        message=message,
        type="Warning" if warning else "Normal",
        region=region,
    )
