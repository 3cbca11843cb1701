"""Plans the owner of each slot, pure: from the current owners, the live shards and the assignment strategy.

A plan is the smallest change: only the slots of a leaving shard and the share of a joining shard move. Input and output
are lists of *next owners*: for each of the 1024 slots its owner once the moves under way have ended.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heapreplace
from math import ceil, floor

from shoal.sharding.model import SLOTS
from shoal.sharding.ring import Ring, preferences, slot_of_key

BOUND = 1.25  # no shard has more than this times the mean, by number of slots
REBALANCED = 0.1  # of the busiest shard's slots at a time


@dataclass(frozen=True, slots=True, kw_only=True)
class Members:
    """The shards that may own slots."""

    settled: tuple[str, ...] = ()  # have received their share
    joining: tuple[str, ...] = ()  # have not yet; in the order in which they started
    keeping: tuple[str, ...] = ()  # keep their slots and receive no more
    successors: Mapping[str, str] = field(default_factory=dict)  # leaving shard -> the shard that takes all its slots

    @property
    def receiving(self) -> tuple[str, ...]:
        return (*self.settled, *self.joining)


def share_out(
    next_owners: Sequence[str], members: Members, strategy: str, weights: Sequence[float] | None = None
) -> list[str]:
    """The new next owners. ``weights`` has the weight of each slot, for ``least-loaded``; without it all are equal."""
    made = list(next_owners)
    present = set(members.receiving)
    if not present:
        return made  # leaving shards keep their slots until another shard can take them
    if not members.joining and not members.successors and present.union(members.keeping).issuperset(made):
        return made
    for slot, owner in enumerate(made):
        successor = members.successors.get(owner, "")
        if successor in present:
            made[slot] = successor
    _assign_unowned(made, members, strategy, weights)
    successors = set(members.successors.values())
    newcomers = [name for name in members.joining if name not in successors]
    if newcomers:
        known = [*members.settled, *(name for name in members.joining if name in successors)]
        _join(made, newcomers, known, strategy, weights)
    return made


def _assign_unowned(made: list[str], members: Members, strategy: str, weights: Sequence[float] | None) -> None:
    """Assign every slot whose owner is absent."""
    present = set(members.receiving)
    unowned = [slot for slot, owner in enumerate(made) if owner not in present and owner not in members.keeping]
    if not unowned:
        return
    # newcomers take their share below; unowned slots may go to them as well
    if strategy == "consistent-hash":
        ring = Ring(present)
        cap = ceil(BOUND * SLOTS / len(present))
        counts = Counter(owner for owner in made if owner in present)
        for slot in unowned:
            chosen = ring.first(slot, lambda shard: counts[shard] < cap)
            counts[chosen] += 1
            made[slot] = chosen
        return
    weighed = weights if strategy == "least-loaded" and weights is not None else None
    sums = dict.fromkeys(members.receiving, 0.0)
    for slot, owner in enumerate(made):
        if owner in present:
            sums[owner] += _weight(slot, weighed)
    heap = [(total, shard) for shard, total in sums.items()]
    heapify(heap)
    for slot in _heaviest_first(unowned, weighed):
        total, shard = heap[0]
        made[slot] = shard
        heapreplace(heap, (total + _weight(slot, weighed), shard))


def _join(
    made: list[str], newcomers: Sequence[str], known: Sequence[str], strategy: str, weights: Sequence[float] | None
) -> None:
    """Move a share of the slots from the known shards to the new ones."""
    counts = Counter(made)
    size = len(known) + len(newcomers)
    if strategy == "consistent-hash":
        _join_ring(made, counts, newcomers, known)
        return
    weighed = weights if strategy == "least-loaded" and weights is not None else None
    owned = _owned(made)
    share = max(1, SLOTS // size)
    for newcomer in newcomers:
        while counts[newcomer] < share:
            donors = (shard for shard in known if owned.get(shard))
            donor = max(donors, key=lambda shard: (counts[shard], shard), default="")
            if not donor or counts[donor] <= counts[newcomer] + 1:
                break
            slot = _middling(owned[donor], weighed)
            owned[donor].remove(slot)
            _hand_over(made, counts, slot, newcomer)


def _join_ring(made: list[str], counts: Counter[str], newcomers: Sequence[str], known: Sequence[str]) -> None:
    size = len(known) + len(newcomers)
    limit, cap = max(1, floor(BOUND * SLOTS / size)), ceil(BOUND * SLOTS / size)
    preferred = preferences(frozenset((*known, *newcomers)))
    fresh, donors = frozenset(newcomers), frozenset(known)
    wanted = [slot for slot in range(SLOTS) if preferred[slot] in fresh and made[slot] in donors]
    # first the slots of owners above the cap, then any slot that prefers a newcomer
    for slot in sorted(wanted, key=lambda slot: counts[made[slot]] <= cap):
        if counts[preferred[slot]] < limit:
            _hand_over(made, counts, slot, preferred[slot])
    for slot in range(SLOTS):
        if made[slot] in donors and counts[made[slot]] > cap:
            idlest = min(newcomers, key=lambda shard: (counts[shard], shard))
            if counts[idlest] < limit:
                _hand_over(made, counts, slot, idlest)


def _hand_over(made: list[str], counts: Counter[str], slot: int, to: str) -> None:
    counts[made[slot]] -= 1
    counts[to] += 1
    made[slot] = to


def _owned(next_owners: Sequence[str]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for slot, owner in enumerate(next_owners):
        found.setdefault(owner, []).append(slot)
    return found


def _weight(slot: int, weights: Sequence[float] | None) -> float:
    # a slot without objects weighs a little: slots are shared out evenly before there are objects
    return 1.0 if weights is None else weights[slot] + 0.01


def _heaviest_first(slots: Iterable[int], weights: Sequence[float] | None) -> list[int]:
    return sorted(slots, key=lambda slot: (-_weight(slot, weights), slot))


def _middling(slots: Sequence[int], weights: Sequence[float] | None) -> int:
    """A slot of median weight, so that a newcomer's share is like those of the other shards."""
    if weights is None:
        return slots[-1]
    ordered = sorted(slots, key=lambda slot: (_weight(slot, weights), slot))
    return ordered[len(ordered) // 2]


# moving load


def rebalance(
    next_owners: Sequence[str], loads: Mapping[str, float], threshold: float, weights: Sequence[float] | None = None
) -> dict[int, str]:
    """Slots that should go from the busiest shard to the least busy one, with their new owner; none when their loads
    differ by no more than ``threshold``. ``loads`` has the shards that may own slots, and no others."""
    if len(loads) < 2:
        return {}
    busiest = max(loads, key=lambda shard: (loads[shard], shard))
    idlest = min(loads, key=lambda shard: (loads[shard], shard))
    gap = loads[busiest] - loads[idlest]
    if gap <= threshold:
        return {}
    owned = [slot for slot, owner in enumerate(next_owners) if owner == busiest]
    if len(owned) < 2:
        return {}
    total = sum(_weight(slot, weights) for slot in owned)
    # half the gap evens the loads; a tenth of the slots at a time, so that the measured load can follow
    enough = total * min(0.5, gap / (2 * loads[busiest]))
    moved: dict[int, str] = {}
    weight = 0.0
    for slot in _heaviest_first(owned, weights):
        if len(moved) >= max(1, int(len(owned) * REBALANCED)) or (moved and weight >= enough):
            break
        if weight + _weight(slot, weights) <= enough or not moved:
            moved[slot] = idlest
            weight += _weight(slot, weights)
    return moved


# choosing an object's slot


def choose_slot(strategy: str, key: str, *, turn: int = 0, idlest: Sequence[int] = ()) -> int:
    """The slot of a new object: by its key, or the next in turn, or one of the least loaded shard (``idlest``)."""
    if strategy == "round-robin":
        return _SPREAD[turn % SLOTS]
    if strategy == "least-loaded" and idlest:
        return idlest[turn % len(idlest)]
    return slot_of_key(key)


# consecutive turns give slots far apart on the ring, so that a few objects reach all shards
_SPREAD = tuple((turn * 617) % SLOTS for turn in range(SLOTS))
