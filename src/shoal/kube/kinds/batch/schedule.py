"""Cron schedules: five fields, or ``@hourly`` and its like, or ``@every 1h30m``.

Parsing only; ``shoal.controllers.cronjob.due`` computes the times.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from typing import Final
from zoneinfo import available_timezones

from shoal.base.bounded_cache import bounded_cache
from shoal.kube.times import parse_duration

_MONTHS: Final = {
    name: number
    for number, name in enumerate("jan feb mar apr may jun jul aug sep oct nov dec".split(), start=1)
}  # fmt: skip
_DAYS: Final = {name: number for number, name in enumerate("sun mon tue wed thu fri sat".split())}
_NUMBER = re.compile(r"[+-]?[0-9]{1,18}", re.ASCII)
_ZONE_PART = re.compile(r"[A-Za-z.\-_0-9+]{1,14}")


@dataclass(frozen=True, slots=True)
class _Bounds:
    low: int
    high: int
    names: dict[str, int]


_FIELDS: Final = (
    _Bounds(0, 59, {}),
    _Bounds(0, 23, {}),
    _Bounds(1, 31, {}),
    _Bounds(1, 12, _MONTHS),
    _Bounds(0, 6, _DAYS),
)
_NAMED: Final = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """When a job is due. A day must match both lists of days, or either one if both are restricted, as in cron."""

    minutes: frozenset[int] = frozenset()
    hours: frozenset[int] = frozenset()
    days: frozenset[int] = frozenset()
    months: frozenset[int] = frozenset()
    weekdays: frozenset[int] = frozenset()
    any_day: bool = False  # the day of the month was a star
    any_weekday: bool = False
    every_ns: int = 0  # of @every; the other fields are then unused


@bounded_cache(1024)
def parse_schedule(text: str) -> Schedule:
    """The schedule of a text; raises ``ValueError`` with cron's message if it is invalid."""
    if not text:
        raise ValueError("empty spec string")
    if text.startswith(("TZ=", "CRON_TZ=")):
        zone, space, text = text.partition(" ")
        if not space:
            raise ValueError("invalid schedule format: runtime error: slice bounds out of range [:-1]")
        zone = zone.partition("=")[2]
        if zone and not is_time_zone(zone):
            raise ValueError(f"provided bad location {zone}: unknown time zone {zone}")
        text = text.strip()
    if text.startswith("@"):
        return _descriptor(text)
    fields = text.split()
    if len(fields) != 5:
        raise ValueError(f"expected exactly 5 fields, found {len(fields)}: [{' '.join(fields)}]")
    sets = [_field(field, bounds) for field, bounds in zip(fields, _FIELDS, strict=True)]
    return Schedule(
        minutes=sets[0][0],
        hours=sets[1][0],
        days=sets[2][0],
        months=sets[3][0],
        weekdays=sets[4][0],
        any_day=sets[2][1],
        any_weekday=sets[4][1],
    )


def _descriptor(text: str) -> Schedule:
    named = _NAMED.get(text)
    if named is not None:
        return parse_schedule(named)
    if text.startswith("@every "):
        try:
            # Intervals are whole seconds, at least one.
            second = 1_000_000_000
            return Schedule(every_ns=max(second, parse_duration(text[7:]) // second * second))
        except ValueError as error:
            raise ValueError(f"failed to parse duration {text}: {error}") from None
    raise ValueError(f"unrecognized descriptor: {text}")


def _field(text: str, bounds: _Bounds) -> tuple[frozenset[int], bool]:
    """The numbers of a comma-separated field, and whether a plain star is among them."""
    found: set[int] = set()
    star = False
    for part in filter(None, text.split(",")):
        numbers, is_star = _range(part, bounds)
        found.update(numbers)
        star = star or is_star
    return frozenset(found), star


def _range(text: str, bounds: _Bounds) -> tuple[range, bool]:
    span, *steps = text.split("/")
    ends = span.split("-")
    star = ends[0] in ("*", "?")
    if star:
        start, end = bounds.low, bounds.high
    else:
        start = _number(ends[0], bounds.names)
        if len(ends) > 2:
            raise ValueError(f"too many hyphens: {text}")
        end = _number(ends[1], bounds.names) if len(ends) == 2 else start
    if len(steps) > 1:
        raise ValueError(f"too many slashes: {text}")
    step = 1
    if steps:
        step = _number(steps[0], {})
        if len(ends) == 1:
            end = bounds.high
        star = star and step <= 1
    _check_range(start, end, step, bounds, text)
    return range(start, end + 1, step), star


def _check_range(start: int, end: int, step: int, bounds: _Bounds, text: str) -> None:
    if start < bounds.low:
        raise ValueError(f"beginning of range ({start}) below minimum ({bounds.low}): {text}")
    if end > bounds.high:
        raise ValueError(f"end of range ({end}) above maximum ({bounds.high}): {text}")
    if start > end:
        raise ValueError(f"beginning of range ({start}) beyond end of range ({end}): {text}")
    if step == 0:
        raise ValueError(f"step of range should be a positive number: {text}")


def _number(text: str, names: dict[str, int]) -> int:
    named = names.get(text.lower())
    if named is not None:
        return named
    if not _NUMBER.fullmatch(text):
        raise ValueError(f'failed to parse int from {text}: strconv.Atoi: parsing "{text}": invalid syntax')
    number = int(text)
    if number < 0:
        raise ValueError(f"negative number ({number}) not allowed: {text}")
    return number


@cache
def _zones() -> frozenset[str]:
    return frozenset(available_timezones())


def is_time_zone(name: str) -> bool:
    """Whether the time zone database has a zone with this name."""
    if not all(_ZONE_PART.fullmatch(p) and p not in (".", "..") and p[0] != "-" for p in name.split("/")):
        return False
    return name == "UTC" or name in _zones()
