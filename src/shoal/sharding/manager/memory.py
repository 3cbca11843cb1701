"""In-memory state of the manager for one ShardConfig, kept between passes. A new leader starts without it: it measures
all times again, which only delays decisions."""

from __future__ import annotations

from array import array
from collections import deque
from dataclasses import dataclass, field

from shoal.kube.objects import Obj
from shoal.sharding.leases import LeaseObservations
from shoal.sharding.manager.scaling import LoadSample
from shoal.sharding.model import SLOTS, SlotEntry

_TRIES = 3  # failed moves of a slot in a row; after that it does not move for the time that a step may take
_SHORT_PAUSE = 1 / 30  # of that time: the pause after earlier failures
_NAMES_PER_SLOT = 4


@dataclass(slots=True)
class SlotCounts:
    """How many objects are in each slot, and the names of a few; from the last sweep."""

    counts: array[int] = field(default_factory=lambda: array("L", bytes(8 * SLOTS)))
    names: dict[int, list[str]] = field(default_factory=dict)
    known: bool = False

    def add(self, slot: int, name: str) -> None:
        self.counts[slot] += 1
        names = self.names.setdefault(slot, [])
        if len(names) < _NAMES_PER_SLOT:
            names.append(name)

    def remove(self, slot: int, name: str) -> None:
        """An object that was added did not get the slot."""
        self.counts[slot] -= 1
        names = self.names.get(slot, [])
        if name in names:
            names.remove(name)

    def merge(self, other: SlotCounts) -> None:
        for slot, count in enumerate(other.counts):
            self.counts[slot] += count
        for slot, names in other.names.items():
            mine = self.names.setdefault(slot, [])
            mine += names[: _NAMES_PER_SLOT - len(mine)]

    @property
    def total(self) -> int:
        return sum(self.counts)


class MoveTimers:
    """How long each move has taken, in its step and in all; on this manager's monotonic clock."""

    def __init__(self) -> None:
        self._steps: dict[int, tuple[tuple[object, ...], float]] = {}
        self._begun: dict[int, float] = {}
        self._failed: dict[int, tuple[int, float]] = {}  # slot -> (failures in a row, not before)

    def look(self, entries: tuple[SlotEntry, ...], now_s: float) -> None:
        if not self._steps and not any(entry.move for entry in entries):
            return
        for entry in entries:
            if entry.move is None:
                self._steps.pop(entry.slot, None)
                continue
            step = (entry.owner, entry.epoch, entry.move.phase)
            known = self._steps.get(entry.slot)
            if known is None or known[0] != step:
                self._steps[entry.slot] = step, now_s
            self._begun.setdefault(entry.slot, now_s)

    def in_step_s(self, entry: SlotEntry, now_s: float) -> float:
        known = self._steps.get(entry.slot)
        return now_s - known[1] if known is not None else 0.0

    def ended(self, slot: int, now_s: float, *, well: bool, pause_s: float) -> float:
        """A move has ended; returns how long it took. After a failure the slot may not move again for a while."""
        if well:
            self._failed.pop(slot, None)
        else:
            failures = self._failed.get(slot, (0, 0.0))[0] + 1
            again = failures < _TRIES
            self._failed[slot] = failures if again else 0, now_s + (pause_s * _SHORT_PAUSE if again else pause_s)
        return now_s - self._begun.pop(slot, now_s)

    def may_move(self, slot: int, now_s: float) -> bool:
        return slot not in self._failed or self._failed[slot][1] <= now_s


class Phases:
    """How long each shard has been in its phase, on this manager's clock. Standbys record it too. ``phaseSince`` comes
    from the clock of an earlier leader: it only shows that a phase was entered again."""

    def __init__(self) -> None:
        self._seen: dict[str, tuple[tuple[str, str], float]] = {}

    def saw(self, instance: Obj, now_s: float) -> float:
        """Record that a ShardInstance was seen; returns how long ago it was first seen in this phase (monotonic)."""
        name, status = instance["metadata"]["name"], instance.get("status") or {}
        said = status.get("phase", ""), status.get("phaseSince", "")
        known = self._seen.get(name)
        if known is None or known[0] != said:
            known = self._seen[name] = said, now_s
        return now_s - known[1]

    def forget(self, shard: str) -> None:
        self._seen.pop(shard, None)


@dataclass(slots=True)
class ShardHealth:
    """Results of a shard's health check."""

    errors: int = 0  # in a row
    checked_at: str = ""
    message: str = ""


@dataclass(slots=True)
class ManagerMemory:
    observations: LeaseObservations = field(default_factory=LeaseObservations)
    phases: Phases = field(default_factory=Phases)
    timers: MoveTimers = field(default_factory=MoveTimers)
    samples: deque[LoadSample] = field(default_factory=deque)
    health: dict[str, ShardHealth] = field(default_factory=dict)
    objects: SlotCounts = field(default_factory=SlotCounts)
    turn: int = 0  # of round-robin
    status_s: dict[str, float] = field(default_factory=dict)  # when a status was last written
    imbalanced_s: float | None = None  # since when the loads differ by more than the threshold
    scaled_s: float | None = None
    figures: PassFigures | None = None
    target_problems: dict[str, str] = field(default_factory=dict)  # kind -> why its objects cannot be shared out
    refused_pods: dict[str, str] = field(default_factory=dict)  # shard -> why the server refused its pod

    def forget(self, shard: str) -> None:
        self.observations.forget(shard)
        self.health.pop(shard, None)
        self.status_s.pop(shard, None)
        self.refused_pods.pop(shard, None)


@dataclass(frozen=True, slots=True, kw_only=True)
class PassFigures:
    """The figures of the last pass, for metrics."""

    phases: dict[str, int]
    healthy: int
    load: float
    queue_depth: int
    unowned: int
    moving: int
