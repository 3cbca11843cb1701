"""Gateways (sentinels) of environments: made in a region once something of the environment is ready there and it has a
route, removed with the last deployment. An environment may have none at all.

An environment is *served* at a place when its set of keys is wanted there; its routes and policies are wanted at the
same places. Where the region has a shared sentinel the environment is served by that one, else it gets its own, on the
cluster where its deployment became ready. When everything of the environment has left that cluster, its gateway
follows; the old one stays until the new one has converged.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, select
from sqlalchemy.ext.asyncio import AsyncSession

from shoal.control.database import tables
from shoal.control.database.tables import Deployment, Desired, Sentinel, Topology
from shoal.control.database.transaction import DesiredObject, Tx
from shoal.control.domain.fields import Reader
from shoal.control.domain.gateway_rollouts.newcomers import version_for_new
from shoal.control.domain.gateway_rollouts.versions import wanted_version
from shoal.control.domain.kinds.scopes import GatewaySettings, read_environment
from shoal.control.domain.plan import cluster_name
from shoal.control.domain.work import PendingWork
from shoal.sync.keys import Place, key_of

NAMESPACE = "sentinel"
UNHEALTHY = "unhealthy"
MADE_BY = "shoal.dev/made-by"  # on gateways that Shoal creates by itself
MADE = {MADE_BY: "readiness"}


ANY = "*"  # in place of the pods of a gateway that was not told


@dataclass(frozen=True, slots=True)
class ServedPlace:
    """A place at which a gateway serves an environment, and the gateway."""

    place: Place
    region_id: str
    sentinel_id: str
    name: str
    forgotten: frozenset[str]


@dataclass(frozen=True, slots=True)
class BehindGateway:
    """A gateway that has not taken the newest routes of an app; ``pods`` are those that have not, or ``ANY``."""

    region_id: str
    name: str
    pods: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ReadyAt:
    """A place where a deployment of an environment is ready."""

    place: Place
    region: str  # its name


async def settle(work: PendingWork, environment: tables.Environment, ready: Mapping[str, ReadyAt]) -> None:
    """Make the gateways of an environment fit what runs in it. ``ready`` is by region; doing it twice does nothing."""
    present = await _present(work, environment.id)
    own, shared = await _sentinels(work, environment)
    spec = read_environment(Reader(environment.spec, "spec", []))
    if not spec.gateway:
        shared = {}
    for sentinel in list(own.values()):
        if MADE_BY in sentinel.annotations and not (spec.gateway and sentinel.region_id in present):
            await remove(work, sentinel)
            del own[sentinel.region_id]
    served = set(await work.places_of("keys", environment.id))
    may_have = spec.gateway and await _has_route(work, environment.id)
    settings = spec.sentinel
    kept: set[Place] = set()
    for region_id, at in sorted(ready.items()):
        if region_id in own:
            await _follow(work, own[region_id], at, present.get(region_id, set()))
        elif settings.shared and region_id in shared:
            kept.add(_place(shared[region_id]))
        elif may_have:
            own[region_id] = await _create(work, environment, region_id, at, settings)
    for sentinel in own.values():
        kept |= {_place(sentinel), *await work.places_of("sentinel", sentinel.id)}
    kept |= {
        _place(sentinel)
        for region_id, sentinel in shared.items()
        if region_id in present and region_id not in own and _place(sentinel) in served
    }
    await _serve(work, environment, kept - served, served - kept)


async def remove(work: PendingWork, sentinel: Sentinel) -> None:
    """Remove a gateway; what it served has to be settled afterwards."""
    await work.unwant_everywhere("sentinel", sentinel.id)
    work.tx.event(
        workspace_id=sentinel.workspace_id,
        kind="Sentinel",
        object_id=sentinel.id,
        name=sentinel.name,
        reason="Removed",
        message="the gateway was removed",
    )
    await work.session.delete(sentinel)
    await work.session.flush()
    await work.tx.want_many(await peers_of(work.session, sentinel.workspace_id, sentinel.environment_id))


async def peers_of(session: AsyncSession, workspace_id: str, environment_id: str) -> list[DesiredObject]:
    """The gateways that name those of an environment (empty: the shared ones) as their peers, to be sent again."""
    of = Sentinel.workspace_id == workspace_id
    if environment_id:  # a shared one has only other shared ones for peers
        of &= Sentinel.environment_id == environment_id
    return await wanted_again(session, of & (Sentinel.desired_state == "running"))


async def wanted_again(session: AsyncSession, which: ColumnElement[bool]) -> list[DesiredObject]:
    """Gateways whose state is to be sent again, where they are."""
    found = await session.execute(
        select(Sentinel.id, Sentinel.cluster_id, Sentinel.shard, Sentinel.workspace_id)
        .where(which)
        .order_by(Sentinel.id)
    )
    return [
        DesiredObject(
            place=Place(row.cluster_id, row.shard), key=key_of("sentinel", row.id), workspace_id=row.workspace_id
        )
        for row in found
    ]


async def lose(tx: Tx, place: Place) -> None:
    """The agent of a place is lost: its gateways count as unhealthy until they are reported again, and gateways of
    other regions no longer send to them. What they serve is not changed."""
    here = Sentinel.cluster_id == place.cluster, Sentinel.shard == place.shard
    lost = list(await tx.session.scalars(select(Sentinel).where(*here, Sentinel.health.not_in((UNHEALTHY, "paused")))))
    if not lost:
        return
    reported = await tx.session.scalars(
        select(Desired).where(
            Desired.cluster_id == place.cluster,
            Desired.shard == place.shard,
            Desired.key.in_([key_of("sentinel", each.id) for each in lost]),
        )
    )
    for row in list(reported):  # so that their next report is news to their peers
        row.observed = {**(row.observed or {}), "health": UNHEALTHY, "available": 0}
    told: dict[str, DesiredObject] = {}
    for sentinel in lost:
        sentinel.health, sentinel.available_replicas = UNHEALTHY, 0
        told |= {one.key: one for one in await peers_of(tx.session, sentinel.workspace_id, sentinel.environment_id)}
    await tx.session.flush()
    await tx.want_many([told[key] for key in sorted(told) if told[key].place != place])


async def config_changed(work: PendingWork, kind: str, row: tables.Route | tables.Policy) -> None:
    """A route or policy was written: send it wherever its environment is served."""
    for place in await work.places_of("keys", row.environment_id):
        want_config(work, place, kind, row.id, row.name, row.workspace_id)


async def keys_changed(work: PendingWork, environment_id: str, workspace_id: str) -> None:
    """Keys of an environment changed: send the set again."""
    for place in await work.places_of("keys", environment_id):
        want_config(work, place, "keys", environment_id, "keys", workspace_id)


async def routes_of_app(session: AsyncSession, app: tables.App) -> list[tables.Route]:
    """The routes of an environment that lead to an app."""
    rows = await session.scalars(
        select(tables.Route).where(tables.Route.environment_id == app.environment_id).order_by(tables.Route.id)
    )
    return [row for row in rows if app.name in apps_of_route(row.spec)]


async def served_places(session: AsyncSession, workspace_id: str, environment_id: str) -> list[ServedPlace]:
    """Where gateways serve an environment, their own and shared ones; a gateway that moves is at two places."""
    found = await session.execute(
        select(Desired.cluster_id, Desired.shard, Sentinel.id, Sentinel.region_id, Sentinel.name, Sentinel.forgotten)
        .join(Sentinel, Sentinel.id == Desired.object_id)
        .where(
            Desired.kind == "sentinel",
            Desired.action == "apply",
            Sentinel.workspace_id == workspace_id,
            Sentinel.environment_id.in_((environment_id, "")),
        )
        .order_by(Desired.cluster_id, Desired.shard, Sentinel.id)
    )
    places = [
        ServedPlace(
            Place(row.cluster_id, row.shard), row.region_id, row.id, row.name, frozenset(map(str, row.forgotten or ()))
        )
        for row in found
    ]
    keys = await session.execute(
        select(Desired.cluster_id, Desired.shard).where(
            Desired.object_id == environment_id, Desired.kind == "keys", Desired.action == "apply"
        )
    )
    served = {Place(row.cluster_id, row.shard) for row in keys}
    return [each for each in places if each.place in served]


async def behind(session: AsyncSession, places: Sequence[ServedPlace], routes: Sequence[str]) -> list[BehindGateway]:
    """The gateways at these places that have not acknowledged the newest version of the routes."""
    if not places or not routes:
        return []
    rows = await session.execute(
        select(
            Desired.cluster_id, Desired.shard, Desired.number, Desired.applied_number, Desired.error, Desired.observed
        ).where(Desired.kind == "route", Desired.object_id.in_(routes), Desired.action == "apply")
    )
    waiting: dict[Place, set[str]] = {}
    for row in rows:
        told = row.applied_number >= row.number and not row.error
        pods = set(map(str, (row.observed or {}).get("waiting") or ())) if told else {ANY}
        waiting.setdefault(Place(row.cluster_id, row.shard), set()).update(pods)
    found: list[BehindGateway] = []
    for each in places:
        left = set() if ANY in each.forgotten else waiting.get(each.place, set()) - each.forgotten
        if left:
            found.append(BehindGateway(each.region_id, each.name, tuple(sorted(left))))
    return found


async def heard(session: AsyncSession, routes: Sequence[str]) -> None:
    """Gateways that acknowledge routes again are waited for again."""
    rows = await session.execute(
        select(Desired.cluster_id, Desired.shard, Desired.observed).where(
            Desired.kind == "route",
            Desired.object_id.in_(routes),
            Desired.action == "apply",
            Desired.applied_number >= Desired.number,
        )
    )
    waiting: dict[Place, set[str]] = {}
    for row in rows:
        found = waiting.setdefault(Place(row.cluster_id, row.shard), set())
        found.update(map(str, (row.observed or {}).get("waiting") or ()))
    if not waiting:
        return
    forgotten = await session.scalars(
        select(Sentinel).where(Sentinel.forgotten.is_not(None), Sentinel.cluster_id.in_({at.cluster for at in waiting}))
    )
    for sentinel in forgotten:
        left = [pod for pod in sentinel.forgotten or () if pod in waiting.get(_place(sentinel), {pod})]
        sentinel.forgotten = left or None


async def forget(session: AsyncSession, sentinel: Sentinel) -> list[str]:
    """Nothing waits for the pods of a gateway that are behind now, until they are heard of. Returns these pods."""
    rows = await session.execute(
        select(Desired.number, Desired.applied_number, Desired.error, Desired.observed).where(
            Desired.kind == "route",
            Desired.action == "apply",
            Desired.cluster_id == sentinel.cluster_id,
            Desired.shard == sentinel.shard,
        )
    )
    pods: set[str] = set()
    for row in rows:
        told = row.applied_number >= row.number and not row.error
        pods |= set(map(str, (row.observed or {}).get("waiting") or ())) if told else {ANY}
    if pods:
        sentinel.forgotten = sorted({*pods, *(sentinel.forgotten or ())})
        await session.flush()
    return sorted(pods)


def send_routes(work: PendingWork, routes: Sequence[tables.Route], places: Iterable[Place]) -> None:
    """Send routes again to these places."""
    for place in sorted(set(places)):
        for route in routes:
            want_config(work, place, "route", route.id, route.name, route.workspace_id)


def apps_of_route(spec: Mapping[str, Any]) -> set[str]:
    """The apps a route names, of its stored spec."""
    named = [spec.get("app"), (spec.get("mirror") or {}).get("app")]
    named += [backend.get("app") for backend in spec.get("backends") or ()]
    return {name for name in named if name}


def want_config(work: PendingWork, place: Place, kind: str, object_id: str, name: str, workspace_id: str) -> None:
    work.want(
        place,
        key_of(kind, object_id),
        workspace_id=workspace_id,
        namespace=NAMESPACE,
        name=cluster_name(name, object_id),
    )


def want_sentinel(work: PendingWork, sentinel: Sentinel) -> None:
    """Send a gateway to its place; it has converged when its reports say so."""
    sentinel.deploy_status = "progressing"
    work.want(
        _place(sentinel),
        key_of("sentinel", sentinel.id),
        workspace_id=sentinel.workspace_id,
        namespace=NAMESPACE,
        name=sentinel.k8s_name,
    )


def sentinel_name(name: str, sentinel_id: str) -> str:
    return cluster_name(f"sentinel-{name}", sentinel_id)


async def _has_route(work: PendingWork, environment_id: str) -> bool:
    found = select(tables.Route.id).where(tables.Route.environment_id == environment_id).limit(1)
    return await work.session.scalar(found) is not None


async def _present(work: PendingWork, environment_id: str) -> dict[str, set[str]]:
    """By region, the clusters on which the environment has something."""
    query = (
        select(Topology.region_id, Topology.cluster_id)
        .join(Deployment, Deployment.id == Topology.deployment_id)
        .where(Deployment.environment_id == environment_id, Topology.cluster_id != "")
        .distinct()
    )
    found: dict[str, set[str]] = {}
    for row in await work.session.execute(query):
        found.setdefault(row.region_id, set()).add(row.cluster_id)
    return found


async def _sentinels(
    work: PendingWork, environment: tables.Environment
) -> tuple[dict[str, Sentinel], dict[str, Sentinel]]:
    """The environment's own ones and the shared ones of its workspace, by region."""
    rows = await work.session.scalars(
        select(Sentinel).where(
            Sentinel.workspace_id == environment.workspace_id, Sentinel.environment_id.in_((environment.id, ""))
        )
    )
    own: dict[str, Sentinel] = {}
    shared: dict[str, Sentinel] = {}
    for row in rows:
        (own if row.environment_id else shared)[row.region_id] = row
    return own, shared


