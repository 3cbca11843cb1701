"""The mounts of a container: a subPath is made inside its volume, and the runtime is told which folder it must not leave."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from random import Random
from typing import Any, cast

import pytest

from shoal.base.clock import FakeClock
from shoal.client import Client
from shoal.client.transport import Transport
from shoal.node.errors import ConfigFault
from shoal.node.references import References
from shoal.node.runtime.model import Mount
from shoal.node.volumes.service import Prepared, Volumes
from shoal.testing.servers import local_server

POD = {"metadata": {"uid": "u", "name": "p", "namespace": "default"}, "spec": {}}


@pytest.fixture
async def volumes(tmp_path: Path, clock: FakeClock) -> AsyncIterator[Volumes]:
    async with local_server(clock=clock) as server:
        client = Client(cast(Transport, server.transport), clock=clock)
        references = References(client, clock=clock, random=Random(1).random, changed=lambda _uid: None)
        yield Volumes(tmp_path / "node", client, references, clock=clock, allocatable={})


@pytest.fixture
def volume(tmp_path: Path) -> Path:
    for name in ("volume", "outside"):
        (tmp_path / name).mkdir()
    return tmp_path / "volume"


def mounts(volumes: Volumes, volume: Path, mount: dict[str, Any], **env: str) -> Mount:
    container = {"name": "c", "volumeMounts": [{"name": "data", "mountPath": "/data", **mount}]}
    first, _message = volumes.mounts(POD, container, {"data": Prepared(volume)}, env, 0)
    return first


@pytest.mark.parametrize("mount", [{"subPath": "a/b"}, {"subPathExpr": "$(FOLDER)/b"}])
async def test_a_subpath_is_made_and_its_mount_names_the_volume(
    volumes: Volumes, volume: Path, mount: dict[str, Any]
) -> None:
    made = mounts(volumes, volume, mount, FOLDER="a")
    assert (made.host_path, made.within) == (str(volume / "a" / "b"), str(volume))
    assert (volume / "a" / "b").is_dir()
    assert mounts(volumes, volume, {}).within == "", "a whole volume is mounted as it is"


@pytest.mark.parametrize(
    "mount", [{"subPath": "link/new"}, {"subPath": "../outside/new"}, {"subPathExpr": "$(UP)/new"}]
)
async def test_a_subpath_that_leads_out_is_refused_and_nothing_is_made(
    volumes: Volumes, volume: Path, mount: dict[str, Any]
) -> None:
    (volume / "link").symlink_to("../outside")
    with pytest.raises(ConfigFault, match="subPath"):
        mounts(volumes, volume, mount, UP="../outside")
    assert not list((volume.parent / "outside").iterdir())
