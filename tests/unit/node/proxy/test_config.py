"""Settings of the service proxy."""

from __future__ import annotations

import pytest


def test_limits_below_one_and_zero_retry_intervals_are_refused() -> None:
    from shoal.errors import ConfigError
    from shoal.node.proxy.config import ProxyConfig

    with pytest.raises(ConfigError):
        ProxyConfig(listeners=0)
    with pytest.raises(ConfigError):
        ProxyConfig(retry_s=0)
