"""The life of shards, pure: the machine of phases, and which shards to make, drain and remove.

    Pending ─▶ Running ─▶ Draining ─▶ Terminated
       │        │  ▲ ▲       │
       └──▶ Failed ┘ └───────┘ (the drain was cancelled)
              └──▶ Terminated

A shard ends only when it owns no slot any more, so that nothing is lost with it.
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


class Phase(StrEnum):
    PENDING = "Pending"
    RUNNING = "Running"
    DRAINING = "Draining"
    FAILED = "Failed"
    TERMINATED = "Terminated"


NEXT: dict[Phase, frozenset[Phase]] = {
    Phase.PENDING: frozenset({Phase.RUNNING, Phase.FAILED}),
    Phase.RUNNING: frozenset({Phase.DRAINING, Phase.FAILED}),
    Phase.DRAINING: frozenset({Phase.TERMINATED, Phase.RUNNING}),
    Phase.FAILED: frozenset({Phase.RUNNING, Phase.TERMINATED}),
    Phase.TERMINATED: frozenset(),
}


class IllegalTransition(ShoalError):
    """A shard cannot go from the one phase to the other."""


def transition(before: Phase, after: Phase) -> Phase:
    if after not in NEXT[before]:
        raise IllegalTransition(f"a shard cannot go from {before} to {after}")
    return after


class PodState(StrEnum):
    NONE = "none"  # this shard has no pod of ours: someone else started it
    MISSING = "missing"  # it should have one
    STARTING = "starting"
    RUNNING = "running"
    LEAVING = "leaving"  # being deleted
    ENDED = "ended"  # failed or finished


@dataclass(frozen=True, slots=True, kw_only=True)
class Shard:
    """What is known of one shard."""

    name: str
    phase: Phase = Phase.PENDING
    phase_age_s: float = 0.0
    reason: str = ""  # of the phase, one word
    lease: LeaseState | None = None  # None: there is none
    leaving: bool = False  # its worker asks to hand over everything
    pod: PodState = PodState.NONE
    slots: int = 0  # that it owns, or that are on their way to it
    joined: bool = False
    load: float = 0.0
    outdated: bool = False  # made from an older template
    replaces: str = ""
    drain: bool = False  # a person asks for it
    unhealthy: bool = False  # its own health check has failed too often

    @property
    def active(self) -> bool:
        """Whether it counts as one of the shards that there should be."""
        if self.phase is Phase.FAILED:  # it may come back
            return self.reason != SCALE_DOWN and self.pod in (PodState.STARTING, PodState.RUNNING)
        return self.phase in (Phase.PENDING, Phase.RUNNING)


@dataclass(frozen=True, slots=True)
class Verdict:
    """The phase that a shard should be in; ``reason`` is one word, ``text`` for people."""

    phase: Phase
    reason: str
    text: str


def judge(shard: Shard) -> Verdict | None:
    """Where a shard goes by itself, one step at a time; None when it stays. Decisions about how many there should be
    are ``staff``'s."""
    match shard.phase:
        case Phase.PENDING:
            return _pending(shard)
        case Phase.RUNNING:
            return _running(shard)
        case Phase.DRAINING:
            return _draining(shard)
        case Phase.FAILED:
            return _failed(shard)
        case Phase.TERMINATED:
            return None


def _pending(shard: Shard) -> Verdict | None:
    if shard.lease is LeaseState.READY:
        return Verdict(Phase.RUNNING, "Ready", "its worker holds its Lease")
    if shard.pod is PodState.ENDED:
        return Verdict(Phase.FAILED, "PodEnded", "its pod ended before it took its Lease")
    if shard.phase_age_s >= STARTUP_S:
        return Verdict(Phase.FAILED, "StartTimeout", f"it did not take its Lease within {STARTUP_S:.0f} s")
    return None


def _running(shard: Shard) -> Verdict | None:
    if shard.lease in (None, LeaseState.DEAD, LeaseState.ORPHANED):
        return Verdict(Phase.FAILED, "LeaseLost", "its Lease was released, taken or deleted")
    if shard.leaving or shard.pod is PodState.LEAVING:
        return Verdict(Phase.DRAINING, "Leaving", "its worker is being stopped")
    if shard.drain:
        return Verdict(Phase.DRAINING, "Requested", "spec.drain is set")
    if shard.unhealthy:
        return Verdict(Phase.DRAINING, "Unhealthy", "its health check failed too often")
    return None


