"""Settings of nodes as users write them."""

from __future__ import annotations

from typing import Any

import pytest

from shoal.errors import ConfigError
from shoal.node.config import NodeSettings, Taint


def test_labels_and_taints_are_read_from_texts() -> None:
    settings = NodeSettings(labels=("disk=ssd", "example.org/empty="), taints=("gpu=yes:NoSchedule", "old:NoExecute"))
    assert settings.label_pairs() == (("disk", "ssd"), ("example.org/empty", ""))
    assert settings.taint_list() == (Taint("gpu", "yes", "NoSchedule"), Taint("old", "", "NoExecute"))


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"labels": ("disk",)}, "node.labels has 'disk': it has no =; use KEY=VALUE"),
        ({"labels": ("a b=c",)}, "node.labels has 'a b=c'"),
        ({"labels": ("a=b c",)}, "node.labels has 'a=b c'"),
        (
            {"taints": ("gpu=yes",)},
            "the effect must be NoSchedule, PreferNoSchedule or NoExecute; use KEY=VALUE:EFFECT",
        ),
        ({"taints": (":NoSchedule",)}, "node.taints has ':NoSchedule'"),
        ({"cpu": "many"}, "node.cpu is 'many': use an amount above 0, such as 4 or 1500m"),
        ({"memory": "0"}, "node.memory is '0'"),
        ({"disk": "-1Gi"}, "node.disk is '-1Gi'"),
        ({"pods": 0}, "node.pods is 0"),
    ],
)
def test_mistakes_are_named_with_the_fix(given: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        NodeSettings(**given)
    assert problem in str(caught.value)
