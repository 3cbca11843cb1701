"""Objects are built complete: a constructor sets attributes of its own object and of no other."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from arch_source import Module, modules, nodes

# Packages whose object graphs are built from the bottom up, without filling anything in later.
COMPLETE = {"apiserver"}


def test_no_constructor_fills_in_attributes_of_other_objects() -> None:
    wrong = [
        f"{module.shown}:{line} sets {name}"
        for module in modules()
        if module.package in COMPLETE
        for name, line in filled_in(module)
    ]
    assert not wrong, "\n".join(wrong)


def filled_in(module: Module) -> Iterator[tuple[str, int]]:
    for function in nodes(module.path, ast.FunctionDef):
        if function.name == "__init__":
            for node in ast.walk(function):
                if (
                    isinstance(node, ast.Attribute)
                    and isinstance(node.ctx, ast.Store)
                    and ast.unparse(node.value) != "self"
                ):
                    yield ast.unparse(node), node.lineno


def test_this_test_sees_attributes_of_other_objects(tmp_path: Path) -> None:
    path = tmp_path / "x.py"
    path.write_text("class A:\n    def __init__(self, b):\n        self.b = b\n        b.a = self.b.c = self\n")
    assert [name for name, _ in filled_in(Module("shoal.apiserver.x", path))] == ["b.a", "self.b.c"]
