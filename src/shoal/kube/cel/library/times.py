"""Accessors of timestamps and durations."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from functools import lru_cache
from zoneinfo import ZoneInfo

from shoal.kube.cel.errors import EvalError
from shoal.kube.cel.functions import Library
from shoal.kube.cel.values import SECOND, Duration, Timestamp

_OFFSET = re.compile(r"([+-])?([0-9]{1,2}):([0-9]{2})", re.ASCII)

_PARTS: dict[str, Callable[[datetime], int]] = {
    "getFullYear": lambda moment: moment.year,
    "getMonth": lambda moment: moment.month - 1,
    "getDayOfYear": lambda moment: moment.timetuple().tm_yday - 1,
    "getDayOfMonth": lambda moment: moment.day - 1,
    "getDate": lambda moment: moment.day,
    "getDayOfWeek": lambda moment: (moment.weekday() + 1) % 7,
    "getHours": lambda moment: moment.hour,
    "getMinutes": lambda moment: moment.minute,
    "getSeconds": lambda moment: moment.second,
    "getMilliseconds": lambda moment: moment.microsecond // 1000,
}


@lru_cache(maxsize=256)
def _zone(name: str) -> timezone | ZoneInfo:
    offset = _OFFSET.fullmatch(name)
    if offset is not None:
        length = timedelta(hours=int(offset[2]), minutes=int(offset[3]))
        try:
            return timezone(-length if offset[1] == "-" else length)
        except ValueError:
            raise EvalError(f"unknown time zone {name}") from None
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        raise EvalError(f"unknown time zone {name}") from None


def _local(stamp: Timestamp, zone: str) -> datetime:
    try:
        return stamp.moment().astimezone(_zone(zone))
    except OverflowError:
        raise EvalError("timestamp overflow") from None


def _whole(duration: Duration, unit: int) -> int:
    amount = abs(duration.ns) // unit
    return amount if duration.ns >= 0 else -amount


def declare(library: Library) -> None:
    for name, part in _PARTS.items():
        library.add(f"timestamp_to_{name}", f"timestamp.{name}(): int", lambda stamp, part=part: part(stamp.moment()))
        zoned = f"timestamp.{name}(string): int"
        library.add(f"timestamp_to_{name}_tz", zoned, lambda stamp, zone, part=part: part(_local(stamp, zone)))
    for name, unit in (
        ("getHours", 3600 * SECOND),
        ("getMinutes", 60 * SECOND),
        ("getSeconds", SECOND),
        ("getMilliseconds", SECOND // 1000),
    ):
        library.add(f"duration_to_{name}", f"duration.{name}(): int", lambda value, unit=unit: _whole(value, unit))
