"""Parses values of queries: durations, times, versions. Pure."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from math import ceil, floor

_LENGTH = re.compile(r"(?:(\d{1,9})w)?(?:(\d{1,9})d)?(?:(\d{1,9})h)?(?:(\d{1,9})m)?(?:(\d{1,9}(?:\.\d{1,3})?)s)?")
_UNITS_S = (7 * 86400, 86400, 3600, 60, 1)
_MOMENT = re.compile(r"(\d{4}-\d\d-\d\d)(?:[T ](\d\d:\d\d(?::\d\d(?:\.\d{1,6})?)?)(Z|[+-]\d\d:\d\d)?)?")
_NUMBERS = re.compile(r"\d+")


def length_s(text: str) -> float | None:
    """``90s``, ``5m``, ``1h30m``, ``2d``, ``1w``; None for other texts."""
    matched = _LENGTH.fullmatch(text)
    if matched is None or not text:
        return None
    return sum(float(part or 0) * unit for part, unit in zip(matched.groups(), _UNITS_S, strict=True))


def moment_s(text: str, now_s: float) -> float | None:
    """A date, a moment of RFC 3339 (UTC unless it says otherwise), or how long ago: ``5m``; in seconds since 1970."""
    ago_s = length_s(text.removeprefix("-"))
    if ago_s is not None:
        return now_s - ago_s
    matched = _MOMENT.fullmatch(text)
    if matched is None:
        return None
    date, time, zone = matched.groups()
    try:
        found = datetime.fromisoformat(f"{date}T{time or '00:00:00'}{(zone or '').replace('Z', '+00:00')}")
    except ValueError:
        return None
    return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()


def version_key(text: str) -> tuple[int, ...]:
    """What orders versions: ``v1.9.3`` comes before ``v1.30``; empty for what has no numbers."""
    return tuple(int(part) for part in _NUMBERS.findall(text.partition("+")[0])[:8])


def stamp(seconds: float) -> str:
    """A moment as objects have it: whole seconds, so that texts are in the order of their moments."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def stamp_bound(op: str, seconds: float) -> str:
    """The text to compare ``created < text`` with, so that it holds as ``created < seconds`` does: stamps have no
    fractions, moments do."""
    return stamp(floor(seconds) if op in ("<=", ">") else ceil(seconds))


def seconds_of(text: str) -> float | None:
    """The moment of an object's stamp; None when it has none, or one that cannot be read."""
    try:
        return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp() if text else None
    except ValueError:
        return None
