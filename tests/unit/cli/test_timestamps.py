"""Timestamps as ages."""

from __future__ import annotations

from datetime import UTC, datetime

from shoal.cli.timestamps import age_of, between, precise_time

NOW = datetime(2027, 1, 2, tzinfo=UTC)


def test_timestamps_become_ages() -> None:
    assert age_of("2027-01-01T23:59:00Z", NOW) == "60s"
    assert age_of("2027-01-02T00:01:00Z", NOW) == "0.0s", "clocks differ"
    assert age_of("", NOW) == ""


def test_steps_have_milliseconds_and_the_time_between_them() -> None:
    assert precise_time("2027-01-02T00:00:01.234Z").endswith(":01.234")
    assert between("2027-01-02T00:00:01.234Z", "2027-01-02T00:01:01.334Z") == "+60.100s"
