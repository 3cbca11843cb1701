"""Guarantees of backoff."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.base.backoff import Backoff
from shoal.errors import ConfigError


def test_the_bound_doubles_from_the_base_up_to_the_cap() -> None:
    backoff = Backoff(base_s=1, cap_s=10)
    assert [backoff.bound_s(n) for n in range(7)] == [0, 1, 2, 4, 8, 10, 10]
    assert backoff.bound_s(1_000_000) == 10


@given(st.integers(0, 10_000), st.floats(0, 1, exclude_max=True))
def test_the_delay_lies_between_floor_and_bound(failures: int, random: float) -> None:
    backoff = Backoff(base_s=0.1, cap_s=30, floor_s=0.05)
    delay_s = backoff.delay_s(failures, lambda: random)
    assert delay_s <= backoff.bound_s(failures)
    assert delay_s >= (0.05 if failures else 0)


def test_jitter_covers_the_whole_range() -> None:
    backoff = Backoff(base_s=4, cap_s=4)
    assert backoff.delay_s(1, lambda: 0.0) == 0
    assert backoff.delay_s(1, lambda: 0.5) == 2


@pytest.mark.parametrize("bad", [{"base_s": 0}, {"floor_s": -1}, {"floor_s": 2, "cap_s": 1}])
def test_impossible_shapes_are_refused(bad: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match=r"backoff\."):
        Backoff(**bad)
