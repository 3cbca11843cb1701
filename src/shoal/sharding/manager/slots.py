"""Plans the next slot table, pure: advances moves, reassigns slots of dead shards, begins new moves within a limit."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from shoal.sharding.migration.plan import MoveOutcome, MoveParticipant, MoveStep, advance, begin, give
from shoal.sharding.model import SlotEntry
from shoal.sharding.plan import Members, rebalance, share_out


@dataclass(frozen=True, slots=True, kw_only=True)
class TablePlan:
    """The table to write, and the changes that led to it."""

    entries: tuple[SlotEntry, ...]
    changed: tuple[int, ...] = ()  # slots
    finished: tuple[MoveStep, ...] = ()  # moves that have ended, successful or aborted
    given: Mapping[str, int] = field(default_factory=dict)  # shard -> slots it got because they had no owner
    begun: tuple[SlotEntry, ...] = ()
    moving: int = 0
    pending: int = 0  # moves that must wait to begin
    waiting_for: frozenset[str] = frozenset()  # shards that moves, under way or pending, go to or come from
    rebalanced: int = 0  # moves that are to begin only to even out loads


@dataclass(frozen=True, slots=True, kw_only=True)
class TableView:
    """Input of ``plan_table``."""

    config: str
    entries: Sequence[SlotEntry]
    participants: Mapping[str, MoveParticipant]
    members: Members
    strategy: str
    limit: int  # moves under way at a time
    weights: Sequence[float] | None = None
    loads: Mapping[str, float] = field(default_factory=dict)  # of the shards that may own slots; empty: no rebalancing
    rebalance_threshold: float = 1.0
    timed_out: Callable[[SlotEntry], bool] = lambda _: False
    may_move: Callable[[int], bool] = lambda _: True  # whether a slot may begin a move; not soon after an abort


def plan_table(view: TableView) -> TablePlan:
    entries = list(view.entries)
    finished: list[MoveStep] = []
    for slot, entry in enumerate(entries):
        if entry.move is not None:
            step = advance(entry, view.participants, view.config, timed_out=view.timed_out(entry))
            entries[slot] = step.entry
            if step.outcome in (MoveOutcome.MOVED, MoveOutcome.ABORTED):
                finished.append(step)
    held = _held(view)
    next_owners = _next_owners(entries, held, view)
    wanted = share_out(next_owners, view.members, view.strategy, view.weights)
    given = _give(entries, wanted, held, view)
    evened = _rebalanced(entries, wanted, view)
    for slot, shard in evened.items():
        wanted[slot] = shard
    begun, pending, busy = _begin(entries, wanted, held, view)
    changed = tuple(slot for slot, entry in enumerate(entries) if entry != view.entries[slot])
    return TablePlan(
        entries=tuple(entries),
        changed=changed,
        finished=tuple(finished),
        given=given,
        begun=tuple(begun),
        moving=sum(entry.move is not None for entry in entries),
        pending=pending,
        waiting_for=frozenset(busy),
        rebalanced=len(evened),
    )


Held = frozenset[tuple[str, int]]  # (shard, term) of the shards that may work on their slots


def _held(view: TableView) -> Held:
    return frozenset((name, participant.term) for name, participant in view.participants.items() if participant.alive)


def _next_owners(entries: Sequence[SlotEntry], held: Held, view: TableView) -> list[str]:
    # a restarted shard, or its successor, gets its slots back; slots of other absent shards have no owner
    known = frozenset((*view.members.receiving, *view.members.successors))
    return [
        entry.next_owner if (entry.owner, entry.term) in held else entry.owner if entry.owner in known else ""
        for entry in entries
    ]


def _give(entries: list[SlotEntry], wanted: Sequence[str], held: Held, view: TableView) -> dict[str, int]:
    """Reassign slots without an owner at once."""
    given: dict[str, int] = {}
    receiving = frozenset(view.members.receiving)
    for slot, entry in enumerate(entries):
        to = wanted[slot]
        if (entry.owner, entry.term) not in held and to in receiving:
            entries[slot] = give(entry, to, view.participants[to].term)
            given[to] = given.get(to, 0) + 1
    return given


def _rebalanced(entries: Sequence[SlotEntry], wanted: Sequence[str], view: TableView) -> dict[int, str]:
    """Only while no slot moves: the reported loads do not show moves under way yet."""
    if not view.loads or any(entry.move is not None or entry.owner != wanted[entry.slot] for entry in entries):
        return {}
    return rebalance(wanted, view.loads, view.rebalance_threshold, view.weights)


def _begin(
    entries: list[SlotEntry], wanted: Sequence[str], held: Held, view: TableView
) -> tuple[list[SlotEntry], int, set[str]]:
    busy = {
        name
        for entry in entries
        if entry.move is not None
        for name in (entry.owner, entry.next_owner, entry.move.source)
    }
    room = view.limit - sum(entry.move is not None for entry in entries)
    begun: list[SlotEntry] = []
    pending = 0
    for slot, entry in enumerate(entries):
        to = wanted[slot]
        if to == entry.owner or entry.move is not None or to not in view.participants:
            continue
        if (entry.owner, entry.term) not in held:
            continue
        busy.update((entry.owner, to))
        if room <= 0 or not view.may_move(slot):
            pending += 1
            continue
        room -= 1
        entries[slot] = begin(entry, to, view.participants[to].term)
        begun.append(entries[slot])
    return begun, pending, busy
