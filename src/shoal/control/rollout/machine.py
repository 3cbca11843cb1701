"""Decides how a rollout goes on: its step, whether it waits, ends or goes back, and what each region may do. Pure.

    running ─▶ keeping ─▶ ended          keeping: the candidate has everything, stable still runs and can be had back
       │          │
       └──────────┴─▶ goingBack ─▶ ended  stable gets everything again, in all regions at once
       └─▶ frozen                         a person decides

``decide`` maps what is known to the next ``Progress`` and the decisions that led there. It takes one step at a time,
so that each is written before the next one is entered; called again with the same facts it changes nothing. Time comes
with the facts. Waits have a reason in words; a wait of longer than the hold limit ends the rollout.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from shoal.control.rollout.model import RegionGoal
from shoal.control.rollout.strategy import BLUE_GREEN, CANARY, RECREATE, ROLLING, StepSpec, Strategy
from shoal.control.rollout.windows import is_open, opens_at

RUNNING, KEEPING, GOING_BACK, FROZEN, ENDED = "running", "keeping", "goingBack", "frozen", "ended"
PROMOTED, ROLLED_BACK, SUPERSEDED = "promoted", "rolledBack", "superseded"
FULL = 100
SETTINGS = ("header", "cookie", "mirror")


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateFacts:
    """The new revision in one region. A region is lost when its agent is silent: nothing waits for it."""

    region: str  # its name
    size: int  # instances that the region should have in all
    weight: int
    routed: int
    count: int
    ready: int
    has_stable: bool
    others: int = 0  # the most that gateways may still send to revisions that are neither candidate nor stable
    is_lost: bool = False
    is_done: bool = False  # the candidate has everything and no other revision is left
    failure: str = ""  # why its instances fail, in words
    waits_for: str = ""  # gateways that have not taken the newest routes


@dataclass(frozen=True, slots=True, kw_only=True)
class AnalysisFacts:
    """What analysis makes of everything up to ``until_ms``."""

    until_ms: int
    outcome: str  # pass, fail or inconclusive
    reason: str
    requests: int  # of the candidate, since the step was entered
    state: dict[str, Any] = field(default_factory=dict)  # of the tests
    has_enough: bool = False  # requests for the step to pass


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutFacts:
    now_ms: int
    regions: Mapping[str, CandidateFacts]  # by id
    analysis: AnalysisFacts | None = None  # a new look


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """Where a rollout is. Everything that it remembers is here, and is stored as JSON."""

    phase: str = RUNNING
    outcome: str = ""
    waves: tuple[tuple[str, ...], ...] = ()  # ids of regions
    wave: int = 0
    step: int = 0  # index of the strategy's steps; as many as there are: everything
    is_hurried: bool = False  # a person promotes: the steps are left out
    is_paused: bool = False  # by a person
    is_approved: bool = False  # this step's pause
    entered_ms: int = 0
    settled_ms: int = 0  # when every region had what the step grants; 0: not yet
    held_ms: int = 0  # since when it waits for something that may never come
    hold: str = ""
    kept_until_ms: int = 0
    failure: str = ""
    failed: tuple[str, ...] = ()  # regions that failed in this wave and are left out
    looked_ms: int = 0  # samples up to here were judged
    analysis: dict[str, Any] = field(default_factory=dict)
    verdict: str = ""  # of the newest look, in words
    outcome_of_look: str = ""
    requests: int = 0  # of the candidate, that were judged since the step was entered
    has_enough: bool = False

    @property
    def is_active(self) -> bool:
        return self.phase != ENDED

    @property
    def goes_back(self) -> bool:
        """Whether stable is what is wanted."""
        return self.phase == GOING_BACK or self.outcome == ROLLED_BACK


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutDecision:
    """One decision with its reason, for people."""

    action: str
    reason: str
    wave: int
    step: int
    numbers: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepSettings:
    """What the steps up to one have set."""

    weight: int = 0
    replicas: StepSpec | None = None
    header: StepSpec | None = None
    cookie: StepSpec | None = None
    mirror: int = 0


def begin(waves: tuple[tuple[str, ...], ...], now_ms: int) -> Progress:
    return Progress(waves=waves, entered_ms=now_ms, looked_ms=now_ms)


def settings_at(strategy: Strategy, step: int) -> StepSettings:
    """What holds at a step; past the last one everything goes to the candidate."""
    made = StepSettings(weight=FULL) if step >= len(strategy.steps) else StepSettings()
    if step >= len(strategy.steps):
        return made
    for each in strategy.steps[: step + 1]:
        if each.kind == "weight":
            made = replace(made, weight=each.percent)
        elif each.kind == "replicas":
            made = replace(made, replicas=each)
        elif each.kind == "mirror":
            made = replace(made, mirror=each.percent)
        elif each.kind == "header":
            made = replace(made, header=each if each.name else None)
        elif each.kind == "cookie":
            made = replace(made, cookie=each if each.name else None)
    return made


def goals(strategy: Strategy, progress: Progress, sizes: Mapping[str, int]) -> dict[str, RegionGoal | None]:
    """By region, what the candidate may have; ``sizes`` are the instances that each region should have. None: all."""
    return {id_: _goal(strategy, progress, id_, size) for id_, size in sizes.items()}


def _goal(strategy: Strategy, progress: Progress, region: str, size: int) -> RegionGoal | None:
    if not progress.is_active or progress.goes_back or not strategy.is_configured:
        return None
    full = None if strategy.kind == ROLLING else RegionGoal(
        weight=FULL, count=size, recreates=strategy.kind == RECREATE
    )  # fmt: skip
    at = _wave_of(progress, region)
    if region in progress.failed or at > progress.wave:
        return RegionGoal(weight=0, count=0)
    if at < progress.wave or progress.phase == KEEPING or progress.is_hurried or strategy.kind in (ROLLING, RECREATE):
        return full
    held = settings_at(strategy, progress.step)
    return RegionGoal(weight=held.weight, count=_count(strategy, held, size, progress.step))


def _count(strategy: Strategy, held: StepSettings, size: int, step: int) -> int:
    """Instances of the candidate: as many as its share needs, or as a step says; blue-green has all of them at once."""
    needed = -(-held.weight * size // FULL)
    if held.replicas is not None:
        asked = held.replicas.count or -(-held.replicas.percent * size // FULL)
        return max(needed, min(asked, size), 1 if size else 0)
    if strategy.kind == BLUE_GREEN:
        return size
    takes_some = held.weight or held.mirror or held.header or held.cookie or step < len(strategy.steps)
    return max(needed, 1) if takes_some and size else needed


def _wave_of(progress: Progress, region: str) -> int:
    """Regions that came later belong to the wave that is under way."""
    found = (at for at, wave in enumerate(progress.waves) if region in wave)
    return next(found, progress.wave)


def decide(strategy: Strategy, progress: Progress, facts: RolloutFacts) -> tuple[Progress, RolloutDecision | None]:
    """The next state, and the decision that led to it; None where nothing is decided."""
    if not progress.is_active:
        return progress, None
    if progress.phase == GOING_BACK:
        return _going_back(progress, facts)
    progress = _noted(progress, facts)
    failure = _failure(strategy, progress, facts) if strategy.is_configured else ""
    if failure and progress.phase != FROZEN:
        return _fail(strategy, progress, failure, facts)
    if progress.phase == FROZEN:
        return progress, None
    if progress.phase == KEEPING:
        return _keeping(progress, facts)
    return _running(strategy, progress, facts)


def _noted(progress: Progress, facts: RolloutFacts) -> Progress:
    look = facts.analysis
    if look is None:
        return progress
    return replace(
        progress,
        looked_ms=look.until_ms,
        analysis=look.state,
        verdict=look.reason,
        outcome_of_look=look.outcome,
        requests=look.requests,
        has_enough=look.has_enough,
    )


def _failure(strategy: Strategy, progress: Progress, facts: RolloutFacts) -> str:
    """Why the rollout has failed; empty while it has not."""
    if facts.analysis is not None and facts.analysis.outcome == "fail":
        return facts.analysis.reason
    for region in _taking_part(progress, facts).values():
        if region.failure:
            return f"instances fail in {region.region}: {region.failure}"
    late = [each.region for each in _late(strategy, progress, facts)]
    allowed = strategy.waves[progress.wave].max_failures if progress.wave < len(strategy.waves) else 0
    if len(late) + len(progress.failed) > allowed:
        return f"not ready in {', '.join(late)} after {strategy.deadline_s:.0f} s"
    if progress.held_ms and facts.now_ms - progress.held_ms >= strategy.hold_limit_s * 1000:
        return f"held for {strategy.hold_limit_s / 3600:g} h: {progress.hold}"
    return ""


def _late(strategy: Strategy, progress: Progress, facts: RolloutFacts) -> list[CandidateFacts]:
    if progress.settled_ms or facts.now_ms - progress.entered_ms < strategy.deadline_s * 1000:
        return []
    return [each for id_, each in _taking_part(progress, facts).items() if not _is_ready(strategy, progress, id_, each)]


def _taking_part(progress: Progress, facts: RolloutFacts) -> dict[str, CandidateFacts]:
    """Regions of this wave and of those before it that are heard of and have not been left out."""
    return {
        id_: each
        for id_, each in facts.regions.items()
        if each.size and not each.is_lost and id_ not in progress.failed and _wave_of(progress, id_) <= progress.wave
    }


def _is_ready(strategy: Strategy, progress: Progress, id_: str, region: CandidateFacts) -> bool:
    goal = _goal(strategy, progress, id_, region.size)
    return region.ready >= (region.size if goal is None else goal.count)


def _unsettled(strategy: Strategy, progress: Progress, facts: RolloutFacts) -> str:
    """What the step still waits for in a region, in words; empty once every region has what it grants."""
    for id_, region in _taking_part(progress, facts).items():
        goal = _goal(strategy, progress, id_, region.size)
        if region.others:
            return f"gateways in {region.region} still lead to a revision that is being removed"
        if goal is None or not region.has_stable:
            if not region.is_done:
                return f"instances are exchanged in {region.region}"
            continue
        if region.ready < goal.count:
            return f"{region.ready} of {goal.count} instances are ready in {region.region}"
        if region.weight != goal.weight or region.routed != region.weight:
            who = f": {region.waits_for}" if region.waits_for else ""
            return f"gateways in {region.region} have not taken the new weight of {goal.weight} %{who}"
    return ""


def _running(strategy: Strategy, progress: Progress, facts: RolloutFacts) -> tuple[Progress, RolloutDecision | None]:
    waits = _unsettled(strategy, progress, facts)
    if waits:
        return _held(progress, waits, facts, counts=False), None
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
    passed_s = (facts.now_ms - progress.settled_ms) / 1000
    last = progress.is_hurried or progress.step >= len(strategy.steps)
    if last:
        soak_s = _soak_s(strategy, progress)
        if passed_s < soak_s:
            return f"soaking for {soak_s - passed_s:.0f} s more", False
    elif not progress.is_approved:
        step = strategy.steps[progress.step]
        if step.needs_approval:
            return "waits for approval", True
        if passed_s < step.seconds:
            return f"{step.kind} for {step.seconds - passed_s:.0f} s more", False
        if step.kind == "analysis" and not progress.has_enough:
            return progress.verdict or "no samples of the gateways yet", True
        if step.kind == "analysis" and progress.looked_ms < progress.settled_ms + step.seconds * 1000:
            return "waits for the last samples of this step", True
    if strategy.windows and not is_open(strategy.windows, facts.now_ms):
        return f"waits for the next maintenance window, in {_until(strategy, facts)}", False
    return "", False


def _until(strategy: Strategy, facts: RolloutFacts) -> str:
    return f"{(opens_at(strategy.windows, facts.now_ms) - facts.now_ms) / 60_000:.0f} min"


def _soak_s(strategy: Strategy, progress: Progress) -> float:
    more = progress.wave + 1 < len(progress.waves)
    return strategy.waves[progress.wave].soak_s if more and progress.wave < len(strategy.waves) else 0.0


def _next(strategy: Strategy, progress: Progress, facts: RolloutFacts) -> tuple[Progress, RolloutDecision | None]:
    """Leave a step that has ended."""
    fresh = replace(
        progress, entered_ms=facts.now_ms, settled_ms=0, is_approved=False, hold="", held_ms=0, requests=0,
        has_enough=False,
    )  # fmt: skip
    if not progress.is_hurried and progress.step < len(strategy.steps):
        at = replace(fresh, step=progress.step + 1)
        held = settings_at(strategy, at.step)
        return at, _decided("step", at, f"{_passed(strategy.steps[progress.step], progress)}; weight {held.weight} %")
    if progress.wave + 1 < len(progress.waves):
        at = replace(fresh, wave=progress.wave + 1, step=0, failed=())
        names = [facts.regions[id_].region for id_ in at.waves[at.wave] if id_ in facts.regions]
        return at, _decided("wave", at, f"the next regions begin: {', '.join(sorted(names)) or 'none'}")
    if (
        strategy.keep_s
        and strategy.kind in (CANARY, BLUE_GREEN)
        and any(each.has_stable for each in facts.regions.values())
    ):
        at = replace(fresh, phase=KEEPING, kept_until_ms=facts.now_ms + round(strategy.keep_s * 1000))
        return at, _decided("promote", at, f"promoted; the old revision is kept for {strategy.keep_s / 60:g} min")
    at = replace(fresh, phase=ENDED, outcome=PROMOTED)
    return at, _decided("promote", at, "promoted: every region has it")


def _passed(step: StepSpec, progress: Progress) -> str:
    if step.kind == "analysis":
        return f"analysis passed: {progress.verdict}"
    return "approved" if progress.is_approved else f"{step.kind} is done"


def _keeping(progress: Progress, facts: RolloutFacts) -> tuple[Progress, RolloutDecision | None]:
    if facts.now_ms < progress.kept_until_ms:
        return progress, None
    at = replace(progress, phase=ENDED, outcome=PROMOTED)
    return at, _decided("end", at, "the old revision is no longer kept")


def _fail(
    strategy: Strategy, progress: Progress, failure: str, facts: RolloutFacts
) -> tuple[Progress, RolloutDecision | None]:
    if strategy.on_failure == "freeze":
        at = replace(progress, phase=FROZEN, failure=failure, hold="", held_ms=0, entered_ms=facts.now_ms)
        return at, _decided("freeze", at, failure)
    return go_back(progress, failure, facts.now_ms)


def go_back(progress: Progress, why: str, now_ms: int) -> tuple[Progress, RolloutDecision]:
    at = replace(progress, phase=GOING_BACK, failure=why, hold="", held_ms=0, entered_ms=now_ms, is_paused=False)
    return at, _decided("rollback", at, why)


def _going_back(progress: Progress, facts: RolloutFacts) -> tuple[Progress, RolloutDecision | None]:
    left = [each.region for each in facts.regions.values() if (each.weight or each.routed) and not each.is_lost]
    if left:
        return replace(progress, hold=f"gateways still lead to it in {', '.join(sorted(left))}"), None
    at = replace(progress, phase=ENDED, outcome=ROLLED_BACK, hold="")
    return at, _decided("end", at, "every gateway leads to the stable revision again")


def _decided(action: str, at: Progress, reason: str) -> RolloutDecision:
    numbers = {"requests": at.requests} if at.requests else {}
    return RolloutDecision(action=action, reason=reason, wave=at.wave, step=at.step, numbers=numbers)


def due_ms(strategy: Strategy, progress: Progress, now_ms: int) -> int:
    """When something changes by time alone; 0: never."""
    if not progress.is_active or progress.phase in (GOING_BACK, FROZEN):
        return 0
    if progress.phase == KEEPING:
        times = [progress.kept_until_ms]
    else:
        times = [progress.entered_ms + round(strategy.deadline_s * 1000)] if not progress.settled_ms else []
        if progress.held_ms:
            times.append(progress.held_ms + round(strategy.hold_limit_s * 1000))
        if progress.settled_ms and not progress.is_paused:
            is_step = not progress.is_hurried and progress.step < len(strategy.steps)
            wait_s = strategy.steps[progress.step].seconds if is_step else _soak_s(strategy, progress)
            times.append(progress.settled_ms + round(wait_s * 1000))
        if strategy.windows and not is_open(strategy.windows, now_ms):
            times.append(opens_at(strategy.windows, now_ms))
    if strategy.is_judged:
        times.append(progress.looked_ms + round(strategy.interval_s * 1000))
    return min((each for each in times if each > now_ms), default=now_ms)
