"""Objects are built complete: a constructor sets attributes of its own object and of no other. What must run is run:
certificates of processes are kept valid."""

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


def unkept(path: Path) -> Iterator[int]:
    """The lines where a process gets certificates and nothing in that function keeps them valid."""
    for function in (*nodes(path, ast.FunctionDef), *nodes(path, ast.AsyncFunctionDef)):
        inside = list(ast.walk(function))
        made = [each for each in inside if isinstance(each, ast.Assign) and isinstance(each.value, ast.Call)]
        for name, call in ((ast.unparse(each.targets[0]), each.value) for each in made):
            kind = ast.unparse(call.func)  # type: ignore[attr-defined]
            if kind == "CertificateKeeper":
                kept = [
                    each for each in inside if isinstance(each, ast.Attribute) and ast.unparse(each) == f"{name}.run"
                ]
                kept += [
                    each for each in inside if isinstance(each, ast.Call) and is_given(each, "_start_keeping", name)
                ]
            elif kind == "Tls":
                kept = [each for each in inside if isinstance(each, ast.Call) and is_given(each, "partial", name)]
            else:
                continue
            if not kept:
                yield call.lineno


def is_given(call: ast.Call, function: str, name: str) -> bool:
    return ast.unparse(call.func) == function and name in map(ast.unparse, call.args)


def test_every_process_keeps_its_certificates_valid() -> None:
    app = [module for module in modules() if module.package == "app" and module.name != "shoal.app.certificates"]
    wrong = [f"{module.shown}:{line}" for module in app for line in unkept(module.path)]
    assert not wrong, "run the keeper, or follow_certificate: " + ", ".join(wrong)


def test_this_test_sees_certificates_that_nobody_keeps(tmp_path: Path) -> None:
    path = tmp_path / "x.py"
    path.write_text(
        "async def a():\n    keeper = CertificateKeeper(x)\n    tls = Tls(a, b)\n"
        "async def b():\n    keeper = CertificateKeeper(x)\n    await run(keeper.run)\n"
        "def c():\n    tls = Tls(a, b)\n    start(partial(follow_certificate, tls, clock))\n"
    )
    assert sorted(unkept(path)) == [2, 3]