def _draining(shard: Shard) -> Verdict | None:
    if shard.slots == 0:
        return Verdict(Phase.TERMINATED, shard.reason or "Drained", "it owns nothing any more")
    alive = shard.lease in (LeaseState.READY, LeaseState.EXPIRED) and shard.pod is not PodState.LEAVING
    asked = {"Requested": shard.drain, "Unhealthy": shard.unhealthy}
    if alive and not shard.leaving and shard.reason in asked and not asked[shard.reason]:
        return Verdict(Phase.RUNNING, "DrainCancelled", "the reason for draining it is gone")
    return None


def _failed(shard: Shard) -> Verdict | None:
    unwanted = shard.reason == SCALE_DOWN
    if shard.lease is LeaseState.READY and not unwanted:
        return Verdict(Phase.RUNNING, "Recovered", "its worker holds its Lease again")
    gone = shard.pod in (PodState.MISSING, PodState.ENDED, PodState.LEAVING)
    lost = unwanted or gone or shard.phase_age_s >= RECOVERY_S
    if lost and shard.slots == 0:
        return Verdict(Phase.TERMINATED, shard.reason or "Failed", "it did not come back")
    return None


# how many


@dataclass(frozen=True, slots=True)
class Create:
    """Make a shard; with ``replaces``, one that takes over everything from another."""

    replaces: str = ""


@dataclass(frozen=True, slots=True)
class Drain:
    """Let a shard go: one that works is drained, one that does not is given up."""

    name: str
    reason: str
    text: str


@dataclass(frozen=True, slots=True)
class Keep:
    """Cancel a drain: the shard is needed again."""

    name: str


Order = Create | Drain | Keep

LET_GO = {Phase.RUNNING: Phase.DRAINING, Phase.PENDING: Phase.FAILED, Phase.FAILED: Phase.TERMINATED}


def staff(shards: Sequence[Shard], desired: int, *, max_surge: int) -> list[Order]:
    """What to do so that ``desired`` shards of the present template work."""
    orders: list[Order] = []
    replaced = {shard.replaces for shard in shards if shard.replaces and shard.active}
    # a successor stands for the shard that it replaces until that one has gone
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
    """The ones to give up first: not started, failed, outdated, with the fewest slots, the least loaded."""
    return (shard.phase is Phase.RUNNING, shard.phase is Phase.PENDING, not shard.outdated, shard.slots, shard.load,
            shard.name)  # fmt: skip


def _drained_for_size(shards: Iterable[Shard]) -> list[Shard]:
    found = [
        shard
        for shard in shards
        if shard.phase is Phase.DRAINING
        and shard.reason == SCALE_DOWN
        and shard.lease is LeaseState.READY
        and not shard.leaving
        and shard.pod is not PodState.LEAVING
    ]
    return sorted(found, key=lambda shard: (-shard.slots, shard.name))


def _update(shards: Sequence[Shard], max_surge: int) -> list[Order]:
    """Replace outdated shards a few at a time: first comes the successor; when it is ready everything moves, once."""
    orders: list[Order] = []
    successors = {shard.replaces: shard for shard in shards if shard.replaces and shard.active}
    by_name = {shard.name: shard for shard in shards}
    for name, successor in sorted(successors.items()):
        old = by_name.get(name)
        replaceable = old is not None and old.phase in (Phase.RUNNING, Phase.PENDING)
        if replaceable and successor.phase is Phase.RUNNING:
            orders.append(Drain(name, "Updated", f"{successor.name} of the new template takes over"))
    under_way = sum(
        old in by_name
        and by_name[old].phase is not Phase.TERMINATED
        and by_name[old].slots > 0
        or successor.phase is Phase.PENDING
        for old, successor in successors.items()
    )
    waiting = [shard for shard in shards if shard.outdated and shard.active and shard.name not in successors]
    for shard in sorted(waiting, key=lambda each: each.name)[: max(0, max_surge - under_way)]:
        orders.append(Create(replaces=shard.name))
    return orders
