"""The limits of handlers: a worker's own settings come first, then those of the ShardConfig."""

from __future__ import annotations

import pytest

from shoal.crds.shard import ConfigSpec, WorkerLimits
from shoal.errors import ConfigError
from shoal.sharding.worker.config import HandlingLimits, WorkerConfig, limits_of

SPEC = ConfigSpec(worker=WorkerLimits(concurrency=3, batch=7, handler_timeout="2m", drain_timeout="500ms"))


def settings(**given: object) -> WorkerConfig:
    return WorkerConfig(config="web", shard="a", **given)  # type: ignore[arg-type]


def test_limits_come_from_the_settings_then_from_the_shardconfig_then_from_the_defaults() -> None:
    assert limits_of(settings(), None) == limits_of(settings(), ConfigSpec()) == HandlingLimits()
    named = HandlingLimits(concurrency=3, batch=7, handler_timeout_s=120.0, drain_timeout_s=0.5)
    assert limits_of(settings(), SPEC) == named
    own = {"concurrency": 1, "batch": 2, "handler_timeout_s": 3.0, "drain_timeout_s": 0.0}
    assert limits_of(settings(**own), SPEC) == HandlingLimits(**own)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["concurrency", "batch", "handler_timeout_s", "drain_timeout_s", "cpus"])
def test_a_limit_that_cannot_be_used_is_named(name: str) -> None:
    with pytest.raises(ConfigError, match=f"^{name} is -1"):
        settings(**{name: -1})
