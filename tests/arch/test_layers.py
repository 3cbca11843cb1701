"""Imports go down only, pure code stays pure, and a few parts are reserved for those who build the object graph."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
from arch_source import LEVEL, SRC, Module, calls, imports, modules, nodes

BUILDERS = {"app", "testing"}
IMPORTERS_OF = {"store": {"apiserver", *BUILDERS}, "apiserver": BUILDERS}

# What pure code may not import: it neither waits nor looks at the world.
IMPURE = {
    "asyncio", "time", "random", "secrets", "socket", "ssl", "subprocess", "threading", "uvloop", "httptools", "httpx",
    "sqlite3", "signal", "shoal.base.clock", "shoal.base.logs", "shoal.base.tasks", "shoal.base.metrics",
}  # fmt: skip
PURE_FILES = {"plan.py", "protocol.py"}
PURE_FOLDERS = {"translate"}
# Run at set-up as programs, never imported by a server.
TOOLS = {"shoal.kube.schema.compile"}

# Clock, randomness and ids are parameters; only these make them.
AMBIENT = {
    "time.time", "time.time_ns", "time.monotonic", "time.monotonic_ns", "time.perf_counter", "time.sleep",
    "datetime.datetime.now", "datetime.datetime.utcnow", "datetime.datetime.today", "datetime.date.today",
    "uuid.uuid1", "uuid.uuid4", "os.urandom",
}  # fmt: skip
AMBIENT_MODULES = ("random.", "secrets.")
MAY_BE_AMBIENT = {"shoal.base.clock", "shoal.base.ids"}
# Programs of their own, which import nothing of ours: one runs beside each container.
PROGRAMS = ("shoal.node.runtime.process.shim.", "shoal.node.runtime.sandbox.helper.")


def is_pure(module: Module) -> bool:
    if module.name in TOOLS:
        return False
    folders = set(module.path.relative_to(SRC / "shoal").parts[:-1])
    return module.package == "kube" or module.path.name in PURE_FILES or bool(folders & PURE_FOLDERS)


def our_imports(module: Module) -> Iterator[tuple[str, int]]:
    """The packages of ours that a module imports, itself excluded."""
    for name, line in imports(module):
        parts = name.split(".")
        if parts[0] == "shoal" and len(parts) > 1 and parts[1] in LEVEL and parts[1] != module.package:
            yield parts[1], line


def test_every_package_has_a_level() -> None:
    packages = {module.package for module in modules() if module.package}
    folders = {path.name for path in (SRC / "shoal").iterdir() if path.is_dir() and any(path.glob("*.py"))}
    assert packages | folders <= set(LEVEL), "give the new package a level in LEVEL and in ARCHITECTURE.md"


def test_imports_go_down_only() -> None:
    wrong = [
        f"{module.shown}:{line} {module.package} (level {LEVEL[module.package]}) imports {other} (level {LEVEL[other]})"
        for module in modules()
        if module.package
        for other, line in our_imports(module)
        if LEVEL[other] >= LEVEL[module.package]
    ]
    assert not wrong, "\n".join(wrong)


def test_only_those_who_may_import_the_store_and_the_api_server() -> None:
    wrong = [
        f"{module.shown}:{line} {module.package} imports {other}"
        for module in modules()
        for other, line in our_imports(module)
        if other in IMPORTERS_OF and module.package not in IMPORTERS_OF[other]
    ]
    assert not wrong, "\n".join(wrong)


def test_pure_code_imports_nothing_that_waits_or_looks_at_the_world() -> None:
    wrong = [
        f"{module.shown}:{line} imports {name}"
        for module in modules()
        if is_pure(module)
        for name, line in imports(module, with_typing=False)
        if name in IMPURE or name.split(".")[0] in IMPURE or name.startswith(("shoal.client", "shoal.store"))
    ]
    assert not wrong, "\n".join(wrong)


def test_time_randomness_and_ids_are_parameters() -> None:
    wrong = [
        f"{module.shown}:{line} calls {name}"
        for module in modules()
        if module.package not in {"app", "testing"} and module.name not in MAY_BE_AMBIENT
        if not module.name.startswith(PROGRAMS)
        for name, line in calls(module)
        if name in AMBIENT or name.startswith(AMBIENT_MODULES)
    ]
    assert not wrong, "\n".join(wrong)


def test_http_is_parsed_in_three_places() -> None:
    found = {module.name for module in modules() for name, _ in imports(module) if name.split(".")[0] == "httptools"}
    assert found == {"shoal.apiserver.http", "shoal.base.http1.connection", "shoal.base.http1.server"}


def test_no_task_is_started_without_a_name() -> None:
    wrong = [
        f"{module.shown}:{node.lineno} create_task without name="
        for module in modules()
        for node in _create_task_calls(module)
        if not any(keyword.arg == "name" for keyword in node.keywords)
    ]
    assert not wrong, "\n".join(wrong)


def _create_task_calls(module: Module) -> Iterator[ast.Call]:
    for node in nodes(module.path, ast.Call):
        if isinstance(node.func, ast.Attribute) and node.func.attr == "create_task":
            yield node


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("shoal.kube.x", "from shoal.store.model import Key\n", "store"),
        ("shoal.kube.x", "def f():\n    import shoal.client\n", "client"),
        ("shoal.kube.x", "from ..store import model\n", "store"),
    ],
)
def test_these_tests_see_every_form_of_import(tmp_path: Path, name: str, text: str, expected: str) -> None:
    path = tmp_path / "x.py"
    path.write_text(text)
    assert expected in {package for package, _ in our_imports(Module(name, path))}
