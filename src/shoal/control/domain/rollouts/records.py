"""Rows of rollouts and of their decisions. One rollout of an app at most is under way.

A row is changed in the transaction that acts on it, which has claimed the counter: of several control planes one
decides, and after a kill the next one goes on from what is written.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from sqlalchemy import delete, func, select
from sqlalchemy.ext.asyncio import AsyncSession

from shoal.control.database.tables import Rollout, RolloutDecision
from shoal.control.database.transaction import Tx
from shoal.control.rollout.machine import due_ms
from shoal.control.rollout.progress import ENDED, GOING_BACK, Progress
from shoal.control.rollout.progress import RolloutDecision as Decision
from shoal.control.rollout.progress_json import progress_as_json, progress_from_json
from shoal.control.rollout.strategy import Strategy
from shoal.control.rollout.strategy_json import strategy_from_json

KEPT = 20  # ended rollouts of an app


async def active_rollouts(session: AsyncSession, app_ids: Collection[str]) -> dict[str, Rollout]:
    """By app, the rollout that is under way; by environment, that of its gateways."""
    rows = await session.scalars(
        select(Rollout)
        .where(Rollout.app_id.in_(app_ids), Rollout.phase != ENDED)
        .order_by(Rollout.number)
        .execution_options(populate_existing=True)
    )
    return {row.app_id: row for row in rows}


async def find_rollout(session: AsyncSession, app_id: str, number: int = 0) -> Rollout | None:
    """A rollout of an app; the newest without a number."""
    which: Any = Rollout.app_id == app_id
    if number:
        which &= Rollout.number == number
    found: Rollout | None = await session.scalar(select(Rollout).where(which).order_by(Rollout.number.desc()).limit(1))
    return found


async def due_apps(session: AsyncSession, now_ms: int) -> list[str]:
    """Apps and environments whose rollout may go on by time alone, or whose stable revision has to be applied
    again."""
    found = await session.scalars(
        select(Rollout.app_id).where(
            Rollout.phase != ENDED,
            ((Rollout.due_at > 0) & (Rollout.due_at <= now_ms)) | (Rollout.phase == GOING_BACK),
        )
    )
    return sorted(set(found))


def strategy_of_row(row: Rollout) -> Strategy:
    return strategy_from_json(row.strategy)


def progress_of_row(row: Rollout) -> Progress:
    return progress_from_json(row.progress)


async def next_number(session: AsyncSession, app_id: str) -> int:
    return (await session.scalar(select(func.max(Rollout.number)).where(Rollout.app_id == app_id)) or 0) + 1


def write(tx: Tx, row: Rollout, strategy: Strategy, progress: Progress, decision: Decision | None = None) -> None:
    """Write where a rollout is now, and the decision that led there."""
    row.progress, row.phase, row.outcome = progress_as_json(progress), progress.phase, progress.outcome
    row.version, row.updated_at = row.version + 1, tx.now
    row.due_at = due_ms(strategy, progress, tx.now)
    row.ended_at = tx.now if progress.phase == ENDED else 0
    if decision is not None:
        note(tx, row, decision)


def note(tx: Tx, row: Rollout, decision: Decision, actor: str = "") -> None:
    """Record a decision of the engine, or of a person."""
    tx.session.add(
        RolloutDecision(
            workspace_id=row.workspace_id,
            rollout_id=row.id,
            at=tx.now,
            actor=actor,
            action=decision.action,
            reason=decision.reason,
            wave=decision.wave,
            step=decision.step,
            numbers=decision.numbers,
        )
    )


async def decisions_of(session: AsyncSession, row: Rollout, limit: int = 1000) -> list[RolloutDecision]:
    """The newest decisions, oldest first."""
    found = await session.scalars(
        select(RolloutDecision)
        .where(RolloutDecision.workspace_id == row.workspace_id, RolloutDecision.rollout_id == row.id)
        .order_by(RolloutDecision.id.desc())
        .limit(limit)
    )
    return list(found)[::-1]


async def forget_rollouts(session: AsyncSession, app_id: str, *, before: int | None = None) -> None:
    """Remove the rollouts of an app, or those with a smaller number than ``before``."""
    which: Any = Rollout.app_id == app_id
    if before is not None:
        which &= Rollout.number < before
    ids = list(await session.scalars(select(Rollout.id).where(which)))
    if ids:
        await session.execute(delete(RolloutDecision).where(RolloutDecision.rollout_id.in_(ids)))
        await session.execute(delete(Rollout).where(Rollout.id.in_(ids)))
