"""One decision of a rollout: what the machine makes of its facts, written with whom it is told to."""

from __future__ import annotations

from shoal.control.checks.outbox import PAUSE, ROLLBACK, SUCCESS, notify
from shoal.control.database.tables import BadRevision, Rollout
from shoal.control.domain.app_facts import KnownRollout
from shoal.control.domain.rollouts.contents import bad_revision
from shoal.control.domain.rollouts.records import write
from shoal.control.domain.work import PendingWork
from shoal.control.rollout.machine import decide, needs_person
from shoal.control.rollout.progress import Progress, RolloutDecision, RolloutFacts
from shoal.control.rollout.strategy import Strategy

WARNINGS = ("rollback", "freeze", "leaveOut")
_EVENTS = {"promote": SUCCESS, "rollback": ROLLBACK, "freeze": PAUSE}


async def take_decision(work: PendingWork, rollout: KnownRollout, facts: RolloutFacts) -> RolloutDecision | None:
    """Write where the rollout is now; None where nothing was decided."""
    progress, decision = decide(rollout.strategy, rollout.progress, facts)
    if progress == rollout.progress and not _is_overdue(work, rollout):
        return None
    if event := _event(rollout.strategy, rollout.progress, progress, decision):
        text = decision.reason if decision is not None else progress.hold
        await notify(work.tx, rollout.row, rollout.strategy, event, text, progress.numbers)
    rollout.progress = progress
    write(work.tx, rollout.row, rollout.strategy, progress, decision)
    return decision


async def remember_bad(work: PendingWork, row: Rollout, reason: str) -> None:
    """The same contents are refused from now on."""
    found = await bad_revision(work.session, row.app_id, row.digest)
    if found is None:
        found = BadRevision(app_id=row.app_id, digest=row.digest, workspace_id=row.workspace_id, revision=0, at=0)
        work.session.add(found)
    found.revision, found.reason, found.at = row.revision, reason, work.now


def event_reason(decision: RolloutDecision) -> str:
    """``RolloutStep``, ``RolloutRollback``…"""
    return f"Rollout{decision.action[:1].upper()}{decision.action[1:]}"


def _event(strategy: Strategy, before: Progress, after: Progress, decision: RolloutDecision | None) -> str:
    """What others are told, if anything."""
    if decision is not None:
        return _EVENTS.get(decision.action, "")
    waited, waits = (needs_person(strategy, each) for each in (before, after))
    return PAUSE if waits and not waited else ""


def _is_overdue(work: PendingWork, rollout: KnownRollout) -> bool:
    """Whether the time to look again has to be set anew."""
    return 0 < rollout.row.due_at <= work.now
