"""The reason for which a node ended a pod."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PodFailure:
    """Why the node ended a pod: evicted, past its deadline, or rejected."""

    reason: str
    message: str
    conditions: tuple[tuple[str, str, str], ...] = ()  # type, reason and message of conditions to set
    rejected: bool = False  # never started on this node
    grace_s: float | None = None  # None: the pod's own
