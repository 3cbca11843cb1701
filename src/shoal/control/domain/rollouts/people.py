"""What people do to the rollout of an app: commands that change where it is, and those that begin another one."""

from __future__ import annotations

from dataclasses import replace

from shoal.control.checks.outbox import PAUSE, ROLLBACK, notify
from shoal.control.database import tables
from shoal.control.database.tables import Rollout
from shoal.control.domain.model import GROUP, ObjectRef
from shoal.control.domain.rollouts.records import (
    active_rollouts,
    note,
    progress_of_row,
    strategy_of_row,
    write,
)
from shoal.control.domain.work import PendingWork
from shoal.control.rollout.commands import COMMANDS, CommandRefused
from shoal.errors import Conflict

_EVENTS = {"pause": PAUSE, "abort": ROLLBACK}


async def command(
    work: PendingWork, app: tables.App | tables.Environment, ref: ObjectRef, verb: str, reason: str
) -> Rollout:
    """Do ``verb`` (a key of ``COMMANDS``) to the rollout that is under way; ``Conflict`` where it does not fit."""
    row = (await active_rollouts(work.session, [app.id])).get(app.id)
    if row is None:
        raise Conflict.of("rollouts", GROUP, str(ref), "no rollout is under way; `rollout history` shows earlier ones")
    strategy = strategy_of_row(row)
    if not strategy.is_configured and verb != "abort":
        why = "it has no steps: the app's spec says nothing about rollouts; only `rollout abort` has an effect"
        raise Conflict.of("rollouts", GROUP, str(ref), why)
    try:
        progress, decision = COMMANDS[verb](strategy, progress_of_row(row), work.tx.actor)
    except CommandRefused as refused:
        raise Conflict.of("rollouts", GROUP, str(ref), str(refused)) from None
    said = replace(decision, reason=f"{decision.reason}: {reason}" if reason else decision.reason)
    if progress.failure == decision.reason:  # it goes back for this
        progress = replace(progress, failure=said.reason)
    write(work.tx, row, strategy, progress)
    note(work.tx, row, said, work.tx.actor)
    if event := _EVENTS.get(said.action):
        await notify(work.tx, row, strategy, event, said.reason)
    work.tx.event(
        workspace_id=row.workspace_id,
        kind=ref.kind,
        object_id=app.id,
        name=str(ref),
        reason=f"Rollout{decision.action.capitalize()}",
        message=f"{'rollout of gateways' if ref.kind == 'Environment' else 'rollout'}: {said.reason}",
    )
    await work.session.flush()
    return row
