"""Tests that may be looked at after every window: *e-values*, evidence against "the candidate is good enough". Pure.

An e-value is at most 1 in expectation while the claim holds. Products over windows and weighted averages over tests
keep that, so the chance that such a number ever reaches 100 is at most 1 % (Ville), however often it is looked at.

Every window and region gives one *share* between 0 and 1, whose mean is known if the claim holds, and a factor
``1 + stake x (share - mean)``. Nothing else is assumed: requests of one window may fail together in any way, and the
factor is still an e-value, because it looks at the window as one observation. The stake is chosen for an alternative,
as large as it pays if requests are independent. docs/decisions/0044-judging-a-candidate.md has the reasons.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import exp, inf, log, log1p
from typing import NamedTuple

ALPHA = 0.01  # false alarms per rollout

_MOST = 0.9  # of the evidence that one window may cost
_TIMES = (2.0, 5.0, 20.0)  # alternatives: so many times the limit
_BEYOND = 500.0  # a logarithm of evidence that needs no more


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
    return [log_factor(share, limit, min(limit * each, (1.0 + limit) / 2), requests) for each in _TIMES]


def split_factors(candidate: float, stable: float, odds: float, alternatives: Sequence[float]) -> list[float]:
    """Of ``candidate + stable`` events, those that are the candidate's: at odds of ``odds`` to 1 at most, if the
    claim holds, and that times each alternative otherwise."""
    events = candidate + stable
    if events <= 0.0:
        return [0.0] * len(alternatives)
    share, mean = candidate / events, odds / (1.0 + odds)
    return [log_factor(share, mean, each * odds / (1.0 + each * odds), events) for each in alternatives]


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
    """The weighted average of all tests. It rejects whenever testing each at its share of ``ALPHA`` would."""
    total, best, key, component = 0.0, -inf, "", 0
    for name, logs in sorted(evidence.items()):
        share = weights.get(name, 0.0) / len(logs)
        if not share:
            continue
        for at, each in enumerate(logs):
            part = share * exp(min(each, _BEYOND))
            total += part
            if part > best:
                best, key, component = part, name, at
    return Strongest(log(total) if total > 0.0 else -inf, key, component)


def _added(a: float, b: float) -> float:
    """log(exp(a) + exp(b))"""
    high, low = (a, b) if a >= b else (b, a)
    return high + log1p(exp(low - high))
