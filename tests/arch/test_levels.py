"""Inside large packages imports go down only, and pure code stays pure in everything that it imports."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from arch_levels import LEVELS
from arch_source import Module, imports, modules
from test_layers import IMPURE, is_pure

LARGE = 20  # modules
FLAT = {"testing"}  # builders that are used one by one
# Libraries that pure code does not load either, however far away: what they are for is I/O.
IMPURE_LIBRARIES = {"alembic", "asyncpg", "granian", "grpc", "pyqwest", "redis", "sqlalchemy", "starlette", "uvicorn"}


def node_of(name: str, nodes: dict[str, int]) -> str | None:
    """The longest name of the table that a module (``node.runtime.model`` without its package) is or is in."""
    parts = name.split(".")
    return next((head for cut in range(len(parts), 0, -1) if (head := ".".join(parts[:cut])) in nodes), None)


def levels_of(package: str) -> dict[str, int]:
    return {name: level for level, names in enumerate(LEVELS[package]) for name in names.split()}


@cache
def known() -> dict[str, Module]:
    return {module.name: module for module in modules()}


def resolved(name: str) -> str:
    """The module of ours that an imported name is, or is in; empty for other libraries."""
    while name and name not in known():
        name = name.rpartition(".")[0]
    return name


def imports_up(module: Module, nodes: dict[str, int]) -> Iterator[tuple[str, str, int]]:
    """(own name, imported name, line) of each import that does not go to a lower level."""
    prefix = f"shoal.{module.package}."
    own = node_of(module.name.removeprefix(prefix), nodes)
    for name, line in imports(module, with_typing=False):
        other = resolved(name)
        if own is not None and other.startswith(prefix):
            target = node_of(other.removeprefix(prefix), nodes)
            if target is not None and target != own and nodes[target] >= nodes[own]:
                yield own, target, line


def test_every_large_package_has_levels() -> None:
    counts: dict[str, int] = {}
    for module in modules():
        counts[module.package] = counts.get(module.package, 0) + 1
    assert {package for package, count in counts.items() if count > LARGE} - FLAT <= set(LEVELS)


@pytest.mark.parametrize("package", sorted(LEVELS))
def test_every_part_of_a_large_package_has_a_level(package: str) -> None:
    nodes, prefix = levels_of(package), f"shoal.{package}."
    inside = [module.name.removeprefix(prefix) for module in modules() if module.name.startswith(prefix)]
    homeless = sorted(name for name in inside if node_of(name, nodes) is None)
    assert not homeless, f"give it a level in tests/arch/arch_levels.py: {homeless}"
    used = {node_of(name, nodes) for name in inside}
    assert not [name for name in nodes if name not in used], "the table names what is gone"


def test_imports_inside_large_packages_go_down_only() -> None:
    wrong = [
        f"{module.shown}:{line} {own} imports {other}, which is not on a lower level"
        for module in modules()
        if module.package in LEVELS
        for own, other, line in imports_up(module, levels_of(module.package))
    ]
    assert not wrong, "\n".join(wrong)


def test_this_test_sees_an_import_that_goes_up_and_leaves_out_those_for_types(tmp_path: Path) -> None:
    path, nodes = tmp_path / "x.py", {"low": 0, "high": 1}
    for text, expected in (
        ("from shoal.apiserver.server import ApiServer\n", 1),
        ("from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import shoal.apiserver.server\n", 0),
    ):
        module = Module("shoal.apiserver.paths", path.with_stem(f"x{expected}"))
        module.path.write_text(text)
        found = {other for _, other, _ in imports_up(module, levels_of("apiserver"))}
        assert len(found) == expected
    assert node_of("low.deep.module", nodes) == "low" and node_of("other", nodes) is None


# -- purity over everything that is imported -----------------------------------------------------------------------------


@cache
def at_import(name: str) -> tuple[frozenset[str], frozenset[str]]:
    """(modules of ours, other libraries) that a module imports when it is loaded; functions may import more later."""
    ours, others = set(), set()
    for imported, _ in imports(known()[name], with_typing=False, inside_functions=False):
        module = resolved(imported)
        if module:
            ours.add(module)
        elif not imported.startswith("shoal"):
            others.add(imported)
    return frozenset(ours - {name, "shoal"}), frozenset(others)


def reached(name: str) -> dict[str, str]:
    """What a module loads with all that it imports: impure names, each with the module of ours that imports it."""
    seen, waiting, found = {name}, [name], {}
    while waiting:
        current = waiting.pop()
        ours, others = at_import(current)
        for library in others:
            if library.split(".")[0] in IMPURE_LIBRARIES:
                found[library.split(".")[0]] = current
        for other in ours - seen:
            seen.add(other)
            waiting.append(other)
            if other in IMPURE or other.startswith(("shoal.client", "shoal.store")):
                found[other] = current
    return found


def test_pure_code_reaches_no_client_store_or_database() -> None:
    wrong = {}
    for module in modules():
        if is_pure(module) and (found := reached(module.name)):
            wrong[module.name] = found
    assert not wrong, "\n".join(
        f"{name} reaches {what} through {by}" for name, found in wrong.items() for what, by in found.items()
    )
