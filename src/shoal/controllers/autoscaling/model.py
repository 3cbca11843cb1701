"""Data of the autoscaler. Amounts are integer thousandths, so that sums do not depend on their order."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from shoal.kube.objects import Obj

TOLERANCE: Final = 0.1


class MetricError(Exception):
    """A metric is unavailable or unusable. ``reason`` is that of the ScalingActive condition."""

    def __init__(self, message: str, reason: str = "FailedGetResourceMetric") -> None:
        super().__init__(message)
        self.reason = reason


@dataclass(frozen=True, slots=True, kw_only=True)
class PodSample:
    """The usage of one pod."""

    milli: int
    at: float  # end of the measured window
    window_s: float


@dataclass(frozen=True, slots=True)
class Tolerance:
    """The accepted deviation from the target, in each direction."""

    up: float = TOLERANCE
    down: float = TOLERANCE

    def covers(self, ratio: float) -> bool:
        return 1.0 - self.down <= ratio <= 1.0 + self.up


@dataclass(frozen=True, slots=True, kw_only=True)
class Groups:
    """Pods grouped by how their samples count."""

    ready: int  # number of pods with usable samples
    unready: frozenset[str]
    missing: frozenset[str]
    ignored: frozenset[str]


@dataclass(frozen=True, slots=True)
class Proposal:
    """The proposal of one metric: the replicas, and the measured value for the status."""

    replicas: int
    name: str
    status: Obj


@dataclass(frozen=True, slots=True)
class ScaleEvent:
    at: float
    change: int  # replicas added; negative if removed


@dataclass(slots=True)
class ScaleHistory:
    """The history of one autoscaler; only in memory, since its effects are short-lived."""

    recommendations: list[tuple[float, int]] = field(default_factory=list)
    events: list[ScaleEvent] = field(default_factory=list)
