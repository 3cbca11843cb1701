"""The base install is enough for the command line and the libraries, and each extra for its processes; all computed from
what the modules import."""

from __future__ import annotations

import re
import sys
import tomllib
from functools import cache
from importlib.metadata import packages_distributions

import pytest
from arch_source import ROOT, Module, imports, modules

from shoal.app.main import COMMANDS
from shoal.cli.extras import DISTRIBUTION, EXTRAS

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
MODULES = {module.name: module for module in modules()}
# Packages that come with one of ours, which is named here
COMES_WITH = {"protobuf": "xds-protos", "pyqwest": "connectrpc", "requests": "hvac"}
# Modules that are imported by nobody but users who have chosen an extra, or that take an extra where it is there
OPTIONAL = {
    "shoal.reconcile.redis_lock": "elections through Redis, for who has one",
    "shoal.base.metrics": "asks for the figures of the process only where one serves its metrics",
    "shoal.base.tracing": "imports the API of traces only when they are turned on",
    "shoal.control.secrets.vault": "the extra `vault`, for who has one",
    "shoal.kube.kinds.access.pod_certificate": "checks what an API server is sent",
    "shoal.kube.kinds.access.signing": "checks what an API server is sent",
    "shoal.kube.kinds.access.trust_bundle": "checks what an API server is sent",
    "shoal.sync.sealing": "seals in the control plane; agents unseal",
    "shoal.sync.primitives": "for agents; other unsealing than the interpreter's own OpenSSL",
}
# What runs from each install: packages, modules, or the processes that commands start
BASE = (
    "shoal.cli", "shoal.client", "shoal.crds", "shoal.kube", "shoal.reconcile", "shoal.sharding.worker", "shoal.app.main",
    "shoal.app.joining", "shoal.app.commands.completion", "shoal.app.commands.version",
)  # fmt: skip
PROCESSES = {
    "agent": (
        "shoal.app.fleet.start_agent", "shoal.app.fleet.agent", "shoal.app.navigator.edge", "shoal.app.sharding.manager",
        "shoal.app.sharding.proxy", "shoal.app.sharding.worker", "shoal.app.processes", "shoal.app.health",
    ),
    "server": ("shoal.app.fleet.control", "shoal.app.fleet.relay", "shoal.app.navigator.manager", "shoal.app.backup"),
    "gateway": ("shoal.sentinel", "shoal.app.fleet.gateway"),
    "cluster": ("shoal.app.cluster", "shoal.testing.servers"),
}  # fmt: skip
POSIX = {"fcntl", "grp", "pty", "pwd", "resource", "termios", "tty"}
# Modules that a build or a test uses and users do not run
NOT_RUN = ("shoal.kube.schema.compile",)


def distributions(requirements: list[str]) -> set[str]:
    """The distributions that requirements name, those of the extras of Shoal that they name too."""
    found: set[str] = set()
    for requirement in requirements:
        name, extras = re.match(r"([\w.-]+)(?:\[([\w,]+)\])?", requirement).groups()  # type: ignore[union-attr]
        if name == DISTRIBUTION:
            for extra in extras.split(","):
                found |= distributions(PROJECT["optional-dependencies"][extra])
        else:
            found.add(_same(name))
    return found


def _same(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


@cache
def owners() -> dict[str, set[str]]:
    """Import name to distributions; those that are a part of another one stand for it."""
    found = {name: {_same(each) for each in of} for name, of in packages_distributions().items()}
    return {
        **found,
        "protobuf": {"protobuf-py"},
        "google.protobuf": {"protobuf"},
        "xds": {"xds-protos"},
        "opentelemetry": {"opentelemetry-api"},
    }


def distributions_of(imported: str) -> set[str]:
    top = "google.protobuf" if imported.startswith("google.protobuf") else imported.split(".")[0]
    return {COMES_WITH.get(each, each) for each in owners().get(top, {top})}


BASE_INSTALL = distributions(PROJECT["dependencies"])


def closure(starts: tuple[str, ...]) -> set[str]:
    """Everything of Shoal that these modules or packages import, also inside functions."""
    todo = [name for name in MODULES for start in starts if name == start or name.startswith(f"{start}.")]
    seen: set[str] = set()
    while todo:
        name = todo.pop()
        if name in seen or name in NOT_RUN:
            continue
        seen.add(name)
        parts = name.split(".")
        todo += [".".join(parts[:count]) for count in range(1, len(parts))]
        todo += [each for each, _ in imports(MODULES[name], with_typing=False) if each in MODULES]
    return seen


def foreign(module: Module, **kinds: bool) -> set[str]:
    """What a module imports that is neither Shoal's nor Python's; generated messages import one package."""
    names = {name for name, _ in imports(module, with_typing=False, **kinds)}
    messages = {"protobuf"} if any(name.startswith("shoal.wire.") for name in names) else set()
    return messages | {name for name in names if name.split(".")[0] not in {"shoal", *sys.stdlib_module_names}}


def lacking(starts: tuple[str, ...], installed: set[str]) -> dict[str, set[str]]:
    found = {}
    for name in sorted(closure(starts) - set(OPTIONAL)):
        wrong = {each for each in foreign(MODULES[name]) if not distributions_of(each) & installed}
        if wrong:
            found[name] = wrong
    return found


def test_the_command_line_and_the_libraries_import_only_what_the_base_install_has() -> None:
    assert len(closure(BASE)) > 150
    assert not lacking(BASE, BASE_INSTALL)


def test_this_test_sees_what_is_missing() -> None:
    assert "sqlalchemy" in {
        each for names in lacking(("shoal.control.database",), BASE_INSTALL).values() for each in names
    }


@pytest.mark.parametrize("extra", sorted(PROCESSES))
def test_each_extra_is_enough_for_its_processes(extra: str) -> None:
    installed = BASE_INSTALL | distributions(PROJECT["optional-dependencies"][extra])
    assert not lacking(PROCESSES[extra], installed)


def test_what_the_base_install_has_is_imported_by_it() -> None:
    used = {each for name in closure(BASE) for each in foreign(MODULES[name])}
    names = set().union(*(distributions_of(each) for each in used))
    assert BASE_INSTALL - names <= {"rich"}  # typer imports it


def test_the_base_install_can_be_imported_on_any_system() -> None:
    wrong = {
        name: used
        for name in closure(BASE)
        if (used := {each for each, _ in imports(MODULES[name], inside_functions=False)} & POSIX)
    }
    assert not wrong


def test_the_table_of_extras_has_what_pyproject_has() -> None:
    for extra, names in EXTRAS.items():
        wanted = distributions(PROJECT["optional-dependencies"][extra]) - BASE_INSTALL
        ours = set().union(*(distributions_of(name) for name in names))
        companions = {each for each in wanted if each.startswith("opentelemetry-")} if extra == "traces" else set()
        assert ours - wanted == set(), extra
        assert wanted - ours - companions == set(), extra


def test_the_guide_lists_every_extra() -> None:
    rows = re.findall(r"^\| `(\w+)` \|", (ROOT / "docs" / "guides" / "install.md").read_text(), re.MULTILINE)
    assert rows == [*EXTRAS]


def test_commands_name_extras_that_exist() -> None:
    assert {command.extra for command in COMMANDS if command.extra} <= set(EXTRAS)
    assert {extra for command in COMMANDS for _, extra in command.extra_of} <= set(EXTRAS)
