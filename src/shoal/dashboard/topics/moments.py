"""Times of the API as moments in milliseconds. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime
from functools import lru_cache
from typing import Any

from shoal.dashboard.live.plan import Row


def ms_of(told: str | None) -> int | None:
    """None for a time that has not been."""
    return _ms_of(told) if told else None


@lru_cache(maxsize=8192)
def _ms_of(told: str) -> int:
    return round(datetime.fromisoformat(told).timestamp() * 1000)


def with_moments(found: Mapping[str, Any], names: Collection[str]) -> Row:
    """The row with these texts as moments, without nulls."""
    return {
        name: ms_of(value) if name in names and isinstance(value, str) else value
        for name, value in found.items()
        if value is not None and not (name in names and not value)
    }
