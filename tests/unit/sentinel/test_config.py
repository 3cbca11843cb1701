"""Settings that cannot work are refused with what to do."""

from __future__ import annotations

from typing import Any

import pytest

from shoal.errors import ConfigError
from shoal.sentinel.config import SentinelConfig


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"port": 0}, "port is 0"),
        ({"port": 8041}, "must differ"),
        ({"tls_port": 8040}, "must differ"),
        ({"entry_port": 9000}, "entry_secret is not set"),
        ({"host": "localhost"}, "use an address"),
        ({"stats_s": 0.0}, "stats_s must be more than 0"),
        ({"traces_url": "collector:4318"}, "use http://HOST:PORT"),
        ({"traces_percent": 101.0}, "traces_percent is 101: use 0 to 100"),
    ],
)
def test_settings_that_cannot_work_are_refused(given: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        SentinelConfig(**given)


def test_a_gateway_without_an_environment_serves_all() -> None:
    assert SentinelConfig().everything
    assert not SentinelConfig(environment="env_1").everything
    assert SentinelConfig(name="gw").replica == "gw"
    assert SentinelConfig(name="gw", pod="gw-0").replica == "gw-0"
