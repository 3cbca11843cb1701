"""Plays a rollout in virtual time, with faults and bad numbers: what ``shoal rollout plan`` shows. Pure.

``machine.decide`` and ``plan.step`` decide as they do in a fleet. What they are told comes from played regions; whether
requests are good is said by an ``Analysis``, which is given from outside.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from shoal.control.rollout.commands import CommandRefused, resume
from shoal.control.rollout.goals import FULL, begin, goal_of, spec_of, testers_of, wave_of
from shoal.control.rollout.machine import decide, due_ms
from shoal.control.rollout.progress import (
    ENDED,
    FROZEN,
    GOING_BACK,
    RUNNING,
    AnalysisFacts,
    Progress,
    RolloutDecision,
    RolloutFacts,
)
from shoal.control.rollout.rehearsed_region import Pace, PlayedRegion, RegionSize
from shoal.control.rollout.strategy import StepSpec, Strategy

ROUNDS = 200  # of decisions at one moment
MOMENTS = 200_000  # of a rehearsal; the longest one looks every 5 s for a day or two
START_MS = 86_400_000  # any time but 0, which means "not yet" in a progress
APPROVER = "approval"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlayedFault:
    """What happens at a time, in one region or in all. A bad number, a loss or a crash lasts until another one ends it
    (``errors: 0``, ``lost: False``); None leaves it as it is."""

    at_s: float
    region: str = ""  # empty: all
    errors: float | None = None  # share of the candidate's requests that end with 5xx
    latency_ms: Mapping[float, float] = field(default_factory=dict)  # of the candidate, by quantile; 0 ends it
    lost: bool | None = None
    crash: bool | None = None
    no_samples: bool | None = None
    approve: bool = False


@dataclass(slots=True)
class PlayedNumbers:
    """What gateways of a region measure of the candidate."""

    errors: float = 0.0
    latency_ms: dict[float, float] = field(default_factory=dict)
    is_silent: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RehearsedLook:
    """One look at the samples since the one before."""

    now_ms: int
    requests: int  # of the candidate in the regions of the wave, in this look
    requests_before: int  # of this step, in the looks before
    numbers: Mapping[str, PlayedNumbers]  # by region, where there are samples
    state: Mapping[str, object]  # that the look before has left


Analysis = Callable[[Strategy, RehearsedLook], AnalysisFacts]


@dataclass(frozen=True, slots=True, kw_only=True)
class RehearsedMoment:
    """Everything at one moment, after a decision or a step."""

    at_ms: int  # since the beginning
    progress: Progress
    regions: Mapping[str, PlayedRegion]
    decision: RolloutDecision | None = None
    left: Progress | None = None  # before the decision


@dataclass(frozen=True, slots=True, kw_only=True)
class RehearsedRow:
    """One line of the table: what was decided, and what it grants a region. ``stable`` and ``candidate`` are instances
    that are told to run."""

    at_s: float
    wave: str
    step: str
    region: str
    weight: int
    candidate: int
    stable: int
    decision: str
    reason: str


def two_bad_looks(strategy: Strategy, look: RehearsedLook) -> AnalysisFacts:
    """Fails when two looks in a row have a bad number: one above a rule, or any where there are no rules."""
    bad = [why for region, numbers in sorted(look.numbers.items()) for why in _bad(strategy, region, numbers)]
    looks = int(str(look.state.get("bad", 0))) + 1 if bad else 0
    requests = look.requests_before + look.requests
    outcome = "fail" if looks > 1 else "pass" if look.requests and not bad else "inconclusive"
    reason = "; ".join(bad) or (f"{requests} requests, none of them bad" if requests else "no samples of the gateways")
    return AnalysisFacts(
        until_ms=look.now_ms,
        outcome=outcome,
        reason=reason,
        requests=requests,
        state={"bad": looks},
        has_enough=requests > 0 and not bad,
    )


def _bad(strategy: Strategy, region: str, numbers: PlayedNumbers) -> list[str]:
    rules = strategy.abort
    limits = {limit.quantile: limit.ms for limit in rules.latency}
    has_rules = rules.errors is not None or bool(limits)
    found: list[str] = []
    if numbers.errors > (rules.errors if rules.errors is not None else 1.0 if has_rules else 0.0):
        found.append(f"{numbers.errors * FULL:g} % errors in {region}")
    for quantile, ms in sorted(numbers.latency_ms.items()):
        if ms > limits.get(quantile, float("inf") if has_rules else 0.0):
            found.append(f"p{quantile * FULL:g} {ms:g} ms in {region}")
    return found


def play(
    strategy: Strategy,
    sizes: Sequence[RegionSize],
    script: Sequence[PlayedFault] = (),
    *,
    start_ms: int = START_MS,
    pace: Pace = Pace(),  # noqa: B008 - frozen
    analysis: Analysis = two_bad_looks,
    approves: bool = False,
) -> Iterator[RehearsedMoment]:
    """Every moment at which something happens, until the rollout ends, is frozen, or nothing can happen any more.
    ``approves``: steps that wait for approval get it at once."""
    return _Play(strategy, sizes, script, start_ms, pace, analysis, approves).moments()


class _Play:
    def __init__(
        self,
        strategy: Strategy,
        sizes: Sequence[RegionSize],
        script: Sequence[PlayedFault],
        start_ms: int,
        pace: Pace,
        analysis: Analysis,
        approves: bool,
    ) -> None:
        self.strategy, self.start, self.now, self.pace = strategy, start_ms, start_ms, pace
        self.analysis, self.approves = analysis, approves
        self.regions = {each.name: PlayedRegion.serving(each, pace) for each in sizes}
        self.numbers = {each.name: PlayedNumbers() for each in sizes}
        self.script = sorted(script, key=lambda each: each.at_s)
        self.progress = begin(strategy, {each.name: each.name for each in sizes}, start_ms)
        self.served: dict[str, int] = {}  # requests of the candidate since the last look, in thousandths

    def moments(self) -> Iterator[RehearsedMoment]:
        yield self._moment(RolloutDecision(action="start", reason=_beginning(self.strategy), wave=0, step=0))
        for _ in range(MOMENTS):
            yield from self._now()
            if self.progress.phase in (ENDED, FROZEN):
                return
            later = self._next_ms()
            if later is None:
                return
            self._pass_to(max(later, self.now + 1))
        raise RuntimeError("the rehearsal does not end")

    def _now(self) -> Iterator[RehearsedMoment]:
        """Everything that is decided and done at this moment."""
        for region in self.regions.values():
            region.pass_to(self.now)
        yield from self._scripted()
        look = self._look()
        for _ in range(ROUNDS):
            changed = self._step_regions()
            before = self.progress
            self.progress, decision = decide(self.strategy, before, self._facts(look))
            look = None
            yield self._moment(decision, before)
            if self.approves and self._is_unapproved() and self.progress.settled_ms:
                yield from self._approve()
                continue
            if decision is None and not changed:
                return
            if self.progress.phase in (ENDED, FROZEN):
                return
        raise RuntimeError(f"decisions at one moment do not end: {self.progress}")

    def _step_regions(self) -> bool:
        goes_back = self.progress.phase == GOING_BACK
        changed = False
        for name, region in self.regions.items():
            if goes_back and not region.is_reverted:
                region.revert()
                changed = True
            goal = goal_of(self.strategy, self.progress, name, region.size)
            changed |= region.take(goal, self.now)
        return changed

    def _facts(self, look: AnalysisFacts | None) -> RolloutFacts:
        regions = {name: each.facts() for name, each in self.regions.items()}
        heard = [each for each in self.regions.values() if not each.is_lost]
        return RolloutFacts(
            now_ms=self.now, regions=regions, analysis=look, is_reverted=all(each.is_reverted for each in heard)
        )

    def _look(self) -> AnalysisFacts | None:
        due = self.progress.looked_ms + round(self.strategy.interval_s * 1000)
        if not self.strategy.is_judged or self.progress.phase != RUNNING or self.now < due:
            return None
        served, self.served = self.served, {}
        heard = {name for name, count in served.items() if count}
        wave = {name for name in self.regions if wave_of(self.progress, name) == self.progress.wave}
        if all(self.regions[name].is_lost for name in wave):  # nothing waits for a lost region
            wave = set(self.regions)
        here = [count for name, count in served.items() if name in wave]
        look = RehearsedLook(
            now_ms=self.now,
            requests=sum(here) // 1000,
            requests_before=self.progress.requests,
            numbers={name: self.numbers[name] for name in heard},
            state=self.progress.analysis,
        )
        return self.analysis(self.strategy, look)

    def _pass_to(self, later: int) -> None:
        for name, region in self.regions.items():
            if region.is_lost or self.numbers[name].is_silent:
                continue
            per_s = self.pace.requests_per_s * region.candidate.routed / FULL
            if not per_s and region.candidate.ready and testers_of(self.strategy, self.progress, name):
                per_s = 1.0
            self.served[name] = self.served.get(name, 0) + round(per_s * (later - self.now))
        self.now = later

    def _next_ms(self) -> int | None:
        times = [at for each in self.regions.values() if (at := each.next_ms()) is not None]
        times += [self.start + round(each.at_s * 1000) for each in self.script[:1]]
        due = due_ms(self.strategy, self.progress, self.now)
        return min([*times, *([due] if due else [])], default=None)

    def _scripted(self) -> Iterator[RehearsedMoment]:
        while self.script and self.start + self.script[0].at_s * 1000 <= self.now:
            fault = self.script.pop(0)
            for name, region in self.regions.items():
                if fault.region in ("", name):
                    self._happen(fault, region, self.numbers[name])
            said = RolloutDecision(
                action="fault", reason=shown_fault(fault), wave=self.progress.wave, step=self.progress.step
            )
            if not fault.approve:
                yield self._moment(said)
            elif self._is_unapproved():
                yield from self._approve()
            else:
                yield self._moment(replace(said, reason="an approval that nothing waits for"))

    def _happen(self, fault: PlayedFault, region: PlayedRegion, numbers: PlayedNumbers) -> None:
        numbers.errors = numbers.errors if fault.errors is None else fault.errors
        numbers.latency_ms |= dict(fault.latency_ms)
        numbers.is_silent = numbers.is_silent if fault.no_samples is None else fault.no_samples
        region.crashes = region.crashes if fault.crash is None else fault.crash
        region.is_lost = region.is_lost if fault.lost is None else fault.lost
        region.pass_to(self.now)

    def _is_unapproved(self) -> bool:
        at = self.progress
        is_step = at.phase == RUNNING and not at.is_hurried and at.step < len(self.strategy.steps)
        return is_step and not at.is_approved and self.strategy.steps[at.step].needs_approval

    def _approve(self) -> Iterator[RehearsedMoment]:
        try:
            self.progress, decision = resume(self.strategy, self.progress, APPROVER)
        except CommandRefused:
            return
        yield self._moment(replace(decision, reason="a person approves"))

    def _moment(self, decision: RolloutDecision | None, left: Progress | None = None) -> RehearsedMoment:
        return RehearsedMoment(
            at_ms=self.now - self.start, progress=self.progress, regions=self.regions, decision=decision, left=left
        )


def rehearse(
    strategy: Strategy,
    sizes: Sequence[RegionSize],
    script: Sequence[PlayedFault] = (),
    *,
    start_ms: int = START_MS,
    pace: Pace = Pace(),  # noqa: B008 - frozen
    analysis: Analysis = two_bad_looks,
    approves: bool = False,
) -> list[RehearsedRow]:
    """The rows of a table: one for each region that a decision concerns, and one for what has no region."""
    rows: list[RehearsedRow] = []
    hold = ""
    moments = play(strategy, sizes, script, start_ms=start_ms, pace=pace, analysis=analysis, approves=approves)
    for moment in moments:
        decision = moment.decision
        waits = moment.progress.hold if _is_worth_a_row(moment.progress) else ""
        if decision is not None:
            rows += _rows(strategy, moment, decision)
            hold = ""
        elif waits and waits != hold:
            said = RolloutDecision(action="hold", reason=waits, wave=moment.progress.wave, step=moment.progress.step)
            rows += _rows(strategy, moment, said)
            hold = waits
    return rows


def _is_worth_a_row(progress: Progress) -> bool:
    """Whether a rollout waits for something that is not only a matter of time."""
    is_held = bool(progress.settled_ms and progress.held_ms) and "last samples" not in progress.hold
    return progress.phase == RUNNING and (is_held or "maintenance window" in progress.hold)


def _rows(strategy: Strategy, moment: RehearsedMoment, decision: RolloutDecision) -> list[RehearsedRow]:
    progress = moment.progress
    wave = spec_of(strategy, progress, progress.wave)
    goes_back = progress.phase == GOING_BACK or progress.outcome == "rolledBack"
    everywhere = goes_back or progress.phase != RUNNING
    names = [
        name
        for name, region in moment.regions.items()
        if region.size and (everywhere or wave_of(progress, name) == progress.wave)
    ]
    found: list[RehearsedRow] = []
    for name in sorted(names):
        region = moment.regions[name]
        goal = goal_of(strategy, progress, name, region.size)
        weight, count = (FULL, region.size) if goal is None else (goal.weight, goal.count)
        stays = goal is not None and not goal.recreates
        if progress.phase == ENDED or goes_back:
            weight, count, stays = (0, 0, True) if goes_back else (FULL, region.size, False)
        found.append(
            RehearsedRow(
                at_s=moment.at_ms / 1000,
                wave=wave.name if wave is not None else str(progress.wave + 1),
                step=_step_name(strategy, progress),
                region=name,
                weight=weight,
                candidate=count,
                stable=region.size if stays else 0,
                decision=decision.action,
                reason=decision.reason,
            )
        )
    return found


def _step_name(strategy: Strategy, progress: Progress) -> str:
    if progress.phase != RUNNING:
        return progress.outcome or progress.phase
    if progress.step >= len(strategy.steps):
        return "all requests"
    return shown_step(strategy.steps[progress.step])


def shown_step(step: StepSpec) -> str:
    if step.kind in ("weight", "mirror"):
        return f"{step.kind} {step.percent} %"
    if step.kind == "replicas":
        return f"replicas {step.count}" if step.count else f"replicas {step.percent} %"
    if step.kind in ("header", "cookie"):
        return f"{step.kind} {step.name}={step.value}" if step.name else f"no {step.kind}"
    return f"{step.kind} {step.seconds:g} s" if step.seconds else "pause for approval"


def shown_fault(fault: PlayedFault) -> str:
    said = [f"{fault.errors * FULL:g} % errors"] if fault.errors is not None else []
    said += [f"p{quantile * FULL:g} {ms:g} ms" for quantile, ms in sorted(fault.latency_ms.items())]
    words = {"lost": fault.lost, "crashing": fault.crash, "without samples": fault.no_samples}
    said += [f"{'' if value else 'no longer '}{word}" for word, value in words.items() if value is not None]
    return f"{', '.join(said) or 'approval'} in {fault.region or 'all regions'}"


def _beginning(strategy: Strategy) -> str:
    return f"strategy {strategy.kind}" + (f", first {shown_step(strategy.steps[0])}" if strategy.steps else "")