async def _create(
    work: PendingWork,
    environment: tables.Environment,
    region_id: str,
    at: ReadyAt,
    settings: GatewaySettings,
) -> Sentinel:
    sentinel_id, defaults = work.new_id("Sentinel"), work.gateways
    version = await version_for_new(work.session, environment.id, wanted_version(settings, defaults))
    image, replicas = version["image"], settings.replicas or defaults.replicas
    sentinel = Sentinel(
        id=sentinel_id,
        workspace_id=environment.workspace_id,
        name=at.region,
        labels={},
        annotations=dict(MADE),
        spec={
            "region": at.region,
            **({"image": image} if image else {}),
            "replicas": replicas,
            "resources": version["resources"],
        },
        generation=1,
        version=await work.tx.number(),
        created_at=work.now,
        updated_at=work.now,
        project_id=environment.project_id,
        environment_id=environment.id,
        region_id=region_id,
        cluster_id=at.place.cluster,
        shard=at.place.shard,
        k8s_name=sentinel_name(at.region, sentinel_id),
        image=image,
        desired_state="running",
        desired_replicas=replicas,
    )
    work.session.add(sentinel)
    await work.session.flush()
    want_sentinel(work, sentinel)
    work.tx.event(
        workspace_id=environment.workspace_id,
        kind="Sentinel",
        object_id=sentinel_id,
        name=f"{environment.name}/{at.region}",
        reason="Created",
        message="a deployment of the environment is ready in the region, and it has a route",
        region=at.region,
    )
    return sentinel


