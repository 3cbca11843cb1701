"""The paths that an engine is given for subPaths."""

from __future__ import annotations

from pathlib import Path

import pytest

from shoal.node.runtime.docker.sources import resolved
from shoal.node.runtime.model import CreateFailure, Mount


def test_links_are_resolved_inside_the_volume_and_refused_outside(tmp_path: Path) -> None:
    volume, outside = tmp_path / "volume", tmp_path / "outside"
    for folder in (volume / "inner", outside):
        folder.mkdir(parents=True)
    (volume / "part").symlink_to("inner")
    mount = Mount(host_path=str(volume / "part"), container_path="/data", within=str(volume))
    assert resolved(mount) == Mount(host_path=str(volume / "inner"), container_path="/data")
    plain = Mount(host_path=str(outside), container_path="/data")
    assert resolved(plain) is plain
    (volume / "part").unlink()
    (volume / "part").symlink_to(outside)
    with pytest.raises(CreateFailure, match="opening .*/volume/part"):
        resolved(mount)
