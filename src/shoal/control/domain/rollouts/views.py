"""A rollout as people see it: where it is and why, region by region, and what was decided. Pure, but for the rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from shoal.control.database.tables import Rollout, RolloutDecision
from shoal.control.domain.objects import time_text
from shoal.control.domain.rollouts.records import progress_of_row, strategy_of_row
from shoal.control.rollout.goals import FULL, goal_of, settings_at, wave_of
from shoal.control.rollout.machine import held_until_ms, step_until_ms
from shoal.control.rollout.progress import (
    FROZEN,
    GOING_BACK,
    KEEPING,
    PROMOTED,
    ROLLED_BACK,
    RUNNING,
    CandidateFacts,
    Progress,
)
from shoal.control.rollout.strategy import StepSpec, Strategy


def rollout_json(row: Rollout) -> dict[str, Any]:
    """One line of the history."""
    strategy, progress = strategy_of_row(row), progress_of_row(row)
    return {
        "number": row.number,
        "strategy": strategy.kind,
        "configured": strategy.is_configured,
        "revision": row.revision,
        "stableRevision": row.stable_revision,
        "phase": row.phase,
        "outcome": row.outcome,
        "paused": progress.is_paused,
        "reason": reason_of(progress),
        "actor": row.actor,
        "correlation": row.correlation,
        "startedAt": time_text(row.created_at),
        "updatedAt": time_text(row.updated_at),
        "endedAt": time_text(row.ended_at),
    }


def rollout_brief(row: Rollout) -> dict[str, Any]:
    """A rollout that is under way, as a part of its app's status."""
    strategy, progress = strategy_of_row(row), progress_of_row(row)
    return {
        "number": row.number,
        "strategy": strategy.kind,
        "configured": strategy.is_configured,
        "revision": row.revision,
        "stableRevision": row.stable_revision,
        "phase": row.phase,
        "paused": progress.is_paused,
        "wave": progress.wave,
        "waves": len(progress.waves),
        "step": min(progress.step, len(strategy.steps)),
        "steps": len(strategy.steps),
        "hurried": progress.is_hurried,
        "weight": _weight(strategy, progress),
        "reason": reason_of(progress),
    }


def rollout_sentence(row: Rollout) -> str:
    """What explains an app whose newest rollout this is; empty where it has come to its end."""
    progress, name = progress_of_row(row), f"rollout {row.number}"
    if progress.phase == GOING_BACK:
        return f"{name} goes back to revision {row.stable_revision}: {progress.failure}"
    if progress.outcome == ROLLED_BACK:
        return f"{name} went back: {progress.failure}"
    if progress.phase == FROZEN:
        return f"{name} is frozen: {progress.failure}; `shoal rollout resume`, `promote` or `abort` ends this"
    if progress.phase == KEEPING:
        kept = time_text(progress.kept_until_ms)
        return f"{name} is promoted{_why(progress)}; revision {row.stable_revision} is kept until {kept}"
    if progress.phase != RUNNING:
        return ""
    found = rollout_brief(row)
    steps = f"step {min(found['step'] + 1, found['steps'])} of {found['steps']}, " if found["steps"] else ""
    where = f"{steps}wave {found['wave'] + 1} of {found['waves']}, weight {found['weight']} %"
    waits = "paused by a person" if progress.is_paused else progress.hold or "goes on"
    return f"{name} from revision {row.stable_revision} to {row.revision}{_why(progress)} ({where}): {waits}"


def _why(progress: Progress) -> str:
    """What the person said who began it."""
    return f" ({progress.why})" if progress.why else ""


def reason_of(progress: Progress) -> str:
    """Why it is where it is, in one sentence."""
    if progress.failure:
        return progress.failure
    return progress.hold


def rollout_details(
    row: Rollout,
    regions: Mapping[str, CandidateFacts],
    names: Mapping[str, str],
    decisions: Sequence[RolloutDecision],
    numbers: Mapping[str, Mapping[str, Any]],
) -> dict[str, Any]:
    """Everything of one rollout; ``names`` are those of regions, ``numbers`` are those of both revisions by region's
    id (``region_numbers``)."""
    strategy, progress = strategy_of_row(row), progress_of_row(row)
    return {
        **rollout_json(row),
        "wave": progress.wave,
        "waves": [[names.get(id_, id_) for id_ in wave] for wave in progress.waves],
        "step": min(progress.step, len(strategy.steps)),
        "steps": [_step(strategy, index, each) for index, each in enumerate(strategy.steps)],
        "hurried": progress.is_hurried,
        "weight": _weight(strategy, progress),
        "hold": progress.hold,
        "verdict": progress.verdict,
        "failure": progress.failure,
        "failedRegions": [names.get(id_, id_) for id_ in progress.failed],
        "keptUntil": time_text(progress.kept_until_ms),
        "stepUntil": time_text(step_until_ms(strategy, progress)),
        "holdEndsAt": time_text(held_until_ms(strategy, progress)),
        "dueAt": time_text(row.due_at),
        "regions": [
            _region(strategy, progress, id_, each, numbers.get(id_, {}))
            for id_, each in sorted(regions.items(), key=lambda one: (wave_of(progress, one[0]), one[1].region))
        ],
        "decisions": [decision_json(each) for each in decisions],
    }


def decision_json(row: RolloutDecision) -> dict[str, Any]:
    return {
        "id": row.id,
        "at": time_text(row.at),
        "actor": row.actor,
        "action": row.action,
        "reason": row.reason,
        "wave": row.wave,
        "step": row.step,
        "numbers": row.numbers,
    }


def _weight(strategy: Strategy, progress: Progress) -> int:
    """Percent of the requests that the candidate may have in the regions of the wave that is under way."""
    if progress.outcome:
        return FULL if progress.outcome == PROMOTED else 0
    wave = progress.waves[progress.wave] if progress.wave < len(progress.waves) else ()
    goals = [goal_of(strategy, progress, id_, 1) for id_ in wave if id_ not in progress.failed]
    return goals[0].weight if goals and goals[0] is not None else FULL


def _step(strategy: Strategy, index: int, step: StepSpec) -> dict[str, Any]:
    found: dict[str, Any] = {"kind": step.kind, "weight": settings_at(strategy, index).weight}
    if step.seconds:
        found["seconds"] = step.seconds
    if step.kind == "pause" and step.needs_approval:
        found["approval"] = True
    if step.kind == "replicas":
        found["replicas"] = step.count or f"{step.percent}%"
    if step.kind == "mirror":
        found["percent"] = step.percent
    if step.kind in ("header", "cookie"):
        found |= {"name": step.name, "value": step.value}
    return found


def _region(
    strategy: Strategy, progress: Progress, id_: str, each: CandidateFacts, numbers: Mapping[str, Any]
) -> dict[str, Any]:
    goal = goal_of(strategy, progress, id_, each.size)
    return {
        "region": each.region,
        "wave": wave_of(progress, id_),
        "size": each.size,
        "weight": each.weight,
        "routed": each.routed,
        "goal": {"weight": goal.weight, "instances": goal.count} if goal is not None else None,
        "candidate": {"ready": each.ready, "instances": each.count, **(numbers.get("candidate") or {})},
        "stable": {"present": each.has_stable, **(numbers.get("stable") or {})},
        "lost": each.is_lost,
        "leftOut": id_ in progress.failed,
        "waitsFor": each.waits_for,
        "failure": each.failure,
    }
