"""Maintenance windows over days and midnights, in UTC."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.control.rollout.strategy import WindowSpec
from shoal.control.rollout.windows import is_open, opens_at

HOUR_S, DAY_S = 3600, 86_400
OFFICE = WindowSpec(days=(0, 1, 2, 3), from_s=9 * HOUR_S, until_s=16 * HOUR_S)
NIGHT = WindowSpec(days=(4,), from_s=22 * HOUR_S, until_s=2 * HOUR_S)


def at(text: str) -> int:
    return round(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1000)


@pytest.mark.parametrize(
    ("moment", "is_in"),
    [
        ("2026-11-16T09:00", True),  # a Monday
        ("2026-11-16T08:59", False),
        ("2026-11-16T15:59:59", True),
        ("2026-11-16T16:00", False),
        ("2026-11-20T10:00", False),  # a Friday
    ],
)
def test_a_window_is_open_on_its_days_from_its_first_moment_until_its_last(moment: str, is_in: bool) -> None:
    assert is_open([OFFICE], at(moment)) is is_in


@pytest.mark.parametrize(
    ("moment", "is_in"),
    [("2026-11-20T21:59", False), ("2026-11-20T22:00", True), ("2026-11-21T01:59", True), ("2026-11-21T02:00", False),
     ("2026-11-20T01:00", False), ("2026-11-21T23:00", False)],
)  # fmt: skip
def test_a_window_may_end_on_the_next_day(moment: str, is_in: bool) -> None:
    assert is_open([NIGHT], at(moment)) is is_in


def test_the_next_moment_is_the_nearest_one_of_all_windows() -> None:
    assert opens_at([OFFICE, NIGHT], at("2026-11-16T10:00")) == at("2026-11-16T10:00")
    assert opens_at([OFFICE, NIGHT], at("2026-11-19T17:00")) == at("2026-11-20T22:00")
    assert opens_at([OFFICE], at("2026-11-19T17:00")) == at("2026-11-23T09:00")
    assert opens_at([OFFICE], at("2026-11-16T08:00")) == at("2026-11-16T09:00")
    assert opens_at([], 5) == 5


WINDOWS = st.lists(
    st.builds(
        WindowSpec,
        days=st.lists(st.integers(0, 6), min_size=1, max_size=7, unique=True).map(tuple),
        from_s=st.integers(0, DAY_S - 1),
        until_s=st.integers(0, DAY_S),
    ),
    min_size=1,
    max_size=3,
)


@given(WINDOWS, st.integers(0, 2 * 10**12))
def test_a_window_is_open_when_it_opens_and_not_a_moment_before(windows: list[WindowSpec], now_ms: int) -> None:
    opens = opens_at(windows, now_ms)
    assert now_ms <= opens <= now_ms + 8 * DAY_S * 1000
    assert is_open(windows, opens)
    if opens > now_ms:
        assert not is_open(windows, opens - 1) and not is_open(windows, (now_ms + opens - 1) // 2)
