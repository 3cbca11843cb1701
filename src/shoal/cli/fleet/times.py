"""Moments as the control plane writes them, as people read them."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from shoal.cli.printers import duration


def age_of(moment: Any, now: datetime) -> str:
    """How long ago; empty for what is no moment."""
    if not moment:
        return ""
    return duration(max(0.0, (now - datetime.fromisoformat(str(moment))).total_seconds()))


def clock_time(moment: Any) -> str:
    """The local time of day, with the date when it is not today's matter: ``2027-01-31 12:00:05``."""
    if not moment:
        return ""
    return datetime.fromisoformat(str(moment)).astimezone().strftime("%Y-%m-%d %H:%M:%S")
