"""Formats the timestamps of API responses for people."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from shoal.cli.printers import duration


def age_of(moment: Any, now: datetime) -> str:
    """The time since ``moment``, for tables; empty without one."""
    if not moment:
        return ""
    return duration(max(0.0, (now - datetime.fromisoformat(str(moment))).total_seconds()))


def clock_time(moment: Any) -> str:
    """Local date and time: ``2027-01-31 12:00:05``."""
    if not moment:
        return ""
    return datetime.fromisoformat(str(moment)).astimezone().strftime("%Y-%m-%d %H:%M:%S")


def precise_time(moment: Any) -> str:
    """Local time with milliseconds: ``12:00:05.123``."""
    return datetime.fromisoformat(str(moment)).astimezone().strftime("%H:%M:%S.%f")[:-3]


def between(start: Any, end: Any) -> str:
    """The time from one moment to another: ``+0.123s``."""
    return f"{(datetime.fromisoformat(str(end)) - datetime.fromisoformat(str(start))).total_seconds():+.3f}s"
