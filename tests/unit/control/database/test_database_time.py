"""What a process knows of the database's time."""

from __future__ import annotations

from shoal.base.clock import FakeClock
from shoal.control.database.database_time import JUMP_S, DatabaseTime


def test_without_an_answer_it_is_the_time_of_the_machine() -> None:
    clock = FakeClock()
    assert DatabaseTime(clock).now_ms() == round(clock.wall_s() * 1000)


async def test_it_goes_on_between_answers_and_does_not_follow_the_wall_clock() -> None:
    clock = FakeClock()
    time = DatabaseTime(clock)
    time.heard(1_000_000, clock.monotonic())
    await clock.advance(2.5)
    assert time.now_ms() == 1_002_500


async def test_an_answer_that_was_long_under_way_does_not_move_a_better_estimate() -> None:
    clock = FakeClock()
    time = DatabaseTime(clock)
    time.heard(1_000_000, clock.monotonic())
    asked_at = clock.monotonic()
    await clock.advance(3)
    time.heard(1_001_000, asked_at)  # it was made after one second, and read after three
    assert time.now_ms() == 1_003_000 and time.jumped_at < 0
    time.heard(1_003_500, clock.monotonic())
    assert time.now_ms() == 1_003_500, "this one is exact"


async def test_a_jump_is_followed_and_noted_in_both_directions() -> None:
    clock = FakeClock()
    time = DatabaseTime(clock)
    time.heard(1_000_000, clock.monotonic())
    for now_ms in (4_600_000, 1_000_000):
        await clock.advance(JUMP_S)
        time.heard(now_ms, clock.monotonic())
        assert time.now_ms() == now_ms and time.jumped_at == clock.monotonic()
