"""``shoal doctor``: checks this machine for the requirements of Shoal, its state, Envoy, and the fleet."""

from __future__ import annotations

import asyncio
import os
import platform
import resource
import sqlite3
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from shoal.app.commands.doctor_cluster import cluster
from shoal.app.commands.doctor_envoy import envoy_check
from shoal.app.commands.doctor_fleet import fleet_checks
from shoal.app.commands.doctor_state import state_checks
from shoal.app.config import DEFAULT_PORT, LOOPBACK
from shoal.app.findings import Finding, warning
from shoal.app.findings import FindingVerdict as FindingVerdict
from shoal.app.home import directory
from shoal.app.kubectl import OLDEST_KUBECTL, find_kubectl, kubectl_version
from shoal.app.ports import is_free
from shoal.base.clock import RealClock
from shoal.cli.apps import new_app
from shoal.cli.contexts import Context, current_context, has_context, navigator_context
from shoal.cli.options import ContextName, Output
from shoal.cli.printers import Format, put_rows
from shoal.errors import ConfigError

app = new_app(
    "Check this machine, its state, Envoy and the fleet, or a cluster that is to join the fleet.",
    group=True,
    default="machine",
    alone=True,
)
app.command("cluster")(cluster)

_OLDEST_PYTHON = (3, 11)
_OLDEST_SQLITE = (3, 35)  # the first with RETURNING
_FEWEST_FILES = 1024


@app.command("machine")
def doctor(
    dir: Annotated[Path | None, typer.Option(help="state directory; default $SHOAL_HOME, else ~/.shoal")] = None,
    output: Output = Format.TABLE,
    context: ContextName = "",
) -> None:
    """Check this machine, the state directory, Envoy, and with a context the fleet: each problem with its fix. The exit
    code is 1 if something that is needed is missing or broken; warnings do not count."""
    state = directory(dir)
    checks = list(examine(state))
    checks += _fleet(state, context)
    put_rows([asdict(check) for check in checks], ("name", "verdict", "found", "fix"), output)
    if any(check.verdict is FindingVerdict.FAILED for check in checks):
        raise typer.Exit(1)


def _fleet(state: Path, context: str) -> Iterator[Finding]:
    try:
        if context or has_context(state):
            yield from fleet_checks(*contexts(state, context), RealClock().now)
    except ConfigError as error:
        yield warning("context", str(error), "choose one with --context, or mend it with `shoal config set-context`")


def contexts(state: Path, name: str) -> tuple[Context, Context | None]:
    """The control plane of a context, and its navigator if it has one."""
    control = current_context(state, name)
    try:
        return control, navigator_context(state, name)
    except ConfigError:
        return control, None


def examine(state: Path) -> Iterator[Finding]:
    """Run every check of this machine, in the order of printing."""
    yield _at_least("python", sys.version_info[:2], _OLDEST_PYTHON, platform.python_version())
    yield _at_least("sqlite", sqlite3.sqlite_version_info[:2], _OLDEST_SQLITE, sqlite3.sqlite_version)
    yield _schema_tables()
    yield _kubectl()
    yield _directory(state)
    yield _port()
    yield _open_files()
    yield _isolation()
    yield _sandboxes()
    yield _containers()
    yield from state_checks(state, RealClock().now())
    yield envoy_check()


def _at_least(name: str, version: tuple[int, ...], oldest: tuple[int, int], shown: str) -> Finding:
    if version >= oldest:
        return Finding(name, FindingVerdict.OK, shown)
    return Finding(name, FindingVerdict.FAILED, shown, f"install {name} {oldest[0]}.{oldest[1]} or newer")


def _schema_tables() -> Finding:
    import shoal

    generated = Path(shoal.__file__).parent / "kube" / "schema" / "generated"
    if generated.is_dir() and any(generated.iterdir()):
        return Finding("schema tables", FindingVerdict.OK, "compiled")
    return Finding("schema tables", FindingVerdict.FAILED, "missing", "run: make setup")


