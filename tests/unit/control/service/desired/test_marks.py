"""Marks of changes."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.control.service.desired.marks import MarkedChange, Marks


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
