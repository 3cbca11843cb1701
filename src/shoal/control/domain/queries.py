"""Reading: objects, lists, status, history. Never changes anything, never waits for a writer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, TypeVar, cast

from sqlalchemy import ColumnElement, func, select, tuple_
from sqlalchemy.ext.asyncio import AsyncSession

from shoal.control.database import tables
from shoal.control.database.engine import Database, Databases
from shoal.control.domain import gateways
from shoal.control.domain import status as views
from shoal.control.domain.access import authorize
from shoal.control.domain.gateway_rollouts.shown import gateway_rollout_lines, gateway_rollouts_of
from shoal.control.domain.gateway_status import explained, gateway_status
from shoal.control.domain.instances import shown_instance
from shoal.control.domain.model import Actor, ListPage, ListScope, ObjectRef
from shoal.control.domain.objects import (
    IN_ENVIRONMENT,
    TABLES,
    ObjectScope,
    Row,
    document_of,
    find_within,
    get,
    not_found,
    time_text,
    withins,
    workspace_of,
)
from shoal.control.domain.placement.facts import Infrastructure, read_infrastructure
from shoal.control.domain.rollouts.records import active_rollouts, find_rollout
from shoal.control.domain.specs import kind_named
from shoal.control.domain.timeline import in_order, read_steps
from shoal.errors import BadRequest
from shoal.kube import labels as selectors

T = TypeVar("T")

MAX_PAGE = 500
_KEYED = {"Sentinel": "sentinel", "Route": "route", "Policy": "policy", "ApiKey": "keys"}


class Queries:
    """The reading half of ``Fleet``."""

    def __init__(self, databases: Databases) -> None:
        self._databases = databases

    async def get(self, who: Actor, ref: ObjectRef) -> dict[str, Any]:
        """One object, with a short status."""
        kind_named(ref.kind)
        authorize(who, "read", ref.kind)
        infrastructure = await self._infrastructure() if ref.kind == "App" else Infrastructure()
        async with self._database(who, ref.kind).reading() as session:
            row, within = await get(session, who.workspace_id, ref)
            return (await self._documents(session, [row], {row.id: _outside(row, within)}, infrastructure))[0]

    async def list_(
        self,
        who: Actor,
        kind: str,
        scope: ListScope = ListScope(),  # noqa: B008 - frozen
        *,
        limit: int = MAX_PAGE,
        after: str = "",
        labels: str = "",
    ) -> ListPage:
        """Objects of a kind in the order of their names; ``labels`` is a label selector."""
        kind_named(kind)
        authorize(who, "read", kind)
        matches = _selector(labels)
        limit = max(1, min(limit, MAX_PAGE))
        infrastructure = await self._infrastructure() if kind == "App" else Infrastructure()
        async with self._database(who, kind).reading() as session:
            within = await find_within(session, who.workspace_id, scope.project, scope.environment)
            if isinstance(within, str):
                raise not_found(ObjectRef("Project", scope.project) if within == "project" else _environment(scope))
            found: list[Row] = []
            position = _position(after)
            while len(found) <= limit:
                rows = await _rows(session, workspace_of(kind, who.workspace_id), kind, within, position, limit + 1)
                found += [row for row in rows if matches(row.labels)]
                if len(rows) <= limit:
                    break
                position = (rows[-1].name, rows[-1].id)
            page, more = found[:limit], len(found) > limit
            inside = await withins(session, page)
            named = {row.id: _outside(row, inside[row.id]) for row in page}
            items = await self._documents(session, page, named, infrastructure)
        return ListPage(items, f"{page[-1].name}/{page[-1].id}" if more else "")

    async def status(self, who: Actor, ref: ObjectRef | None = None, *, now: int = 0) -> dict[str, Any]:
        """Desired, applied and reported of one object; of everything in the workspace without one. Ages in it are those
        at ``now``; without it, at the moment of the call."""
        authorize(who, "read", ref.kind if ref else "App")
        now = now or self._now()
        infrastructure = await self._infrastructure()
        async with self._database(who, ref.kind if ref else "App").reading() as session:
            if ref is None:
                return await self._overview(session, who, infrastructure, now)
            row, within = await get(session, who.workspace_id, ref)
            if isinstance(row, tables.App):
                return {"object": _short(row, within), **await self._app_status(session, row, infrastructure, now)}
            if isinstance(row, tables.Project | tables.Environment):
                rows = await _apps_in(session, row)
                shown = await self._app_summaries(session, rows, infrastructure, now)
                return {"object": _short(row, _outside(row, within)), "apps": shown}
            if isinstance(row, tables.Region | tables.Cluster):
                return {"object": _short(row, within), "agents": self._agents(infrastructure, row, now)}
            return {"object": _short(row, within), **await self._places(session, row, infrastructure, now)}

    async def explain(self, who: Actor, ref: ObjectRef) -> dict[str, Any]:
        """Why an app, or the gateways of an environment, are where they are, and why they are not ready; ``lines`` is
        for people."""
        authorize(who, "read", ref.kind)
        now = self._now()
        infrastructure = await self._infrastructure()
        async with self._database(who, ref.kind).reading() as session:
            row, within = await get(session, who.workspace_id, ref)
            if isinstance(row, tables.Environment):
                of = tables.Sentinel.environment_id == row.id
                found = await self._gateway_list(session, who, infrastructure, now, of)
                lines = [*await gateway_rollout_lines(session, row.id), *explained(found)]
                summary = lines[0] if lines else "its gateways are as they should be"
                said = {"lines": lines, "status": {"gateways": found, "summary": summary}}
                return {"object": _short(row, _outside(row, within)), **said}
            if not isinstance(row, tables.App):
                raise BadRequest(f"{ref.kind} has no explanation: use an App, or an Environment for its gateways")
            shown = await self._app_status(session, row, infrastructure, now)
            rollout = await find_rollout(session, row.id)
            of_app = tables.Sentinel.environment_id.in_((row.environment_id, ""))
            found = await self._gateway_list(session, who, infrastructure, now, of_app)
            gateways = await gateway_rollout_lines(session, row.environment_id)
        regions = {each["region"] for each in shown["regions"]}
        serving = [each for each in found if each["environment"] or each["region"] in regions]
        lines = [*views.explain(row, shown, rollout), *gateways, *explained(serving)]
        return {"object": _short(row, within), "lines": lines, "status": shown}

    async def history(self, who: Actor, ref: ObjectRef, *, limit: int = 100) -> dict[str, Any]:
        """The revisions of an app, and who changed the object when."""
        authorize(who, "read", ref.kind)
        async with self._database(who, ref.kind).reading() as session:
            row, _ = await get(session, who.workspace_id, ref)
            revisions: list[dict[str, Any]] = []
            if isinstance(row, tables.App):
                found = await session.scalars(
                    select(tables.Deployment)
                    .where(tables.Deployment.app_id == row.id)
                    .order_by(tables.Deployment.revision.desc())
                    .limit(limit)
                )
                used = await _revisions_in_use(session, row)
                revisions = [_revision(each, row, is_used=each.revision in used) for each in found]
            changes = await _audit(session, tables.Audit.object_id == row.id, row.workspace_id, limit)
        return {"revisions": revisions, "changes": changes}

    async def instances(self, who: Actor, ref: ObjectRef, *, now: int = 0) -> list[dict[str, Any]]:
        """The instances of an app, of every revision that has some."""
        authorize(who, "read", ref.kind)
        now = now or self._now()
        infrastructure = await self._infrastructure()
        async with self._database(who, "App").reading() as session:
            row, _ = await get(session, who.workspace_id, ref)
            found = await session.execute(
                select(
                    tables.Instance,
                    tables.Deployment.namespace,
                    func.coalesce(func.nullif(tables.Topology.revision, 0), tables.Deployment.revision).label("number"),
                )
                .join(tables.Deployment, tables.Deployment.id == tables.Instance.deployment_id)
                .outerjoin(
                    tables.Topology,
                    (tables.Topology.deployment_id == tables.Instance.deployment_id)
                    & (tables.Topology.cluster_id == tables.Instance.cluster_id)
                    & (tables.Topology.shard == tables.Instance.shard),
                )
                .where(tables.Deployment.app_id == row.id)
                .order_by(tables.Deployment.revision.desc(), tables.Instance.region_id, tables.Instance.name)
            )
            return [shown_instance(each.Instance, each.number, each.namespace, infrastructure, now) for each in found]

    async def events(
        self, who: Actor, ref: ObjectRef | None = None, *, after: int = 0, limit: int = 100
    ) -> list[dict[str, Any]]:
        """What happened, oldest first, after an event's id; without one, the newest. Without an object: in the
        workspace, and to the agents of the fleet if the workspace is in the fleet's own database."""
        authorize(who, "read", ref.kind if ref else "App")
        database = self._database(who, ref.kind if ref else "App")
        async with database.reading() as session:
            of_the_fleet = [tables.FLEET] if ref is None and database is self._databases.fleet else []
            query = select(tables.Event).where(tables.Event.workspace_id.in_([_workspace(who, ref), *of_the_fleet]))
            if ref is not None:
                row, _ = await get(session, who.workspace_id, ref)
                query = query.where(tables.Event.object_id == row.id)
            if after:
                query = query.where(tables.Event.id > after).order_by(tables.Event.id)
            else:
                query = query.order_by(tables.Event.id.desc())
            rows = sorted(await session.scalars(query.limit(limit)), key=lambda each: each.id)
        return [
            {"id": row.id, "at": time_text(row.at), "type": row.type, "reason": row.reason, "kind": row.kind,
             "name": row.name, "region": row.region, "message": row.message, "correlation": row.correlation}
            for row in rows
        ]  # fmt: skip

    async def timeline(self, who: Actor, correlation: str) -> list[dict[str, Any]]:
        """The steps of everything that one request led to, oldest first."""
        authorize(who, "read", "App")
        infrastructure, steps = await self._infrastructure(), list[tuple[int, dict[str, Any]]]()
        for workspace_id in dict.fromkeys((who.workspace_id, tables.FLEET)):
            async with self._databases.of(workspace_id).reading() as session:
                steps += await read_steps(session, workspace_id, correlation, infrastructure, self._now())
        return in_order(steps, correlation)

    async def audit(self, who: Actor, *, before: int = 0, limit: int = 100) -> list[dict[str, Any]]:
        """The audit log of the workspace, newest first."""
        authorize(who, "read", "App")
        async with self._databases.of(who.workspace_id).reading() as session:
            return await _audit(session, tables.Audit.id < before if before else None, who.workspace_id, limit)

    async def agents(self, who: Actor) -> list[dict[str, Any]]:
        """Every agent of the fleet."""
        authorize(who, "read", "Cluster")
        return self._agents(await self._infrastructure(), None, self._now())

    def _database(self, who: Actor, kind: str) -> Database:
        return self._databases.of(workspace_of(kind, who.workspace_id))

    def _now(self) -> int:
        return self._databases.fleet.time.now_ms()

    async def _infrastructure(self) -> Infrastructure:
        async with self._databases.fleet.reading() as session:
            return await read_infrastructure(session)

    async def _documents(
        self, session: AsyncSession, rows: Sequence[Row], inside: dict[str, ObjectScope], infrastructure: Infrastructure
    ) -> list[dict[str, Any]]:
        apps = [row for row in rows if isinstance(row, tables.App)]
        summaries: dict[str, dict[str, Any]] = {}
        if apps:
            shown = await self._app_summaries(session, apps, infrastructure, self._now())
            summaries = {each["id"]: each for each in shown}
        return [document_of(row, inside[row.id], _status(row, summaries.get(row.id))) for row in rows]

    async def _app_status(
        self, session: AsyncSession, app: tables.App, infrastructure: Infrastructure, now: int
    ) -> dict[str, Any]:
        deployments, facts = await self._facts(session, [app], infrastructure, now)
        return views.app_status(app, deployments, facts)

    async def _app_summaries(
        self,
        session: AsyncSession,
        apps: Sequence[tables.App],
        infrastructure: Infrastructure,
        now: int,
        also: tuple[str, ...] = (),
    ) -> list[dict[str, Any]]:
        deployments, facts = await self._facts(session, apps, infrastructure, now)
        by_app: dict[str, list[tables.Deployment]] = {}
        for each in deployments:
            by_app.setdefault(each.app_id, []).append(each)
        inside = await withins(session, apps)
        return [
            _summary(app, views.app_status(app, by_app.get(app.id, []), facts), inside[app.id], also) for app in apps
        ]

    async def _facts(
        self, session: AsyncSession, apps: Sequence[tables.App], infrastructure: Infrastructure, now: int
    ) -> tuple[list[tables.Deployment], views.StatusFacts]:
        ids = [app.id for app in apps]
        newest = [app.deployment_id for app in apps]
        deployments = list(
            await session.scalars(
                select(tables.Deployment)
                .where(
                    tables.Deployment.app_id.in_(ids),
                    (tables.Deployment.desired_state == "running") | tables.Deployment.id.in_(newest),
                )
                .order_by(tables.Deployment.revision)
            )
        )
        wanted = [each.id for each in deployments]
        rows = await _plain(session, tables.Topology, tables.Topology.deployment_id.in_(wanted))
        desired = await _plain(session, tables.Desired, tables.Desired.object_id.in_(wanted))
        instances = await _plain(session, tables.Instance, tables.Instance.deployment_id.in_(wanted))
        facts = replace(
            self._names(infrastructure, now), topology=rows, desired=desired, instances=instances,
            behind=await _behind(session, apps, deployments, rows), rollouts=await active_rollouts(session, ids),
        )  # fmt: skip
        return deployments, facts

    def _names(self, infrastructure: Infrastructure, now: int) -> views.StatusFacts:
        return views.StatusFacts(
            now=now,
            regions={id_: row.name for id_, row in infrastructure.regions.items()},
            clusters={id_: row.name for id_, row in infrastructure.clusters.items()},
            agents=infrastructure.agents,
        )

    async def _overview(
        self, session: AsyncSession, who: Actor, infrastructure: Infrastructure, now: int
    ) -> dict[str, Any]:
        apps = list(
            await session.scalars(
                select(tables.App)
                .where(tables.App.workspace_id == who.workspace_id)
                .order_by(tables.App.project_id, tables.App.environment_id, tables.App.name)
                .limit(MAX_PAGE)
            )
        )
        return {
            "apps": await self._app_summaries(session, apps, infrastructure, now, ("regions", "others", "rollout")),
            "agents": self._agents(infrastructure, None, now),
            "gateways": await self._gateway_list(session, who, infrastructure, now),
            "gatewayRollouts": await gateway_rollouts_of(session, who.workspace_id, MAX_PAGE),
            "refused": await self._refused(session, who, infrastructure),
        }

    async def _gateway_list(
        self, session: AsyncSession, who: Actor, infrastructure: Infrastructure, now: int, *which: ColumnElement[bool]
    ) -> list[dict[str, Any]]:
        """The gateways of the workspace, with their health; shared ones have no project and environment."""
        rows = await session.execute(
            select(
                tables.Sentinel,
                tables.Desired,
                tables.Project.name.label("project"),
                tables.Environment.name.label("environment"),
            )
            .outerjoin(
                tables.Desired,
                (tables.Desired.object_id == tables.Sentinel.id)
                & (tables.Desired.cluster_id == tables.Sentinel.cluster_id)
                & (tables.Desired.shard == tables.Sentinel.shard)
                & (tables.Desired.action == "apply"),
            )
            .outerjoin(tables.Project, tables.Project.id == tables.Sentinel.project_id)
            .outerjoin(tables.Environment, tables.Environment.id == tables.Sentinel.environment_id)
            .where(tables.Sentinel.workspace_id == who.workspace_id, *which)
            .order_by(tables.Sentinel.project_id, tables.Sentinel.environment_id, tables.Sentinel.name)
            .limit(MAX_PAGE)
        )
        facts = self._names(infrastructure, now)
        return [
            {"project": row.project or "", "environment": row.environment or "",
             **gateway_status(row.Sentinel, row.Desired, facts)}
            for row in rows
        ]  # fmt: skip

    async def _refused(self, session: AsyncSession, who: Actor, infrastructure: Infrastructure) -> list[dict[str, Any]]:
        """What gateways do not take of the workspace's routes and policies."""
        desired = tables.Desired
        found: list[dict[str, Any]] = []
        for kind, table in (("route", tables.Route), ("policy", tables.Policy)):
            rows = await session.execute(
                select(
                    desired,
                    tables.Project.name.label("project"),
                    tables.Environment.name.label("environment"),
                    table.name,
                )
                .join(table, table.id == desired.object_id)
                .join(tables.Project, tables.Project.id == table.project_id)
                .join(tables.Environment, tables.Environment.id == table.environment_id)
                .where(
                    desired.workspace_id == who.workspace_id,
                    desired.kind == kind,
                    desired.action == "apply",
                    desired.observed[("refused", 0, "message")].as_string().is_not(None),
                )
                .order_by(desired.key, desired.cluster_id, desired.shard)
                .limit(MAX_PAGE)
            )
            for row in rows:
                cluster = infrastructure.cluster_name(row.Desired.cluster_id)
                found += views.refused_pieces(row.Desired, f"{row.project}/{row.environment}/{row.name}", cluster)
        return found

    async def _places(
        self, session: AsyncSession, row: Row, infrastructure: Infrastructure, now: int
    ) -> dict[str, Any]:
        """A gateway, route, policy or key at each of its places."""
        kind = _KEYED.get(type(row).__name__, "")
        object_id = row.environment_id if isinstance(row, tables.ApiKey) else row.id
        desired = await session.scalars(
            select(tables.Desired).where(tables.Desired.object_id == object_id, tables.Desired.kind == kind)
        )
        facts = self._names(infrastructure, now)
        places = [views.place_status(each, facts) for each in desired]
        applied = [each for each in places if each["state"] == "Applied"]
        wanted = [each for each in places if each["desired"]["state"] == "apply"]
        return {
            "summary": f"Applied {len(applied)}/{len(wanted)} places",
            "places": places,
            **(_status(row, None) or {}),
        }

    def _agents(
        self, infrastructure: Infrastructure, of: tables.Region | tables.Cluster | None, now: int
    ) -> list[dict[str, Any]]:
        found = []
        for place, agent in sorted(infrastructure.agents.items()):
            cluster = infrastructure.clusters.get(place.cluster)
            region_id = cluster.region_id if cluster else ""
            if of is not None and of.id not in (place.cluster, region_id):
                continue
            found.append(
                views.agent_status(
                    agent,
                    infrastructure.cluster_name(place.cluster),
                    infrastructure.region_name(region_id),
                    now,
                )
            )
        return found


