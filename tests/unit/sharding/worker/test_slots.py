"""The worker's slot machine: its steps for an entry, and that two workers never work on one slot."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.sharding.leases import Ack, AckKind
from shoal.sharding.model import Move, MovePhase, SlotEntry
from shoal.sharding.worker.slots import SlotMachine, SlotStep, SlotStepKind

MINE = SlotEntry(slot=7, owner="a", term=1, epoch=10)
WATCHED = frozenset({7})


def working(entry: SlotEntry = MINE) -> SlotMachine:
    machine = SlotMachine("a", 1)
    machine.table([entry])
    machine.watched(WATCHED)
    return machine


def drain(entry: SlotEntry = MINE, *, next_epoch: int = 11) -> SlotEntry:
    return replace(entry, move=Move(phase=MovePhase.DRAIN, to="b", to_term=1, next_epoch=next_epoch))


def test_a_slot_is_worked_on_when_its_objects_are_there() -> None:
    machine = SlotMachine("a", 1)
    assert machine.table([MINE]) == [SlotStep(SlotStepKind.WATCH, -1)]
    assert machine.epoch_of(7) is None
    assert machine.watched(WATCHED) == [SlotStep(SlotStepKind.WORK, 7, 10)]
    assert machine.epoch_of(7) == 10
    assert machine.table([MINE]) == []


def test_a_slot_that_left_and_came_back_waits_for_its_objects() -> None:
    machine = working()
    assert SlotStep(SlotStepKind.STOP, 7) in machine.table([replace(MINE, owner="b", epoch=11)])
    assert machine.table([replace(MINE, epoch=12)]) == [SlotStep(SlotStepKind.WATCH, -1)]
    assert machine.epoch_of(7) is None  # the caches may have dropped it in between
    assert machine.watched(WATCHED) == [SlotStep(SlotStepKind.WORK, 7, 12)]


def test_a_slot_of_another_term_is_not_owned() -> None:
    machine = SlotMachine("a", 2)
    assert machine.table([MINE]) == []
    assert machine.wanted == frozenset()


def test_a_slot_that_drains_is_not_worked_on_and_acknowledged_when_nothing_runs() -> None:
    machine = working()
    assert machine.table([drain()]) == [SlotStep(SlotStepKind.DRAIN, 7, 11)]
    assert machine.epoch_of(7) is None and not machine.acks
    machine.drained(7, 11, "d")
    assert dict(machine.acks) == {7: Ack(7, 11, AckKind.DRAINED, "d")}
    assert machine.table([drain()]) == [], "said once is enough"


def test_an_acknowledgement_is_kept_while_the_entry_has_its_move() -> None:
    machine = working()
    machine.table([drain()])
    machine.drained(7, 11)
    machine.table([drain()])
    assert machine.acks
    machine.table([replace(MINE, epoch=12)])
    assert not machine.acks and machine.epoch_of(7) == 12


def test_a_move_that_is_given_up_gives_the_slot_back_with_its_new_epoch() -> None:
    machine = working()
    machine.table([drain()])
    assert machine.table([replace(MINE, epoch=12)]) == [
        SlotStep(SlotStepKind.STOP, 7),
        SlotStep(SlotStepKind.WORK, 7, 12),
    ]
    machine.drained(7, 11)  # too late: it is about a move that is not
    assert not machine.acks


def test_a_coming_slot_is_watched_first_and_then_acknowledged() -> None:
    machine = SlotMachine("b", 1)
    coming = replace(MINE, move=Move(phase=MovePhase.PREPARE, to="b", to_term=1, next_epoch=11))
    assert machine.table([coming]) == [SlotStep(SlotStepKind.WATCH, -1)]
    assert not machine.acks
    assert machine.watched(WATCHED) == []
    assert dict(machine.acks) == {7: Ack(7, 11, AckKind.PREPARED)}
    assert machine.epoch_of(7) is None
    taken = SlotEntry(
        slot=7, owner="b", term=1, epoch=11, move=Move(phase=MovePhase.RESTORE, source="a", state="s", digest="d")
    )
    assert machine.table([taken]) == [SlotStep(SlotStepKind.RESTORE, 7, 11, "s", "d")]
    assert machine.epoch_of(7) is None
    assert machine.restored(7, 11, "d") == [SlotStep(SlotStepKind.WORK, 7, 11)]
    assert machine.epoch_of(7) == 11
    assert dict(machine.acks) == {7: Ack(7, 11, AckKind.RESTORED, "d")}
    assert machine.table([replace(taken, move=None)]) == []
    assert not machine.acks


def test_a_failed_restore_is_acknowledged_and_the_slot_not_worked_on() -> None:
    machine = SlotMachine("b", 1)
    machine.watched(WATCHED)
    machine.table([SlotEntry(slot=7, owner="b", term=1, epoch=11, move=Move(phase=MovePhase.RESTORE, state="s"))])
    machine.failed(7, 11)
    assert dict(machine.acks) == {7: Ack(7, 11, AckKind.FAILED)}
    assert machine.epoch_of(7) is None


def test_a_slot_that_went_to_another_is_stopped() -> None:
    machine = working()
    assert machine.table([replace(MINE, owner="b", epoch=11)]) == [
        SlotStep(SlotStepKind.STOP, 7),
        SlotStep(SlotStepKind.WATCH, -1),
    ]
    assert machine.empty


def test_all_slots_end_with_the_term() -> None:
    machine = working()
    assert machine.lost() == [SlotStep(SlotStepKind.STOP, 7)]
    assert machine.epoch_of(7) is None and machine.empty


class Manager:
    """The part of a manager that moves one slot between two live shards."""

    def __init__(self) -> None:
        self.entry = SlotEntry(slot=7, owner="a", term=1, epoch=1)
        self.log = [self.entry]
        self.machines = {name: SlotMachine(name, 1) for name in "ab"}
        self.seen = dict.fromkeys("ab", 0)

    def write(self, entry: SlotEntry) -> None:
        self.entry = entry
        self.log.append(entry)

    def step(self, action: str) -> None:
        entry, move = self.entry, self.entry.move
        other = "b" if entry.owner == "a" else "a"
        if action == "plan" and move is None:
            prepare = Move(phase=MovePhase.PREPARE, to=other, to_term=1, next_epoch=entry.epoch + 1)
            self.write(replace(entry, move=prepare))
        elif action == "abort" and move is not None and move.phase is not MovePhase.RESTORE:
            self.write(replace(entry, epoch=move.next_epoch + 1, move=None))
        elif action == "advance" and move is not None:
            self.advance(entry, move)
        elif action in "ab":  # one machine sees one more version of the table
            self.see(action)
        elif action in ("watch a", "watch b"):
            machine = self.machines[action[-1]]
            self.shell(machine, machine.watched(machine.wanted))

    def advance(self, entry: SlotEntry, move: Move) -> None:
        if move.phase is MovePhase.PREPARE:
            if self.acked(move.to, move.next_epoch, AckKind.PREPARED):
                self.write(replace(entry, move=replace(move, phase=MovePhase.DRAIN)))
        elif move.phase is MovePhase.DRAIN:
            if self.acked(entry.owner, move.next_epoch, AckKind.DRAINED):
                restore = Move(phase=MovePhase.RESTORE, source=entry.owner)
                self.write(SlotEntry(slot=7, owner=move.to, term=1, epoch=move.next_epoch, move=restore))
        elif self.acked(entry.owner, entry.epoch, AckKind.RESTORED):
            self.write(replace(entry, move=None))

    def acked(self, name: str, epoch: int, kind: AckKind) -> bool:
        ack = self.machines[name].acks.get(7)
        return ack is not None and (ack.epoch, ack.kind) == (epoch, kind)

    def see(self, name: str) -> None:
        if self.seen[name] < len(self.log):
            machine = self.machines[name]
            self.shell(machine, machine.table([self.log[self.seen[name]]]))
            self.seen[name] += 1

    def shell(self, machine: SlotMachine, steps: list[SlotStep]) -> None:
        for step in steps:
            if step.kind is SlotStepKind.DRAIN:
                machine.drained(step.slot, step.epoch)
            elif step.kind is SlotStepKind.RESTORE:
                self.shell(machine, machine.restored(step.slot, step.epoch))


ACTIONS = st.lists(st.sampled_from(["plan", "abort", "advance", "a", "b", "watch a", "watch b"]), max_size=80)


@given(ACTIONS)
@settings(max_examples=400, deadline=None)
def test_two_workers_never_work_on_one_slot_however_late_they_see_the_table(actions: list[str]) -> None:
    manager = Manager()
    epochs = [0]
    for action in actions:
        manager.step(action)
        working = [epoch for machine in manager.machines.values() if (epoch := machine.epoch_of(7)) is not None]
        assert len(working) <= 1
        if working and working[0] != epochs[-1]:
            assert working[0] > epochs[-1], "epochs only rise"
            epochs.append(working[0])


@given(ACTIONS)
@settings(max_examples=200, deadline=None)
def test_a_move_that_is_left_alone_ends_with_one_owner_at_work(actions: list[str]) -> None:
    manager = Manager()
    for action in (*actions, *(["a", "b", "watch a", "watch b", "advance"] * (len(actions) + 8))):
        manager.step(action)
    assert manager.entry.move is None
    assert manager.machines[manager.entry.owner].epoch_of(7) == manager.entry.epoch
