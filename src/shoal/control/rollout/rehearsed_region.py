"""A region as a rehearsal plays it: instances become ready, and gateways acknowledge, after a fixed time. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field

from shoal.control.rollout.model import RegionFacts, RegionGoal, RevisionFacts, RevisionStep
from shoal.control.rollout.plan import step
from shoal.control.rollout.progress import CandidateFacts

STABLE, CANDIDATE = "stable", "candidate"
FULL = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class RegionSize:
    """How many instances a region should have, and how many more while revisions are exchanged."""

    name: str
    size: int
    surge: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How fast things happen, and how many requests an app gets in a region."""

    ready_s: float = 10.0
    acknowledge_s: float = 2.0
    requests_per_s: float = 100.0

    @property
    def ready_ms(self) -> int:
        return round(self.ready_s * 1000)

    @property
    def acknowledge_ms(self) -> int:
        return round(self.acknowledge_s * 1000)


@dataclass(slots=True)
class PlayedRevision:
    count: int = 0  # told
    ready: int = 0
    starting: list[int] = field(default_factory=list)  # when instances become ready
    weight: int = 0
    routed: int = 0

    def told(self, count: int, ready_at: int) -> None:
        self.count = count
        self.starting = self.starting[: max(0, count - self.ready)]
        self.ready = min(self.ready, count)
        self.starting += [ready_at] * (count - self.ready - len(self.starting))


@dataclass(slots=True)
class PlayedRegion:
    """Both revisions in one region. While it is lost, its agent and its gateways do nothing; while the candidate
    crashes, none of its instances are ready."""

    name: str
    size: int
    surge: int
    pace: Pace
    revisions: dict[str, PlayedRevision] = field(default_factory=dict)
    is_lost: bool = False
    crashes: bool = False
    is_reverted: bool = False  # what is wanted is stable's template again
    acknowledged_at: int = 0  # when gateways will have taken the newest routes; 0: they have

    @classmethod
    def serving(cls, region: RegionSize, pace: Pace) -> PlayedRegion:
        stable = PlayedRevision(region.size, region.size, [], FULL if region.size else 0, FULL if region.size else 0)
        return cls(region.name, region.size, region.surge, pace, {STABLE: stable, CANDIDATE: PlayedRevision()})

    @property
    def candidate(self) -> PlayedRevision:
        return self.revisions.get(CANDIDATE, PlayedRevision())

    @property
    def stable(self) -> PlayedRevision:
        return self.revisions.get(STABLE, PlayedRevision())

    def facts(self) -> CandidateFacts:
        found = self.candidate
        others = [id_ for id_ in self.revisions if id_ != CANDIDATE]
        return CandidateFacts(
            region=self.name,
            size=self.size,
            weight=found.weight,
            routed=found.routed,
            count=found.count,
            ready=found.ready,
            has_stable=bool(others),
            is_lost=self.is_lost,
            is_done=found.weight == found.routed == FULL and found.ready >= self.size and not others,
            failure="they crash" if self.crashes and found.count else "",
            waits_for=f"gateway {self.name}" if self.acknowledged_at else "",
        )

    def pass_to(self, now: int) -> None:
        """What has happened by now."""
        if self.is_lost:
            return
        for id_, each in self.revisions.items():
            if id_ == CANDIDATE and self.crashes:
                each.starting, each.ready = [max(now + self.pace.ready_ms, at) for at in each.starting], 0
                each.starting += [now + self.pace.ready_ms] * (each.count - len(each.starting))
            due = [at for at in each.starting if at <= now]
            each.ready += len(due)
            each.starting = [at for at in each.starting if at > now]
        if self.acknowledged_at and self.acknowledged_at <= now:
            self.acknowledged_at = 0
            for each in self.revisions.values():
                each.routed = each.weight

    def next_ms(self) -> int | None:
        """When something happens here next."""
        if self.is_lost:
            return None
        times = [at for id_, each in self.revisions.items() if not (id_ == CANDIDATE and self.crashes)
                 for at in each.starting]  # fmt: skip
        return min([*times, *([self.acknowledged_at] if self.acknowledged_at else [])], default=None)

    def take(self, goal: RegionGoal | None, now: int) -> bool:
        """Take the next step of the exchange; False if nothing is left to do now."""
        if self.is_lost:
            return False
        steps = step(self._facts(goal))
        before = {id_: (each.count, each.weight) for id_, each in self.revisions.items()}
        for each in steps:
            self._tell(each, now)
        after = {id_: (each.count, each.weight) for id_, each in self.revisions.items()}
        if {id_: weight for id_, (_, weight) in after.items()} != {id_: before[id_][1] for id_ in after}:
            self.acknowledged_at = now + self.pace.acknowledge_ms
        return after != before

    def revert(self) -> None:
        """Stable's template is applied again: what is left of stable is wanted, the candidate is an old revision."""
        self.is_reverted = True
        self.revisions.setdefault(STABLE, PlayedRevision())

    def _facts(self, goal: RegionGoal | None) -> RegionFacts:
        return RegionFacts(
            size=self.size,
            surge=self.surge,
            goal=None if self.is_reverted else goal,
            revisions=tuple(
                RevisionFacts(
                    id=id_,
                    revision=2 if (id_ == CANDIDATE) != self.is_reverted else 1,
                    weight=each.weight,
                    routed=each.routed,
                    count=each.count,
                    ready=each.ready,
                    is_wanted=(id_ == CANDIDATE) != self.is_reverted,
                    is_stable=id_ == STABLE,
                )
                for id_, each in self.revisions.items()
            ),
        )

    def _tell(self, told: RevisionStep, now: int) -> None:
        if told.removed:
            del self.revisions[told.id]
            return
        found = self.revisions[told.id]
        found.weight, found.routed = told.weight, told.routed
        found.told(told.count, now + self.pace.ready_ms)
