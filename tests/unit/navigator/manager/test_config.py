"""The settings of the manager."""

from __future__ import annotations

from typing import Any

import pytest

from shoal.errors import ConfigError
from shoal.navigator.manager.config import ManagerConfig


@pytest.mark.parametrize(
    "wrong",
    [
        {"grace_s": -1.0},
        {"retention_s": 0.0},
        {"event_retention_s": 0.0},
        {"stale_intervals": 2.0},
        {"max_message_bytes": 10},
        {"guard_s": 5.0},
        {"keep_alive_s": 0.0},
        {"max_requests": 0},
    ],
)
def test_settings_that_cannot_work_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(wrong)).split(".")[0]):
        ManagerConfig(**wrong)
