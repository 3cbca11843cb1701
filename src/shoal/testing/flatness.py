"""Whether a figure stays flat while something runs for a long time: memory, open files, latency.

    found = verdict("memory_mb", samples, Tolerance(part=0.05, more=10.0))
    assert found.flat, found

A figure grows by its slope, which is the median of the slopes between all pairs of samples (Theil and Sen): a sample
taken during a pause of the machine does not change it, as it would a straight line through all of them. The first
samples are left out: caches fill, and the allocator finds its size.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

Point = tuple[float, float]  # seconds since the start, value

WARM_UP = 0.25
FEWEST = 5  # samples after the warm-up


@dataclass(frozen=True, slots=True)
class Tolerance:
    """By how much a figure may grow over the time that is judged: a part of its median, and an amount."""

    part: float
    more: float

    def of(self, median: float) -> float:
        return self.part * median + self.more


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The growth of one figure over ``seconds``."""

    figure: str
    samples: int
    seconds: float
    median: float
    growth: float
    allowed: float

    @property
    def flat(self) -> bool:
        return self.growth <= self.allowed


def slope(points: Sequence[Point]) -> float:
    """The median of the slopes of all pairs, per second; 0 for fewer than two instants."""
    slopes = [(second[1] - first[1]) / (second[0] - first[0]) for first, second in combinations(points, 2)
              if second[0] != first[0]]  # fmt: skip
    return statistics.median(slopes) if slopes else 0.0


def after_warm_up(points: Sequence[Point], warm_up: float = WARM_UP) -> Sequence[Point]:
    """The points of the last part of the time; ``warm_up`` is the part that is left out."""
    if not points:
        return ()
    begin_s = points[0][0] + warm_up * (points[-1][0] - points[0][0])
    return [point for point in points if point[0] >= begin_s]


def verdict(figure: str, points: Sequence[Point], tolerance: Tolerance, *, warm_up: float = WARM_UP) -> Verdict:
    """Judge a figure by its samples in the order of time; ValueError when there are too few of them."""
    kept = after_warm_up(points, warm_up)
    if len(kept) < FEWEST:
        raise ValueError(f"{figure} has {len(kept)} samples after the warm-up; {FEWEST} are needed: measure for longer")
    seconds = kept[-1][0] - kept[0][0]
    median = statistics.median(value for _, value in kept)
    return Verdict(
        figure=figure, samples=len(kept), seconds=seconds, median=median, growth=slope(kept) * seconds,
        allowed=tolerance.of(median),
    )  # fmt: skip
