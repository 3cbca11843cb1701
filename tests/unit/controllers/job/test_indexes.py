"""Sets of indexes behave as sets, and their text has the API's format."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.controllers.job.indexes import Indexes, parse_indexes
from shoal.kube.kinds.batch.indexes import count_indexes

sets = st.sets(st.integers(0, 60))


@given(sets, sets)
@settings(max_examples=300, deadline=None)
def test_union_overlap_and_membership_are_those_of_sets(one, other):
    left, right = Indexes().with_indexes(one), Indexes().with_indexes(other)
    both = left.union(right)
    assert list(both) == sorted(one | other)
    assert len(both) == len(one | other)
    assert left.overlap(right) == len(one & other)
    assert {n for n in range(70) if n in both} == one | other


@given(sets, st.integers(0, 80), st.integers(0, 70))
@settings(max_examples=300, deadline=None)
def test_the_first_missing_are_the_smallest_that_are_not_in_it(taken, count, below):
    expected = [n for n in range(below) if n not in taken][:count]
    assert Indexes().with_indexes(taken).first_missing(count, below) == expected


@given(sets, st.integers(1, 70))
@settings(max_examples=300, deadline=None)
def test_text_can_be_read_back_and_is_valid_for_the_api(members, completions):
    text = str(Indexes().with_indexes(members))
    assert count_indexes(text, 61) == len(members)
    assert list(parse_indexes(text, completions)) == sorted(n for n in members if n < completions)


@pytest.mark.parametrize(
    ("members", "text"), [((), ""), ((5,), "5"), ((0, 1), "0,1"), ((0, 1, 2, 5), "0-2,5"), ((1, 2, 3, 7, 8), "1-3,7,8")]
)
def test_the_short_form(members, text):
    assert str(Indexes().with_indexes(members)) == text


def test_what_cannot_be_read_is_passed_over():
    assert list(parse_indexes("0-2,x,5-y,7", 10)) == [0, 1, 2, 7]
