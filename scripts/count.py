#!/usr/bin/env python3
"""Count what the architecture rules are about, for this checkout or for a revision of it.

    scripts/count.py [--ref REVISION] [--list COUNT]

Prints one line per count; ``--list`` also prints what one of them found. Needs nothing but the standard library.
"""

from __future__ import annotations

import argparse
import ast
import importlib.util
import subprocess
import sys
import tarfile
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

HERE = Path(__file__).resolve().parents[1]
GENERATED = ("wire/", "kube/schema/generated/")
SESSION_STEPS = {"Load", "Send", "Wait", "Done"}
# Before and after it moved.
SESSION_MACHINES = {"shoal.control.service.protocol", "shoal.control.service.stream.protocol"}
REPEAT_LINES = 6


def session_interpreters(root: Path) -> list[str]:
    """Modules that import steps of the fleet's session machine, to carry them out."""
    return [
        name
        for name, tree in sources(root)
        if any(
            isinstance(node, ast.ImportFrom)
            and node.module in SESSION_MACHINES
            and SESSION_STEPS & {alias.name for alias in node.names}
            for node in ast.walk(tree)
        )
    ]


def httptools_importers(root: Path) -> list[str]:
    """Modules that import httptools."""
    return [
        name
        for name, tree in sources(root)
        if any(
            (isinstance(node, ast.Import) and any(alias.name == "httptools" for alias in node.names))
            or (isinstance(node, ast.ImportFrom) and node.module == "httptools")
            for node in ast.walk(tree)
        )
    ]


def obj_definitions(root: Path) -> list[str]:
    """Modules of ``src`` that define the type ``Obj``."""
    return [
        name
        for name, tree in sources(root)
        for node in tree.body
        if isinstance(node, ast.Assign) and any(isinstance(to, ast.Name) and to.id == "Obj" for to in node.targets)
    ]


def positional_row_reads(root: Path) -> list[str]:
    """``row[3]`` in ``control``: a subscript with a number on a variable called ``row`` or ``…_row``."""
    return [
        f"{name}:{node.lineno}"
        for name, tree in sources(root)
        if name.startswith("control/")
        for node in ast.walk(tree)
        if isinstance(node, ast.Subscript)
        and isinstance(node.value, ast.Name)
        and (node.value.id == "row" or node.value.id.endswith("_row"))
        and isinstance(node.slice, ast.Constant)
        and isinstance(node.slice.value, int)
    ]


def loops_in_tests(root: Path) -> list[str]:
    """``asyncio.run`` or ``uvloop.run`` inside a test function."""
    return [
        f"{name}:{call.lineno}"
        for name, tree in parsed(root / "tests")
        for test in ast.walk(tree)
        if isinstance(test, ast.FunctionDef | ast.AsyncFunctionDef) and test.name.startswith("test_")
        for call in ast.walk(test)
        if isinstance(call, ast.Call) and ast.unparse(call.func) in ("asyncio.run", "uvloop.run")
    ]


def names_of_tests_alone(root: Path) -> list[str]:
    """Public names of ``src`` that only tests use, as ``tests/arch/test_unused.py`` finds them."""
    reader = arch_source()
    reader.ROOT, reader.SRC = root, root / "src"
    found: list[str] = reader.unused_names()
    return found


def literal_repeats(root: Path) -> list[str]:
    """Runs of six or more equal lines that stand in two places of ``src``; imports and blank lines are left out."""
    places: defaultdict[tuple[str, ...], list[tuple[str, int]]] = defaultdict(list)
    for name, _ in sources(root):
        text = (root / "src" / "shoal" / name).read_text().splitlines()
        lines = [line.strip() for line in text if line.strip() and not line.startswith(("import ", "from "))]
        for start in range(len(lines) - REPEAT_LINES + 1):
            places[tuple(lines[start : start + REPEAT_LINES])].append((name, start))
    # A run of eight lines is three windows: only its first one counts.
    repeated = {place for found in places.values() if len(found) > 1 for place in found}
    return [f"{name}:{start}" for name, start in sorted(repeated) if (name, start - 1) not in repeated]


def statements(root: Path) -> Counter[str]:
    """Statements of ``src`` per package, without generated code."""
    counts: Counter[str] = Counter()
    for name, tree in sources(root):
        counts[name.split("/")[0].removesuffix(".py")] += sum(isinstance(node, ast.stmt) for node in ast.walk(tree))
    return counts


COUNTS: dict[str, Callable[[Path], list[str]]] = {
    "session-interpreters": session_interpreters,
    "httptools-importers": httptools_importers,
    "obj-definitions": obj_definitions,
    "positional-row-reads": positional_row_reads,
    "loops-in-tests": loops_in_tests,
    "names-of-tests-alone": names_of_tests_alone,
    "literal-repeats": literal_repeats,
}


def sources(root: Path) -> Iterator[tuple[str, ast.Module]]:
    """(path below ``src/shoal``, syntax tree) of every module that people write."""
    for name, tree in parsed(root / "src" / "shoal"):
        if not name.startswith(GENERATED):
            yield name, tree


_PARSED: dict[Path, ast.Module] = {}


def parsed(folder: Path) -> Iterator[tuple[str, ast.Module]]:
    for path in sorted(folder.rglob("*.py")):
        if path not in _PARSED:
            _PARSED[path] = ast.parse(path.read_text(), filename=str(path))
        yield str(path.relative_to(folder)), _PARSED[path]


def arch_source() -> ModuleType:
    """The reader of the architecture tests, from this checkout: an older revision may lack it."""
    path = HERE / "tests" / "arch" / "arch_source.py"
    spec = importlib.util.spec_from_file_location("arch_source", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def unpacked(ref: str, into: Path) -> Path:
    """The tree of a revision, in a folder."""
    archive = into / "tree.tar"
    subprocess.run(["git", "-C", str(HERE), "archive", "-o", str(archive), ref, "src", "tests"], check=True)
    with tarfile.open(archive) as tar:
        tar.extractall(into, filter="data")
    return into


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--ref", metavar="REVISION", help="count in this revision instead of the checkout")
    options.add_argument("--list", choices=sorted(COUNTS), metavar="COUNT", help="also print what this count found")
    given = options.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        root = unpacked(given.ref, Path(folder)) if given.ref else HERE
        for name, count in COUNTS.items():
            found = count(root)
            print(f"{name:24} {len(found):6}")
            if name == given.list:
                print(*(f"  {each}" for each in found), sep="\n")
        packages = statements(root)
        print(f"{'statements':24} {packages.total():6}")
        print(*(f"  {package:22} {number:6}" for package, number in sorted(packages.items())), sep="\n")


if __name__ == "__main__":
    main()
