"""Maintenance windows: when steps of a rollout may be entered. Pure; times are milliseconds since 1970, in UTC."""

from __future__ import annotations

from collections.abc import Sequence

from shoal.control.rollout.strategy import WindowSpec

_DAY_S = 86_400
_THURSDAY = 3  # the first day of 1970


def is_open(windows: Sequence[WindowSpec], now_ms: int) -> bool:
    return any(_is_in(window, now_ms) for window in windows)


def opens_at(windows: Sequence[WindowSpec], now_ms: int) -> int:
    """The next moment at which one is open; now, if one is."""
    if is_open(windows, now_ms):
        return now_ms
    today_s = now_ms // 1000 // _DAY_S * _DAY_S
    starts = [
        (today_s + day * _DAY_S + window.from_s) * 1000
        for window in windows
        for day in range(8)
        if _weekday(today_s + day * _DAY_S) in window.days
    ]
    return min((each for each in starts if each > now_ms), default=now_ms)


def _is_in(window: WindowSpec, now_ms: int) -> bool:
    now_s = now_ms // 1000
    of_day_s, today = now_s % _DAY_S, _weekday(now_s)
    if window.from_s < window.until_s:
        return today in window.days and window.from_s <= of_day_s < window.until_s
    began_today = today in window.days and of_day_s >= window.from_s
    return began_today or (_weekday(now_s - _DAY_S) in window.days and of_day_s < window.until_s)


def _weekday(at_s: int) -> int:
    return (at_s // _DAY_S + _THURSDAY) % 7
