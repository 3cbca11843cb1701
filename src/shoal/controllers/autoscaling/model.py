"""What the autoscaler computes with. Amounts are whole thousandths, so that sums do not depend on their order."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from shoal.kube.objects import Obj

TOLERANCE: Final = 0.1


class MetricError(Exception):
    """A metric cannot be had or used. ``reason`` is that of the ScalingActive condition."""

    def __init__(self, message: str, reason: str = "FailedGetResourceMetric") -> None:
        super().__init__(message)
        self.reason = reason


@dataclass(frozen=True, slots=True, kw_only=True)
class PodSample:
    """What one pod uses."""

    milli: int
    at: float  # the end of the time that it was measured over
    window_s: float


@dataclass(frozen=True, slots=True)
class Tolerance:
    """How far from the target is close enough, in each direction."""

    up: float = TOLERANCE
    down: float = TOLERANCE

    def covers(self, ratio: float) -> bool:
        return 1.0 - self.down <= ratio <= 1.0 + self.up


@dataclass(frozen=True, slots=True, kw_only=True)
class Groups:
    """Pods by what their samples are worth."""

    ready: int  # how many count as they are
    unready: frozenset[str]
    missing: frozenset[str]
    ignored: frozenset[str]


@dataclass(frozen=True, slots=True)
class Proposal:
    """What one metric says: how many replicas, and what was measured, as the status shows it."""

    replicas: int
    name: str
    status: Obj


@dataclass(frozen=True, slots=True)
class ScaleEvent:
    at: float
    change: int  # replicas added, or removed below 0


@dataclass(slots=True)
class ScaleHistory:
    """What has to be remembered of one autoscaler; lost when the process ends, as its effects are bounded in time."""

    recommendations: list[tuple[float, int]] = field(default_factory=list)
    events: list[ScaleEvent] = field(default_factory=list)
