"""Torn files: what was there stays, and something else follows it."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from shoal.testing.disks import tear


@pytest.mark.parametrize("content", [b"", b"what was written" * 100])
def test_a_torn_file_keeps_its_beginning_and_depends_on_the_seed(tmp_path: Path, content: bytes) -> None:
    path, found = tmp_path / "file", set[bytes]()
    for seed in range(30):
        path.write_bytes(content)
        added = tear(path, Random(seed))
        torn = path.read_bytes()
        assert torn.startswith(content) and len(torn) == len(content) + added and added > 0
        path.write_bytes(content)
        tear(path, Random(seed))
        assert path.read_bytes() == torn
        found.add(torn)
    assert len(found) > 10
