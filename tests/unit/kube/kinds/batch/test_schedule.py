"""Cron schedules and lists of indexes."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.kube.kinds.batch.indexes import count_indexes, first_overlap
from shoal.kube.kinds.batch.schedule import is_time_zone, parse_schedule


def test_fields_list_what_is_due() -> None:
    found = parse_schedule("*/15 9-11,20 1/10 jan,MAR-apr mon")
    assert sorted(found.minutes) == [0, 15, 30, 45]
    assert sorted(found.hours) == [9, 10, 11, 20]
    assert sorted(found.days) == [1, 11, 21, 31]
    assert sorted(found.months) == [1, 3, 4]
    assert sorted(found.weekdays) == [1]
    assert (found.any_day, found.any_weekday) == (False, False)


def test_a_star_matches_any_day() -> None:
    found = parse_schedule("0 0 * * ?")
    assert (found.any_day, found.any_weekday) == (True, True)
    assert not parse_schedule("0 0 */2 * 1").any_day
    assert parse_schedule("0 0 */1 * 1").any_day


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("@yearly", "0 0 1 1 *"),
        ("@annually", "0 0 1 1 *"),
        ("@monthly", "0 0 1 * *"),
        ("@weekly", "0 0 * * 0"),
        ("@daily", "0 0 * * *"),
        ("@midnight", "0 0 * * *"),
        ("@hourly", "0 * * * *"),
    ],
)
def test_named_schedules(name: str, meant: str) -> None:
    assert parse_schedule(name) == parse_schedule(meant)


@pytest.mark.parametrize(("text", "seconds"), [("@every 1h30m", 5400), ("@every 10ms", 1), ("@every 1.9s", 1)])
def test_intervals_are_whole_seconds(text: str, seconds: int) -> None:
    assert parse_schedule(text).every_ns == seconds * 10**9


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", "empty spec string"),
        ("* * * * * *", "expected exactly 5 fields, found 6: [* * * * * *]"),
        ("a * * * *", 'failed to parse int from a: strconv.Atoi: parsing "a": invalid syntax'),
        ("5-1 * * * *", "beginning of range (5) beyond end of range (1): 5-1"),
        ("* * 0 * *", "beginning of range (0) below minimum (1): 0"),
        ("* * * 13 *", "end of range (13) above maximum (12): 13"),
        ("* * * * 7", "end of range (7) above maximum (6): 7"),
        ("1-2-3 * * * *", "too many hyphens: 1-2-3"),
        ("*/2/3 * * * *", "too many slashes: */2/3"),
        ("*/0 * * * *", "step of range should be a positive number: */0"),
        ("@often", "unrecognized descriptor: @often"),
        ("@every never", 'failed to parse duration @every never: time: invalid duration "never"'),
        ("TZ=Mars/Olympus * * * * *", "provided bad location Mars/Olympus: unknown time zone Mars/Olympus"),
    ],
)
def test_what_is_no_schedule(text: str, fault: str) -> None:
    with pytest.raises(ValueError) as caught:
        parse_schedule(text)
    assert str(caught.value) == fault


@settings(max_examples=150, deadline=None)
@given(st.text("0123456789*/,-?@ abcTZ=every", max_size=24))
def test_any_text_is_a_schedule_or_a_value_error(text: str) -> None:
    try:
        found = parse_schedule(text)
    except ValueError:
        return
    assert found.every_ns or found.minutes <= set(range(60))


@pytest.mark.parametrize(
    ("name", "known"),
    [("UTC", True), ("Europe/Berlin", True), ("America/Argentina/Salta", True), ("Europe", False), ("a//b", False),
     ("/UTC", False), ("-x", False), ("Etc/GMT+5", True)],
)  # fmt: skip
def test_time_zones_come_from_the_database(name: str, known: bool) -> None:
    assert is_time_zone(name) is known


@pytest.mark.parametrize(("text", "total"), [("", 0), ("0", 1), ("0-2,5", 4), ("1,3-4,9", 4)])
def test_indexes_are_counted(text: str, total: int) -> None:
    assert count_indexes(text, 10) == total


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("x", 'cannot convert string to integer for index: "x"'),
        ("1-", 'cannot convert string to integer for index: ""'),
        ("10", 'too large index: "10"'),
        ("3-10", 'too large index: "10"'),
        ("3-3", "non-increasing order, previous: 3, current: 3"),
        ("3,2", "non-increasing order, previous: 3, current: 2"),
        (
            "1-2-3",
            'the fragment "1-2-3" violates the requirement that an index interval can have at most two parts '
            "separated by '-'",
        ),
    ],
)
def test_what_is_no_list_of_indexes(text: str, fault: str) -> None:
    with pytest.raises(ValueError) as caught:
        count_indexes(text, 10)
    assert str(caught.value) == fault


@settings(max_examples=100, deadline=None)
@given(st.sets(st.integers(0, 30)), st.sets(st.integers(0, 30)))
def test_an_overlap_is_found_where_sets_meet(completed: set[int], failed: set[int]) -> None:
    found = first_overlap(",".join(map(str, sorted(completed))), ",".join(map(str, sorted(failed))), 31)
    assert found == min(completed & failed, default=None)