async def _follow(work: PendingWork, sentinel: Sentinel, at: ReadyAt, clusters: set[str]) -> None:
    """Move a gateway to where its environment is now, if nothing of it is left where the gateway is."""
    if sentinel.cluster_id in clusters or at.place.cluster == sentinel.cluster_id:
        return
    sentinel.cluster_id, sentinel.shard = at.place.cluster, at.place.shard
    want_sentinel(work, sentinel)


async def _serve(work: PendingWork, environment: tables.Environment, begin: set[Place], end: set[Place]) -> None:
    if not begin and not end:
        return
    objects: list[tuple[str, str, str]] = [("keys", environment.id, "keys")]
    for kind, table in (("route", tables.Route), ("policy", tables.Policy)):
        rows = await work.session.execute(
            select(table.id, table.name).where(table.environment_id == environment.id).order_by(table.id)
        )
        objects += [(kind, row.id, row.name) for row in rows]
    for place in sorted(begin):
        for kind, id_, name in objects:
            want_config(work, place, kind, id_, name, environment.workspace_id)
    for place in sorted(end):
        for kind, id_, _ in objects:
            await work.unwant(place, key_of(kind, id_))


def _place(sentinel: Sentinel) -> Place:
    return Place(sentinel.cluster_id, sentinel.shard)
