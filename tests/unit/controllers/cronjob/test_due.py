"""The times of schedules: in order, as in cron, also over clock changes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.controllers.cronjob.due import in_zone, parse_due


def at(text):
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


def times(schedule, zone, start, count):
    due, moment, found = parse_due(schedule, zone), at(start), []
    for _ in range(count):
        moment = due.after(moment)
        if moment is None:
            break
        found.append(datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%dT%H:%M"))
    return found


@pytest.mark.parametrize(
    ("schedule", "start", "expected"),
    [
        ("*/15 * * * *", "2026-01-01T00:00:00", ["2026-01-01T00:15", "2026-01-01T00:30"]),
        ("0 0 * * *", "2026-02-28T12:00:00", ["2026-03-01T00:00", "2026-03-02T00:00"]),
        ("0 0 29 2 *", "2026-01-01T00:00:00", ["2028-02-29T00:00"]),
        ("59 23 31 2 *", "2026-01-01T00:00:00", []),
        ("0 12 1 * 1", "2026-01-01T00:00:00", ["2026-01-01T12:00", "2026-01-05T12:00"]),  # either, when both are named
        ("0 12 * * 1", "2026-01-01T00:00:00", ["2026-01-05T12:00", "2026-01-12T12:00"]),
        ("30 6-16/4 * * 1-5", "2026-01-02T10:30:00", ["2026-01-02T14:30", "2026-01-05T06:30"]),
        ("@every 90m", "2026-01-01T00:00:30", ["2026-01-01T01:30", "2026-01-01T03:00"]),
        ("@hourly", "2026-12-31T23:30:00", ["2027-01-01T00:00"]),
    ],
)
def test_times_of_schedules(schedule, start, expected):
    assert times(schedule, "", start, len(expected) or 1) == expected


@pytest.mark.parametrize(
    ("schedule", "start", "expected"),
    [
        # on 2026-03-29 clocks in Berlin go from 02:00 to 03:00, on 2026-10-25 from 03:00 to 02:00
        ("30 2 * * *", "2026-03-28T12:00:00", ["2026-03-30T00:30"]),
        ("30 2 * * *", "2026-10-24T12:00:00", ["2026-10-25T00:30", "2026-10-25T01:30", "2026-10-26T01:30"]),
        ("0 9 * * *", "2026-03-28T12:00:00", ["2026-03-29T07:00"]),
        ("0 * * * *", "2026-03-28T23:30:00", ["2026-03-29T00:00", "2026-03-29T01:00", "2026-03-29T02:00"]),
    ],
)
def test_clock_changes(schedule, start, expected):
    assert times(schedule, "Europe/Berlin", start, len(expected)) == expected


def test_a_zone_in_the_schedule_counts():
    assert times("CRON_TZ=Asia/Tokyo 0 9 * * *", "", "2026-01-01T00:00:30", 1) == ["2026-01-02T00:00"]
    with pytest.raises(ValueError):
        parse_due("* * * * *", "Nowhere/Land")


def test_a_time_is_written_as_clocks_in_the_zone_show_it():
    assert in_zone(at("2026-01-01T12:00:00"), "") == "2026-01-01T12:00:00Z"
    assert in_zone(at("2026-01-01T12:00:00"), "America/New_York") == "2026-01-01T07:00:00-05:00"


numbers = st.integers(0, 59)


@given(
    st.sets(numbers, min_size=1, max_size=4), st.sets(st.integers(0, 23), min_size=1, max_size=4),
    st.sampled_from(["*", "1", "1-5", "0,6"]), st.sampled_from(["*", "13", "*/2"]),
    st.sampled_from(["UTC", "Europe/Berlin", "America/Sao_Paulo", "Australia/Lord_Howe", "Asia/Kolkata"]),
    st.integers(0, 20 * 365 * 24 * 60),
)  # fmt: skip
@settings(max_examples=150, deadline=None)
def test_it_is_the_first_minute_that_matches(minutes, hours, weekdays, days, zone, offset):
    text = f"{','.join(map(str, minutes))} {','.join(map(str, hours))} {days} * {weekdays}"
    start = datetime(2010, 1, 1, tzinfo=UTC) + timedelta(minutes=offset, seconds=17)
    due = parse_due(text, zone)
    found = due.after(start.timestamp())
    local = ZoneInfo(zone)
    moment = start.replace(second=0)
    for _ in range(3 * 24 * 60):
        moment += timedelta(minutes=1)
        if _matches(text, moment.astimezone(local)):
            assert found == moment.timestamp()
            return
    assert found is None or found > moment.timestamp()


def _matches(text, wall):
    minutes, hours, days, _, weekdays = text.split()
    if str(wall.minute) not in minutes.split(",") or str(wall.hour) not in hours.split(","):
        return False
    day = {"*": True, "13": wall.day == 13, "*/2": wall.day % 2 == 1}[days]
    number = wall.isoweekday() % 7
    week = {"*": True, "1": number == 1, "1-5": 1 <= number <= 5, "0,6": number in (0, 6)}[weekdays]
    return day and week if "*" in (days, weekdays) else day or week
