"""What the exchange of revisions is decided from, and what is decided."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


@dataclass(frozen=True, slots=True, kw_only=True)
class RevisionFacts:
    """One revision of an app in one region. Weights are percents of the app's requests at the region's gateways."""

    id: str  # of the deployment
    revision: int
    weight: int  # as routes say it
    routed: int  # the most that some gateway may still send to it; ``weight`` once all have acknowledged
    count: int  # instances that its agent was told to run
    ready: int
    is_wanted: bool  # the newest one, which is to replace the others
    is_halted: bool = False  # it was stopped because it never became ready
    is_held: bool = False  # gateways of regions without instances may still lead to it
    is_stable: bool = False  # the one that a rollout goes back to


@dataclass(frozen=True, slots=True, kw_only=True)
class RegionGoal:
    """What a rollout grants the new revision in a region, beside the stable one, which keeps its size."""

    weight: int  # percent of the requests, at most
    count: int  # instances
    recreates: bool = False  # the stable one is stopped first
    stays: bool = False  # nothing changes until what is wanted is the stable one again
    keeps: bool = False  # the new one has everything already, as if it were alone; the stable one may be had back


@dataclass(frozen=True, slots=True, kw_only=True)
class RegionFacts:
    """The revisions of an app in one region, and how many instances there should be in all."""

    size: int
    surge: int  # how many more there may be while revisions are exchanged
    revisions: tuple[RevisionFacts, ...]
    goal: RegionGoal | None = None  # without one, revisions are exchanged within the surge

    def leads(self) -> list[Lead]:
        return [Lead(each.id, each.revision, each.routed) for each in self.revisions if self.size]


@dataclass(frozen=True, slots=True, kw_only=True)
class RevisionStep:
    """The next state of a revision in a region."""

    id: str
    weight: int
    routed: int
    count: int
    is_free: bool = False  # its replicas or its autoscaler decide, not ``count``
    removed: bool = False


class Lead(NamedTuple):
    """A revision in a region with instances, as gateways elsewhere may lead to it."""

    id: str
    revision: int
    routed: int
