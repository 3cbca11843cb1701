"""Rules about the tests themselves: async tests are coroutine functions, and file names say what is tested."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from arch_source import ROOT, tree

TESTS = ROOT / "tests"
NUMBERED = re.compile(r"test_[nur]\d{1,2}_")
RUNNERS = {"asyncio.run", "uvloop.run"}


def test_no_test_function_runs_a_loop_of_its_own() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{line}" for path in sorted(TESTS.rglob("test_*.py")) for line in loops(tree(path))
    ]
    assert not wrong, "make the test an `async def`:\n" + "\n".join(wrong)


def test_no_file_is_named_after_a_review() -> None:
    assert not sorted(TESTS.rglob("test_review_*.py")), "name the file after the module or the guarantee that it tests"


def test_no_test_is_named_by_the_number_of_a_rule() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{node.lineno} {node.name}"
        for path in sorted(TESTS.rglob("test_*.py"))
        for node in ast.walk(tree(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and NUMBERED.match(node.name)
    ]
    assert not wrong, "a test's name is the guarantee:\n" + "\n".join(wrong)


def loops(top: ast.Module) -> Iterator[int]:
    """The lines on which a test function runs an event loop."""
    for function in ast.walk(top):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef) and function.name.startswith("test_"):
            for node in ast.walk(function):
                if isinstance(node, ast.Call) and ast.unparse(node.func) in RUNNERS:
                    yield node.lineno


def test_a_loop_in_a_test_is_found(tmp_path: Path) -> None:
    path = tmp_path / "x.py"
    path.write_text("def test_a():\n    asyncio.run(main())\n\n\ndef helper():\n    asyncio.run(main())\n")
    assert list(loops(tree(path))) == [2]
