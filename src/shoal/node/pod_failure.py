"""Why a node ended a pod itself."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PodFailure:
    """The node has ended the pod: evicted, past its deadline, or never admitted."""

    reason: str
    message: str
    conditions: tuple[tuple[str, str, str], ...] = ()  # type, reason, message of conditions that are true from now on
    rejected: bool = False  # it never began here
    grace_s: float | None = None  # None: the pod's own