async def _rows(
    session: AsyncSession, workspace_id: str, kind: str, within: ObjectScope, after: tuple[str, str] | None, limit: int
) -> list[Row]:
    table: Any = TABLES[kind]
    query = select(table).where(table.workspace_id == workspace_id)
    if within.project and kind != "Project" and hasattr(table, "project_id"):
        query = query.where(table.project_id == within.project_id)
    if within.environment and kind in IN_ENVIRONMENT:
        query = query.where(table.environment_id == within.environment_id)
    if after:
        query = query.where(tuple_(table.name, table.id) > after)
    return list(await session.scalars(query.order_by(table.name, table.id).limit(limit)))


async def _plain(session: AsyncSession, table: type[T], which: ColumnElement[bool]) -> list[T]:
    """Rows that are only looked at: plain ones, which are read in half the time. They have the fields of the table."""
    found = await session.execute(select(*cast(Any, table).__table__.columns).where(which))
    return cast(list[T], list(found))


async def _apps_in(session: AsyncSession, row: tables.Project | tables.Environment) -> list[tables.App]:
    column = tables.App.project_id if isinstance(row, tables.Project) else tables.App.environment_id
    return list(await session.scalars(select(tables.App).where(column == row.id).order_by(tables.App.name)))


async def _behind(
    session: AsyncSession,
    apps: Sequence[tables.App],
    deployments: Sequence[tables.Deployment],
    rows: Sequence[tables.Topology],
) -> dict[tuple[str, str], list[str]]:
    """By app and region, the gateways whose acknowledgement the exchange of revisions waits for."""
    owners = {each.id: each.app_id for each in deployments}
    waiting = {owners[row.deployment_id] for row in rows if row.weight != row.routed or row.target}
    found: dict[tuple[str, str], list[str]] = {}
    for app in apps:
        if app.id not in waiting:
            continue
        known = await session.scalars(select(tables.Route).where(tables.Route.environment_id == app.environment_id))
        routes = [route.id for route in known if app.name in gateways.apps_of_route(route.spec)]
        places = await gateways.served_places(session, app.workspace_id, app.environment_id)
        serving = {row.region_id for row in rows if owners[row.deployment_id] == app.id and row.weight}
        for each in await gateways.behind(session, places, routes):
            text = each.name if each.pods == (gateways.ANY,) else f"{each.name} ({', '.join(each.pods)})"
            # what leads to other regions is waited for in all of them
            for region_id in [each.region_id] if each.region_id in serving else sorted(serving):
                found.setdefault((app.id, region_id), []).append(text)
    return found


