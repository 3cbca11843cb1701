"""Computes the next time of a schedule, in any time zone. Pure.

Times that a clock change skips do not occur; times that it repeats occur twice, as in cron.
"""

from __future__ import annotations

from bisect import bisect_left
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo

from shoal.kube.kinds.batch.schedule import Schedule, parse_schedule

_YEARS = 5  # a schedule without a time in these years has none
_NS = 1_000_000_000
_PREFIXES = ("TZ=", "CRON_TZ=")


class Due:
    """A schedule in a time zone."""

    __slots__ = ("_hours", "_minutes", "_schedule", "_zone")

    def __init__(self, schedule: Schedule, zone: ZoneInfo) -> None:
        self._schedule = schedule
        self._zone = zone
        self._hours = sorted(schedule.hours)
        self._minutes = sorted(schedule.minutes)

    def after(self, moment: float) -> float | None:
        """The first time after ``moment``, both in seconds since 1970; None if there is none."""
        if self._schedule.every_ns:
            return float(int(moment) + self._schedule.every_ns // _NS)
        local = datetime.fromtimestamp(moment, self._zone)
        day, last = local.date(), local.year + _YEARS
        while day.year <= last:
            if day.month not in self._schedule.months:
                day = _next_month(day)
                continue
            if self._is_due_on(day):
                found = self._on(day, moment)
                if found is not None:
                    return found
            day += timedelta(days=1)
        return None

    def _is_due_on(self, day: date) -> bool:
        schedule = self._schedule
        of_month, of_week = day.day in schedule.days, day.isoweekday() % 7 in schedule.weekdays
        return of_month and of_week if schedule.any_day or schedule.any_weekday else of_month or of_week

    def _on(self, day: date, moment: float) -> float | None:
        """The first time of that day after ``moment``."""
        midnight = datetime(day.year, day.month, day.day, tzinfo=self._zone)
        evening = midnight.replace(hour=23, minute=59, second=59)
        if midnight.utcoffset() != evening.utcoffset():
            return self._on_changing_day(midnight, moment)
        # minute of the day of the first whole minute after the moment
        start = max(0, int((moment - midnight.timestamp()) // 60) + 1)
        hour, minute = divmod(start, 60)
        for each in self._hours[bisect_left(self._hours, hour) :]:
            place = bisect_left(self._minutes, minute) if each == hour else 0
            if place < len(self._minutes):
                return midnight.timestamp() + each * 3600 + self._minutes[place] * 60
        return None

    def _on_changing_day(self, midnight: datetime, moment: float) -> float | None:
        """Like ``_on``, for a day with a clock change."""
        times: list[float] = []
        for hour in self._hours:
            for minute in self._minutes:
                for fold in (0, 1):
                    wall = midnight.replace(hour=hour, minute=minute, fold=fold)
                    at = wall.timestamp()
                    back = datetime.fromtimestamp(at, self._zone)
                    if at > moment and (back.hour, back.minute) == (hour, minute):
                        times.append(at)
        return min(times, default=None)


def _next_month(day: date) -> date:
    return date(day.year + day.month // 12, day.month % 12 + 1, 1)


@lru_cache(maxsize=1024)
def parse_due(text: str, zone: str) -> Due:
    """The schedule of a CronJob; raises ``ValueError`` if it is invalid. A zone in the text overrides ``zone``."""
    schedule = parse_schedule(text)
    if text.startswith(_PREFIXES):
        zone = text.partition(" ")[0].partition("=")[2]
    return Due(schedule, zone_of(zone))


def zone_of(name: str) -> ZoneInfo:
    """The time zone of that name, or UTC for none; raises ``ValueError`` if it is unknown."""
    try:
        return ZoneInfo(name or "UTC")
    except (KeyError, OSError, ValueError):
        raise ValueError(f"unknown time zone {name}") from None


def in_zone(moment: float, zone: str) -> str:
    """The local time in the zone, with its offset."""
    local = datetime.fromtimestamp(moment, zone_of(zone))
    if not local.utcoffset():
        return local.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return local.isoformat(timespec="seconds")
