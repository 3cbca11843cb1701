"""Differences of rows: applied one by one, or added up first, they lead to the same rows."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from shoal.dashboard.live.plan import NOTHING, Patch, difference, row, together
from shoal.testing.pages import applied

KEYS = st.sampled_from(["a", "b", "c", "d"])
VALUES = st.one_of(st.integers(0, 3), st.sampled_from(["x", "y"]), st.lists(st.integers(0, 2), max_size=2))
ROWS = st.dictionaries(KEYS, st.dictionaries(st.sampled_from(["p", "q", "r"]), VALUES, max_size=3), max_size=4)


@given(ROWS, ROWS)
def test_a_difference_leads_from_one_state_to_the_other(before: dict, after: dict) -> None:
    assert applied(before, difference(before, after)) == after


@given(st.lists(ROWS, min_size=2, max_size=6))
def test_differences_that_add_up_lead_to_the_last_state(states: list[dict]) -> None:
    added = NOTHING
    for before, after in zip(states, states[1:], strict=False):
        added = together(added, difference(before, after))
    assert applied(states[0], added) == states[-1]


@given(ROWS)
def test_nothing_differs_from_itself(rows: dict) -> None:
    assert not difference(rows, {key: dict(fields) for key, fields in rows.items()})


def test_only_changed_fields_travel_and_null_says_that_one_is_gone() -> None:
    before = {"web": {"state": "Ready", "weight": 100, "reason": "x"}}
    after = {"web": {"state": "Broken", "weight": 100}}
    assert difference(before, after) == Patch({"web": {"state": "Broken", "reason": None}})


def test_a_row_that_was_dropped_and_came_back_has_no_field_of_the_old_one() -> None:
    first = difference({"a": {"old": 1, "both": 1}}, {})
    second = difference({}, {"a": {"both": 2}})
    assert applied({"a": {"old": 1, "both": 1}}, together(first, second)) == {"a": {"both": 2}}


def test_unknown_fields_are_left_out_of_rows() -> None:
    assert row(a=1, b=None, c="") == {"a": 1, "c": ""}
