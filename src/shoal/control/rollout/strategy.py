"""How an app's revisions replace each other, as ``spec.rollout`` says it, with every default filled in. Pure.

    rolling     instances are exchanged within the surge, and requests follow them; nothing is waited for
    canary      the new revision, the *candidate*, gets a share of the requests step by step; *stable* keeps its size
    blueGreen   the candidate gets its full size without requests, then all of them at once
    recreate    stable is stopped before the candidate starts

*Waves* are groups of regions, one after the other; within a wave all regions take the same steps together.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

ROLLING, CANARY, BLUE_GREEN, RECREATE = "rolling", "canary", "blueGreen", "recreate"
STRATEGIES = (ROLLING, CANARY, BLUE_GREEN, RECREATE)
STEP_KINDS = ("weight", "replicas", "pause", "analysis", "header", "cookie", "mirror")

INTERVAL_S = 30.0
KEEP_S = 30 * 60.0
HOLD_LIMIT_S = 24 * 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class StepSpec:
    """One step. What it sets holds until another step sets it again; ``weight: 0`` and ``mirror: 0`` end theirs."""

    kind: str  # of STEP_KINDS
    percent: int = 0  # of weight and mirror: of the app's requests; of replicas: of what stable has
    count: int = 0  # of replicas, where a number was given
    seconds: float = 0.0  # of pause and analysis; a pause of 0 waits for approval
    name: str = ""  # of header and cookie: requests with this value go to the candidate; an empty name ends it
    value: str = ""
    checks: tuple[str, ...] = ()  # of analysis: names of the checks that must pass besides; empty: all

    @property
    def needs_approval(self) -> bool:
        return self.kind == "pause" and not self.seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class WaveSpec:
    """Regions that go together. Regions that no wave names follow in a last one."""

    name: str
    regions: tuple[str, ...] = ()
    percent: int = 0  # in place of names: so many percent of the app's regions, counted from those that are left
    soak_s: float = 0.0  # between the end of this wave and the next one
    concurrency: int = 0  # regions at a time; 0: all of the wave
    max_failures: int = 0  # regions that may fail without failing the rollout


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencyLimit:
    """At most ``1 - quantile`` of the requests may take longer than ``ms``."""

    quantile: float
    ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class AbortSpec:
    """Rules for the candidate's requests. Without any, it is compared with stable."""

    errors: float | None = None  # the largest share of requests that may fail at the first try, 0 to 1
    latency: tuple[LatencyLimit, ...] = ()
    min_requests: int = 0  # to the candidate, that a step of analysis waits for; 0: as many as show 5 % failures


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowSpec:
    """When steps may be entered: days of the week and times of the day, in UTC."""

    days: tuple[int, ...]  # 0 is Monday
    from_s: int  # of the day
    until_s: int  # may be smaller than ``from_s``: the window ends on the next day


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckSpec:
    """A question asked elsewhere during analysis: webhook, prometheus, query or job."""

    name: str
    kind: str
    settings: dict[str, Any] = field(default_factory=dict)  # of its kind, checked when it was applied
    interval_s: float = INTERVAL_S
    failures: int = 1  # answers in a row that fail the rollout


@dataclass(frozen=True, slots=True, kw_only=True)
class NotificationSpec:
    url: str
    format: str = "json"  # or slack
    secret: str = ""  # name of the credential that is sent along
    on: tuple[str, ...] = ("start", "pause", "success", "rollback")


@dataclass(frozen=True, slots=True, kw_only=True)
class Strategy:
    """``is_configured`` is False for an app that says nothing about rollouts: it rolls, and is never taken back."""

    kind: str = ROLLING
    is_configured: bool = False
    steps: tuple[StepSpec, ...] = ()  # before the candidate gets everything
    waves: tuple[WaveSpec, ...] = ()
    abort: AbortSpec = AbortSpec()
    is_judged: bool = False  # whether the gateways' numbers decide
    interval_s: float = INTERVAL_S  # of analysis
    keep_s: float = KEEP_S  # how long stable stays after the promotion
    hold_limit_s: float = HOLD_LIMIT_S
    deadline_s: float = 600.0  # for the candidate's instances to become ready, in each step
    on_failure: str = "rollback"  # or freeze
    preview_host: str = ""  # of blueGreen: requests for this host go to the candidate
    windows: tuple[WindowSpec, ...] = ()
    checks: tuple[CheckSpec, ...] = ()
    notify: tuple[NotificationSpec, ...] = ()
