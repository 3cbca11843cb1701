"""The steps of a move: none without its acknowledgement, and a way back from each."""

from __future__ import annotations

from dataclasses import replace

import pytest

from shoal.sharding.leases import Ack, AckKind
from shoal.sharding.migration.plan import ABSENT, MoveOutcome, MoveParticipant, advance, begin, give, is_held
from shoal.sharding.model import Move, MovePhase, SlotDuty, SlotEntry, slot_duty

OWNED = SlotEntry(slot=7, owner="a", term=1, epoch=10)
BEGUN = begin(OWNED, "b", 4)


def participants(**said: Ack) -> dict[str, MoveParticipant]:
    terms = {"a": 1, "b": 4, "c": 2}
    return {
        name: MoveParticipant(term=term, acks={7: said[name]} if name in said else {}) for name, term in terms.items()
    }


def without(name: str, **said: Ack) -> dict[str, MoveParticipant]:
    return {**participants(**said), name: replace(participants(**said)[name], alive=False, receiving=False)}


PREPARED = Ack(7, 11, AckKind.PREPARED)
DRAINED = Ack(7, 11, AckKind.DRAINED, "d1")
DRAINING = advance(BEGUN, participants(b=PREPARED), "web").entry
RESTORING = advance(DRAINING, participants(a=DRAINED), "web").entry


def test_the_steps_of_a_move():
    assert BEGUN.move == Move(phase=MovePhase.PREPARE, to="b", to_term=4, next_epoch=11)
    assert (BEGUN.owner, BEGUN.epoch) == ("a", 10)
    assert DRAINING.move is not None
    assert DRAINING.move.phase is MovePhase.DRAIN
    assert (RESTORING.owner, RESTORING.term, RESTORING.epoch) == ("b", 4, 11)
    assert RESTORING.move == Move(phase=MovePhase.RESTORE, source="a", state="web-7-11", digest="d1")
    done = advance(RESTORING, participants(b=Ack(7, 11, AckKind.RESTORED, "d1")), "web")
    assert done.outcome is MoveOutcome.MOVED
    assert done.entry == SlotEntry(slot=7, owner="b", term=4, epoch=11)
    assert done.discard == "web-7-11"


def test_a_slot_without_state_moves_without_one():
    restoring = advance(DRAINING, participants(a=Ack(7, 11, AckKind.DRAINED)), "web").entry
    assert restoring.move == Move(phase=MovePhase.RESTORE, source="a")
    done = advance(restoring, participants(b=Ack(7, 11, AckKind.RESTORED)), "web")
    assert (done.outcome, done.discard) == (MoveOutcome.MOVED, "")


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        (BEGUN, {}),
        (BEGUN, {"b": Ack(7, 10, AckKind.PREPARED)}),  # of an earlier move
        (BEGUN, {"b": Ack(7, 12, AckKind.PREPARED)}),
        (BEGUN, {"a": PREPARED}),  # by the wrong one
        (BEGUN, {"b": DRAINED}),
        (DRAINING, {"b": PREPARED}),
        (DRAINING, {"b": DRAINED}),
        (DRAINING, {"a": Ack(7, 9, AckKind.DRAINED)}),
        (RESTORING, {"a": DRAINED}),
        (RESTORING, {"b": Ack(7, 10, AckKind.RESTORED, "d1")}),
        (RESTORING, {"c": Ack(7, 11, AckKind.RESTORED, "d1")}),
    ],
)
def test_no_step_without_the_right_acknowledgement_from_the_right_shard(entry, said):
    step = advance(entry, participants(**said), "web")
    assert (step.outcome, step.entry) == (MoveOutcome.GOING, entry)


