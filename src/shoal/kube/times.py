"""Times as the API writes them: RFC 3339 in UTC with whole seconds (Time) or six digits (MicroTime), and durations.

Reads any offset and fraction, writes one form. Durations are kept as whole nanoseconds and written as ``1h30m0s``.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone
from functools import lru_cache

_RFC3339 = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)(?:[.,](\d+))?(?:Z|([+-])(\d\d):(\d\d))",
    re.ASCII,
)
_SECONDS = re.compile(r"\d{4}-\d\d-\d\dT(?:[01]\d|2[0-3]):\d\d:\d\dZ", re.ASCII)
_MICROS = re.compile(r"\d{4}-\d\d-\d\dT(?:[01]\d|2[0-3]):\d\d:\d\d\.\d{6}Z", re.ASCII)
_DURATION = re.compile(r"(\d*)(?:\.(\d*))?(ns|us|µs|μs|ms|s|m|h)", re.ASCII)

_NS = {
    "ns": 1,
    "us": 1_000,
    "µs": 1_000,
    "μs": 1_000,
    "ms": 1_000_000,
    "s": 1_000_000_000,
    "m": 60_000_000_000,
    "h": 3_600_000_000_000,
}
_MAX_NS = 2**63 - 1


def parse_time(text: str) -> datetime:
    """The time in an RFC 3339 text, in UTC with microseconds; raises ``ValueError`` if the text is invalid."""
    matched = _RFC3339.fullmatch(text)
    if matched is None:
        raise ValueError(f'parsing time "{text[:64]}" as "2006-01-02T15:04:05Z07:00": cannot parse')
    year, month, day, hour, minute, second, fraction, sign, hours, minutes = matched.groups()
    micros = int(fraction[:6].ljust(6, "0")) if fraction else 0
    zone: timezone = UTC
    if sign:
        if int(hours) > 23 or int(minutes) > 59:
            raise ValueError(f'parsing time "{text[:64]}": time zone offset hour out of range')
        offset = timedelta(hours=int(hours), minutes=int(minutes))
        zone = timezone(offset if sign == "+" else -offset)
    try:
        moment = datetime(int(year), int(month), int(day), int(hour), int(minute), int(second), micros, zone)
        return moment.astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise ValueError(f'parsing time "{text[:64]}": {error}') from None


def parse_epoch(text: str) -> float:
    """The time in an RFC 3339 text, in seconds since 1970."""
    return parse_time(text).timestamp()


def normalize_time(text: str) -> str:
    """The text with whole seconds in UTC, the form of Time fields such as creationTimestamp."""
    if _SECONDS.fullmatch(text):
        datetime.fromisoformat(text)  # raises ValueError on 30 February
        return text
    return _seconds_text(parse_time(text))


def normalize_micro_time(text: str) -> str:
    """The text with six fraction digits in UTC, the form of MicroTime fields of Leases and Events."""
    if _MICROS.fullmatch(text):
        datetime.fromisoformat(text)
        return text
    return _micros_text(parse_time(text))


def _seconds_text(moment: datetime) -> str:
    return f"{moment.year:04}-{moment.month:02}-{moment.day:02}T{moment.hour:02}:{moment.minute:02}:{moment.second:02}Z"


def _micros_text(moment: datetime) -> str:
    return f"{_seconds_text(moment)[:-1]}.{moment.microsecond:06}Z"


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@lru_cache(maxsize=256)
def _epoch_second_text(second: int) -> str:
    return _seconds_text(_EPOCH + timedelta(seconds=second))


def format_time(epoch_s: float) -> str:
    """Seconds since 1970 as a Time, rounded down."""
    return _epoch_second_text(int(epoch_s // 1))


def format_micro_time(epoch_s: float) -> str:
    """Seconds since 1970 as a MicroTime."""
    micros = round(epoch_s * 1_000_000)
    return f"{_epoch_second_text(micros // 1_000_000)[:-1]}.{micros % 1_000_000:06}Z"


def parse_duration(text: str) -> int:
    """Nanoseconds of a duration such as ``1h30m`` or ``-1.5s``; raises ``ValueError`` if the text is invalid."""
    wrong = f'time: invalid duration "{text[:64]}"'
    sign, rest = (-1, text[1:]) if text[:1] == "-" else (1, text[1:] if text[:1] == "+" else text)
    if rest == "0":
        return 0
    if not rest or len(rest) > 256:
        raise ValueError(wrong)
    total, position = 0, 0
    while position < len(rest):
        matched = _DURATION.match(rest, position)
        if matched is None or not (matched[1] or matched[2]):
            raise ValueError(_duration_fault(rest, position, text))
        unit = _NS[matched[3]]
        total += int(matched[1] or 0) * unit
        if matched[2]:
            total += int(matched[2]) * unit // 10 ** len(matched[2])
        position = matched.end()
    if total > _MAX_NS + (sign < 0):
        raise ValueError(wrong)
    return sign * total


_NUMBER = re.compile(r"(?:\d+\.?\d*|\.\d+)", re.ASCII)
_UNIT = re.compile(r"[^\d.]*", re.ASCII)


def _duration_fault(rest: str, position: int, text: str) -> str:
    """The error at ``position``: no number, no unit, or an unknown unit."""
    number = _NUMBER.match(rest, position)
    if number is None:
        return f'time: invalid duration "{text[:64]}"'
    unit = _UNIT.match(rest, number.end())
    if unit is None or not unit[0]:
        return f'time: missing unit in duration "{text[:64]}"'
    return f'time: unknown unit "{unit[0]}" in duration "{text[:64]}"'


def format_duration(nanoseconds: int) -> str:
    """A duration in the canonical form: ``1h30m0s``, ``1.5s``, ``300ms``, ``0s``."""
    if nanoseconds == 0:
        return "0s"
    sign = "-" if nanoseconds < 0 else ""
    left = abs(nanoseconds)
    if left < _NS["s"]:
        unit = "ns" if left < 1_000 else "µs" if left < 1_000_000 else "ms"
        return f"{sign}{_decimal(left, _NS[unit])}{unit}"
    minutes, left = divmod(left, _NS["m"])
    hours, minutes = divmod(minutes, 60)
    text = f"{_decimal(left, _NS['s'])}s"
    if hours:
        return f"{sign}{hours}h{minutes}m{text}"
    return f"{sign}{minutes}m{text}" if minutes else f"{sign}{text}"


def _decimal(amount: int, unit: int) -> str:
    whole, part = divmod(amount, unit)
    if not part:
        return str(whole)
    digits = str(part).rjust(len(str(unit)) - 1, "0").rstrip("0")
    return f"{whole}.{digits}"
