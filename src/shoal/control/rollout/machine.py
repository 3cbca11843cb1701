"""Decides how a rollout goes on: its step, whether it waits, ends or goes back. Pure.

``decide`` maps what is known to the next ``Progress`` and the decision that led there. It takes one step at a time, so
that each is written before the next one is entered; called again with the same facts it changes nothing. Time comes
with the facts. Waits have a reason in words; a wait that lasts longer than the hold limit ends the rollout.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from shoal.control.rollout.goals import FULL, goal_of, settings_at, spec_of, wave_of
from shoal.control.rollout.progress import (
    ENDED,
    FROZEN,
    GOING_BACK,
    KEEPING,
    PROMOTED,
    ROLLED_BACK,
    RUNNING,
    SUPERSEDED,
    CandidateFacts,
    Progress,
    RolloutDecision,
    RolloutFacts,
)
from shoal.control.rollout.strategy import BLUE_GREEN, CANARY, StepSpec, Strategy
from shoal.control.rollout.windows import is_open, opens_at

Decided = tuple[Progress, RolloutDecision | None]

_LOOK_AGAIN_MS = 5000  # at what should have happened by now, such as a sample that is late


def decide(strategy: Strategy, progress: Progress, facts: RolloutFacts) -> Decided:
    """The next state, and the decision that led to it; None where nothing is decided."""
    if progress.phase == ENDED:
        return progress, None
    if progress.phase == GOING_BACK:
        return _going_back(progress, facts)
    progress = _noted(strategy, progress, facts)
    if progress.phase == FROZEN:
        return progress, None
    failing = _failing(strategy, progress, facts) if strategy.is_configured else {}
    if failing and _may_fail(strategy, progress, set(failing)):
        left_out = replace(progress, failed=(*progress.failed, *sorted(failing)), short_ms=0)
        return left_out, _decided("leaveOut", left_out, f"{_sentence(failing)}; the other regions go on")
    failure = _sentence(failing) or _failure(strategy, progress, facts)
    if failure:
        return _fail(strategy, progress, failure)
    if returned := _returned(progress, facts):
        return _catch_up(progress, facts, returned)
    if progress.phase == KEEPING:
        return _keeping(progress, facts)
    return _running(strategy, progress, facts)


def go_back(progress: Progress, why: str) -> tuple[Progress, RolloutDecision]:
    at = replace(progress, phase=GOING_BACK, failure=why, hold="", held_ms=0, is_paused=False)
    return at, _decided("rollback", at, why)


def supersede(progress: Progress, why: str) -> tuple[Progress, RolloutDecision]:
    """Another candidate takes its place."""
    outcome = PROMOTED if progress.phase == KEEPING else SUPERSEDED
    at = replace(progress, phase=ENDED, outcome=outcome, hold="", held_ms=0)
    return at, _decided("end", at, why)


def due_ms(strategy: Strategy, progress: Progress, now_ms: int) -> int:
    """When something may change by time alone; 0: never."""
    if progress.phase == KEEPING:
        return max(now_ms, progress.kept_until_ms)
    if progress.phase != RUNNING or not strategy.is_configured:
        return 0
    times = [progress.short_ms + _ms(strategy.deadline_s)] if progress.short_ms else []
    if progress.held_ms:
        times.append(progress.held_ms + _ms(strategy.hold_limit_s))
    if progress.settled_ms and not progress.is_paused:
        times.append(progress.settled_ms + _ms(_wait_s(strategy, progress)))
    if strategy.windows and not is_open(strategy.windows, now_ms):
        times.append(opens_at(strategy.windows, now_ms))
    if strategy.is_judged and not progress.is_hurried:
        times.append(progress.looked_ms + _ms(strategy.interval_s))
    return min((each for each in times if each > now_ms), default=now_ms + _LOOK_AGAIN_MS)


def step_until_ms(strategy: Strategy, progress: Progress) -> int:
    """When the time of the step is over, or of keeping the old revision; 0 where nothing waits for a time."""
    if progress.phase == KEEPING:
        return progress.kept_until_ms
    if progress.phase != RUNNING or not progress.settled_ms or progress.is_paused:
        return 0
    wait_s = _wait_s(strategy, progress)
    return progress.settled_ms + _ms(wait_s) if wait_s else 0


def held_until_ms(strategy: Strategy, progress: Progress) -> int:
    """When it goes back if what it waits for does not come; 0 where it does not wait for such a thing."""
    if progress.phase != RUNNING or not strategy.is_configured or not progress.held_ms:
        return 0
    return progress.held_ms + _ms(strategy.hold_limit_s)


def _noted(strategy: Strategy, progress: Progress, facts: RolloutFacts) -> Progress:
    """What the facts say that is remembered: the newest look, and since when instances are missing."""
    short = bool(_short(strategy, progress, facts))
    progress = replace(progress, short_ms=(progress.short_ms or facts.now_ms) if short else 0)
    look = facts.analysis
    if look is None:
        return progress
    return replace(
        progress,
        looked_ms=look.until_ms,
        analysis=look.state,
        verdict=look.reason,
        requests=look.requests,
        has_enough=look.has_enough,
        numbers=look.numbers,
    )


def _failing(strategy: Strategy, progress: Progress, facts: RolloutFacts) -> dict[str, str]:
    """By id, regions in which the candidate fails, each with a sentence."""
    found = {
        id_: f"instances fail in {each.region}: {each.failure}"
        for id_, each in _taking_part(progress, facts).items()
        if each.failure
    }
    if progress.short_ms and facts.now_ms - progress.short_ms >= _ms(strategy.deadline_s):
        for id_, each in _short(strategy, progress, facts).items():
            why = f": {each.trouble}" if each.trouble else ""
            found.setdefault(id_, f"not ready in {each.region} after {strategy.deadline_s:g} s{why}")
    return found


def _may_fail(strategy: Strategy, progress: Progress, failing: set[str]) -> bool:
    """Whether the wave goes on without these regions."""
    spec = spec_of(strategy, progress, progress.wave)
    if spec is None or not spec.max_failures or progress.phase != RUNNING:
        return False
    index = progress.specs[progress.wave]
    same = [set(wave) for wave, at in zip(progress.waves, progress.specs, strict=True) if at == index]
    of_wave = failing | set(progress.failed)
    return len(of_wave & set().union(*same)) <= spec.max_failures and failing <= set().union(*same)


def _failure(strategy: Strategy, progress: Progress, facts: RolloutFacts) -> str:
    """Why the rollout as a whole has failed; empty while it has not."""
    if facts.analysis is not None and facts.analysis.outcome == "fail":
        return facts.analysis.reason
    if facts.checks.failed:
        return facts.checks.failed
    if strategy.is_configured and progress.held_ms and facts.now_ms - progress.held_ms >= _ms(strategy.hold_limit_s):
        return f"held for {strategy.hold_limit_s / 3600:g} h: {progress.hold}"
    return ""


def _taking_part(progress: Progress, facts: RolloutFacts) -> dict[str, CandidateFacts]:
    """Regions of this wave and of those before it that are heard of and have not been left out."""
    return {
        id_: each
        for id_, each in facts.regions.items()
        if each.size
        and not each.is_lost
        and id_ not in (*progress.failed, *progress.missed)
        and wave_of(progress, id_) <= progress.wave
    }


def _short(strategy: Strategy, progress: Progress, facts: RolloutFacts) -> dict[str, CandidateFacts]:
    """The regions in which the candidate has fewer ready instances than it was granted; of an exchange, than it was
    told to run so far: the deadline is one of each batch."""
    found: dict[str, CandidateFacts] = {}
    for id_, each in _taking_part(progress, facts).items():
        goal = goal_of(strategy, progress, id_, each.size)
        if each.ready < (min(each.count, each.size) if goal is None else goal.count):
            found[id_] = each
    return found


def _unsettled(strategy: Strategy, progress: Progress, facts: RolloutFacts) -> str:
    """What the step still waits for in a region, in words; empty once every region has what it grants."""
    for id_, region in _taking_part(progress, facts).items():
        goal = goal_of(strategy, progress, id_, region.size)
        who = f": {region.waits_for}" if region.waits_for else ""
        if region.others:
            return f"gateways in {region.region} still lead to a revision that is being removed{who}"
        if goal is None or not region.has_stable:
            if not region.is_done:
                return f"instances are exchanged in {region.region}{who}"
            continue
        if region.ready < goal.count:
            return f"{region.ready} of {goal.count} instances are ready in {region.region}"
        if region.weight != goal.weight or region.routed != region.weight or region.waits_for:
            return f"gateways in {region.region} have not taken the new weight of {goal.weight} %{who}"
    return ""


def _running(strategy: Strategy, progress: Progress, facts: RolloutFacts) -> Decided:
    waits = _unsettled(strategy, progress, facts)
    if waits:  # missing instances have a deadline
        return _held(progress, waits, facts, counts=not progress.short_ms), None
    if not progress.settled_ms:
        progress = replace(progress, settled_ms=facts.now_ms, held_ms=0, hold="")
    waits, counts = _waits(strategy, progress, facts)
    if waits:
        return _held(progress, waits, facts, counts=counts), None
    return _next(strategy, progress, facts)


def _held(progress: Progress, why: str, facts: RolloutFacts, *, counts: bool) -> Progress:
    """``counts`` is True where the hold limit applies."""
    since = (progress.held_ms or facts.now_ms) if counts else 0
    return replace(progress, hold=why, held_ms=since)


def _waits(strategy: Strategy, progress: Progress, facts: RolloutFacts) -> tuple[str, bool]:
    """What keeps the rollout from leaving a step that is settled, and whether the hold limit applies to it."""
    if progress.is_paused:
        return "paused by a person", True
    left_s = _wait_s(strategy, progress) - (facts.now_ms - progress.settled_ms) / 1000
    step = _step(strategy, progress)
    if step is None:
        if left_s > 0:
            return "soaks before the next regions begin", False
    elif not progress.is_approved:
        if step.needs_approval:
            return "waits for approval", True
        if left_s > 0:
            return f"{step.kind} takes {step.seconds:g} s", False
        if step.kind == "analysis":
            waits = _waits_for_analysis(strategy, progress, facts, step)
            if waits:
                return waits, True
    if strategy.windows and not is_open(strategy.windows, facts.now_ms):
        return "waits for the next maintenance window", False
    return "", False


def _waits_for_analysis(strategy: Strategy, progress: Progress, facts: RolloutFacts, step: StepSpec) -> str:
    if all(wave_of(progress, id_) != progress.wave for id_ in _taking_part(progress, facts)):
        return ""  # all regions of the wave are lost or left out: there is nothing to judge
    if strategy.is_judged and progress.looked_ms < progress.settled_ms + _ms(step.seconds):
        return "waits for the last samples of this step"
    if strategy.is_judged and not progress.has_enough:
        return progress.verdict or "no samples of the gateways yet"
    return facts.checks.waits_for


def needs_person(strategy: Strategy, progress: Progress) -> bool:
    """Whether it stays where it is until a person says something."""
    if progress.phase != RUNNING or not progress.settled_ms:
        return False
    step = _step(strategy, progress)
    return progress.is_paused or (step is not None and step.needs_approval and not progress.is_approved)


def _step(strategy: Strategy, progress: Progress) -> StepSpec | None:
    """The step that is under way; None where the candidate has everything."""
    is_last = progress.is_hurried or progress.step >= len(strategy.steps)
    return None if is_last else strategy.steps[progress.step]


def _wait_s(strategy: Strategy, progress: Progress) -> float:
    """How long the step lasts once it is settled."""
    step = _step(strategy, progress)
    if step is not None:
        return 0.0 if progress.is_approved else step.seconds
    here, later = (spec_of(strategy, progress, progress.wave + more) for more in (0, 1))
    is_last = progress.wave + 1 >= len(progress.waves)
    return here.soak_s if here is not None and not is_last and here is not later else 0.0


def _next(strategy: Strategy, progress: Progress, facts: RolloutFacts) -> Decided:
    """Leave a step that has ended."""
    fresh = _entered(progress, facts)
    step = _step(strategy, progress)
    if step is None:
        fresh = replace(fresh, missed=_missed(strategy, progress, facts))
    else:
        at = replace(fresh, step=progress.step + 1)
        held = settings_at(strategy, at.step)
        return at, _decided("step", at, f"{_passed(step, progress)}; weight {held.weight} %", progress)
    if progress.wave + 1 < len(progress.waves):
        at = replace(fresh, wave=progress.wave + 1, step=0)
        names = [facts.regions[id_].region for id_ in at.waves[at.wave] if id_ in facts.regions]
        return at, _decided("wave", at, f"the next regions begin: {', '.join(sorted(names)) or 'none'}", progress)
    if strategy.is_configured and strategy.keep_s and strategy.kind in (CANARY, BLUE_GREEN):
        if any(each.has_stable for each in facts.regions.values()):
            at = replace(fresh, phase=KEEPING, kept_until_ms=facts.now_ms + _ms(strategy.keep_s))
            kept = f"promoted; the old revision is kept for {strategy.keep_s / 60:g} min"
            return at, _decided("promote", at, kept, progress)
    at = replace(fresh, phase=ENDED, outcome=PROMOTED)
    return at, _decided("promote", at, "promoted: every region has it", progress)


def _entered(progress: Progress, facts: RolloutFacts) -> Progress:
    return replace(
        progress,
        entered_ms=facts.now_ms,
        settled_ms=0,
        short_ms=0,
        is_approved=False,
        hold="",
        held_ms=0,
        requests=0,
        has_enough=False,
    )


def _missed(strategy: Strategy, progress: Progress, facts: RolloutFacts) -> tuple[str, ...]:
    """With the regions of a wave that ends which could not take its steps. Without steps there is nothing to miss, and
    without keeping the old revision the rollout ends here."""
    if progress.is_hurried or not strategy.steps or not strategy.keep_s or strategy.kind not in (CANARY, BLUE_GREEN):
        return progress.missed
    wave = progress.waves[progress.wave] if progress.wave < len(progress.waves) else ()
    lost = (id_ for id_ in wave if id_ in facts.regions and id_ not in progress.failed)
    found = {id_ for id_ in lost if facts.regions[id_].is_lost and facts.regions[id_].routed < FULL}
    return tuple(sorted({*progress.missed, *found}))


def _returned(progress: Progress, facts: RolloutFacts) -> tuple[str, ...]:
    return tuple(id_ for id_ in progress.missed if id_ in facts.regions and not facts.regions[id_].is_lost)


def _catch_up(progress: Progress, facts: RolloutFacts, returned: tuple[str, ...]) -> Decided:
    """Regions that are heard of again get a wave of their own, the last one. While the old revision is kept, it begins
    at once."""
    at = replace(
        progress,
        waves=(*progress.waves, returned),
        specs=(*progress.specs, -1),
        missed=tuple(id_ for id_ in progress.missed if id_ not in returned),
    )
    if progress.phase == KEEPING:
        begun = _entered(at, facts)
        at = replace(
            begun, phase=RUNNING, wave=len(at.waves) - 1, step=0, kept_until_ms=0, looked_ms=facts.now_ms, verdict=""
        )
    names = ", ".join(sorted(facts.regions[id_].region for id_ in returned))
    return at, _decided("catchUp", at, f"{names} missed the steps of its wave and takes them in a last one")


def _passed(step: StepSpec, progress: Progress) -> str:
    if progress.is_approved:
        return "approved" if step.needs_approval else f"{step.kind} is skipped"
    if step.kind == "analysis":
        return f"analysis passed: {progress.verdict}" if progress.verdict else "analysis passed"
    return f"{step.kind} is done"


def _keeping(progress: Progress, facts: RolloutFacts) -> Decided:
    if facts.now_ms < progress.kept_until_ms:
        return progress, None
    at = replace(progress, phase=ENDED, outcome=PROMOTED)
    return at, _decided("end", at, "the old revision is no longer kept")


def _fail(strategy: Strategy, progress: Progress, failure: str) -> Decided:
    if strategy.on_failure == "freeze":
        at = replace(progress, phase=FROZEN, failure=failure, hold=f"frozen: {failure}", held_ms=0)
        return at, _decided("freeze", at, failure, progress)
    at, _ = go_back(progress, failure)
    return at, _decided("rollback", at, failure, progress)


def _going_back(progress: Progress, facts: RolloutFacts) -> Decided:
    left = sorted(each.region for each in facts.regions.values() if (each.weight or each.routed) and not each.is_lost)
    if left:
        return replace(progress, hold=f"gateways still lead to it in {', '.join(left)}"), None
    if not facts.is_reverted:
        return replace(progress, hold="the stable revision is applied again"), None
    at = replace(progress, phase=ENDED, outcome=ROLLED_BACK, hold="")
    return at, _decided("end", at, "every gateway leads to the stable revision again")


def _sentence(failing: dict[str, str]) -> str:
    return "; ".join(failing[id_] for id_ in sorted(failing))


def _decided(action: str, at: Progress, reason: str, judged: Progress | None = None) -> RolloutDecision:
    numbers: dict[str, Any] = dict(judged.numbers) if judged is not None else {}
    if judged is not None and judged.requests:
        numbers["requests"] = judged.requests
    return RolloutDecision(action=action, reason=reason, wave=at.wave, step=at.step, numbers=numbers)


def _ms(seconds: float) -> int:
    return round(seconds * 1000)
