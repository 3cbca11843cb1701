"""Reads that the page makes beside those of the API: lists over a whole workspace, with moments in place of ages.

All of it is what a viewer of the workspace may read; who asks is checked before.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import or_, select
from sqlalchemy.ext.asyncio import AsyncSession

from shoal.control.database import tables
from shoal.control.database.engine import Database, Databases
from shoal.control.domain.placement.facts import (
    Infrastructure,
    cluster_facts,
    read_counts,
    read_infrastructure,
    read_sizes,
)
from shoal.control.domain.placement.model import ClusterFacts, PlacedLoad
from shoal.control.domain.rollouts.views import rollout_brief, rollout_json
from shoal.control.domain.status import StatusFacts, place_status
from shoal.control.domain.traffic_numbers import CountedSpan, deployment_names, read_spans
from shoal.control.rollout.progress import ENDED
from shoal.sync.keys import Place

MOST_ROLLOUTS = 100  # ended ones
MOST_OBJECTS = 2000

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class AppName:
    """Names of an app, for numbers that are known by ids."""

    project: str
    environment: str
    app: str


@dataclass(frozen=True, slots=True)
class CountedTraffic:
    """Spans, and what the ids in them mean: the app and revision of a deployment, the name of a region."""

    spans: Sequence[CountedSpan]
    revisions: dict[str, tuple[AppName, int]]
    regions: dict[str, str]


class LiveReads:
    def __init__(self, databases: Databases) -> None:
        self._databases = databases

    def now_ms(self) -> int:
        return self._databases.fleet.time.now_ms()

    def database(self, workspace_id: str) -> Database:
        return self._databases.of(workspace_id)

    @property
    def fleet(self) -> Database:
        return self._databases.fleet

    async def places(self) -> tuple[Infrastructure, list[ClusterFacts]]:
        """Regions, clusters and agents, and what is placed there by all workspaces."""
        async with self._databases.fleet.reading() as session:
            infrastructure = await read_infrastructure(session)
        counts: dict[Place, int] = {}
        sizes: dict[str, PlacedLoad] = {}
        for database in self._databases.all:
            async with database.reading() as session:
                for place, count in (await read_counts(session, infrastructure.clusters)).items():
                    counts[place] = counts.get(place, 0) + count
                for cluster, load in (await read_sizes(session, list(infrastructure.clusters))).items():
                    sizes[cluster] = sizes[cluster].plus(load) if cluster in sizes else load
        return infrastructure, cluster_facts(infrastructure, counts, sizes)

    async def workspaces(self) -> list[str]:
        found: set[str] = set()
        for database in self._databases.all:
            async with database.reading() as session:
                found.update(await session.scalars(select(tables.Workspace.id)))
        return sorted(each for each in found if each != tables.FLEET)

    async def has_workspace(self, workspace_id: str) -> bool:
        async with self._databases.of(workspace_id).reading() as session:
            return await session.get(tables.Workspace, workspace_id) is not None

    async def traffic(
        self,
        workspace_id: str,
        since_ms: int,
        *,
        environments: Collection[str] | None = None,
        app: str = "",
    ) -> CountedTraffic:
        """What was counted since a moment; of one app by its id, or of some environments."""
        regions = await self._region_names()
        async with self._databases.of(workspace_id).reading() as session:
            deployments: set[str] | None = None
            if app:
                asked = select(tables.Deployment.id, tables.Deployment.environment_id)
                rows = list(await session.execute(asked.where(tables.Deployment.app_id == app)))
                deployments = {row.id for row in rows}
                environments = {row.environment_id for row in rows}
            spans = await read_spans(
                session, workspace_id, since_ms, environments=environments, deployments=deployments
            )
            known = await deployment_names(session, {each.deployment for each in spans})
            names = await self._app_names(session, {each.app for each in known.values()})
        revisions = {id_: (names[each.app], each.revision) for id_, each in known.items() if each.app in names}
        return CountedTraffic(spans, revisions, regions)

    async def environment_ids(self, workspace_id: str, project: str, environment: str) -> set[str] | None:
        """Those of a project, or one of it; None for all of the workspace."""
        if not project:
            return None
        asked = (
            select(tables.Environment.id)
            .join(tables.Project, tables.Project.id == tables.Environment.project_id)
            .where(tables.Project.workspace_id == workspace_id, tables.Project.name == project)
        )
        if environment:
            asked = asked.where(tables.Environment.name == environment)
        async with self._databases.of(workspace_id).reading() as session:
            return set(await session.scalars(asked))

    async def rollouts(self, workspace_id: str) -> list[Json]:
        """Those under way, and the newest that have ended."""
        rollout = tables.Rollout
        asked = select(rollout).where(rollout.workspace_id == workspace_id)
        async with self._databases.of(workspace_id).reading() as session:
            rows = list(await session.scalars(asked.where(rollout.phase != ENDED)))
            ended = asked.where(rollout.phase == ENDED).order_by(rollout.ended_at.desc()).limit(MOST_ROLLOUTS)
            rows += list(await session.scalars(ended))
            names = await self._app_names(session, {row.app_id for row in rows})
        return [
            {
                "project": names[row.app_id].project, "environment": names[row.app_id].environment,
                "app": names[row.app_id].app, **rollout_json(row), **rollout_brief(row),
                "startedAt": row.created_at, "updatedAt": row.updated_at, "endedAt": row.ended_at or None,
            }
            for row in rows
            if row.app_id in names
        ]  # fmt: skip

    async def rollout_row(self, workspace_id: str, app_id: str, number: int) -> tables.Rollout | None:
        """One of an app; the newest for 0."""
        rollout = tables.Rollout
        asked = select(rollout).where(rollout.workspace_id == workspace_id, rollout.app_id == app_id)
        if number:
            asked = asked.where(rollout.number == number)
        async with self._databases.of(workspace_id).reading() as session:
            found: tables.Rollout | None = await session.scalar(asked.order_by(rollout.number.desc()).limit(1))
        return found

    async def entrances(
        self, workspace_id: str, now_ms: int, environments: Collection[str] | None
    ) -> dict[str, list[Json]]:
        """Routes and policies with their state over all places, by ``route`` and ``policy``."""
        async with self._databases.fleet.reading() as session:
            infrastructure = await read_infrastructure(session)
        facts = StatusFacts(
            now=now_ms,
            clusters={id_: row.name for id_, row in infrastructure.clusters.items()},
            agents=infrastructure.agents,
        )
        found: dict[str, list[Json]] = {}
        async with self._databases.of(workspace_id).reading() as session:
            for kind, table in (("route", tables.Route), ("policy", tables.Policy)):
                asked = (
                    select(
                        table.name,
                        table.id,
                        table.spec,
                        tables.Project.name.label("project"),
                        tables.Environment.name.label("environment"),
                    )
                    .join(tables.Project, tables.Project.id == table.project_id)
                    .join(tables.Environment, tables.Environment.id == table.environment_id)
                    .where(table.workspace_id == workspace_id)
                    .order_by(table.id)
                    .limit(MOST_OBJECTS)
                )
                if environments is not None:
                    asked = asked.where(table.environment_id.in_(environments))
                rows = list(await session.execute(asked))
                desired: dict[str, list[tables.Desired]] = {}
                wanted = select(tables.Desired).where(
                    tables.Desired.workspace_id == workspace_id, tables.Desired.kind == kind,
                    or_(tables.Desired.action == "apply", tables.Desired.gone_at == 0),
                )  # fmt: skip
                for each in await session.scalars(wanted):
                    desired.setdefault(each.object_id, []).append(each)
                found[kind] = [
                    {
                        "project": row.project, "environment": row.environment, "name": row.name,
                        "spec": row.spec,
                        **_worst([place_status(each, facts) for each in desired.get(row.id, ())]),
                    }
                    for row in rows
                ]  # fmt: skip
        return found

    async def _region_names(self) -> dict[str, str]:
        async with self._databases.fleet.reading() as session:
            return {row.id: row.name for row in await session.execute(select(tables.Region.id, tables.Region.name))}

    async def _app_names(self, session: AsyncSession, ids: Collection[str]) -> dict[str, AppName]:
        if not ids:
            return {}
        asked = (
            select(
                tables.App.id,
                tables.App.name,
                tables.Project.name.label("project"),
                tables.Environment.name.label("environment"),
            )
            .join(tables.Project, tables.Project.id == tables.App.project_id)
            .join(tables.Environment, tables.Environment.id == tables.App.environment_id)
            .where(tables.App.id.in_(sorted(ids)))
        )
        return {row.id: AppName(row.project, row.environment, row.name) for row in await session.execute(asked)}


def _worst(places: Sequence[Json]) -> Json:
    """The state of the place that is worst off."""
    bad = [each for each in places if each["state"] not in ("Applied", "Removed")]
    told = next((each for each in bad if each["state"] != "Progressing"), bad[0] if bad else None)
    if told is None:
        return {"state": "Applied" if places else "Unplaced", "message": "" if places else "no gateway has it yet"}
    return {"state": told["state"], "message": f"{told['cluster']}: {told['message'] or told['reason']}"}
