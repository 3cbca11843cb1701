"""Lengths of time as people write them."""

from __future__ import annotations

import re

from shoal.errors import ConfigError

_LENGTH = re.compile(r"(?:(\d{1,12})d)?(?:(\d{1,12})h)?(?:(\d{1,12})m)?(?:(\d{1,12})s)?")
_UNITS_S = (86400, 3600, 60, 1)
_LONGEST_S = 36500 * 86400


def seconds_of(setting: str, text: str) -> int:
    """``24h``, ``7d``, ``1h30m``, ``600s``; ``ConfigError`` names the setting."""
    found = _LENGTH.fullmatch(text)
    if found is not None:
        seconds = sum(int(part or 0) * unit for part, unit in zip(found.groups(), _UNITS_S, strict=True))
        if 0 < seconds <= _LONGEST_S:
            return seconds
    raise ConfigError(f"{setting} is {text!r}: use for example 30m, 24h or 7d")
