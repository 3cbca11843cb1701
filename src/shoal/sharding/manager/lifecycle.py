"""Phases of shards, pure: the state machine, and which shards to create, drain and remove.

    Pending ─▶ Running ─▶ Draining ─▶ Terminated
       │        │  ▲ ▲       │
       └──▶ Failed ┘ └───────┘ (the drain was cancelled)
              └──▶ Terminated

A shard is terminated only when it owns no slots.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from shoal.errors import ShoalError
from shoal.sharding.leases import LeaseState

SCALE_DOWN = "ScaleDown"
STARTUP_S = 300.0  # a shard that has not taken its Lease by then has failed
RECOVERY_S = 30.0  # a failed shard whose pod is still there may come back for this long


class ShardPhase(StrEnum):
    PENDING = "Pending"
    RUNNING = "Running"
    DRAINING = "Draining"
    FAILED = "Failed"
    TERMINATED = "Terminated"


NEXT: dict[ShardPhase, frozenset[ShardPhase]] = {
    ShardPhase.PENDING: frozenset({ShardPhase.RUNNING, ShardPhase.FAILED}),
    ShardPhase.RUNNING: frozenset({ShardPhase.DRAINING, ShardPhase.FAILED}),
    ShardPhase.DRAINING: frozenset({ShardPhase.TERMINATED, ShardPhase.RUNNING}),
    ShardPhase.FAILED: frozenset({ShardPhase.RUNNING, ShardPhase.TERMINATED}),
    ShardPhase.TERMINATED: frozenset(),
}


class IllegalTransition(ShoalError):
    """A shard cannot go from the one phase to the other."""


def transition(before: ShardPhase, after: ShardPhase) -> ShardPhase:
    if after not in NEXT[before]:
        raise IllegalTransition(f"a shard cannot go from {before} to {after}")
    return after


class PodState(StrEnum):
    NONE = "none"  # the manager did not create this worker
    MISSING = "missing"  # the manager has to create it
    STARTING = "starting"
    RUNNING = "running"
    LEAVING = "leaving"  # being deleted
    ENDED = "ended"  # failed or finished


@dataclass(frozen=True, slots=True, kw_only=True)
class Shard:
    """The observed state of one shard."""

    name: str
    phase: ShardPhase = ShardPhase.PENDING
    phase_age_s: float = 0.0
    reason: str = ""  # of the phase, one word
    lease: LeaseState | None = None  # None: it has no Lease
    leaving: bool = False  # its worker asks to hand over its slots
    pod: PodState = PodState.NONE
    slots: int = 0  # that it owns or is to receive
    joined: bool = False
    load: float = 0.0
    outdated: bool = False  # created from an older template
    replaces: str = ""
    drain: bool = False  # spec.drain is set
    unhealthy: bool = False  # its own health check has failed too often

    @property
    def active(self) -> bool:
        """Whether it counts towards the desired number."""
        if self.phase is ShardPhase.FAILED:  # it may come back
            return self.reason != SCALE_DOWN and self.pod in (PodState.STARTING, PodState.RUNNING)
        return self.phase in (ShardPhase.PENDING, ShardPhase.RUNNING)


@dataclass(frozen=True, slots=True)
class PhaseDecision:
    """The phase that a shard should be in; ``reason`` is one word, ``text`` for people."""

    phase: ShardPhase
    reason: str
    text: str


def decide_phase(shard: Shard) -> PhaseDecision | None:
    """The next phase that follows from the shard's own state; None when it stays. ``plan_shards`` decides how many
    shards there should be."""
    match shard.phase:
        case ShardPhase.PENDING:
            return _pending(shard)
        case ShardPhase.RUNNING:
            return _running(shard)
        case ShardPhase.DRAINING:
            return _draining(shard)
        case ShardPhase.FAILED:
            return _failed(shard)
        case ShardPhase.TERMINATED:
            return None


def _pending(shard: Shard) -> PhaseDecision | None:
    if shard.lease is LeaseState.READY:
        return PhaseDecision(ShardPhase.RUNNING, "Ready", "its worker holds its Lease")
    if shard.pod is PodState.ENDED:
        return PhaseDecision(ShardPhase.FAILED, "PodEnded", "its pod ended before it took its Lease")
    if shard.phase_age_s >= STARTUP_S:
        return PhaseDecision(ShardPhase.FAILED, "StartTimeout", f"it did not take its Lease within {STARTUP_S:.0f} s")
    return None


def _running(shard: Shard) -> PhaseDecision | None:
    if shard.lease in (None, LeaseState.DEAD, LeaseState.ORPHANED):
        return PhaseDecision(ShardPhase.FAILED, "LeaseLost", "its Lease was released, taken or deleted")
    if shard.leaving or shard.pod is PodState.LEAVING:
        return PhaseDecision(ShardPhase.DRAINING, "Leaving", "its worker is being stopped")
    if shard.drain:
        return PhaseDecision(ShardPhase.DRAINING, "Requested", "spec.drain is set")
    if shard.unhealthy:
        return PhaseDecision(ShardPhase.DRAINING, "Unhealthy", "its health check failed too often")
    return None


def _draining(shard: Shard) -> PhaseDecision | None:
    if shard.slots == 0:
        return PhaseDecision(ShardPhase.TERMINATED, shard.reason or "Drained", "it owns no slots")
    alive = shard.lease in (LeaseState.READY, LeaseState.EXPIRED) and shard.pod is not PodState.LEAVING
    # "Leaving" ends when a worker of the same name has come, as those that are started elsewhere do after a restart
    back = shard.lease is LeaseState.READY
    asked = {"Requested": shard.drain, "Unhealthy": shard.unhealthy, "Leaving": not back}
    if alive and not shard.leaving and shard.reason in asked and not asked[shard.reason]:
        return PhaseDecision(ShardPhase.RUNNING, "DrainCancelled", "the reason for draining it no longer holds")
    return None


def _failed(shard: Shard) -> PhaseDecision | None:
    unwanted = shard.reason == SCALE_DOWN
    if shard.lease is LeaseState.READY and not unwanted:
        return PhaseDecision(ShardPhase.RUNNING, "Recovered", "its worker holds its Lease again")
    gone = shard.pod in (PodState.MISSING, PodState.ENDED, PodState.LEAVING)
    lost = unwanted or gone or shard.phase_age_s >= RECOVERY_S
    if lost and shard.slots == 0:
        return PhaseDecision(ShardPhase.TERMINATED, shard.reason or "Failed", "it did not come back")
    return None


# how many


@dataclass(frozen=True, slots=True)
class Create:
    """Create a shard; with ``replaces``, one that takes over all slots of another."""

    replaces: str = ""


@dataclass(frozen=True, slots=True)
class Drain:
    """Remove a shard: it is drained if it runs, and given up if it does not."""

    name: str
    reason: str
    text: str


@dataclass(frozen=True, slots=True)
class Keep:
    """Cancel a drain: the shard is needed again."""

    name: str


Order = Create | Drain | Keep

DRAIN_PHASE = {
    ShardPhase.RUNNING: ShardPhase.DRAINING,
    ShardPhase.PENDING: ShardPhase.FAILED,
    ShardPhase.FAILED: ShardPhase.TERMINATED,
}


def plan_shards(shards: Sequence[Shard], desired: int, *, max_surge: int) -> list[Order]:
    """The orders that lead to ``desired`` running shards of the current template."""
    orders: list[Order] = []
    replaced = {shard.replaces for shard in shards if shard.replaces and shard.active}
    # a successor and the shard that it replaces count as one
    counted = [shard for shard in shards if shard.active and shard.name not in replaced]
    missing = desired - len(counted)
    if missing > 0:
        spared = [each for each in _drained_for_size(shards) if not each.outdated][:missing]
        orders += [Keep(each.name) for each in spared]
        orders += [Create() for _ in range(missing - len(spared))]
    elif missing < 0:
        victims = sorted(counted, key=_expendable)[:-missing]
        orders += [Drain(each.name, SCALE_DOWN, f"{desired} shards are enough") for each in victims]
    else:
        orders += _update(shards, max_surge)
    return orders


def _expendable(shard: Shard) -> tuple[bool, bool, bool, int, float, str]:
    """Sort key: the shards to remove first are not started, failed, outdated, with the fewest slots, least loaded."""
    running, pending = shard.phase is ShardPhase.RUNNING, shard.phase is ShardPhase.PENDING
    return (running, pending, not shard.outdated, shard.slots, shard.load, shard.name)


def _drained_for_size(shards: Iterable[Shard]) -> list[Shard]:
    found = [
        shard
        for shard in shards
        if shard.phase is ShardPhase.DRAINING
        and shard.reason == SCALE_DOWN
        and shard.lease is LeaseState.READY
        and not shard.leaving
        and shard.pod is not PodState.LEAVING
    ]
    return sorted(found, key=lambda shard: (-shard.slots, shard.name))


def _update(shards: Sequence[Shard], max_surge: int) -> list[Order]:
    """Replace outdated shards a few at a time: create the successor, and drain the old shard once that is running."""
    orders: list[Order] = []
    successors = {shard.replaces: shard for shard in shards if shard.replaces and shard.active}
    by_name = {shard.name: shard for shard in shards}
    for name, successor in sorted(successors.items()):
        old = by_name.get(name)
        replaceable = old is not None and old.phase in (ShardPhase.RUNNING, ShardPhase.PENDING)
        if replaceable and successor.phase is ShardPhase.RUNNING:
            orders.append(Drain(name, "Updated", f"{successor.name} of the new template takes over"))
    under_way = sum(
        old in by_name
        and by_name[old].phase is not ShardPhase.TERMINATED
        and by_name[old].slots > 0
        or successor.phase is ShardPhase.PENDING
        for old, successor in successors.items()
    )
    waiting = [shard for shard in shards if shard.outdated and shard.active and shard.name not in successors]
    for shard in sorted(waiting, key=lambda each: each.name)[: max(0, max_surge - under_way)]:
        orders.append(Create(replaces=shard.name))
    return orders