@pytest.mark.parametrize("entry", [BEGUN, DRAINING])
def test_an_abort_before_the_change_of_owner_gives_the_source_a_higher_epoch(entry):
    for gone in ("timeout", "target", "unable"):
        if gone == "timeout":
            step = advance(entry, participants(), "web", timed_out=True)
        elif gone == "target":
            step = advance(entry, without("b"), "web")
        else:
            step = advance(entry, {**participants(), "b": replace(participants()["b"], receiving=False)}, "web")
        assert step.outcome is MoveOutcome.ABORTED
        assert step.entry == SlotEntry(slot=7, owner="a", term=1, epoch=12)
        assert step.reason


def test_a_restarted_target_does_not_receive_the_slot():
    step = advance(DRAINING, {**participants(), "b": MoveParticipant(term=5)}, "web")
    assert step.outcome is MoveOutcome.ABORTED


def test_a_failed_target_aborts_the_move_at_once():
    assert advance(BEGUN, participants(b=Ack(7, 11, AckKind.FAILED)), "web").outcome is MoveOutcome.ABORTED


@pytest.mark.parametrize(
    "said", [Ack(7, 11, AckKind.FAILED), Ack(7, 11, AckKind.RESTORED, "other"), None], ids=["failed", "digest", "late"]
)
def test_a_slot_that_the_target_cannot_restore_goes_back_with_its_state(said):
    step = advance(RESTORING, participants(**({"b": said} if said else {})), "web", timed_out=said is None)
    assert step.outcome is MoveOutcome.ABORTED
    assert step.entry.owner == "a"
    assert (step.entry.epoch, step.entry.term) == (12, 1)
    assert step.entry.move == Move(phase=MovePhase.RESTORE, state="web-7-11", digest="d1")
    assert step.discard == ""


def test_a_state_that_no_shard_can_load_is_discarded_and_the_slot_kept():
    back = advance(RESTORING, participants(), "web", timed_out=True).entry
    step = advance(back, participants(), "web", timed_out=True)
    assert step.entry == SlotEntry(slot=7, owner="a", term=1, epoch=12)
    assert step.discard == "web-7-11"
    orphan = advance(RESTORING, without("a"), "web", timed_out=True)
    assert (orphan.entry.owner, orphan.entry.move, orphan.discard) == ("b", None, "web-7-11")


@pytest.mark.parametrize("entry", [BEGUN, DRAINING])
def test_a_dead_source_needs_no_drain(entry):
    step = advance(entry, without("a"), "web")
    assert step.outcome is MoveOutcome.FREE
    given_away = give(step.entry, "c", 2)
    assert (given_away.owner, given_away.term, given_away.move) == ("c", 2, None)
    assert given_away.epoch > 11


def test_the_saved_state_of_a_lost_source_is_kept():
    step = advance(DRAINING, without("a", a=DRAINED), "web")
    assert step.outcome is MoveOutcome.FREE
    reassigned = give(step.entry, "c", 2)
    assert reassigned.move == Move(phase=MovePhase.RESTORE, state="web-7-11", digest="d1")


def test_the_state_goes_on_to_the_next_shard_when_the_target_dies():
    step = advance(RESTORING, without("b"), "web")
    reassigned = give(step.entry, "c", 2)
    assert (reassigned.owner, reassigned.epoch) == ("c", 12)
    assert reassigned.move is not None
    assert reassigned.move.state == "web-7-11"


def test_a_slot_belongs_to_one_term_of_a_shard():
    assert is_held(OWNED, participants())
    assert not is_held(OWNED, {"a": MoveParticipant(term=2)})
    assert not is_held(OWNED, {"a": ABSENT})
    assert slot_duty(OWNED, "a", 1) is SlotDuty.WORK
    assert slot_duty(OWNED, "a", 2) is SlotDuty.NONE
    assert [slot_duty(entry, "a", 1) for entry in (BEGUN, DRAINING, RESTORING)] == ["work", "drain", "none"]
    assert [slot_duty(entry, "b", 4) for entry in (BEGUN, DRAINING, RESTORING)] == ["prepare", "prepare", "restore"]
    assert slot_duty(BEGUN, "b", 5) is SlotDuty.NONE
