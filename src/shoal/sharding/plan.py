"""Plans the owner of each slot, pure: from the current owners, the live shards and the assignment strategy.

Always the smallest change: a shard that leaves gives only its own slots away, a shard that joins takes only its share,
and nothing else moves. A *heir list* says for each of the 1024 slots who has it, or will have it when what is under way
has ended; it is what comes in and what goes out.
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
    """The shards that may own slots, and why some of them get theirs from elsewhere."""

    settled: tuple[str, ...] = ()  # have had their share
    joining: tuple[str, ...] = ()  # have not; in the order in which they came
    keeping: tuple[str, ...] = ()  # keep what they have and get nothing more
    successors: Mapping[str, str] = field(default_factory=dict)  # shard that leaves -> who takes all its slots

    @property
    def receiving(self) -> tuple[str, ...]:
        return (*self.settled, *self.joining)


def share_out(
    heirs: Sequence[str], members: Members, strategy: str, weights: Sequence[float] | None = None
) -> list[str]:
    """The new heir list. ``weights`` says how much each slot weighs, for ``least-loaded``; equal when not given."""
    made = list(heirs)
    present = set(members.receiving)
    if not present:
        return made  # those who leave keep what they have until there is somebody to take it
    if not members.joining and not members.successors and present.union(members.keeping).issuperset(made):
        return made
    for slot, heir in enumerate(made):
        successor = members.successors.get(heir, "")
        if successor in present:
            made[slot] = successor
    _adopt(made, members, strategy, weights)
    successors = set(members.successors.values())
    newcomers = [name for name in members.joining if name not in successors]
    if newcomers:
        known = [*members.settled, *(name for name in members.joining if name in successors)]
        _join(made, newcomers, known, strategy, weights)
    return made


def _adopt(made: list[str], members: Members, strategy: str, weights: Sequence[float] | None) -> None:
    """Give every slot whose owner is not there a new one."""
    present = set(members.receiving)
    homeless = [slot for slot, heir in enumerate(made) if heir not in present and heir not in members.keeping]
    if not homeless:
        return
    # newcomers take their share below; homeless slots may go to them as well
    if strategy == "consistent-hash":
        ring = Ring(present)
        cap = ceil(BOUND * SLOTS / len(present))
        counts = Counter(heir for heir in made if heir in present)
        for slot in homeless:
            chosen = ring.first(slot, lambda shard: counts[shard] < cap)
            counts[chosen] += 1
            made[slot] = chosen
        return
    weighed = weights if strategy == "least-loaded" and weights is not None else None
    sums = dict.fromkeys(members.receiving, 0.0)
    for slot, heir in enumerate(made):
        if heir in present:
            sums[heir] += _weight(slot, weighed)
    heap = [(total, shard) for shard, total in sums.items()]
    heapify(heap)
    for slot in _heaviest_first(homeless, weighed):
        total, shard = heap[0]
        made[slot] = shard
        heapreplace(heap, (total + _weight(slot, weighed), shard))


def _join(
    made: list[str], newcomers: Sequence[str], known: Sequence[str], strategy: str, weights: Sequence[float] | None
) -> None:
    """Let newcomers take their share from those who are there."""
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
    # what is too much for its owner now goes first, and anything of theirs when that is not enough
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


def _owned(heirs: Sequence[str]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for slot, heir in enumerate(heirs):
        found.setdefault(heir, []).append(slot)
    return found


def _weight(slot: int, weights: Sequence[float] | None) -> float:
    # a slot without objects weighs a little: slots are shared out evenly before there are objects
    return 1.0 if weights is None else weights[slot] + 0.01


def _heaviest_first(slots: Iterable[int], weights: Sequence[float] | None) -> list[int]:
    return sorted(slots, key=lambda slot: (-_weight(slot, weights), slot))


def _middling(slots: Sequence[int], weights: Sequence[float] | None) -> int:
    """A slot of middling weight, so that a newcomer's share is like the others'."""
    if weights is None:
        return slots[-1]
    ordered = sorted(slots, key=lambda slot: (_weight(slot, weights), slot))
    return ordered[len(ordered) // 2]


# moving load


def rebalance(
    heirs: Sequence[str], loads: Mapping[str, float], threshold: float, weights: Sequence[float] | None = None
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
    owned = [slot for slot, heir in enumerate(heirs) if heir == busiest]
    if len(owned) < 2:
        return {}
    total = sum(_weight(slot, weights) for slot in owned)
    # half the gap closes it; a tenth of the slots at a time, so that what is measured can follow
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
    """The slot of a new object: by its key, or the next in turn, or one of the least loaded shard's (``idlest``)."""
    if strategy == "round-robin":
        return _SPREAD[turn % SLOTS]
    if strategy == "least-loaded" and idlest:
        return idlest[turn % len(idlest)]
    return slot_of_key(key)


# neighbours in turn lie far from each other on the ring, so that a few objects reach all shards
_SPREAD = tuple((turn * 617) % SLOTS for turn in range(SLOTS))
