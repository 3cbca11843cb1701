"""Settings of the cluster service."""

from __future__ import annotations

import pytest

from shoal.control.service.config import ServiceConfig
from shoal.errors import ConfigError


def test_settings_that_break_a_promise_are_refused() -> None:
    for wrong in (
        {"guard_s": 1.0},
        {"missed_heartbeats": 1},
        {"freeze_fraction": 0.0},
        {"digest_every_s": 0.0},
        {"batch": 0},
    ):
        with pytest.raises(ConfigError):
            ServiceConfig(**wrong)  # type: ignore[arg-type]