def _kubectl() -> Finding:
    path = find_kubectl()
    oldest = f"{OLDEST_KUBECTL[0]}.{OLDEST_KUBECTL[1]}"
    if path is None:
        return Finding(
            "kubectl", FindingVerdict.WARNING, "missing", f"install kubectl {oldest} or newer, or run: make setup"
        )
    version = kubectl_version(path)
    shown = f"{version[0]}.{version[1]} at {path}" if version else f"{path} does not run"
    if version is None or version < OLDEST_KUBECTL:
        return Finding(
            "kubectl", FindingVerdict.WARNING, shown, f"install kubectl {oldest} or newer, or run: make setup"
        )
    return Finding("kubectl", FindingVerdict.OK, shown)


def _directory(state: Path) -> Finding:
    existing = next(path for path in (state, *state.parents) if path.exists())
    if not existing.is_dir() or not os.access(existing, os.W_OK | os.X_OK):
        return Finding("directory", FindingVerdict.FAILED, f"{existing} is not writable", "choose another with --dir")
    if existing == state and state.stat().st_uid != os.geteuid():
        found = f"{state} belongs to user {state.stat().st_uid}"
        return Finding("directory", FindingVerdict.FAILED, found, f"run: chown {os.geteuid()} {state}")
    if existing == state and state.stat().st_mode & 0o077:
        return Finding("directory", FindingVerdict.WARNING, f"other users can read {state}", f"run: chmod 700 {state}")
    return Finding("directory", FindingVerdict.OK, str(state))


def _port() -> Finding:
    if is_free(LOOPBACK, DEFAULT_PORT):
        return Finding("port", FindingVerdict.OK, f"{DEFAULT_PORT} is free")
    return Finding(
        "port",
        FindingVerdict.WARNING,
        f"{DEFAULT_PORT} is in use",
        "Shoal uses the next free port; choose one with --port",
    )


def _open_files() -> Finding:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= _FEWEST_FILES:
        return Finding("open files", FindingVerdict.OK, "unlimited" if soft == resource.RLIM_INFINITY else str(soft))
    return Finding("open files", FindingVerdict.WARNING, str(soft), f"run: ulimit -n {_FEWEST_FILES}")


def _sandboxes() -> Finding:
    """Whether `--runtime sandbox` works here; it is tried."""
    from shoal.app.sandboxes import try_sandboxes

    answer = asyncio.run(try_sandboxes(RealClock()))
    if answer.works:
        return Finding("sandboxes", FindingVerdict.OK, answer.text)
    return Finding("sandboxes", FindingVerdict.WARNING, answer.text, answer.fix)


def _containers() -> Finding:
    """Of the docker runtime, which nobody has to use."""
    from shoal.app.container_network import FIX, reach_problem
    from shoal.node.runtime.docker.config import DockerConfig, find_socket
    from shoal.node.runtime.model import RuntimeFailure

    try:
        path = find_socket(DockerConfig(cluster="doctor", node="doctor"), os.environ, os.path.exists)
    except RuntimeFailure:
        return Finding("containers", FindingVerdict.OK, "no container engine; only --runtime docker needs one")
    problem = reach_problem(path)
    if problem:
        found = f"containers of {path} do not reach Services and API servers of clusters: {problem}"
        return Finding("containers", FindingVerdict.WARNING, found, FIX)
    return Finding("containers", FindingVerdict.OK, f"containers of {path} reach Services")


def _isolation() -> Finding:
    """Of pods that are processes; containers have the engine's."""
    from shoal.node.runtime.process.config import ProcessConfig
    from shoal.node.runtime.process.launch import find_namespaces, isolation_gap

    with tempfile.TemporaryDirectory(prefix="shoal-doctor-") as folder:
        namespaces = asyncio.run(find_namespaces(ProcessConfig(root=Path(folder))))
    gap = isolation_gap(namespaces)
    if gap is not None:
        return Finding("pod isolation", FindingVerdict.WARNING, gap.what, gap.fix)
    return Finding("pod isolation", FindingVerdict.OK, "namespaces" if namespaces == "root" else "user namespaces")
