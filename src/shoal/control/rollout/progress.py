"""A rollout as it is decided about: what is known of it, where it is, and a decision. Frozen values.

running ─▶ keeping ─▶ ended          keeping: the candidate has everything, stable still runs and can be had back
   │          │
   └──────────┴─▶ goingBack ─▶ ended  stable gets everything again, in all regions at once
   └─▶ frozen                         a person decides
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

RUNNING, KEEPING, GOING_BACK, FROZEN, ENDED = "running", "keeping", "goingBack", "frozen", "ended"
PROMOTED, ROLLED_BACK, SUPERSEDED = "promoted", "rolledBack", "superseded"


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateFacts:
    """The new revision in one region. A region is lost when its agent is silent: nothing waits for it."""

    region: str  # its name
    size: int  # instances that the region should have in all
    weight: int
    routed: int
    count: int
    ready: int
    has_stable: bool
    others: int = 0  # the most that gateways may still send to revisions that are neither candidate nor stable
    is_lost: bool = False
    is_done: bool = False  # the candidate has everything and no other revision is left
    failure: str = ""  # why its instances fail again and again, in words
    waits_for: str = ""  # gateways that have not taken the newest routes
    trouble: str = ""  # what keeps its instances from being ready, which time may heal


@dataclass(frozen=True, slots=True, kw_only=True)
class AnalysisFacts:
    """What analysis makes of everything up to ``until_ms``."""

    until_ms: int
    outcome: str  # pass, fail or inconclusive
    reason: str
    requests: int  # of the candidate, since the step was entered
    state: dict[str, Any] = field(default_factory=dict)  # of the tests
    has_enough: bool = False  # requests for the step to pass
    numbers: dict[str, Any] = field(default_factory=dict)  # that a decision is stored with


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckFacts:
    """What checks elsewhere say: why one failed, and which of the step have not passed yet."""

    failed: str = ""
    waits_for: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutFacts:
    now_ms: int
    regions: Mapping[str, CandidateFacts]  # by id
    analysis: AnalysisFacts | None = None  # a new look
    checks: CheckFacts = CheckFacts()
    is_reverted: bool = False  # what is wanted is stable's template again


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """Where a rollout is. Everything that it remembers is here, and is stored as JSON."""

    phase: str = RUNNING
    outcome: str = ""
    waves: tuple[tuple[str, ...], ...] = ()  # ids of regions
    specs: tuple[int, ...] = ()  # of each wave, the index of the strategy's wave that it is a part of
    wave: int = 0
    step: int = 0  # index of the strategy's steps; as many as there are: everything
    is_hurried: bool = False  # the steps are left out: a person promotes, or goes back to an earlier revision
    is_paused: bool = False  # by a person
    is_approved: bool = False  # this step's pause, or the step is skipped
    entered_ms: int = 0  # when the step began
    settled_ms: int = 0  # when every region had what the step grants; 0: not yet
    short_ms: int = 0  # since when the candidate has too few instances somewhere
    held_ms: int = 0  # since when it waits for something that may never come
    hold: str = ""
    kept_until_ms: int = 0
    failure: str = ""
    why: str = ""  # what the person said who began it
    failed: tuple[str, ...] = ()  # regions that failed and are left out
    missed: tuple[str, ...] = ()  # regions whose agents were silent when their wave ended; they keep stable until then
    restarts: dict[str, int] = field(default_factory=dict)  # of instances that ran before, by uid, when it began
    looked_ms: int = 0  # samples up to here were judged
    analysis: dict[str, Any] = field(default_factory=dict)
    verdict: str = ""  # of the newest look, in words
    requests: int = 0  # of the candidate, that were judged since the step was entered
    has_enough: bool = False
    numbers: dict[str, Any] = field(default_factory=dict)  # of the newest look

    @property
    def is_active(self) -> bool:
        return self.phase != ENDED


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutDecision:
    """One decision with its reason, for people."""

    action: str
    reason: str
    wave: int
    step: int
    numbers: dict[str, Any] = field(default_factory=dict)
