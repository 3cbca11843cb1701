"""What follows from reports, in the transaction that stores them: the report itself drives the state.

    instances are ready       the exchange of revisions goes on (``exchange``)
    gateways took routes      so it does, and old instances may go
    enough regions are done   the revision is ready as a whole, and the live one
    a live revision fails     it is marked, until it recovers; nothing is stopped
    a row that moved is ready the row it replaces goes
    a first deployment is     its environment gets a gateway in the region, with routes, policies and keys
    a gateway converged       it is ready; one that it replaces elsewhere goes

Everything is decided from what the database says now, so doing it twice, or late, does nothing more. Nothing here is
a user's change: agents get what users changed first.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from sqlalchemy import or_, select
from sqlalchemy.ext.asyncio import AsyncSession

from shoal.base.ids import Ids
from shoal.control.database import tables
from shoal.control.database.tables import Deployment, Desired, Sentinel, Topology
from shoal.control.database.transaction import Tx
from shoal.control.domain import apps, broken, candidates, gateways, moves
from shoal.control.domain.app_facts import KnownApp, load_apps
from shoal.control.domain.deployments import want_row
from shoal.control.domain.exchange import say
from shoal.control.domain.gate import WAITING, converged, finished_moves, passes, serving
from shoal.control.domain.gateway_rollouts import engine as gateway_engine
from shoal.control.domain.gateway_rollouts.versions import image_of
from shoal.control.domain.gateways import ReadyAt
from shoal.control.domain.model import GatewayDefaults
from shoal.control.domain.rollouts import engine
from shoal.control.domain.work import PendingWork
from shoal.sync.keys import Place, key_of, split_key

DEFAULTS = GatewayDefaults()

_new_suffix: Callable[[int], str] = Ids().new_suffix


async def after_report(tx: Tx, deployment_ids: set[str], *, defaults: GatewayDefaults = DEFAULTS) -> None:
    """Draw the consequences of reports about these deployments."""
    concerned = await candidates.concerned(tx, deployment_ids)
    if concerned:
        await tx.claim()
        work = PendingWork(tx=tx, new_suffix=_new_suffix, gateways=defaults)
        await advance_apps(work, concerned)


async def advance_apps(work: PendingWork, app_ids: Collection[str]) -> None:
    """Draw all consequences for some apps. The counter must have been claimed."""
    known = await load_apps(work.session, app_ids)
    for each in known:
        with work.tx.caused_by(each.correlation):
            await _advance(work, each)
            await work.flush()
    await work.session.flush()
    await _settle(work, known)
    await work.flush()


async def after_sentinel_report(tx: Tx, keys: set[str], *, defaults: GatewayDefaults = DEFAULTS) -> None:
    """Draw the consequences of reports on the sentinels' stream: gateways, routes, policies and sets of keys."""
    named: dict[str, set[str]] = {}
    for key in keys:
        kind, object_id = split_key(key)
        named.setdefault(kind, set()).add(object_id)
    work = PendingWork(tx=tx, new_suffix=_new_suffix, gateways=defaults)
    if sentinels := named.get("sentinel"):
        rows = list(await tx.session.scalars(select(Sentinel).where(Sentinel.id.in_(sentinels))))
        for sentinel in rows:
            await _sentinel_reported(work, sentinel)
        await _roll_out_gateways(work, rows)
    if routes := named.get("route"):
        await gateways.heard(tx.session, sorted(routes))
        waiting = await _waiting_for(tx, sorted(routes))
        if waiting:
            await tx.claim()
            await advance_apps(work, waiting)
    await work.flush()


async def _roll_out_gateways(work: PendingWork, reported: Sequence[Sentinel]) -> None:
    """The rollouts that these gateways take part in may go on."""
    environments = {each.environment_id for each in reported if each.rollout is not None}
    if environments:
        await work.tx.claim()
    for environment_id in sorted(environments):
        await gateway_engine.advance(work, environment_id)


async def _waiting_for(tx: Tx, routes: Sequence[str]) -> set[str]:
    """Apps that these routes lead to and whose revisions are exchanged."""
    found = await tx.session.scalars(select(tables.Route).where(tables.Route.id.in_(routes)))
    names = [(route.environment_id, name) for route in found for name in gateways.apps_of_route(route.spec)]
    if not names:
        return set()
    rows = await tx.session.execute(
        select(tables.App.id, tables.App.environment_id, tables.App.name)
        .join(Deployment, Deployment.app_id == tables.App.id)
        .join(Topology, Topology.deployment_id == Deployment.id)
        .where(
            tables.App.environment_id.in_({environment for environment, _ in names}),
            or_(Topology.weight != Topology.routed, Topology.revision != tables.App.revision),
        )
        .distinct()
    )
    return {row.id for row in rows if (row.environment_id, row.name) in names}


_UNDER_WAY = or_(
    Deployment.status.in_(("pending", "deploying")) & (Deployment.id == tables.App.deployment_id),
    Topology.revision != tables.App.revision,
    Topology.weight != Topology.routed,
)