async def _audit(session: AsyncSession, which: Any, workspace_id: str, limit: int) -> list[dict[str, Any]]:
    query = select(tables.Audit).where(tables.Audit.workspace_id == workspace_id)
    if which is not None:
        query = query.where(which)
    rows = await session.scalars(query.order_by(tables.Audit.id.desc()).limit(limit))
    return [
        {"id": row.id, "at": time_text(row.at), "actor": row.actor, "action": row.action, "kind": row.kind,
         "name": row.name, "diff": row.diff, "correlation": row.correlation}
        for row in rows
    ]  # fmt: skip


def _status(row: Row, summary: dict[str, Any] | None) -> dict[str, Any] | None:
    if summary is not None:
        return {name: value for name, value in summary.items() if name not in ("id", "name", "project", "environment")}
    if isinstance(row, tables.ApiKey):
        return {"prefix": row.prefix, "revoked": bool(row.revoked_at)}
    if isinstance(row, tables.Secret | tables.Credential):
        return {"revision": row.revision}
    if isinstance(row, tables.Sentinel):
        return {"health": row.health, "available": row.available_replicas, "desired": row.desired_replicas,
                "image": row.running_image, "address": row.address, "entries": row.entries or [],
                "status": row.deploy_status}  # fmt: skip
    return None


