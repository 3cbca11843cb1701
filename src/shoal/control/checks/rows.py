"""Answers of checks in the database. A check is claimed by moving ``due_at`` on where it still is what was read, so of
several control planes one asks."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Any, cast

from sqlalchemy import CursorResult, select, update
from sqlalchemy.ext.asyncio import AsyncSession

from shoal.control.checks.plan import LEASE_MS, CheckKey, DueCheck, KnownCheck, check_facts
from shoal.control.database.tables import Rollout, RolloutCheck
from shoal.control.database.transaction import Tx
from shoal.control.database.upserts import insert_or_leave
from shoal.control.rollout.progress import CheckFacts, Progress
from shoal.control.rollout.strategy import Strategy

MAX_REASON = 1000  # characters


async def facts_of(session: AsyncSession, rollout_id: str, strategy: Strategy, progress: Progress) -> CheckFacts:
    """What the answers so far mean for a rollout; for the engine's transaction."""
    return check_facts(strategy, progress, (await read_checks(session, [rollout_id]))[rollout_id])


async def read_checks(session: AsyncSession, rollouts: Collection[str]) -> dict[str, list[KnownCheck]]:
    found: dict[str, list[KnownCheck]] = {id_: [] for id_ in rollouts}
    rows = await session.scalars(select(RolloutCheck).where(RolloutCheck.rollout_id.in_(rollouts)))
    for row in rows:
        key = CheckKey(wave=row.wave, step=row.step, settled_ms=row.settled_at, name=row.name, region=row.region)
        asked = KnownCheck(
            key=key, due_ms=row.due_at, asked_ms=row.asked_at, passed=row.passed, failures=row.failures_in_a_row,
            reason=row.reason, numbers=row.numbers,
        )  # fmt: skip
        found[row.rollout_id].append(asked)
    return found


async def claim(tx: Tx, workspace_id: str, rollout_id: str, due: DueCheck) -> KnownCheck | None:
    """The check, if it is this caller's to ask now: for others it is due again when the caller has had its time."""
    until = tx.now + LEASE_MS
    if due.known is None:
        made = KnownCheck(key=due.key, due_ms=until)
        row = {
            "rollout_id": rollout_id, "workspace_id": workspace_id, "wave": due.key.wave, "step": due.key.step,
            "settled_at": due.key.settled_ms, "name": due.key.name, "region": due.key.region, "due_at": until,
            "asked_at": 0, "passed": None, "failures_in_a_row": 0, "reason": "", "numbers": {},
        }  # fmt: skip
        done = await tx.session.execute(insert_or_leave(tx.dialect, RolloutCheck, row))
        return made if cast("CursorResult[Any]", done).rowcount == 1 else None
    moved = await _change(tx, rollout_id, due.known, due_at=until)
    return replace(due.known, due_ms=until) if moved else None


async def store(tx: Tx, rollout_id: str, claimed: KnownCheck, after: KnownCheck) -> bool:
    """Write an answer, unless another control plane has claimed the check since. The rollout is due at once."""
    stored = await _change(
        tx, rollout_id, claimed, due_at=after.due_ms, asked_at=after.asked_ms, passed=after.passed,
        failures_in_a_row=after.failures, reason=after.reason[:MAX_REASON], numbers=after.numbers,
    )  # fmt: skip
    if stored:
        await tx.session.execute(
            update(Rollout)
            .where(Rollout.id == rollout_id, Rollout.phase != "ended")
            .values(due_at=tx.now)
            .execution_options(synchronize_session=False)
        )
    return stored


async def _change(tx: Tx, rollout_id: str, known: KnownCheck, **values: Any) -> bool:
    key = known.key
    done = await tx.session.execute(
        update(RolloutCheck)
        .where(
            RolloutCheck.rollout_id == rollout_id, RolloutCheck.wave == key.wave, RolloutCheck.step == key.step,
            RolloutCheck.settled_at == key.settled_ms, RolloutCheck.name == key.name,
            RolloutCheck.region == key.region, RolloutCheck.due_at == known.due_ms,
        )
        .values(**values)
        .execution_options(synchronize_session=False)
    )  # fmt: skip
    return cast("CursorResult[Any]", done).rowcount == 1
