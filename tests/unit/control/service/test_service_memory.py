"""What the cluster service keeps in memory: encoded states, marks of changes, and what the collector is spared."""

from __future__ import annotations

import asyncio
import gc
import warnings

from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.base.clock import FakeClock
from shoal.base.tasks import cancel_all
from shoal.control.service import garbage
from shoal.control.service.desired.marks import MarkedChange, Marks
from shoal.control.service.desired.render import EncodedDeployment
from shoal.control.service.desired.states import StateCache


def test_a_state_is_found_by_what_was_read_and_by_nothing_else() -> None:
    cache, one = StateCache(), EncodedDeployment(b"one")
    cache.put(("dep_1", '{"a": 1}'), one)
    assert cache.get(("dep_1", '{"a": 1}')) is one
    assert cache.get(("dep_1", '{"a": 2}')) is None


def test_a_driver_that_decodes_documents_costs_memory_for_nothing_and_breaks_nothing() -> None:
    cache = StateCache()
    cache.put(("dep_1", {"a": 1}), EncodedDeployment(b"one"))
    assert cache.get(("dep_1", {"a": 1})) is None


def test_the_cache_of_states_is_bounded_and_the_oldest_go() -> None:
    cache = StateCache(keep=20)
    for number in range(25):
        cache.put(number, EncodedDeployment(b"%d" % number))
    assert [number for number in range(25) if cache.get(number) is not None] == [*range(5, 25)]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(1, 200), unique=True, max_size=40), st.integers(0, 210))
def test_a_mark_is_that_of_the_last_change_up_to_a_number(numbers: list[int], asked: int) -> None:
    kept = Marks()
    for number in sorted(numbers):
        kept.put(MarkedChange(number, 1000, "c", "s", "deployment/a"))
        kept.put(MarkedChange(number, 1000, "c", "s", "again"))
    before = [number for number in numbers if number <= asked]
    assert kept.at(asked) == (MarkedChange(max(before), 1000, "c", "s", "deployment/a").mark if before else "")


def test_marks_are_bounded_and_those_forgotten_are_empty_not_wrong() -> None:
    keep, many = 50, 150
    kept = Marks(keep=keep)
    for number in range(1, many + 1):
        kept.put(MarkedChange(number, 1000, "c", "s", "deployment/a"))
    last = MarkedChange(many, 1000, "c", "s", "deployment/a").mark
    assert kept.at(many) == last and kept.at(many + 7) == last and kept.at(1) == ""
    known = [number for number in range(1, many + 1) if kept.at(number)]
    assert keep <= len(known) <= 2 * keep and known[-1] == many


def test_two_changes_with_one_number_have_two_marks() -> None:
    one = MarkedChange(7, 1000, "c", "s", "deployment/a").mark
    others = [
        MarkedChange(7, 1001, "c", "s", "deployment/a").mark,
        MarkedChange(7, 1000, "c", "s", "deployment/b").mark,
    ]
    assert one not in others and one == MarkedChange(7, 1000, "c", "s", "deployment/a").mark


async def test_what_stays_is_put_aside_at_the_start_and_when_a_fleet_has_come_and_given_back_at_the_end() -> None:
    with warnings.catch_warnings():  # what other tests left to the collector is not this one's
        warnings.simplefilter("ignore", ResourceWarning)
        gc.unfreeze()
        while gc.collect():
            pass

    before, clock, streams, frozen = gc.get_threshold(), FakeClock(), [0], list[int]()
    real, put_aside = gc.freeze, 0

    def freeze() -> None:
        nonlocal put_aside
        put_aside += 1
        frozen.append(streams[0])
        real()

    gc.freeze = freeze
    try:
        task = asyncio.create_task(garbage.freeze_kept_objects(clock, lambda: streams[0]), name="aside")
        await clock.settle()
        assert frozen == [0] and gc.get_threshold() == garbage.THRESHOLDS
        streams[0] = 500
        await clock.advance(garbage.LOOK_S)
        assert frozen == [0], "they still come"
        await clock.advance(garbage.LOOK_S)
        assert frozen == [0, 500], "settled"
        streams[0] = 505
        await clock.advance(10 * garbage.LOOK_S)
        assert frozen == [0, 500], "a few more are not worth it"
        await clock.advance(garbage.EVERY_S)
        assert frozen == [0, 500, 505], "now and then in any case"
        assert gc.get_freeze_count() > 0
        await cancel_all(task)
        assert gc.get_threshold() == before and gc.get_freeze_count() == 0
    finally:
        gc.freeze = real
        gc.unfreeze()
        gc.set_threshold(*before)
