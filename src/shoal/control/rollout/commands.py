"""What people may do to a rollout that is under way. Pure: each command maps its progress to the next one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from shoal.control.rollout.machine import go_back
from shoal.control.rollout.progress import FROZEN, KEEPING, RUNNING, Progress, RolloutDecision
from shoal.control.rollout.strategy import Strategy


class CommandRefused(Exception):
    """The command does not fit to where the rollout is; the message says why, and what does."""


Command = Callable[[Strategy, Progress, str], tuple[Progress, RolloutDecision]]


def pause(strategy: Strategy, progress: Progress, who: str) -> tuple[Progress, RolloutDecision]:
    _must_run(progress, "pause")
    if progress.is_paused:
        raise CommandRefused("it is paused already; `rollout resume` lets it go on")
    return _told("pause", replace(progress, is_paused=True), f"{who} pauses it")


def resume(strategy: Strategy, progress: Progress, who: str) -> tuple[Progress, RolloutDecision]:
    """End a person's pause, approve a step that waits for approval, or go on after it was frozen."""
    if progress.phase == FROZEN:
        at = replace(progress, phase=RUNNING, failure="", hold="", analysis={}, verdict="", short_ms=0, settled_ms=0)
        return _told("resume", at, f"{who} lets it go on although it failed: {progress.failure}")
    _must_run(progress, "resume")
    if progress.is_paused:
        return _told("resume", replace(progress, is_paused=False), f"{who} lets it go on")
    if _waits_for_approval(strategy, progress):
        return _told("approve", replace(progress, is_approved=True), f"{who} approves the step")
    raise CommandRefused("it is not paused; `rollout skip` leaves out the step that is under way")


def skip(strategy: Strategy, progress: Progress, who: str) -> tuple[Progress, RolloutDecision]:
    """Leave out the rest of the step."""
    _must_run(progress, "skip")
    if progress.is_hurried or progress.step >= len(strategy.steps):
        raise CommandRefused("no step is left to skip; `rollout status` shows what it waits for")
    step = strategy.steps[progress.step]
    at = replace(progress, is_approved=True, is_paused=False)
    return _told("skip", at, f"{who} skips the {step.kind}")


def promote(strategy: Strategy, progress: Progress, who: str) -> tuple[Progress, RolloutDecision]:
    """Leave out all steps that are left; regions still go in their waves."""
    if progress.phase not in (RUNNING, FROZEN):
        raise CommandRefused(f"it cannot be promoted: {_where(progress)}")
    at = replace(progress, phase=RUNNING, is_hurried=True, is_paused=False, failure="", hold="", settled_ms=0)
    return _told("promote", at, f"{who} promotes it without the steps that are left")


def abort(strategy: Strategy, progress: Progress, who: str) -> tuple[Progress, RolloutDecision]:
    if progress.phase not in (RUNNING, FROZEN, KEEPING):
        raise CommandRefused(f"it cannot be aborted: {_where(progress)}")
    at, decision = go_back(progress, f"aborted by {who}")
    return at, replace(decision, action="abort")


COMMANDS: dict[str, Command] = {"pause": pause, "resume": resume, "skip": skip, "promote": promote, "abort": abort}


def _waits_for_approval(strategy: Strategy, progress: Progress) -> bool:
    has_step = not progress.is_hurried and progress.step < len(strategy.steps)
    return has_step and not progress.is_approved and strategy.steps[progress.step].needs_approval


def _must_run(progress: Progress, verb: str) -> None:
    if progress.phase != RUNNING:
        raise CommandRefused(f"`rollout {verb}` has no effect: {_where(progress)}")


def _where(progress: Progress) -> str:
    if progress.phase == KEEPING:
        return "it is promoted; `rollout undo` goes back to the revision that is kept"
    if progress.phase == FROZEN:
        return f"it is frozen ({progress.failure}); use `rollout resume`, `promote` or `abort`"
    return "it goes back to the stable revision" if progress.is_active else "it has ended"


def _told(action: str, at: Progress, reason: str) -> tuple[Progress, RolloutDecision]:
    return at, RolloutDecision(action=action, reason=reason, wave=at.wave, step=at.step)
