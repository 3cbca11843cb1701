"""Counts are added and subtracted without losing one, whatever version of a gateway wrote them."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.sync.counters import (
    BUCKETS,
    GROUPS,
    LATENCY_MS,
    NOTHING,
    Counts,
    as_json,
    piece,
    plus,
    read_counts,
    since,
    sparse,
)

numbers = st.integers(min_value=0, max_value=10_000)
counts = st.builds(
    Counts,
    st.lists(numbers, min_size=GROUPS, max_size=GROUPS).map(tuple),
    st.dictionaries(st.integers(0, BUCKETS - 1), numbers.filter(bool), max_size=6),
    numbers,
    numbers,
)


def test_neighbouring_bounds_differ_by_a_fifth_at_most_where_milliseconds_do_not() -> None:
    assert LATENCY_MS[0] == 1.0 and LATENCY_MS[-1] == 60_000.0
    assert {50.0, 100.0, 250.0, 300.0, 500.0, 1000.0} <= set(LATENCY_MS), "limits that people use"
    for lower, upper in zip(LATENCY_MS, LATENCY_MS[1:], strict=False):
        assert upper <= lower * 1.2 + 1e-9 or upper - lower == 1
        digits = f"{upper:.0f}".rstrip("0")
        assert len(digits) <= 2, "Envoy's histograms have bins of two digits: another bound would cut one"


@given(counts, counts)
def test_what_was_counted_since_is_what_is_missing(one: Counts, more: Counts) -> None:
    assert since(plus(one, more), one) == more
    assert since(one, NOTHING) == one


@given(counts, st.integers(1, 15))
def test_pieces_add_up_to_all(all_: Counts, of: int) -> None:
    total = NOTHING
    for at in range(of):
        total = plus(total, piece(all_, at, of))
    assert total == all_


@given(counts)
def test_they_are_read_as_they_were_written(one: Counts) -> None:
    assert read_counts(orjson.loads(orjson.dumps(as_json(one)))) == one


def test_a_smaller_number_counts_from_zero() -> None:
    before = Counts((0, 10, 0, 0, 3), {4: 13}, 50)
    for now in (
        Counts((0, 12, 0, 0, 2), {4: 14}, 60), Counts((0, 12, 0, 0, 3), {5: 15}, 60), Counts((0, 12, 0, 0, 3), {4: 15}, 9)
    ):  # fmt: skip
        assert since(now, before) == now


def test_counters_of_a_gateway_of_the_version_before_are_read() -> None:
    bounds = [1.0, 2.5, 5.0, 10.0, 25.0, 50.0, 100.0, 250.0, 500.0, 1000.0, 2500.0, 5000.0, 10000.0]
    entry = {"codes": [0, 7, 0, 0, 1], "latency": [0, 0, 3, *[0] * 4, 4, *[0] * 5, 1], "latencyMs": 90}
    found = read_counts(entry, bounds)
    assert found is not None and found.codes == (0, 7, 0, 0, 1)
    assert found.times == {LATENCY_MS.index(5.0): 3, LATENCY_MS.index(250.0): 4, BUCKETS - 1: 1}
    assert read_counts({"codes": [1, 2, 3, 4, 5]}) == Counts((1, 2, 3, 4, 5), {}, 0)


@pytest.mark.parametrize(
    "wrong",
    [
        None, 3, [], {}, {"codes": [1, 2]}, {"codes": [1, 2, 3, 4, -5]}, {"codes": [1, 2, 3, 4, "5"]},
        {"codes": [1, 2, 3, 4, 2**60]}, {"codes": [0] * 5, "times": [1]}, {"codes": [0] * 5, "times": [BUCKETS, 1]},
        {"codes": [0] * 5, "latencyMs": None}, {"codes": [0] * 5, "times": {}}, {"codes": [True] * 5},
    ],
)  # fmt: skip
def test_what_is_not_a_count_is_refused(wrong: Any) -> None:
    assert read_counts(wrong) is None


def test_empty_buckets_are_left_out() -> None:
    assert sparse([0, 3, 0, 1]) == {1: 3, 3: 1}
