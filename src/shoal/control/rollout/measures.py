"""What a candidate is judged by: failures and slow requests, each against a limit or against stable. Pure.

A measure turns what both revisions did in one region and window into factors of evidence against the candidate, one for
each of its alternatives, and says in words what it has found.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Protocol

from shoal.control.rollout.sequential import limit_factors, split_factors
from shoal.control.rollout.strategy import AbortSpec, LatencyLimit

ERROR_SHARE = 0.002  # of its requests the candidate may fail, whatever stable does,
ERROR_RATIO = 1.25  # or so many times stable's share
SLOWER_RATIO = 1.1  # it may be so many times as slow as stable,
SLOWER_MS = 5.0  # or slower by this, whichever is more
NOTICED = 0.05  # the share of failing or slow requests that analysis is to notice

_ERROR_ODDS = (2.0, 5.0, 20.0)
_QUANTILES = (0.5, 0.5, 0.9, 0.9, 0.99, 0.99)
_SLOW_ODDS = (1.2, 3.0, 1.3, 5.0, 2.0, 30.0)  # alternatives, one for each quantile
_PAST_REQUESTS = 100  # of stable, before its quantiles are used
_LEAST_LIMIT, _LARGEST_LIMIT = 1e-4, 0.999  # a share of 0 could be shown by one request, one of 1 by none


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """Requests of one revision in one region, in one window."""

    requests: int
    failed: int  # with 5xx, or at their first try
    latency: tuple[int, ...]  # by bucket of the bounds, and beyond all


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """Sums of counts, as words need them."""

    candidate: int  # number of the revision
    stable: int
    where: str  # " in us", or nothing for all regions
    candidate_counts: Counts
    stable_counts: Counts


class Measure(Protocol):
    @property
    def key(self) -> str: ...

    @property
    def weight(self) -> float:
        """Of all measures together: 1."""

    @property
    def components(self) -> int: ...

    @property
    def needs_stable(self) -> bool: ...

    @property
    def defect(self) -> float:
        """A share that it is to notice."""

    def factors(self, candidate: Counts, stable: Counts | None, past: Sequence[int]) -> Sequence[float]:
        """Logarithms of evidence; none where nothing can be said. ``past`` is stable's latency before this window."""

    def words(self, totals: Totals, component: int) -> str: ...


def measures(abort: AbortSpec, bounds_ms: tuple[float, ...]) -> list[Measure]:
    """Half of the false alarms that are allowed for failures, half for latency, evenly among its limits."""
    found: list[Measure] = [
        ErrorComparison() if abort.errors is None else ErrorLimit(_clamped(abort.errors), abort.errors)
    ]
    share = 0.5 / max(1, len(abort.latency))
    found += [SlowLimit(each, bounds_ms, share) for each in abort.latency]
    return found if abort.latency else [*found, SlowComparison(bounds_ms)]


@dataclass(frozen=True, slots=True)
class ErrorLimit:
    """The candidate's share of failures against a limit."""

    limit: float
    written: float
    key: str = "errors"
    weight: float = 0.5
    components: int = 3
    needs_stable: bool = False

    @property
    def defect(self) -> float:
        return _defect(self.limit)

    def factors(self, candidate: Counts, stable: Counts | None, past: Sequence[int]) -> Sequence[float]:
        return limit_factors(candidate.failed, candidate.requests, self.limit)

    def words(self, totals: Totals, component: int) -> str:
        return f"{_failures(totals)}, the limit is {self.written * 100:g} %"


@dataclass(frozen=True, slots=True)
class ErrorComparison:
    """The candidate's share of failures against stable's in the same window.

    It may be as large as ``ERROR_SHARE`` or ``ERROR_RATIO`` times stable's. Evidence must speak against both, so the
    smaller factor of each window counts: which of the two holds may change from window to window.
    """

    key: str = "errors"
    weight: float = 0.5
    components: int = 3
    needs_stable: bool = True
    defect: float = NOTICED

    def factors(self, candidate: Counts, stable: Counts | None, past: Sequence[int]) -> Sequence[float]:
        if stable is None or not stable.requests:
            return ()
        odds = ERROR_RATIO * candidate.requests / stable.requests
        return list(
            map(
                min,
                limit_factors(candidate.failed, candidate.requests, ERROR_SHARE),
                split_factors(candidate.failed, stable.failed, odds, _ERROR_ODDS),
            )
        )

    def words(self, totals: Totals, component: int) -> str:
        stable = totals.stable_counts
        return (
            f"{_failures(totals)}, {_percent(stable.failed, stable.requests)} of {_number(stable.requests)} "
            f"to revision {totals.stable}"
        )


