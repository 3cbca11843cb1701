"""Rules about the text of the code: size, docstrings, leftovers, words that do not belong."""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from arch_source import ROOT, calls, modules, nodes, tree

MAX_LINES = 600
# Modules that may be longer, each with the reason.
LONG: dict[str, str] = {}

TEXT_SUFFIXES = {".py", ".md", ".sh", ".toml", ".yaml", ".yml", ".go", ".lock", ""}
LEFTOVER = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b(?!\(#\d+\))")
MACHINE = re.compile(r"(?<![\w.])/(root|work|home/\w+)/|(?:index-url|find-links|--trusted-host)[ =]")


def texts() -> Iterator[tuple[Path, str]]:
    """Every text file that is, or would be, in the repository."""
    listed = subprocess.run(
        ["git", "-C", str(ROOT), "ls-files", "--cached", "--others", "--exclude-standard"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if listed.returncode:
        pytest.skip("not a git checkout")
    for name in listed.stdout.splitlines():
        path = ROOT / name
        if path.suffix in TEXT_SUFFIXES and path.is_file() and path != Path(__file__):
            yield path, path.read_text(errors="ignore")


def found(pattern: re.Pattern[str], *, but: set[str] = frozenset()) -> list[str]:
    return [
        f"{path.relative_to(ROOT)}:{number} {line.strip()[:100]}"
        for path, text in texts()
        if str(path.relative_to(ROOT)) not in but and pattern.search(text)
        for number, line in enumerate(text.splitlines(), 1)
        if pattern.search(line)
    ]


def test_modules_stay_readable_in_one_sitting() -> None:
    long = {
        module.shown: count for module in modules() if (count := len(module.path.read_text().splitlines())) > MAX_LINES
    }
    assert set(long) <= set(LONG), f"over {MAX_LINES} lines without a reason in LONG: {long}"
    assert set(LONG) <= set(long), "LONG names modules that are short by now"


def test_every_module_says_what_it_owns() -> None:
    silent = [module.shown for module in modules() if not ast.get_docstring(tree(module.path))]
    assert not silent, "\n".join(silent)


# Modules that may print: what a person asked for at a terminal, and each other one with its reason.
PRINTS_FOR_PEOPLE = ("shoal.cli.", "shoal.app.commands.", "shoal.testing.")
PRINTS = {
    "shoal.app.processes": "the line `ready URL`, for which others wait",
    "shoal.app.demo.server": "a workload: what it prints is what `kubectl logs` shows",
    "shoal.app.demo.load": "a command for a terminal: the counts of what it has sent",
    "shoal.node.runtime.process.echo": "a workload",
    "shoal.kube.schema.compile": "a step of the set-up",
}


def test_servers_log_and_do_not_print() -> None:
    printing = {"print", "traceback.print_exc", "traceback.print_exception", "traceback.print_stack"}
    found = {
        module.name: f"{module.shown}:{line} {call}"
        for module in modules()
        if not module.name.startswith(PRINTS_FOR_PEOPLE)
        for call, line in calls(module)
        if call in printing
    }
    assert not [shown for name, shown in found.items() if name not in PRINTS]
    assert set(PRINTS) <= set(found), "PRINTS names modules that do not print by now"


def test_no_leftover_without_an_issue() -> None:
    left = found(LEFTOVER, but={"CONTRIBUTING.md"})
    assert not left, "\n".join(left)


def test_nothing_names_a_machine_or_a_package_index() -> None:
    named = found(MACHINE, but={"scripts/lock.sh"})
    assert not named, "\n".join(named)


def test_scripts_name_no_host_to_fetch_from() -> None:
    """pip, apt and the like know from their own configuration where packages come from."""
    urls = re.compile(r"https?://[\w$]")
    named = [
        f"{path.name}: {line.strip()}"
        for path in sorted((ROOT / "scripts").iterdir())
        if path.is_file()
        for line in path.read_text().splitlines()
        if urls.search(line)
    ]
    assert not named, "\n".join(named)


def test_lock_files_pin_every_package_with_hashes_and_name_no_index() -> None:
    for name in ("requirements.lock", "requirements-dev.lock"):
        lines = (ROOT / name).read_text().splitlines()
        assert not [line for line in lines if "://" in line or line.startswith("-")]
        pins = [line for line in lines if line and not line.startswith((" ", "#"))]
        assert pins
        assert all("==" in line and line.endswith("\\") for line in pins)


def test_every_runtime_dependency_is_explained() -> None:
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    page = (ROOT / "docs" / "decisions" / "0002-dependencies.md").read_text()
    extras = project["optional-dependencies"]
    needed = [
        *project["dependencies"],
        *(each for name in ("agent", "server", "gateway", "cluster", "vault") for each in extras[name]),
    ]
    names = {re.split(r"[<>=\[;]", dependency)[0] for dependency in needed} - {project["name"]}
    assert not [name for name in names if f"| {name} |" not in page]


# Modules that rename files themselves, each with the reason.
RENAMES = {
    "shoal.base.files": "the helper",
    "shoal.apiserver.audit.files": "puts a full log aside",
    "shoal.app.backup.archive": "renames an archive that is too large for memory",
    "shoal.base.table_copies": "renames a database that SQLite has written",
    "shoal.app.children": "puts a full log aside",
    "shoal.krane.cache": "puts a file that cannot be used aside",
    "shoal.node.runtime.process.shim.log": "puts a full log aside",
    "shoal.node.runtime.process.shim.main": "imports nothing of ours, to start fast; its folder is its own",
    "shoal.node.runtime.images.store": "moves whole folders of unpacked layers, which are synced before",
    "shoal.store.copy_sqlite": "renames a database that SQLite has written",
}


def test_files_are_replaced_by_one_helper() -> None:
    """It syncs the folder, and its temporary names cannot be guessed."""
    renaming = {
        module.name: f"{module.shown}:{call.lineno}"
        for module in modules()
        if re.search(r"^(import os|from pathlib import)", module.path.read_text(), re.MULTILINE)
        for awaited in [{each.value for each in nodes(module.path, ast.Await)}]  # of a cluster's client
        for call in nodes(module.path, ast.Call)
        if isinstance(call.func, ast.Attribute)
        and not call.keywords
        and call not in awaited
        and (
            (call.func.attr in ("replace", "rename") and len(call.args) == 1)  # of a Path; of a str it has two
            or ast.unparse(call.func) in ("os.replace", "os.rename", "shutil.move")
        )
    }
    assert not [shown for name, shown in renaming.items() if name not in RENAMES]
    assert set(RENAMES) <= set(renaming), "RENAMES names modules that do not rename by now"
