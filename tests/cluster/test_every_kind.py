"""For every kind there is: whatever is sent, the server answers properly, and what it accepts is a sound object."""

from __future__ import annotations

import pytest
from cluster_attack import attack_custom_kind, attack_kind
from cluster_objects import resources

from shoal.kube.resources import Resource


@pytest.mark.parametrize("resource", resources(), ids=lambda r: f"{r.api_version}-{r.kind}")
async def test_what_is_accepted_is_sound_and_what_is_refused_leaves_nothing(resource: Resource) -> None:
    await attack_kind(resource, rounds=12, seed=1)


async def test_the_same_holds_for_custom_resources() -> None:
    await attack_custom_kind(rounds=40, seed=1)