def _summary(app: tables.App, shown: dict[str, Any], within: ObjectScope, also: tuple[str, ...]) -> dict[str, Any]:
    found = {
        name: shown.get(name)
        for name in ("summary", "state", "revision", "deployment", "live", "reason", "image", *also)
    }
    return {
        "id": app.id,
        "name": app.name,
        "project": within.project_name,
        "environment": within.environment_name,
        **found,
    }


def _short(row: Row, within: ObjectScope) -> dict[str, Any]:
    shown = document_of(row, within)
    return {name: shown[name] for name in ("apiVersion", "kind", "metadata")}


async def _revisions_in_use(session: AsyncSession, app: tables.App) -> set[int]:
    """The newest revision, and those that something counts as."""
    rows = await session.execute(
        select(tables.Topology.revision, tables.Deployment.revision.label("own"))
        .join(tables.Deployment, tables.Deployment.id == tables.Topology.deployment_id)
        .where(tables.Deployment.app_id == app.id)
    )
    return {app.revision, *(row.revision or row.own for row in rows)}


def _revision(deployment: tables.Deployment, app: tables.App, *, is_used: bool) -> dict[str, Any]:
    """What a newer revision has taken over does not run as this one any more."""
    return {
        "id": deployment.id,
        "revision": deployment.revision,
        "name": deployment.k8s_name,
        "image": deployment.image,
        "git": deployment.git,
        "status": "broken" if deployment.broken_at else deployment.status,
        "state": deployment.desired_state if is_used else "archived",
        "reason": deployment.reason,
        "live": deployment.id == app.live_deployment_id,
        "template": deployment.template,
        "createdAt": time_text(deployment.created_at),
        "readyAt": time_text(deployment.ready_at),
    }


def _selector(labels: str) -> Any:
    if not labels:
        return lambda _: True
    try:
        return selectors.parse(labels).matches
    except ValueError as error:
        raise BadRequest(f"label selector {labels!r} is not valid: {error}") from error


def _position(after: str) -> tuple[str, str] | None:
    if not after:
        return None
    name, slash, id_ = after.partition("/")
    if not slash or not name or not id_:
        raise BadRequest(f"{after!r} is not a valid continue token: use the one of the previous page")
    return name, id_


def _environment(scope: ListScope) -> ObjectRef:
    return ObjectRef("Environment", scope.environment, scope.project)


def _workspace(who: Actor, ref: ObjectRef | None) -> str:
    return workspace_of(ref.kind, who.workspace_id) if ref else who.workspace_id


def _outside(row: Row, within: ObjectScope) -> ObjectScope:
    return ObjectScope(within.project) if isinstance(row, tables.Environment) else within
