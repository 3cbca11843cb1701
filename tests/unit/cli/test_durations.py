"""Durations of options."""

from __future__ import annotations

import pytest

from shoal.cli.durations import seconds_of
from shoal.errors import ConfigError


def test_an_invalid_duration_names_its_setting() -> None:
    assert seconds_of("ttl", "1h30m") == 5400
    for wrong in ("", "5", "0s", "99999999999d", "1s" * 5000):
        with pytest.raises(ConfigError, match="^grace is"):
            seconds_of("grace", wrong)
