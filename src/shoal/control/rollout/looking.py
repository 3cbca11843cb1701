"""The windows that an analysis looks at, made of the gateways' samples. Pure.

A window is as long as a sample, and has the candidate and stable of every region whose gateways have been heard of up
to its end. A region whose gateways are silent is left out and named.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from shoal.control.rollout.analysis import Rules, Window, look
from shoal.control.rollout.measures import Counts
from shoal.control.rollout.progress import AnalysisFacts, Progress
from shoal.control.rollout.samples import TrafficSample

WINDOW_MS = 5000
STALE_MS = 20_000  # gateways are heard of every 15 s at the latest
MOST_WINDOWS = 60  # of one look: what is older was missed while no control plane was there, and is not judged
WARM_MS = 10_000 + WINDOW_MS  # after a step has settled: instances that have just begun are slow, for 10 s


@dataclass(frozen=True, slots=True)
class JudgedRegion:
    """A region in which the candidate gets requests, and the deployments that serve there."""

    name: str
    candidate: str  # id of its deployment
    stable: str
    weight: int  # percent of the requests that all gateways send to it; 0: none, or they do not agree yet
    is_copied: bool = False  # users' requests do not reach it by weight: copies of them are judged


def heard_until(regions: Mapping[str, JudgedRegion], newest: Mapping[str, int], now_ms: int) -> dict[str, int]:
    """By region, up to when its samples are known; without those whose gateways are silent."""
    return {id_: newest[id_] for id_ in regions if newest.get(id_, 0) >= now_ms - STALE_MS}


def span_of(progress: Progress, heard: Mapping[str, int]) -> tuple[int, int]:
    """From when to when samples are looked at now: whole windows, up to the region that was heard of least."""
    until = min(heard.values(), default=0)
    until -= until % WINDOW_MS
    first = progress.looked_ms + -progress.looked_ms % WINDOW_MS
    return max(first, until - MOST_WINDOWS * WINDOW_MS), until


def windows(
    samples: Iterable[TrafficSample],
    regions: Mapping[str, JudgedRegion],
    heard: Mapping[str, int],
    span: tuple[int, int],
) -> list[Window]:
    stale = tuple(sorted(each.name for id_, each in regions.items() if id_ not in heard))
    candidates: dict[int, dict[str, Counts]] = {}
    stables: dict[int, dict[str, Counts]] = {}
    for sample in samples:
        region = regions.get(sample.region)
        if region is None or sample.region not in heard:
            continue
        to = candidates if sample.deployment == region.candidate else stables
        known = to.setdefault(sample.from_ms - sample.from_ms % WINDOW_MS, {})
        counts = Counts(requests=sample.requests, failed=sample.failed, latency=sample.latency)
        known[sample.region] = _plus(known[sample.region], counts) if sample.region in known else counts
    return [
        Window(until_ms=at + WINDOW_MS, candidate=candidates.get(at, {}), stable=stables.get(at, {}), stale=stale)
        for at in range(span[0], span[1], WINDOW_MS)
    ]


def judge(rules: Rules, progress: Progress, found: Sequence[Window]) -> AnalysisFacts | None:
    """What the windows say, one after the other; a failure ends it."""
    facts: AnalysisFacts | None = None
    for window in found:
        facts = look(rules, progress.analysis if facts is None else facts.state, window)
        if facts.outcome == "fail":
            break
    return facts


def of_wave(facts: AnalysisFacts, wave: Iterable[str]) -> AnalysisFacts:
    """Requests of earlier waves let no step of a later one pass: each region of its wave must have some."""
    sums = facts.state.get("candidate") or {}
    return facts if all(sums.get(id_, [0])[0] for id_ in wave) else replace(facts, has_enough=False)


def silent(progress: Progress, regions: Mapping[str, JudgedRegion]) -> AnalysisFacts:
    """No gateway of any region was heard of: nothing is known, and the step holds."""
    names = ", ".join(sorted(each.name for each in regions.values()))
    return AnalysisFacts(
        until_ms=progress.looked_ms,
        outcome="inconclusive",
        reason=f"gateways in {names} are silent: waiting for their samples",
        requests=progress.requests,
        state=progress.analysis,
    )


def with_numbers(facts: AnalysisFacts, found: Sequence[Window], regions: Mapping[str, JudgedRegion]) -> AnalysisFacts:
    """With the counts of this look by region, as decisions are stored with them."""
    numbers = {
        each.name: {
            "candidate": _shown(window.candidate.get(id_) for window in found),
            "stable": _shown(window.stable.get(id_) for window in found),
        }
        for id_, each in sorted(regions.items(), key=lambda one: one[1].name)
    }
    return replace(facts, numbers=numbers)


def _shown(counts: Iterable[Counts | None]) -> dict[str, int]:
    known = [each for each in counts if each is not None]
    return {"requests": sum(each.requests for each in known), "failed": sum(each.failed for each in known)}


def _plus(one: Counts, other: Counts) -> Counts:
    latency = tuple(a + b for a, b in zip(one.latency, other.latency, strict=True))
    return Counts(requests=one.requests + other.requests, failed=one.failed + other.failed, latency=latency)
