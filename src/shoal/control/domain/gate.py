"""Decides whether a revision is ready as a whole, from its rows and the reports about them. Pure.

A row is healthy when the agent has applied its newest version and enough instances are ready: every dimension is
compared, not only the image. A region is done when a healthy row gets all requests there and no other revision is left.
Regions without instances decide nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from shoal.control.domain.plan import needed_regions
from shoal.sync.keys import Place

WAITING = frozenset({"pending", "deploying", "failed"})


@dataclass(frozen=True, slots=True, kw_only=True)
class RowFacts:
    """A topology row with its desired and its reported state."""

    id: str
    region_id: str
    region: str
    place: Place
    desired_status: str  # running, stopped or leaving
    needed: int
    ready: int  # instances that run and are ready
    applied: bool  # the newest version, without an error
    moved_from: str = ""
    weight: int = 100  # percent of the region's requests
    alone: bool = True  # no other revision has rows in the region

    @property
    def healthy(self) -> bool:
        return bool(self.place.cluster) and self.applied and self.ready >= self.needed

    @property
    def done(self) -> bool:
        return self.healthy and self.alone and self.weight == 100


def passes(rows: Sequence[RowFacts], rule: int | str) -> bool:
    """Whether enough regions are done. A revision that is stopped everywhere has nothing to show."""
    running = [row for row in rows if row.desired_status != "stopped"]
    regions = {row.region_id for row in running if row.needed}
    if not regions:
        return bool(running) and all(row.applied for row in running)
    done = {row.region_id for row in running if row.done}
    return len(done & regions) >= needed_regions(rule, len(regions))


def finished_moves(rows: Sequence[RowFacts]) -> list[RowFacts]:
    """Rows that replace another and are ready to."""
    return [row for row in rows if row.moved_from and row.healthy]


def serving(rows: Sequence[RowFacts]) -> dict[str, RowFacts]:
    """By region, a healthy row that can take traffic."""
    found: dict[str, RowFacts] = {}
    for row in rows:
        if row.healthy and row.ready > 0 and row.desired_status == "running":
            found.setdefault(row.region_id, row)
    return found


def converged(*, applied: bool, health: str, running_image: str, image: str, available: int, desired: int) -> bool:
    """Whether a gateway's reported state matches its desired state in every field. Without ``image`` the agent chooses
    one."""
    is_rolled_out = bool(running_image) and image in ("", running_image)
    return applied and health == "healthy" and is_rolled_out and available >= desired
