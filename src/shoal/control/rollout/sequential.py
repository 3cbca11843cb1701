"""Tests that may be looked at after every window: *e-values*, evidence against "the candidate is good enough". Pure.

An e-value is at most 1 in expectation while the claim holds. Products over windows and weighted averages over tests
keep that, so the chance that such a number ever reaches 100 is at most 1 % (Ville), however often it is looked at.

Against a limit, every window gives one *share* between 0 and 1, whose mean is known if the claim holds, and a factor
``1 + stake x (share - mean)``. Compared with stable it gives a *gap* between -1 and 1, whose mean is at most 0, and a
factor ``1 + stake x gap``. Nothing else is assumed: requests of one window may fail together in any way, and the factor
is still an e-value, because it looks at the window as one observation.
docs/decisions/0044-judging-a-candidate.md has the reasons.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import exp, inf, log, log1p
from typing import NamedTuple

ALPHA = 0.01  # false alarms per rollout

_MOST = 0.9  # of the evidence that one window may cost
TIMES = (2.0, 5.0)  # alternatives: so many times the limit
_BEYOND = 500.0  # a logarithm of evidence that needs no more
STAKE = 0.95  # of a gap: the largest, so that no window costs everything


class Strongest(NamedTuple):
    """What all tests together say, and which one says most of it."""

    log_evidence: float
    key: str
    component: int

    @property
    def rejects(self) -> bool:
        return self.log_evidence >= -log(ALPHA)


def log_factor(share: float, mean: float, alternative: float, size: float) -> float:
    """What a window with this share adds to the logarithm of the evidence that the mean is larger than ``mean``.

    ``size`` is what the share is of; the stake may depend on it because it says nothing about the share.
    """
    lead = alternative - mean
    if lead <= 0.0 or mean <= 0.0 or size <= 0.0:
        return 0.0
    stake = min(_MOST / mean, lead / (mean * (1.0 - mean) / size + lead * min(lead, mean)))
    return log1p(stake * (share - mean))


def limit_factors(count: float, requests: int, limit: float) -> list[float]:
    """Against a share of at most ``limit``, one factor for each alternative."""
    share = count / requests
    return [log_factor(share, limit, min(limit * each, (1.0 + limit) / 2), requests) for each in TIMES]


def filled(share: float, full: float) -> float:
    """How much of ``full`` a share is; what is beyond it counts no more.

    This is concave, so a revision with fewer requests or instances than stable, whose shares vary more, has no larger
    mean than stable when it is as good: one bad second of its only instance cannot outweigh many small ones of stable.
    """
    return share / full if share < full else 1.0


def most_filled(share: float, requests: int, full: float) -> float:
    """The largest mean of ``filled`` if the mean of the share is at most ``share``, of so many whole requests."""
    return min(filled(share, full), share * requests * filled(1.0 / requests, full))


def fair_full(full: float, requests: int, others: int) -> float:
    """``full`` where the candidate has more requests than stable: its shares vary less then, so more room is needed."""
    return min(1.0, full * max(1.0, requests / others))


def gap_factor(gap: float, stake: float = STAKE) -> float:
    """What a window adds to the logarithm of the evidence that the mean of gaps, from -1 to 1, is above 0."""
    return log1p(stake * gap)


def begun(start: int, components: int) -> list[float]:
    """Evidence of a test that has seen nothing up to this start, the first being 1."""
    return [log(start / (start + 1.0))] * components


def started(evidence: Sequence[float], start: int) -> list[float]:
    """Begin once more beside what has begun: good windows before must not hide what later ones bring.

    The e-value is an average over the starts at which the defect may have begun, start n with weight 1/(n(n+1)). Those
    that begin later stand at 1, and all that have begun see the same windows, so one number is enough.
    """
    weight = -log(start * (start + 1.0))
    return [_added(each, weight) for each in evidence]


def strongest(evidence: Mapping[str, Sequence[float]], weights: Mapping[str, float]) -> Strongest:
    """The weighted average of all tests, and the one with the most evidence. It rejects whenever testing each at its
    share of ``ALPHA`` would."""
    total, best, key, component = 0.0, -inf, "", 0
    for name, logs in sorted(evidence.items()):
        share = weights.get(name, 0.0) / len(logs)
        if not share:
            continue
        for at, each in enumerate(logs):
            total += share * exp(min(each, _BEYOND))
            if each > best:
                best, key, component = each, name, at
    return Strongest(log(total) if total > 0.0 else -inf, key, component)


def _added(a: float, b: float) -> float:
    """log(exp(a) + exp(b))"""
    high, low = (a, b) if a >= b else (b, a)
    return high + log1p(exp(low - high))