@dataclass(frozen=True, slots=True)
class SlowLimit:
    """The candidate's share of requests above a limit of milliseconds, at most ``1 - quantile``.

    A limit inside a bucket acts as the bucket's upper bound: requests in that bucket count as fast enough, since
    spreading them over the bucket would see some above the limit that were not.
    """

    rule: LatencyLimit
    bounds_ms: tuple[float, ...]
    weight: float = 0.5
    components: int = 3
    needs_stable: bool = False

    @property
    def key(self) -> str:
        return f"latency:{self.rule.quantile:g}:{self.rule.ms:g}"

    @property
    def defect(self) -> float:
        return _defect(_clamped(1.0 - self.rule.quantile))

    def factors(self, candidate: Counts, stable: Counts | None, past: Sequence[int]) -> Sequence[float]:
        requests = sum(candidate.latency)
        if not requests:
            return ()
        slow = sum(candidate.latency[bisect_left(self.bounds_ms, self.rule.ms) + 1 :])
        return limit_factors(slow, requests, _clamped(1.0 - self.rule.quantile))

    def words(self, totals: Totals, component: int) -> str:
        value = _quantile(totals.candidate_counts.latency, self.rule.quantile, self.bounds_ms)
        return (
            f"p{self.rule.quantile * 100:g} of revision {totals.candidate} is {value}{totals.where}, "
            f"the limit is {self.rule.ms:g} ms"
        )


class SlowComparison:
    """The candidate's latency against stable's in the same window, at thresholds that are stable's quantiles so far.

    With an equal distribution, shifted by what is tolerated, no more of the candidate's requests are beyond a shifted
    threshold than of stable's beyond the threshold itself. Only the split of these between the two is looked at, so
    what slows both down in a window says nothing.
    """

    key = "latency"
    weight = 0.5
    components = len(_QUANTILES)
    needs_stable = True
    defect = NOTICED

    def __init__(self, bounds_ms: tuple[float, ...]) -> None:
        self.bounds_ms = bounds_ms
        self._shifted = [_place(bounds_ms, max(each * SLOWER_RATIO, each + SLOWER_MS)) for each in bounds_ms]

    def factors(self, candidate: Counts, stable: Counts | None, past: Sequence[int]) -> Sequence[float]:
        requests, others = sum(candidate.latency), sum(stable.latency) if stable is not None else 0
        total = sum(past)
        if stable is None or not requests or not others or total < _PAST_REQUESTS:
            return ()
        odds = requests / others
        below = list(accumulate(past))
        found: list[float] = []
        for quantile, alternative in zip(_QUANTILES, _SLOW_ODDS, strict=True):
            at = bisect_left(below, quantile * total)
            if at >= len(self.bounds_ms):
                found.append(0.0)  # stable's quantile is beyond all bounds
                continue
            bucket, part = self._shifted[at]
            slow = sum(candidate.latency[bucket + 1 :]) + part * candidate.latency[bucket]
            found += split_factors(slow, sum(stable.latency[at + 1 :]), odds, (alternative,))
        return found

    def words(self, totals: Totals, component: int) -> str:
        quantile = _QUANTILES[component]
        value = _quantile(totals.candidate_counts.latency, quantile, self.bounds_ms)
        other = _quantile(totals.stable_counts.latency, quantile, self.bounds_ms)
        return (
            f"p{quantile * 100:g} of revision {totals.candidate} is {value}{totals.where}, "
            f"{other} of revision {totals.stable}"
        )


def _place(bounds_ms: Sequence[float], ms: float) -> tuple[int, float]:
    """The bucket that ``ms`` is in, and the part of its requests that count as slower than ``ms``.

    The part is that of a density that falls to a third from the lower bound to the upper one. Latency falls less
    steeply nearly everywhere, so the part is too small rather than too large, in favour of the candidate.
    """
    bucket = bisect_left(bounds_ms, ms)
    if bucket == len(bounds_ms):
        return bucket, 0.0
    low = bounds_ms[bucket - 1] if bucket else 0.0
    above = (bounds_ms[bucket] - ms) / (bounds_ms[bucket] - low)
    return bucket, above * (1.0 + above) / 2


def _quantile(latency: Sequence[int], quantile: float, bounds_ms: Sequence[float]) -> str:
    """For people: interpolated within its bucket."""
    total = sum(latency)
    if not total:
        return "unknown"
    below = 0
    for at, count in enumerate(latency):
        if count and below + count >= quantile * total:
            if at >= len(bounds_ms):
                break
            low = bounds_ms[at - 1] if at else 0.0
            value = low + (bounds_ms[at] - low) * (quantile * total - below) / count
            return f"{value:.0f} ms" if value >= 10 else f"{value:.1f} ms"
        below += count
    return f"more than {bounds_ms[-1]:g} ms"


def _defect(limit: float) -> float:
    return max(NOTICED, min(5 * limit, (1.0 + limit) / 2))


def _clamped(limit: float) -> float:
    return min(max(limit, _LEAST_LIMIT), _LARGEST_LIMIT)


def _failures(totals: Totals) -> str:
    mine = totals.candidate_counts
    return (
        f"{_percent(mine.failed, mine.requests)} of {_number(mine.requests)} requests to revision {totals.candidate} "
        f"failed{totals.where}"
    )


def _percent(count: int, of: int) -> str:
    return f"{100 * count / of if of else 0:.1f} %"


def _number(value: int) -> str:
    return f"{value:,}".replace(",", " ")
