"""Plans for the whole slot table: in any order of events a slot has one owner, and all moves end."""

from __future__ import annotations

from random import Random

import pytest

from shoal.sharding.leases import Ack, AckKind
from shoal.sharding.manager.slots import TableView, plan_table
from shoal.sharding.migration.plan import MoveParticipant
from shoal.sharding.model import SLOTS, MovePhase, SlotDuty, SlotEntry, slot_duty
from shoal.sharding.plan import Members


class Actor:
    """A worker that sees the table late, acknowledges late, dies and comes back."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.term = 1
        self.alive = True
        self.leaving = False
        self.joined = False
        self.view: tuple[SlotEntry, ...] = ()
        self.acks: dict[int, Ack] = {}

    def look(self, table: tuple[SlotEntry, ...], random: Random) -> None:
        self.view = table
        for entry in table:
            self.acknowledge(entry, random)

    def acknowledge(self, entry: SlotEntry, random: Random) -> None:
        move, slot = entry.move, entry.slot
        match slot_duty(entry, self.name, self.term):
            case SlotDuty.PREPARE if move is not None:
                kind = AckKind.FAILED if random.random() < 0.05 else AckKind.PREPARED
                self.acks[slot] = Ack(slot, move.next_epoch, kind)
            case SlotDuty.DRAIN if move is not None:
                digest = f"s{slot}" if slot % 3 == 0 else ""
                self.acks[slot] = Ack(slot, move.next_epoch, AckKind.DRAINED, digest)
            case SlotDuty.RESTORE if move is not None:
                if random.random() < 0.9:
                    self.acks[slot] = Ack(slot, entry.epoch, AckKind.RESTORED, move.digest)
            case _:
                self.acks.pop(slot, None)

    def works(self) -> dict[int, int]:
        """The slots that it works on according to its view, with their epochs."""
        if not self.alive:
            return {}
        found = {}
        for entry in self.view:
            asked = slot_duty(entry, self.name, self.term)
            acked = self.acks.get(entry.slot)
            restored = acked is not None and acked.kind is AckKind.RESTORED
            if asked is SlotDuty.WORK or (asked is SlotDuty.RESTORE and restored):
                found[entry.slot] = entry.epoch
        return found


@pytest.mark.parametrize("seed", range(8))
def test_in_any_order_of_events_a_slot_has_one_worker_and_its_epochs_rise(seed):
    random = Random(seed)
    actors = {name: Actor(name) for name in "abcde"}
    table = tuple(SlotEntry(slot=slot, epoch=1) for slot in range(SLOTS))
    for step in range(40):
        event = random.random()
        actor = actors[random.choice("abcde")]
        if event < 0.12:
            actor.alive, actor.joined, actor.leaving = False, False, False  # its Lease was taken: it has stopped
        elif event < 0.24 and not actor.alive:
            actor.alive, actor.term, actor.acks, actor.view = True, actor.term + 1, {}, ()
        elif event < 0.3:
            actor.leaving = not actor.leaving
        for each in actors.values():
            if each.alive and random.random() < 0.6:
                each.look(table, random)
        able = [each for each in actors.values() if each.alive and not each.leaving]
        members = Members(
            settled=tuple(each.name for each in able if each.joined),
            joining=tuple(each.name for each in able if not each.joined),
        )
        known = {
            each.name: MoveParticipant(term=each.term, alive=each.alive, receiving=each in able, acks=dict(each.acks))
            for each in actors.values()
        }
        late = random.random() < 0.2
        plan = plan_table(
            TableView(
                config="web", entries=table, participants=known, members=members, strategy="consistent-hash", limit=100,
                timed_out=lambda _, late=late: late and random.random() < 0.3,
            )
        )  # fmt: skip
        for before, after in zip(table, plan.entries, strict=True):
            assert after.epoch >= before.epoch
            if (after.owner, after.term) != (before.owner, before.term):
                assert after.epoch > before.epoch
        assert plan.moving <= 100 or not plan.begun
        table = plan.entries
        for each in able:
            each.joined = each.joined or any(entry.owner == each.name for entry in table)
        working: dict[int, str] = {}
        for each in actors.values():
            for slot in each.works():
                assert slot not in working, f"step {step}: slot {slot} has {working[slot]} and {each.name}"
                working[slot] = each.name
    assert any(entry.epoch > 1 for entry in table)


def test_all_moves_end_when_all_workers_acknowledge():
    random = Random(3)
    actors = {name: Actor(name) for name in "abc"}
    table = tuple(SlotEntry(slot=slot, epoch=1) for slot in range(SLOTS))
    joined: set[str] = set()
    for step in range(36):
        present = ["a"] if step < 3 else ["a", "b", "c"]
        known = {name: MoveParticipant(term=1, acks=dict(actors[name].acks)) for name in present}
        members = Members(
            settled=tuple(name for name in present if name in joined),
            joining=tuple(name for name in present if name not in joined),
        )
        plan = plan_table(
            TableView(
                config="web", entries=table, participants=known, members=members, strategy="round-robin", limit=128
            )
        )
        table = plan.entries
        joined |= {name for name in present if name not in plan.waiting_for}
        for name in present:
            for entry in table:
                if not (entry.move and entry.move.phase is MovePhase.RESTORE):
                    actors[name].acknowledge(entry, Random(99))
                else:
                    actors[name].acknowledge(entry, random)
    assert plan.moving == plan.pending == 0
    counts = [sum(entry.owner == name for entry in table) for name in "abc"]
    assert max(counts) - min(counts) <= 2
