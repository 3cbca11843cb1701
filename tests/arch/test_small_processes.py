"""Programs that run for months beside other people's workloads load what they need and nothing else."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from arch_source import SRC

# Libraries, each of which would be a noticeable part of such a process
HEAVY = {
    "alembic", "asyncpg", "click", "connectrpc", "cryptography", "email", "fastapi", "google", "granian", "grpc",
    "http.client", "httpx", "importlib.metadata", "multiprocessing", "opentelemetry", "prometheus_client", "pydantic",
    "pyqwest", "redis", "rich", "sqlalchemy", "sqlite3", "starlette", "typer", "urllib.request", "uvicorn", "yaml",
}  # fmt: skip
OURS = {
    "shoal.apiserver", "shoal.cli", "shoal.control", "shoal.controllers", "shoal.node", "shoal.scheduler",
    "shoal.rest", "shoal.store", "shoal.kube.cel", "shoal.kube.kinds", "shoal.kube.openapi", "shoal.kube.schema",
    "shoal.kube.tables",
}  # fmt: skip

# What an agent imports, and what it imports on its way: its join file, a connection to either side, opening a secret
AGENT = """
from pathlib import Path
import shoal.app.fleet.start_agent, shoal.app.fleet.agent, shoal.app.processes, shoal.client.http, uvloop
from shoal.base.connect import ConnectClient
from shoal.base.http2 import Http2Link, Peer
from shoal.client import config, kubeconfig
from shoal.krane.config import read_join_file
from shoal.sync.primitives import primitives

read_join_file(Path("/dev/stdin"))
Peer.of("https://control:8443")
primitives().public(bytes(32))
"""


JOIN = json.dumps({"url": "http://control", "token": "t", "cluster": "c", "region": "r"})
EDGE = "import shoal.app.navigator.edge, shoal.client.http"  # and YAML, in which a mesh has its configuration
WORKER = "import shoal.app.sharding.worker, shoal.client.http"


def loaded(program: str) -> set[str]:
    """The modules that a new interpreter has loaded after it ran the program, with the packages they are in."""
    ended = "import json, sys\nprint(json.dumps(sorted(sys.modules)))"
    ran = subprocess.run(
        [sys.executable, "-c", f"{program}\n{ended}"], input=JOIN,
        capture_output=True, text=True, check=True, timeout=60, env={"PYTHONPATH": str(SRC)},
    )  # fmt: skip
    return set(json.loads(ran.stdout))


@pytest.mark.parametrize(
    ("program", "needed"),
    [
        pytest.param(AGENT, set(), id="krane"),
        pytest.param(EDGE, {"yaml"}, id="navigator edge"),
        pytest.param(WORKER, set(), id="shard worker"),
    ],
)
def test_a_small_process_loads_none_of_the_large_libraries(program: str, needed: set[str]) -> None:
    found = {name for name in loaded(program) if name.split(".")[0] not in needed}
    wrong = sorted(name for name in found for heavy in HEAVY | OURS if name == heavy or name.startswith(f"{heavy}."))
    assert not wrong, f"{len(wrong)} modules that such a process has no room for: {', '.join(wrong[:20])}"


def test_the_service_proxy_loads_its_own_part_of_a_node_and_little_else() -> None:
    found = loaded("import shoal.node.proxy.serve, uvloop")
    wrong = {name for name in found for heavy in HEAVY if name == heavy or name.startswith(f"{heavy}.")}
    own = ("shoal.base", "shoal.node.proxy", "shoal.node.dns", "shoal.node.policy")
    ours = {name for name in found if name.startswith("shoal.") and not name.startswith(own)}
    assert not wrong and ours == {"shoal.errors", "shoal.kube", "shoal.kube.objects", "shoal.node"}


# What large processes do not load either: libraries for what a process of its kind seldom does, or another one does
GATEWAY = "import shoal.app.commands.sentinel, shoal.app.fleet.gateway, shoal.sentinel.service, uvloop"
CONTROL = "import shoal.app.commands.control, shoal.app.fleet.control, uvloop"
NAVIGATOR = "import shoal.app.commands.navigator, shoal.app.navigator.manager, uvloop"
CLUSTER = """
import shoal.app.commands.cluster, shoal.app.cluster, shoal.app.components, shoal.app.nodes, shoal.app.runtimes
import shoal.app.fleet.part, shoal.app.navigator.part, shoal.app.sharding.part, uvloop
"""
UP = "import shoal.app.commands.up, shoal.app.navigator.joining, shoal.app.demo.samples"
SELDOM = {"alembic", "asyncpg", "fastapi", "httpx", "opentelemetry", "psutil", "pydantic", "redis", "rich"}
LIBRARIES = HEAVY - {"email", "google", "grpc", "typer", "multiprocessing", "urllib.request"}


@pytest.mark.parametrize(
    ("program", "unwanted"),
    [
        pytest.param(GATEWAY, LIBRARIES | OURS - {"shoal.cli"}, id="gateway"),
        pytest.param(
            CONTROL, SELDOM | {"grpc", "google", "shoal.apiserver.server", "shoal.node.runtime"}, id="control plane"
        ),
        pytest.param(NAVIGATOR, SELDOM | {"grpc", "google", "sqlalchemy", "shoal.control"}, id="navigator"),
        pytest.param(CLUSTER, SELDOM | {"grpc", "google", "sqlalchemy", "shoal.control"}, id="cluster"),
        pytest.param(
            UP,
            SELDOM
            | {
                "cryptography",
                "sqlalchemy",
                "uvicorn",
                "yaml",
                "shoal.apiserver.server",
                "shoal.control",
                "shoal.store",
            },
            id="up",
        ),
    ],
)
def test_a_large_process_loads_no_library_for_what_it_seldom_does(program: str, unwanted: set[str]) -> None:
    found = loaded(program)
    wrong = sorted(name for name in found for each in unwanted if name == each or name.startswith(f"{each}."))
    assert not wrong, f"{len(wrong)} modules that are not for this process: {', '.join(wrong[:20])}"


def test_a_fork_server_has_one_thread_after_it_has_imported_all_modules_of_its_children() -> None:
    program = """
from shoal.app.fork_server import MODULES, warm
import os, sys
known = [module for modules in MODULES.values() for module in modules]
warm(known)
assert not set(known) - set(sys.modules), set(known) - set(sys.modules)
assert len(os.listdir("/proc/self/task")) == 1, "a fork would copy the locks of a thread that is not there any more"
"""
    loaded(program)


def test_the_fork_server_of_pods_has_one_thread_and_nothing_of_a_control_plane() -> None:
    program = """
from importlib import import_module
from shoal.app.pod_forks import MODULES
import os
for module in MODULES:
    import_module(module)
assert len(os.listdir("/proc/self/task")) == 1, "a fork would copy the locks of a thread that is not there any more"
"""
    found = loaded(program)
    unwanted = {"sqlalchemy", "yaml", "shoal.control", "shoal.apiserver", "shoal.store", "shoal.controllers"}
    wrong = sorted(name for name in found for each in unwanted if name == each or name.startswith(f"{each}."))
    assert not wrong, f"in the memory of every pod: {', '.join(wrong[:20])}"


def test_this_test_sees_what_is_loaded() -> None:
    assert "yaml" in loaded("import yaml")