async def under_way(session: AsyncSession) -> list[str]:
    """Ids of the apps for which ``sweep`` may have something to do: deadlines, regions given up, gateways removed."""
    found = await session.scalars(
        select(tables.App.id)
        .join(Deployment, Deployment.app_id == tables.App.id)
        .outerjoin(Topology, Topology.deployment_id == Deployment.id)
        .where(Deployment.desired_state == "running", _UNDER_WAY)
        .distinct()
    )
    return sorted(found)


async def sweep(tx: Tx, app_ids: Collection[str], *, defaults: GatewayDefaults = DEFAULTS) -> None:
    """What no report brings about, for some apps."""
    await tx.claim()  # before anything is read: others may be changing it
    await advance_apps(PendingWork(tx=tx, new_suffix=_new_suffix, gateways=defaults), app_ids)


async def _advance(work: PendingWork, known: KnownApp) -> None:
    for revision in sorted({known.revision(row) for row in known.rows}):
        for row in finished_moves(known.row_facts(revision)):
            moved = await work.session.get(Topology, row.id)
            if moved is not None and moved.moved_from:
                known.rows = [each for each in known.rows if each.id != moved.moved_from]
                await moves.finish_move(work, moved)
                say(work, known, "Moved", f"revision {revision} is ready in its new place", region=row.region)
    await engine.advance(work, known)
    await broken.mark(work, known)
    newest = known.newest
    if newest is None or newest.status not in WAITING:
        return
    if passes(known.row_facts(newest.revision), known.spec.readiness.regions):
        _became_ready(work, known, newest)
    else:
        await _check_deadline(work, known, newest)


def _became_ready(work: PendingWork, known: KnownApp, newest: Deployment) -> None:
    newest.status, newest.reason = "ready", ""
    newest.ready_at = newest.updated_at = work.now
    say(work, known, "Ready", f"revision {newest.revision} is ready")
    known.app.live_deployment_id = newest.id
    for old in known.deployments.values():
        if old.revision < newest.revision and old.status != "failed":
            old.status, old.updated_at = "superseded", work.now


async def _check_deadline(work: PendingWork, known: KnownApp, newest: Deployment) -> None:
    """Past its deadline a revision has failed. One that gets no requests anywhere, beside an older one that does, is
    stopped; elsewhere it goes on trying, and regions catch up when it becomes ready."""
    if known.rollout is not None and known.rollout.strategy.is_configured:
        return  # it has a deadline of its own, for each step
    deadline_s = known.spec.readiness.deadline
    if newest.status not in ("pending", "deploying") or work.now - newest.updated_at <= deadline_s * 1000:
        return
    own = [row for row in known.rows if known.is_wanted(row)]
    why = await broken.failure(work, own) or await broken.missing(work, own)
    newest.status = "failed"
    newest.reason = f"not ready after {deadline_s} s" + (f"; {why}" if why else "")
    text = f"revision {newest.revision} is not ready after {deadline_s} s"
    serves = any(row.routed for row in known.rows if not known.is_wanted(row))
    if serves and not any(row.routed for row in own):
        for row in own:
            row.desired_status, row.updated_at = "stopped", work.now
            if row.cluster_id:
                want_row(work, known.deployments[row.deployment_id], row)
        text += " and gets no requests: it is stopped"
        await engine.advance(work, known)
    say(work, known, "Failed", text + (f" ({why})" if why else ""), warning=True)


async def settle_gateways(work: PendingWork, environment_id: str) -> None:
    """Gateways of what is ready, after a user has changed what they depend on: a route, a setting, a gateway that was
    deleted. What has to go goes too."""
    await work.flush()
    await work.session.flush()
    await apps.settle_environment(work, environment_id)
    ids = list(await work.session.scalars(select(tables.App.id).where(tables.App.environment_id == environment_id)))
    if ids:
        await _settle(work, await load_apps(work.session, ids))


async def _settle(work: PendingWork, known: Sequence[KnownApp]) -> None:
    """Gateways of the environments in which something is ready."""
    ready: dict[str, dict[str, ReadyAt]] = {}
    causes: dict[str, str] = {}
    for each in known:
        causes[each.app.environment_id] = each.correlation
        for revision in {each.revision(row) for row in each.rows}:
            for region_id, row in serving(each.row_facts(revision)).items():
                ready.setdefault(each.app.environment_id, {})[region_id] = ReadyAt(row.place, row.region)
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
    beside = int((seen.get("candidate") or {}).get("ready") or 0)
    own = int(seen.get("available") or 0)
    sentinel.available_replicas = own + beside
    sentinel.health = str(seen.get("health") or "unknown")
    sentinel.running_image = str(seen.get("image") or "")
    sentinel.address = str(seen.get("address") or sentinel.address)
    sentinel.entries = [str(entry) for entry in seen.get("entries") or ()]
    done = converged(
        applied=desired.applied_number >= desired.number and not desired.error,
        health=sentinel.health,
        running_image=sentinel.running_image,
        image=image_of(sentinel.image),
        available=own,
        desired=int((sentinel.rollout or {}).get("kept", sentinel.desired_replicas)),
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
