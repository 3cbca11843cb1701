"""Rollouts of gateways as a part of what people ask about an environment, its apps or all of the workspace."""

from __future__ import annotations

from typing import Any

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from shoal.control.database.tables import Environment, Project, Rollout
from shoal.control.domain.rollouts.records import find_rollout
from shoal.control.domain.rollouts.views import rollout_brief, rollout_sentence
from shoal.control.rollout.progress import ENDED


async def gateway_rollout_lines(session: AsyncSession, environment_id: str) -> list[str]:
    """What the newest rollout of an environment's gateways waits for, or why it went back."""
    row = await find_rollout(session, environment_id)
    text = rollout_sentence(row) if row is not None else ""
    return [f"gateways: {text}"] if text else []


async def gateway_rollouts_of(session: AsyncSession, workspace_id: str, limit: int) -> list[dict[str, Any]]:
    """Those that are under way, by environment."""
    rows = await session.execute(
        select(Rollout, Project.name.label("project"), Environment.name.label("environment"))
        .join(Environment, Environment.id == Rollout.app_id)
        .join(Project, Project.id == Environment.project_id)
        .where(Rollout.workspace_id == workspace_id, Rollout.phase != ENDED)
        .order_by(Project.name, Environment.name)
        .limit(limit)
    )
    return [
        {"project": row.project, "environment": row.environment, "rollout": rollout_brief(row.Rollout)} for row in rows
    ]
