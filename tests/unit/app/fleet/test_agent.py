"""The settings of gateways that their agent has: the image, and the variables that make them send traces."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from shoal.app.fleet.agent import gateway_env, gateway_settings
from shoal.errors import ConfigError
from shoal.krane.config import KraneConfig

EXPORTED = {"SHOAL_TRACES": "otlp", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318"}


def config(**settings: Any) -> KraneConfig:
    return KraneConfig(join=Path("join.json"), dir=Path("krane"), **settings)


def test_gateways_trace_only_if_the_agent_does_or_a_collector_is_set() -> None:
    assert gateway_env(config(), {}) == {}
    assert gateway_env(config(), {**EXPORTED, "SHOAL_TRACES": "off"}) == {}
    given = gateway_env(config(), EXPORTED)
    assert given == {"SHOAL_SENTINEL_TRACES_URL": "http://c:4318", "SHOAL_SENTINEL_TRACES_PERCENT": "1"}
    own = config(gateway_traces_url="http://other:4318", gateway_traces_percent=0.5)
    assert gateway_env(own, {}) == {
        "SHOAL_SENTINEL_TRACES_URL": "http://other:4318", "SHOAL_SENTINEL_TRACES_PERCENT": "0.5",
    }  # fmt: skip
    assert gateway_env(config(gateway_traces_percent=0.0), EXPORTED) == {}


def test_settings_that_cannot_work_are_refused() -> None:
    with pytest.raises(ConfigError, match="gateway_traces_percent is 200: use 0 to 100"):
        config(gateway_traces_percent=200.0)
    with pytest.raises(ConfigError, match="gateway_traces_url is 'c:4318': use http://HOST:PORT"):
        config(gateway_traces_url="c:4318")


def test_the_image_of_gateways_and_its_registry_are_settings_of_the_agent() -> None:
    made = gateway_settings(config(gateway_image="registry.example/shoal:1", gateway_pull_secret="hub"), {})
    assert (made.image, made.pull_secret, made.env) == ("registry.example/shoal:1", "hub", {})
    assert gateway_settings(config(), {}).image == "", "there is no default that could be somebody else's"
    with pytest.raises(ConfigError, match="gateway_image"):
        config(gateway_image="two words")
