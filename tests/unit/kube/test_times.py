"""Times are read in any form and written in one."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.kube.times import (
    format_duration,
    format_micro_time,
    format_time,
    normalize_micro_time,
    normalize_time,
    parse_duration,
    parse_epoch,
    parse_time,
)


@pytest.mark.parametrize(
    ("text", "whole", "micro"),
    [
        ("2026-01-02T03:04:05Z", "2026-01-02T03:04:05Z", "2026-01-02T03:04:05.000000Z"),
        ("2026-01-02T03:04:05.9+02:00", "2026-01-02T01:04:05Z", "2026-01-02T01:04:05.900000Z"),
        ("2026-01-01T00:30:00-01:30", "2026-01-01T02:00:00Z", "2026-01-01T02:00:00.000000Z"),
        ("2026-01-02T03:04:05.123456789Z", "2026-01-02T03:04:05Z", "2026-01-02T03:04:05.123456Z"),
        ("2026-01-02T03:04:05.123456Z", "2026-01-02T03:04:05Z", "2026-01-02T03:04:05.123456Z"),
        ("0001-01-01T00:00:00Z", "0001-01-01T00:00:00Z", "0001-01-01T00:00:00.000000Z"),
    ],
)
def test_times_become_whole_seconds_and_micro_times_six_digits(text: str, whole: str, micro: str) -> None:
    assert normalize_time(text) == whole
    assert normalize_micro_time(text) == micro


@pytest.mark.parametrize(
    "text",
    ["", "2026-02-30T00:00:00Z", "2026-01-02T24:00:00Z", "2026-01-02T03:04:60Z", "2026-01-02 03:04:05Z", "now",
     "2026-01-02T03:04:05", "2026-01-02T03:04:05Z\n", "2026-01-02T03:04:05+25:00", "0001-01-01T00:00:00+01:00",
     "9999-12-31T23:59:59-01:00", "2026-02-30T00:00:00.000000Z", "٢026-01-02T03:04:05Z"],
)  # fmt: skip
def test_text_that_is_no_time_is_a_value_error(text: str) -> None:
    for read in (normalize_time, normalize_micro_time, parse_time):
        with pytest.raises(ValueError):
            read(text)


def test_epoch_seconds_are_written_and_read_back() -> None:
    assert format_time(1767323045.999) == "2026-01-02T03:04:05Z"
    assert format_micro_time(1767323045.25) == "2026-01-02T03:04:05.250000Z"
    assert format_micro_time(0.9999999) == "1970-01-01T00:00:01.000000Z"
    assert format_time(-0.5) == "1969-12-31T23:59:59Z"
    assert parse_epoch("2026-01-02T03:04:05.25Z") == 1767323045.25


@settings(max_examples=200, deadline=None)
@given(
    st.datetimes(datetime.fromisoformat("1000-01-02"), datetime.fromisoformat("9999-12-30")),
    st.integers(-23 * 60, 23 * 60),
)
def test_any_offset_names_the_same_moment(moment: datetime, offset_minutes: int) -> None:
    local = moment.replace(tzinfo=timezone(timedelta(minutes=offset_minutes)))
    wanted = local.astimezone(UTC).replace(tzinfo=None)
    assert normalize_micro_time(local.isoformat()) == wanted.isoformat(timespec="microseconds") + "Z"
    assert normalize_time(local.isoformat()) == wanted.isoformat(timespec="seconds") + "Z"


@pytest.mark.parametrize(
    ("text", "nanoseconds", "canonical"),
    [
        ("1h30m", 5400 * 10**9, "1h30m0s"), ("1.5h", 5400 * 10**9, "1h30m0s"), ("90s", 90 * 10**9, "1m30s"), ("0", 0, "0s"),
        ("-1.5s", -15 * 10**8, "-1.5s"), ("300ms", 3 * 10**8, "300ms"), ("1us", 1000, "1µs"), ("1.5µs", 1500, "1.5µs"),
        ("7ns", 7, "7ns"), ("+2m", 120 * 10**9, "2m0s"), (".5s", 5 * 10**8, "500ms"), ("1s1ns", 10**9 + 1, "1.000000001s"),
    ],
)  # fmt: skip
def test_durations(text: str, nanoseconds: int, canonical: str) -> None:
    assert parse_duration(text) == nanoseconds
    assert format_duration(nanoseconds) == canonical


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", 'time: invalid duration ""'), ("1", 'time: missing unit in duration "1"'), ("s", 'time: invalid duration "s"'),
        ("1d", 'time: unknown unit "d" in duration "1d"'), ("1h x", 'time: invalid duration "1h x"'),
        ("9999999999h", 'time: invalid duration "9999999999h"'),
    ],
)  # fmt: skip
def test_the_error_explains_an_invalid_duration(text: str, message: str) -> None:
    with pytest.raises(ValueError) as caught:
        parse_duration(text)
    assert str(caught.value) == message


@settings(max_examples=200, deadline=None)
@given(st.integers(-(2**63), 2**63 - 1))
def test_any_duration_reads_back_from_its_text(nanoseconds: int) -> None:
    assert parse_duration(format_duration(nanoseconds)) == nanoseconds
