"""Volume folders on disk: exact content, replaced in one step."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.node.volumes import files
from shoal.node.volumes.content import File

contents = st.dictionaries(
    st.sampled_from(["a", "b", "deep/c", "deep/er/d"]),
    st.builds(File, st.binary(max_size=20), st.sampled_from([0o644, 0o600])),
)


@given(st.lists(contents, min_size=1, max_size=5))
@settings(max_examples=40)
def test_a_folder_contains_exactly_the_last_version(tmp_path_factory: pytest.TempPathFactory, versions: Any) -> None:
    folder = tmp_path_factory.mktemp("volume")
    last = None
    for version in versions:
        assert files.write(folder, version, "stamp") is (version != last)
        last = version
        found = {
            str(path.relative_to(folder)): path.read_bytes()
            for top in folder.iterdir()
            if not top.name.startswith("..")
            for path in ([top] if top.is_file() else sorted(top.rglob("*")))
            if path.is_file()
        }
        assert found == {path: file.data for path, file in version.items()}
    assert len([each for each in folder.iterdir() if each.name.startswith("..stamp")]) == 1


def test_a_change_is_one_step_for_readers(tmp_path: Path) -> None:
    files.write(tmp_path, {"a": File(b"1"), "b": File(b"1")}, "one")
    before = os.readlink(tmp_path / "..data")
    reader = os.open(tmp_path / "..data", os.O_RDONLY)
    try:
        files.write(tmp_path, {"a": File(b"2"), "b": File(b"2")}, "two")
        assert os.readlink(tmp_path / "..data") != before
        assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes() == b"2"
    finally:
        os.close(reader)
