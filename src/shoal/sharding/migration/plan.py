"""The steps of a move, pure: decided from an entry of the slot table, its two shards' acknowledgements and the time.

    (plan) ─▶ Prepare ──prepared──▶ Drain ──drained──▶ Restore ──restored──▶ (clean up)
                 │                    │                   │
                 └──── abort: a higher epoch, back to the source ─┘

An acknowledgement counts only if it has the epoch of this move and comes from the term of the Lease that the entry
names, so that late acknowledgements of former owners have no effect. An abort issues an epoch higher than the one that
the move announced to the target. A dead shard needs no drain; the state that it has saved goes to the next owner.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from shoal.sharding.leases import Ack, AckKind
from shoal.sharding.model import Move, MovePhase, SlotEntry, state_name


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveParticipant:
    """One of the two shards of a move."""

    term: int
    alive: bool = True  # a worker holds its Lease, or may still hold it
    receiving: bool = True  # slots may move to it
    acks: Mapping[int, Ack] = field(default_factory=dict)  # kept also after the worker has released its Lease

    def said(self, slot: int, epoch: int) -> Ack | None:
        ack = self.acks.get(slot)
        return ack if ack is not None and ack.epoch == epoch else None


ABSENT = MoveParticipant(term=-2, alive=False, receiving=False)


class MoveOutcome(StrEnum):
    GOING = "going"
    MOVED = "moved"
    ABORTED = "aborted"
    FREE = "free"  # the slot has no owner: another shard can get it at once


@dataclass(frozen=True, slots=True)
class MoveStep:
    """The new entry and the outcome. ``reason`` is for people; ``discard`` names a ShardState to delete."""

    entry: SlotEntry
    outcome: MoveOutcome
    reason: str = ""
    discard: str = ""


def begin(entry: SlotEntry, to: str, term: int) -> SlotEntry:
    """Start a move of a slot that has an owner."""
    return replace(entry, move=Move(phase=MovePhase.PREPARE, to=to, to_term=term, next_epoch=entry.epoch + 1))


def give(entry: SlotEntry, to: str, term: int) -> SlotEntry:
    """Assign a slot without an owner, with its saved state."""
    epoch = max(entry.epoch, entry.move.next_epoch if entry.move is not None else 0) + 1
    move = entry.move
    if move is None or not move.state:
        return SlotEntry(slot=entry.slot, owner=to, term=term, epoch=epoch)
    kept = Move(phase=MovePhase.RESTORE, state=move.state, digest=move.digest)
    return SlotEntry(slot=entry.slot, owner=to, term=term, epoch=epoch, move=kept)


def is_held(entry: SlotEntry, participants: Mapping[str, MoveParticipant]) -> bool:
    """Whether the owner may still work on the slot, in the term in which it received it."""
    owner = participants.get(entry.owner, ABSENT)
    return owner.alive and owner.term == entry.term


def advance(
    entry: SlotEntry, participants: Mapping[str, MoveParticipant], config: str, *, timed_out: bool = False
) -> MoveStep:
    """The next step of an entry with a move under way."""
    move = entry.move
    assert move is not None
    match move.phase:
        case MovePhase.PREPARE:
            return _prepare(entry, move, participants, timed_out)
        case MovePhase.DRAIN:
            return _drain(entry, move, participants, config, timed_out)
        case MovePhase.RESTORE:
            return _restore(entry, move, participants, timed_out)


def _prepare(entry: SlotEntry, move: Move, participants: Mapping[str, MoveParticipant], timed_out: bool) -> MoveStep:
    target = _target(move, participants)
    if not is_held(entry, participants):
        return MoveStep(entry, MoveOutcome.FREE, "the source shard is gone")
    if target is None:
        return _abort(entry, move, "the target shard is gone")
    ack = target.said(entry.slot, move.next_epoch)
    if ack is not None and ack.kind is AckKind.FAILED:
        return _abort(entry, move, "the target shard cannot take the slot")
    if ack is not None and ack.kind is AckKind.PREPARED:
        return MoveStep(replace(entry, move=replace(move, phase=MovePhase.DRAIN)), MoveOutcome.GOING)
    return (
        _abort(entry, move, "the target shard was not ready in time")
        if timed_out
        else MoveStep(entry, MoveOutcome.GOING)
    )


def _drain(
    entry: SlotEntry, move: Move, participants: Mapping[str, MoveParticipant], config: str, timed_out: bool
) -> MoveStep:
    source, target = participants.get(entry.owner, ABSENT), _target(move, participants)
    ack = source.said(entry.slot, move.next_epoch)
    drained = ack is not None and ack.kind is AckKind.DRAINED
    promised = state_name(config, entry.slot, move.next_epoch)  # may exist without an acknowledgement
    digest = ack.digest if ack is not None and drained else ""
    state = promised if digest else ""
    if not is_held(entry, participants):
        left = replace(move, state=state, digest=digest)
        return MoveStep(replace(entry, move=left), MoveOutcome.FREE, "the source shard is gone")
    if target is None:
        return _abort(entry, move, "the target shard is gone", discard=promised)
    if drained:
        restore = Move(phase=MovePhase.RESTORE, source=entry.owner, state=state, digest=digest)
        moved = SlotEntry(slot=entry.slot, owner=move.to, term=move.to_term, epoch=move.next_epoch, move=restore)
        return MoveStep(moved, MoveOutcome.GOING)
    if timed_out:
        return _abort(entry, move, "the source shard did not stop in time", discard=promised)
    return MoveStep(entry, MoveOutcome.GOING)


def _restore(entry: SlotEntry, move: Move, participants: Mapping[str, MoveParticipant], timed_out: bool) -> MoveStep:
    if not is_held(entry, participants):
        return MoveStep(entry, MoveOutcome.FREE, "the target shard is gone")
    ack = participants[entry.owner].said(entry.slot, entry.epoch)
    if ack is not None and ack.kind is AckKind.RESTORED and ack.digest == move.digest:
        return MoveStep(replace(entry, move=None), MoveOutcome.MOVED, discard=move.state)
    failed = ack is not None and ack.kind in (AckKind.FAILED, AckKind.RESTORED)
    if not failed and not timed_out:
        return MoveStep(entry, MoveOutcome.GOING)
    reason = (
        "the target shard could not load the state" if failed else "the target shard did not load the state in time"
    )
    source = participants.get(move.source, ABSENT)
    if not move.source or not source.alive:
        # no other shard is left to try: work goes on without the state
        return MoveStep(replace(entry, move=None), MoveOutcome.ABORTED, f"{reason}; its state is discarded", move.state)
    back = replace(move, source="") if move.state else None
    again = SlotEntry(slot=entry.slot, owner=move.source, term=source.term, epoch=entry.epoch + 1, move=back)
    return MoveStep(again, MoveOutcome.ABORTED, reason)


def _target(move: Move, participants: Mapping[str, MoveParticipant]) -> MoveParticipant | None:
    target = participants.get(move.to, ABSENT)
    return target if target.alive and target.receiving and target.term == move.to_term else None


def _abort(entry: SlotEntry, move: Move, reason: str, *, discard: str = "") -> MoveStep:
    return MoveStep(replace(entry, epoch=move.next_epoch + 1, move=None), MoveOutcome.ABORTED, reason, discard)
