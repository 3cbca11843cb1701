"""Keeps ``lines.txt``, the table of upstream conformance tests, true: nothing on the list is left out silently."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import NamedTuple

import pytest

HERE = Path(__file__).parent
REASONS = frozenset(
    {
        "- needs kubectl itself",
        "- needs real containers",
        "- the kind is not served",
    }
)


class Row(NamedTuple):
    line: str
    upstream: str
    ours: str  # module::test, or one of the reasons


def rows() -> list[Row]:
    text = (HERE / "lines.txt").read_text()
    return [Row(*line.split(" | ")) for line in text.splitlines() if not line.startswith("#")]


def replays() -> dict[str, str]:
    """Upstream name by ``module::test``, read from the decorators of this folder."""
    found = {}
    for file in sorted(HERE.glob("test_*.py")):
        for node in ast.parse(file.read_text()).body:
            for decorator in node.decorator_list if isinstance(node, ast.FunctionDef) else ():
                if isinstance(decorator, ast.Call) and ast.unparse(decorator.func) == "conformance":
                    assert isinstance(node, ast.FunctionDef)
                    found[f"{file.stem}::{node.name}"] = str(ast.literal_eval(decorator.args[0]))
    return found


def test_every_numbered_line_is_listed() -> None:
    assert {row.line for row in rows()} >= {str(number) for number in range(1, 61)}


def test_every_row_has_a_test_or_a_known_reason() -> None:
    tests = replays()
    missing = [row for row in rows() if row.ours not in REASONS and tests.get(row.ours) != row.upstream]
    assert missing == []


def test_every_replay_is_listed() -> None:
    assert set(replays()) == {row.ours for row in rows() if row.ours not in REASONS}


def test_upstream_names_are_whole_and_unique() -> None:
    names = [row.upstream for row in rows()]
    assert len(set(names)) == len(names)
    assert all(name.startswith("[sig-") and "[Conformance]" in name for name in names)


def test_no_replay_is_skipped() -> None:
    sources = [file.read_text() for file in HERE.glob("test_*.py") if file != Path(__file__)]
    assert not any("mark.skip" in source or "pytest.skip(" in source for source in sources)


@pytest.mark.parametrize("nodes", ["simulated", "process"])
def test_lists_of_upstream_tests_are_whole_names_in_order(nodes: str) -> None:
    names = (HERE / f"upstream-{nodes}.txt").read_text().splitlines()
    assert names == sorted(set(names))
    assert all(name.startswith("[sig-") and "[Conformance]" in name for name in names)


def test_what_needs_real_containers_is_not_asked_of_simulated_nodes() -> None:
    real = {row.upstream for row in rows() if row.ours == "- needs real containers"}
    assert not real & set((HERE / "upstream-simulated.txt").read_text().splitlines())
