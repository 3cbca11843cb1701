from __future__ import annotations

import os
from pathlib import Path

import pytest

from shoal.node.runtime.model import RuntimeFailure
from shoal.node.runtime.sandbox import ids
from shoal.node.runtime.sandbox.ids import choose, is_mapped, subordinate


@pytest.mark.parametrize(
    ("lines", "found"),
    [
        (["ann:100000:65536"], (100000, 65536)),
        (["1000:5000:10", "ann:100000:65536"], (100000, 65536)),
        (["bob:100000:65536", "# ann", "ann:x:5", "ann:7"], None),
        (["ann:100000:0"], None),
        ([], None),
    ],
)
def test_the_largest_range_of_a_user_counts(lines: list[str], found: tuple[int, int] | None) -> None:
    assert subordinate(lines, "ann", 1000) == found


def test_ids_outside_of_the_own_user_namespace_do_not_exist() -> None:
    assert is_mapped(["         0          0 4294967295"], 0x20000000, 65536)
    assert is_mapped(["0 100000 65536", "70000 300000 10"], 70000, 10)
    assert not is_mapped(["0 100000 65536"], 65000, 1000)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_a_cluster_of_root_keeps_its_range_and_none_has_the_machines_root(tmp_path: Path) -> None:
    first, second = choose(tmp_path / "a", "auto"), choose(tmp_path / "b", "auto")
    assert choose(tmp_path / "a", "auto") == first != second
    assert first.count == ids.COUNT and first.outer_root >= 0x20000000
    assert choose(tmp_path / "a", "one").uids == ((0, first.outer_root, 1),)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_root_of_a_container_with_few_users_is_told_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "ids").write_text(f"{2**32 - 5}\n")
    with pytest.raises(RuntimeFailure, match="start as an ordinary user, or use --runtime process"):
        choose(tmp_path, "auto")
