"""Which ShardConfig a ShardInstance of a user joins, and why it joins none."""

from __future__ import annotations

from typing import Any

import pytest

from shoal.sharding.manager.joining import Refusal, choose_config

OWN_WORKERS = {"targets": [{"group": "example.com", "kind": "Website"}], "template": {"spec": {}}}


def config(name: str, **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": "default"}, "spec": spec}


def instance(shard_id: str = "shard-001", **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": "shard-001", "namespace": "default"}, "spec": {"shardId": shard_id, **spec}}


@pytest.mark.parametrize(
    ("given", "configs", "reason", "text"),
    [
        (instance(), [], "NoConfig", "no ShardConfig in namespace default"),
        (instance(), ["web", "api"], "SeveralConfigs", "name one in spec.config (api, web)"),
        (instance(config="web"), ["api"], "ConfigNotFound", "'web' not found in namespace default (existing: api)"),
        (instance("shard-002"), ["web"], "NamesDiffer", "use one name for both"),
    ],
)
def test_an_instance_that_cannot_join_is_told_why(given: Any, configs: list[str], reason: str, text: str) -> None:
    found = choose_config(given, [config(name) for name in configs])
    assert isinstance(found, Refusal)
    assert found.reason == reason
    assert text in found.text


def test_an_instance_joins_the_config_that_it_names_or_the_only_one() -> None:
    assert choose_config(instance(), [config("web")]) == config("web")
    assert choose_config(instance(config="api"), [config("web"), config("api")]) == config("api")


def test_an_instance_that_names_no_config_joins_the_only_one_with_built_in_workers() -> None:
    own, builtin = config("web", **OWN_WORKERS), config("example-config")
    assert choose_config(instance(), [own, builtin]) == builtin
    both = choose_config(instance(), [own, config("api", **OWN_WORKERS)])
    assert isinstance(both, Refusal)
    assert both.reason == "SeveralConfigs"
