"""Parses durations such as ``24h``, ``7d``, ``1h30m``."""

from __future__ import annotations

import re

from shoal.errors import ConfigError

_LENGTH = re.compile(r"(?:(\d{1,12})d)?(?:(\d{1,12})h)?(?:(\d{1,12})m)?(?:(\d{1,12})s)?")
_UNITS_S = (86400, 3600, 60, 1)
_LONGEST_S = 36500 * 86400


def seconds_of(setting: str, text: str) -> int:
    """The seconds of ``24h``, ``7d``, ``1h30m`` or ``600s``; raises ``ConfigError`` with the setting's name."""
    found = _LENGTH.fullmatch(text)
    if found is not None:
        seconds = sum(int(part or 0) * unit for part, unit in zip(found.groups(), _UNITS_S, strict=True))
        if 0 < seconds <= _LONGEST_S:
            return seconds
    raise ConfigError(f"{setting} is {text!r}: not a duration; use for example 30m, 24h or 7d")
