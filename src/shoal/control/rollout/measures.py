"""What a candidate is judged by: failures and slow requests, each against a limit or against stable. Pure.

A measure turns what both revisions did in one region and window into factors of evidence against the candidate, one for
each of its alternatives, and says in words what it has found.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Protocol

from shoal.control.rollout.sequential import STAKE, TIMES, fair_full, filled, gap_factor, limit_factors, most_filled
from shoal.control.rollout.strategy import AbortSpec, LatencyLimit

ERROR_SHARE = 0.002  # of its requests the candidate may fail, whatever stable does,
ERROR_RATIO = 1.25  # or so many times stable's share
SLOWER_RATIO = 1.1  # it may be so many times as slow as stable,
SLOWER_MS = 20.0  # or slower by this, whichever is more
SLOW_RATIO = 1.25  # of its requests, so many times stable's share may be beyond stable's p95 and p99
NOTICED = 0.05  # the share of failing or slow requests that analysis is to notice

_ERRORS_FULL = 20 * ERROR_SHARE  # a window in which more fail is no worse
_STAKES = (STAKE, 0.4)  # for much worse than stable, and for a little
_MOST, _MOST_FULL = 0.9, 0.5  # alternatives of latency: half of the requests are beyond stable's p90;
_BODY = ((0.4, 0.65), (0.65, 0.9))  # all are slower, on average of two thresholds between these quantiles;
_BODY_TIMES, _BODY_LEAST = 1.4, 0.15  # so many times as many as stable has count in full, but at least this share
_TAIL = ((0.95, 0.15), (0.99, 0.05))  # few are much slower, which must show at both quantiles
_SHOWN = (0.9, 0.5, 0.99)  # quantiles in words, one for each alternative
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
    def needs_stable(self) -> bool:
        """Whether it compares. Faults that regions share are stable's too then, so a window of a region is one
        observation; against a limit, a window of all regions together is."""

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


def brings(requests: int, others: int) -> float:
    """Logarithm of the evidence that a window would bring by comparing, from a candidate with ``NOTICED`` failures."""
    full = fair_full(_ERRORS_FULL, requests, others)
    return gap_factor(min(1.0, requests * NOTICED, NOTICED / full))


@dataclass(frozen=True, slots=True)
class ErrorLimit:
    """The candidate's share of failures against a limit."""

    limit: float
    written: float
    weight: float = 0.5
    components: int = len(TIMES)
    needs_stable: bool = False

    @property
    def key(self) -> str:
        return f"errors:{self.written:g}"

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

    It may be as large as ``ERROR_SHARE`` or ``ERROR_RATIO`` times stable's. The larger of the two is subtracted in each
    window: which of them holds may change from window to window.
    """

    key: str = "errors"
    weight: float = 0.5
    components: int = len(_STAKES)
    needs_stable: bool = True
    defect: float = NOTICED

    def factors(self, candidate: Counts, stable: Counts | None, past: Sequence[int]) -> Sequence[float]:
        if stable is None or not stable.requests:
            return ()
        full = fair_full(_ERRORS_FULL, candidate.requests, stable.requests)
        allowed = max(
            most_filled(ERROR_SHARE, candidate.requests, full),
            filled(ERROR_RATIO * stable.failed / stable.requests, full),
        )
        gap = filled(candidate.failed / candidate.requests, full) - allowed
        return [gap_factor(gap, stake) for stake in _STAKES]

    def words(self, totals: Totals, component: int) -> str:
        stable = totals.stable_counts
        return (
            f"{_failures(totals)}, {_percent(stable.failed, stable.requests)} of {_number(stable.requests)} "
            f"to revision {totals.stable}"
        )


@dataclass(frozen=True, slots=True)
class SlowLimit:
    """The candidate's share of requests above a limit of milliseconds, at most ``1 - quantile``.

    A limit inside a bucket acts as the bucket's upper bound, at most a fifth later: requests in that bucket count as
    fast enough, since spreading them over the bucket would see some above the limit that were not.
    """

    rule: LatencyLimit
    bounds_ms: tuple[float, ...]
    weight: float = 0.5
    components: int = len(TIMES)
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
    """The candidate's latency against stable's in the same window, at thresholds from stable's latency so far.

    The candidate may take ``SLOWER_RATIO`` times as long as stable, or ``SLOWER_MS`` longer. Its requests beyond a
    threshold with that added, rounded up to a bound of the buckets, are compared with stable's beyond the threshold
    itself. So what slows both down in a window says nothing, and neither does any shift within what is allowed,
    whatever the distribution is. Few requests that are much slower must show at both p95 and p99: the smaller gap
    counts. Beyond a quantile stable counts as what the quantile means at least, so that a few slow
    requests beside a stable without any are not taken for a shift.
    """

    key = "latency"
    weight = 0.5
    components = len(_SHOWN)
    needs_stable = True
    defect = NOTICED

    def __init__(self, bounds_ms: tuple[float, ...]) -> None:
        shifted = [max(each * SLOWER_RATIO, each + SLOWER_MS) for each in bounds_ms]
        self._bounds_ms = bounds_ms
        self._shifted = [bisect_left(bounds_ms, each) for each in shifted]
        last = len(bounds_ms) - 1
        self._coarse = [bounds_ms[min(to, last)] / each for to, each in zip(self._shifted, bounds_ms, strict=True)]

    def factors(self, candidate: Counts, stable: Counts | None, past: Sequence[int]) -> Sequence[float]:
        requests, others = sum(candidate.latency), sum(stable.latency) if stable is not None else 0
        total = sum(past)
        if stable is None or not requests or not others or total < _PAST_REQUESTS:
            return ()
        below = list(accumulate(past))

        def gap(at: int, full: float, least: float = 0.0, ratio: float = 1.0) -> float:
            if at >= len(self._bounds_ms):
                return 0.0  # stable's quantile is beyond all bounds
            room = fair_full(full, requests, others)
            slow = sum(candidate.latency[self._shifted[at] + 1 :]) / requests
            allowed = max(least, ratio * sum(stable.latency[at + 1 :]) / others)
            return filled(slow, room) - filled(allowed, room)

        def beyond(quantile: float, full: float, ratio: float = 1.0) -> float:
            return gap(bisect_left(below, quantile * total), full, 1.0 - quantile, ratio)

        def body(low: float, high: float) -> float:
            at = self._sharpest(below, low * total, high * total)
            return gap(at, max(_BODY_LEAST, _BODY_TIMES * (1.0 - below[at] / total)))

        gaps = (
            beyond(_MOST, _MOST_FULL),
            sum(body(*each) for each in _BODY) / len(_BODY),
            min(beyond(quantile, full, SLOW_RATIO) for quantile, full in _TAIL),
        )
        return [gap_factor(each) for each in gaps]

    def words(self, totals: Totals, component: int) -> str:
        quantile = _SHOWN[component]
        value = _quantile(totals.candidate_counts.latency, quantile, self._bounds_ms)
        other = _quantile(totals.stable_counts.latency, quantile, self._bounds_ms)
        return (
            f"p{quantile * 100:g} of revision {totals.candidate} is {value}{totals.where}, "
            f"{other} of revision {totals.stable}"
        )

    def _sharpest(self, below: Sequence[int], low: float, high: float) -> int:
        """Of the bounds that have between ``low`` and ``high`` requests below, the one that rounding moves least."""
        first, end = bisect_left(below, low), bisect_right(below, high)
        possible = range(first, min(end, len(self._bounds_ms)))
        return min(possible, key=self._coarse.__getitem__, default=first)


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
