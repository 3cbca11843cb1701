"""Secrets that an agent cannot open: asked for again without a new version, and what is missing is said, not left out."""

from __future__ import annotations

from pathlib import Path

import pytest
from krane_doubles import FakeCluster, FakePlane, Rig

from shoal.errors import ServiceUnavailable
from shoal.krane.protocol import version_of
from shoal.krane.unsealing import Unsealable, unseal
from shoal.wire.fleet.v1 import cluster_pb as pb

KEY = "deployment/a"


class Locked(FakeCluster):
    """Opens what is wrapped for ``mine``."""

    async def apply(self, item: pb.Item) -> None:
        state = item.action.value if item.action is not None else None
        assert isinstance(state, pb.DeploymentState)
        if any(secret.wrapped_key != b"mine" for secret in state.secrets):
            raise Unsealable("the wrapped key is for another agent")
        await super().apply(item)


def wrapped(item: pb.Item, key: bytes) -> pb.Item:
    """The same version, wrapped for somebody."""
    found = pb.Item.from_binary(item.to_binary())
    assert found.action is not None and isinstance(found.action.value, pb.DeploymentState)
    found.action.value.secrets = [pb.SealedSecret(secret="sec_1", wrapped_key=key, ciphertext=b"c")]
    return found


async def test_a_state_wrapped_for_another_key_is_applied_once_it_is_wrapped_for_ours(tmp_path: Path) -> None:
    plane = FakePlane()
    item = plane.desired.want(KEY)
    plane.desired.items[KEY] = wrapped(item, b"another's")
    async with Rig(tmp_path, plane=plane, cluster=Locked()) as rig:
        await rig.settle()
        assert rig.running() == {} and plane.asked == [KEY], "asked for once, not in a loop"
        failure = rig.controller.status()["failing"]
        assert failure, "and visible"
        plane.desired.items[KEY] = wrapped(item, b"mine")  # no new version, and nobody says anything
        await rig.clock.advance(10)
        await rig.settle()
        assert rig.running() == {KEY: version_of(item).number}
        cached = rig.cache.get(KEY)
        assert cached is not None and cached.to_binary() == plane.desired.items[KEY].to_binary()


async def test_without_an_answer_the_last_state_stays_and_it_is_tried_again(tmp_path: Path) -> None:
    plane = FakePlane()
    item = plane.desired.want(KEY)
    plane.desired.items[KEY] = wrapped(item, b"another's")
    async with Rig(tmp_path, plane=plane, cluster=Locked()) as rig:
        await rig.settle()
        plane.error = ServiceUnavailable("away")
        plane.desired.items[KEY] = wrapped(item, b"mine")
        await rig.clock.advance(10)
        assert rig.running() == {}
        plane.error = None
        await rig.clock.advance(120)
        await rig.settle()
        assert rig.running() == {KEY: version_of(item).number}


def test_a_secret_that_was_deleted_is_an_error_that_names_it_and_the_field() -> None:
    with pytest.raises(Unsealable) as caught:
        unseal(pb.SealedSecret(secret="db"), b"k" * 32)
    assert 'Secret "db"' in str(caught.value) and "remove it from the app's spec.secrets" in str(caught.value)
    assert [error.field for error in caught.value.errors] == ["secrets"]
