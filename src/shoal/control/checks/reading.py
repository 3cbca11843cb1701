"""Reads what a check is asked about: names of the app and of the places of its rollout."""

from __future__ import annotations

from sqlalchemy import select

from shoal.control.checks.model import CheckContext
from shoal.control.database.engine import Database, Databases
from shoal.control.database.tables import App, Cluster, Environment, Project, Region, Rollout
from shoal.control.rollout.goals import settings_at
from shoal.control.rollout.progress import Progress
from shoal.control.rollout.strategy import Strategy


async def read_context(
    databases: Databases, database: Database, rollout_id: str, strategy: Strategy, progress: Progress
) -> CheckContext | None:
    """None for a rollout whose app is gone."""
    async with database.reading() as session:
        row = (
            await session.execute(
                select(Rollout, App, Project.name.label("project"), Environment)
                .join(App, App.id == Rollout.app_id)
                .join(Project, Project.id == App.project_id)
                .join(Environment, Environment.id == App.environment_id)
                .where(Rollout.id == rollout_id)
            )
        ).first()
    if row is None:
        return None
    wave = progress.waves[progress.wave] if progress.wave < len(progress.waves) else ()
    here = [id_ for id_ in wave if id_ not in progress.failed]
    async with databases.fleet.reading() as session:
        regions = sorted(await session.scalars(select(Region.name).where(Region.id.in_(here))))
        clusters = sorted(await session.scalars(select(Cluster.name).where(Cluster.region_id.in_(here))))
    rollout: Rollout = row.Rollout
    return CheckContext(
        workspace_id=rollout.workspace_id, environment_id=row.Environment.id, rollout_id=rollout.id,
        deployment_id=rollout.deployment_id, app=row.App.name,
        project=row.project, environment=row.Environment.name, namespace=row.Environment.namespace,
        revision=rollout.revision, stable_revision=rollout.stable_revision, step=progress.step, wave=progress.wave,
        regions=tuple(regions), clusters=tuple(clusters), weight=settings_at(strategy, progress.step).weight,
        started_ms=rollout.created_at,
    )  # fmt: skip
