"""The page of capabilities names tests that exist."""

from __future__ import annotations

import ast
import re
from functools import cache

import pytest
from arch_source import ROOT

PAGE = ROOT / "docs" / "capabilities.md"
MISSING = "Not yet"
HEADING = re.compile(r"^(#+) (.+)$")
REFERENCE = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")


def capabilities(text: str) -> list[tuple[str, str]]:
    """Each item of the page with the section (a heading of the second level) that it is in."""
    section, found = "", []
    for line in text.splitlines():
        heading = HEADING.match(line)
        if heading is not None:
            section = heading[2] if len(heading[1]) == 2 else section
        elif line.startswith("- "):
            found.append((section, line[2:]))
        elif line.startswith("  ") and found:
            found[-1] = (found[-1][0], f"{found[-1][1]}\n{line.strip()}")
    return found


@cache
def names_in(path: str) -> frozenset[str]:
    file = ROOT / path
    if not file.is_file():
        return frozenset()
    nodes = ast.walk(ast.parse(file.read_text()))
    return frozenset(
        node.name
        for node in nodes
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_")
    )


def absent(text: str) -> list[str]:
    """The references of a text to tests that do not exist."""
    return [f"{path}::{name}" for path, name in REFERENCE.findall(text) if name not in names_in(path)]


def test_every_test_that_the_page_names_exists() -> None:
    assert absent(PAGE.read_text()) == []


def test_every_capability_names_a_test_except_those_that_are_missing() -> None:
    items = capabilities(PAGE.read_text())
    assert len({section for section, _ in items}) == 6  # five documents, and what is missing
    assert [item for section, item in items if section != MISSING and not REFERENCE.search(item)] == []


def test_every_name_of_a_test_on_the_page_is_a_reference_that_is_checked() -> None:
    text = PAGE.read_text()
    assert re.findall(r"::test_\w+", REFERENCE.sub("", text)) == []


@pytest.mark.parametrize("name", ["test_absent", "capabilities"])
def test_a_reference_to_a_test_that_does_not_exist_is_found(name: str) -> None:
    this = "tests/arch/test_capabilities.py"
    assert absent(f"`{this}::{name}` and `{this}::test_every_test_that_the_page_names_exists`") == [f"{this}::{name}"]
    assert absent("`tests/arch/test_of_nothing.py::test_absent`") == ["tests/arch/test_of_nothing.py::test_absent"]
