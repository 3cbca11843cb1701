"""State machine of a worker's slots; it never awaits.

Input: changed entries of the slot table, and the results of steps. Output: steps for the worker to do, and
acknowledgements for its Lease. Before a handler starts, ``epoch_of`` says whether the slot is owned, and with which
epoch.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from shoal.sharding.leases import Ack, AckKind
from shoal.sharding.model import MovePhase, SlotDuty, SlotEntry, slot_duty


class SlotStepKind(StrEnum):
    WATCH = "watch"  # the set of slots to watch has changed
    WORK = "work"  # handle all objects of the slot, with a new epoch
    DRAIN = "drain"  # start no handler, wait for running ones, save the state, then call ``drained``
    RESTORE = "restore"  # load the state, then call ``restored`` or ``failed``
    STOP = "stop"  # not owned any more: cancel its handlers


@dataclass(frozen=True, slots=True)
class SlotStep:
    kind: SlotStepKind
    slot: int
    epoch: int = 0  # DRAIN: the next owner's; RESTORE: this shard's
    state: str = ""
    digest: str = ""


class SlotPhase(StrEnum):
    COMING = "coming"
    WORKING = "working"
    DRAINING = "draining"  # also after it was acknowledged
    RESTORING = "restoring"


@dataclass(frozen=True, slots=True)
class _Slot:
    phase: SlotPhase
    epoch: int  # WORKING, RESTORING: this shard's; COMING, DRAINING: the next


class SlotMachine:
    """For one shard in one term of its Lease."""

    def __init__(self, shard: str, term: int) -> None:
        self.shard = shard
        self.term = term
        self._slots: dict[int, _Slot] = {}
        self._entries: dict[int, SlotEntry] = {}
        self._acks: dict[int, Ack] = {}
        self._watched: frozenset[int] = frozenset()  # slots whose objects the caches have

    # state

    def epoch_of(self, slot: int) -> int | None:
        """The epoch with which the slot's objects may be handled now; None: they may not."""
        held = self._slots.get(slot)
        return held.epoch if held is not None and held.phase is SlotPhase.WORKING and slot in self._watched else None

    @property
    def wanted(self) -> frozenset[int]:
        """The slots whose objects the worker watches."""
        return frozenset(self._slots)

    @property
    def owned(self) -> frozenset[int]:
        """The slots that may be worked on now."""
        return frozenset(slot for slot in self._slots if self.epoch_of(slot) is not None)

    @property
    def acks(self) -> Mapping[int, Ack]:
        """For the Lease."""
        return self._acks

    @property
    def empty(self) -> bool:
        """Whether the table has nothing for this shard."""
        return not self._slots

    # what happens

    def table(self, entries: Iterable[SlotEntry]) -> list[SlotStep]:
        """Entries that may have changed."""
        steps: list[SlotStep] = []
        before = frozenset(self._slots)
        for entry in entries:
            self._entries[entry.slot] = entry
            steps += self._entry(entry)
            self._prune(entry)
        after = frozenset(self._slots)
        if after != before:
            self._watched -= before - after  # caches drop objects of slots that left
            steps.append(SlotStep(SlotStepKind.WATCH, -1))
        return steps

    def watched(self, slots: frozenset[int]) -> list[SlotStep]:
        """The caches have the objects of exactly these slots."""
        fresh = slots - self._watched
        self._watched = slots
        steps = []
        for slot in sorted(fresh & self._slots.keys()):
            held = self._slots[slot]
            if held.phase is SlotPhase.COMING:
                self._acks[slot] = Ack(slot, held.epoch, AckKind.PREPARED)
            elif held.phase is SlotPhase.WORKING:
                steps.append(SlotStep(SlotStepKind.WORK, slot, held.epoch))
        return steps

    def drained(self, slot: int, epoch: int, digest: str = "") -> None:
        """No handler of the slot runs, and its state, if it has one, is saved."""
        if self._is(slot, SlotPhase.DRAINING, epoch):
            self._acks[slot] = Ack(slot, epoch, AckKind.DRAINED, digest)

    def restored(self, slot: int, epoch: int, digest: str = "") -> list[SlotStep]:
        if not self._is(slot, SlotPhase.RESTORING, epoch):
            return []
        self._acks[slot] = Ack(slot, epoch, AckKind.RESTORED, digest)
        return self._work(slot, epoch)

    def failed(self, slot: int, epoch: int) -> None:
        """The state could not be loaded: the manager returns the slot to the source."""
        if self._is(slot, SlotPhase.RESTORING, epoch):
            self._acks[slot] = Ack(slot, epoch, AckKind.FAILED)

    def lost(self) -> list[SlotStep]:
        """The term has ended: no slot is owned any more."""
        steps = [SlotStep(SlotStepKind.STOP, slot) for slot in sorted(self._slots)]
        self._slots.clear()
        self._acks.clear()
        return steps

    # one entry

    def _entry(self, entry: SlotEntry) -> list[SlotStep]:
        slot, move = entry.slot, entry.move
        held = self._slots.get(slot)
        asked = slot_duty(entry, self.shard, self.term)
        if asked is SlotDuty.NONE:
            return [] if self._slots.pop(slot, None) is None else [SlotStep(SlotStepKind.STOP, slot)]
        if asked is SlotDuty.WORK:
            if held == _Slot(SlotPhase.WORKING, entry.epoch):
                return []
            again = held is not None and held.phase is not SlotPhase.COMING
            # running handlers have the old epoch and must not write with it
            return [
                *([SlotStep(SlotStepKind.STOP, slot)] if again and held is not None else []),
                *self._work(slot, entry.epoch),
            ]
        assert move is not None
        if asked is SlotDuty.PREPARE:
            if held != _Slot(SlotPhase.COMING, move.next_epoch):
                self._slots[slot] = _Slot(SlotPhase.COMING, move.next_epoch)
                if slot in self._watched:
                    self._acks[slot] = Ack(slot, move.next_epoch, AckKind.PREPARED)
            return []
        if asked is SlotDuty.DRAIN:
            if held == _Slot(SlotPhase.DRAINING, move.next_epoch):
                return []
            self._slots[slot] = _Slot(SlotPhase.DRAINING, move.next_epoch)
            return [SlotStep(SlotStepKind.DRAIN, slot, move.next_epoch)]
        if held is not None and held.epoch == entry.epoch and held.phase in (SlotPhase.RESTORING, SlotPhase.WORKING):
            return []
        self._slots[slot] = _Slot(SlotPhase.RESTORING, entry.epoch)
        return [SlotStep(SlotStepKind.RESTORE, slot, entry.epoch, move.state, move.digest)]

    def _work(self, slot: int, epoch: int) -> list[SlotStep]:
        self._slots[slot] = _Slot(SlotPhase.WORKING, epoch)
        return [SlotStep(SlotStepKind.WORK, slot, epoch)] if slot in self._watched else []

    def _prune(self, entry: SlotEntry) -> None:
        """Forget the acknowledgement of a move that the entry no longer has."""
        ack, move = self._acks.get(entry.slot), entry.move
        if ack is None:
            return
        spoken = move is not None and (
            (move.phase is MovePhase.RESTORE and ack.epoch == entry.epoch)
            or (move.phase is not MovePhase.RESTORE and ack.epoch == move.next_epoch)
        )
        if not spoken:
            del self._acks[entry.slot]

    def _is(self, slot: int, phase: SlotPhase, epoch: int) -> bool:
        return self._slots.get(slot) == _Slot(phase, epoch)
