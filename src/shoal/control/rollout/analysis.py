"""Judges a candidate against stable from the requests that gateways counted, one window at a time. Pure.

    outcome        when
    fail           the evidence against the candidate has reached 100; a good one gets there in at most 1 % of rollouts
    inconclusive   no samples, silent gateways, fewer requests than its weight means, or too few to notice a bad one
    pass           everything else

``look`` takes what it returned before and one window. Windows should be as short as the samples (5 s): a window is one
observation, per region where revisions are compared, however many requests it has, so that requests may fail together.
What a step has seen begins again when ``Rules.since_ms`` changes; evidence goes on for the whole rollout. A failure is
final.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from functools import lru_cache
from math import ceil, floor
from typing import Any

from shoal.control.rollout.measures import Counts, Measure, Totals, brings, measures
from shoal.control.rollout.progress import AnalysisFacts
from shoal.control.rollout.sequential import begun, started, strongest
from shoal.control.rollout.strategy import AbortSpec

_EVENTS = 30  # of a defect, that a step waits for: so many requests of the candidate that it would have had them
_REACH = 12.0  # logarithm of the evidence that a step's warm windows could have brought, from a bad candidate
_ANEW_MS = 120_000  # within a step the tests begin anew: a defect may begin late
_SHOWN = 100  # requests; with fewer in a step, words are about the step before it too
_PAST = 50_000  # requests of stable whose latency is remembered: half is forgotten when there are more
_TOGETHER = 0.75  # of the false alarms that are allowed: for all regions together; the rest evenly for regions
_FEW, _FEW_EXPECTED = 0.5, 30.0  # so much less than its weight means is too little, once that is so many requests


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """One time, in all regions. A region with stale samples is absent."""

    until_ms: int
    candidate: Mapping[str, Counts]  # by region id
    stable: Mapping[str, Counts]
    stale: tuple[str, ...] = ()  # names of regions whose gateways are silent


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    abort: AbortSpec
    bounds_ms: tuple[float, ...]
    regions: Mapping[str, str]  # names by id, of all regions of the rollout
    candidate: int  # number of the revision
    stable: int
    since_ms: int  # when the step was entered
    warm_until_ms: int = 0  # latency of windows that end before is left out: instances that begin are slow
    weights: Mapping[str, int] = field(default_factory=dict)  # percents by region id that all gateways have taken


@dataclass(slots=True, kw_only=True)
class _Memory:
    """What is carried from look to look. Sums are lists: requests, failed, and then the buckets of latency."""

    since_ms: int = -1
    starts: int = 0  # how often the tests have begun: with every step, and in long ones from time to time
    started_ms: int = 0
    regions: int = 0  # at the first look: so many have tests of their own, those that come later only a common one
    own: list[str] = field(default_factory=list)  # the regions that have
    evidence: dict[str, list[float]] = field(default_factory=dict)  # by measure and region; all regions: ""
    candidate: dict[str, list[int]] = field(default_factory=dict)  # sums of this step by region
    stable: dict[str, list[int]] = field(default_factory=dict)
    candidate_before: dict[str, list[int]] = field(default_factory=dict)  # of the step before
    stable_before: dict[str, list[int]] = field(default_factory=dict)
    past: dict[str, list[int]] = field(default_factory=dict)  # stable's latency by region
    expected: dict[str, float] = field(default_factory=dict)  # requests that the weights mean, by region
    got: dict[str, int] = field(default_factory=dict)
    reach: float = 0.0
    failure: str = ""

    @classmethod
    def of(cls, state: dict[str, Any]) -> _Memory:
        """Containers are copied, lists of numbers are replaced and never changed."""
        return cls(**{name: copy(state[name]) for name in cls.__slots__ if name in state})

    def json(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in _Memory.__slots__}


def look(rules: Rules, state: dict[str, Any], window: Window) -> AnalysisFacts:
    """What the evidence is after one more window. ``state`` is what the look before returned, {} at the beginning."""
    memory = _entered(rules, _Memory.of(state), window.until_ms)
    judged = _measures(rules.abort, rules.bounds_ms)
    for region in sorted({*window.candidate, *window.stable}):
        _take(rules, judged, memory, window, region)
    _take_together(rules, judged, memory, window)
    for region, counts in window.stable.items():  # only now: thresholds come from earlier windows
        memory.past[region] = _remembered(memory.past.get(region), counts.latency)
    if not memory.failure:
        memory.failure = _failure(rules, judged, memory)
    holds = memory.failure or _hold(rules, judged, memory, window)
    outcome = "fail" if memory.failure else "inconclusive" if holds else "pass"
    return AnalysisFacts(
        until_ms=window.until_ms,
        outcome=outcome,
        reason=holds or _passed(rules, judged, memory),
        requests=_requests(memory.candidate),
        state=memory.json(),
        has_enough=outcome == "pass",
    )


def _entered(rules: Rules, memory: _Memory, until_ms: int) -> _Memory:
    is_new_step = memory.since_ms != rules.since_ms
    if not memory.starts:
        memory.regions = max(1, len(rules.regions))
    if is_new_step or until_ms >= memory.started_ms + _ANEW_MS:
        memory.starts, memory.started_ms = memory.starts + 1, until_ms
        memory.evidence = {key: started(each, memory.starts) for key, each in memory.evidence.items()}
    if not is_new_step:
        return memory
    memory.since_ms = rules.since_ms
    memory.candidate_before, memory.stable_before = memory.candidate, memory.stable
    memory.candidate, memory.stable, memory.expected, memory.got, memory.reach = {}, {}, {}, {}, 0.0
    return memory


def _take(rules: Rules, judged: Iterable[Measure], memory: _Memory, window: Window, region: str) -> None:
    """Add what a region did in a window to its sums, and to the evidence of the region and of all of them."""
    candidate, stable = window.candidate.get(region), window.stable.get(region)
    mine, others = candidate.requests if candidate else 0, stable.requests if stable else 0
    if weight := rules.weights.get(region):
        memory.expected[region] = memory.expected.get(region, 0.0) + weight / 100 * (mine + others)
        memory.got[region] = memory.got.get(region, 0) + mine
    if stable is not None:
        memory.stable[region] = _plus(memory.stable.get(region), stable)
    if candidate is None:
        return
    memory.candidate[region] = _plus(memory.candidate.get(region), candidate)
    if not mine:
        return
    is_cold = window.until_ms < rules.warm_until_ms
    if others and not is_cold:
        memory.reach += brings(mine, others)
    if region not in memory.own and len(memory.own) < memory.regions:
        memory.own.append(region)
    past = memory.past.get(region, [])
    for measure in judged:
        if is_cold and measure.key.startswith("latency"):
            continue
        factors = measure.factors(candidate, stable, past)
        if not factors:
            continue
        if region in memory.own:
            _add(memory, f"{measure.key}/{region}", factors)
        if measure.needs_stable:
            _add(memory, f"{measure.key}/", factors)


def _take_together(rules: Rules, judged: Iterable[Measure], memory: _Memory, window: Window) -> None:
    """Add what all regions did to the evidence against limits: a fault that they share is one observation."""
    limits = [each for each in judged if not each.needs_stable]
    known = [each for each in window.candidate.values() if each.requests]
    if not known or not limits:
        return
    requests, failed, *latency = (sum(at) for at in zip(*map(_numbers, known), strict=True))
    together = Counts(requests=requests, failed=failed, latency=tuple(latency))
    for measure in limits:
        if window.until_ms < rules.warm_until_ms and measure.key.startswith("latency"):
            continue
        if factors := measure.factors(together, None, ()):
            _add(memory, f"{measure.key}/", factors)


def _add(memory: _Memory, key: str, factors: Sequence[float]) -> None:
    known = memory.evidence.get(key) or begun(memory.starts, len(factors))
    memory.evidence[key] = [a + b for a, b in zip(known, factors, strict=True)]


def _failure(rules: Rules, judged: Iterable[Measure], memory: _Memory) -> str:
    by_key = {each.key: each for each in judged}
    weights: dict[str, float] = {}
    for key in memory.evidence:
        measure, _, region = key.rpartition("/")
        if measure in by_key:  # else its rule was changed
            part = (1.0 - _TOGETHER) / memory.regions if region else _TOGETHER
            weights[key] = by_key[measure].weight * part
    found = strongest(memory.evidence, weights)
    if not found.rejects:
        return ""
    measure, _, region = found.key.rpartition("/")
    return by_key[measure].words(_totals(rules, memory, region), found.component)


def _hold(rules: Rules, judged: Iterable[Measure], memory: _Memory, window: Window) -> str:
    """Why nothing can be said yet; empty when there is enough to pass."""
    if window.stale:
        return f"gateways in {', '.join(sorted(window.stale))} are silent: waiting for their samples"
    if not window.candidate:
        return f"no samples of revision {rules.candidate} from any gateway"
    for region, expected in sorted(memory.expected.items()):
        if expected >= _FEW_EXPECTED and memory.got[region] < _FEW * expected:
            return (
                f"revision {rules.candidate} got {memory.got[region]} requests in {rules.regions.get(region, region)}, "
                f"its weight of {rules.weights.get(region, 0)} % means about {expected:.0f}"
            )
    enough = max(ceil(_EVENTS / each.defect) for each in judged)
    needed = rules.abort.min_requests or enough
    requests = _requests(memory.candidate)
    if requests < needed:
        return f"{requests} of {needed} requests to revision {rules.candidate} that a judgement needs"
    if any(each.needs_stable for each in judged):
        others = _requests(memory.stable)
        if others < needed:
            return (
                f"revision {rules.stable} got {others} requests, comparing with it needs {needed}: "
                "wait, or set limits for errors and latency"
            )
        reach = _REACH * min(1.0, needed / enough)
        if memory.reach < reach:
            percent = floor(100 * memory.reach / reach)
            return f"{percent} % of the samples that comparing with revision {rules.stable} needs"
    return ""


def _passed(rules: Rules, judged: Iterable[Measure], memory: _Memory) -> str:
    totals = _totals(rules, memory, "")
    return "; ".join(each.words(totals, each.components - 1) for each in judged)


def _totals(rules: Rules, memory: _Memory, region: str) -> Totals:
    """Of a region, or of all of them."""

    def sums(*found: dict[str, list[int]]) -> Counts:
        each = [counts for by_id in found for id_, counts in by_id.items() if region in ("", id_)]
        requests, failed, *latency = [sum(at) for at in zip(*each, strict=True)] or (0, 0)
        return Counts(requests=requests, failed=failed, latency=tuple(latency))

    candidate, stable = sums(memory.candidate), sums(memory.stable)
    if candidate.requests < _SHOWN:
        candidate = sums(memory.candidate, memory.candidate_before)
        stable = sums(memory.stable, memory.stable_before)
    where = f" in {rules.regions.get(region, region)}" if region else ""
    return Totals(
        candidate=rules.candidate,
        stable=rules.stable,
        where=where,
        candidate_counts=candidate,
        stable_counts=stable,
    )


def _requests(sums: Mapping[str, list[int]]) -> int:
    return sum(each[0] for each in sums.values())


def _plus(known: list[int] | None, counts: Counts) -> list[int]:
    more = _numbers(counts)
    return list(more) if known is None else [a + b for a, b in zip(known, more, strict=True)]


def _numbers(counts: Counts) -> tuple[int, ...]:
    return (counts.requests, counts.failed, *counts.latency)


def _remembered(known: list[int] | None, latency: tuple[int, ...]) -> list[int]:
    found = list(latency) if known is None else [a + b for a, b in zip(known, latency, strict=True)]
    return found if sum(found) <= _PAST else [each // 2 for each in found]


@lru_cache(maxsize=64)
def _measures(abort: AbortSpec, bounds_ms: tuple[float, ...]) -> tuple[Measure, ...]:
    return tuple(measures(abort, bounds_ms))
