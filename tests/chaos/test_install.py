"""Shoal as users install it: the wheel in an empty environment, and the first steps of the README in an empty folder.

Packages come from the index that this machine's pip is set to use. Where there is none, the tests say so.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.clients.wheels import ROOT, build_wheel

pytestmark = [pytest.mark.timeout(1200), pytest.mark.xdist_group("install")]

PLUGIN = ROOT / "packages" / "pytest-shoal"
LIMIT_BYTES = 60_000_000
NOT_OURS = ("pip", "setuptools", "pkg_resources", "_distutils_hack")
START_S = 120.0
LIBRARIES = """
import shoal.client, shoal.client.http, shoal.crds.shard, shoal.kube.objects, shoal.reconcile.manager, shoal.sharding.worker, sys
from shoal.kube.schema.builtin import kubernetes_version
assert "site-packages" in shoal.client.__file__, shoal.client.__file__
print(kubernetes_version())
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(tmp_path_factory.mktemp("dist"))


def environment(folder: Path, *requirement: str) -> Path:
    """A new virtual environment with only this installed; returns the folder of its programs."""
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    install = [str(folder / "bin" / "pip"), "install", "-q", "--disable-pip-version-check", *requirement]
    done = subprocess.run(install, capture_output=True, text=True, check=False)
    if "No matching distribution" in done.stderr or "Could not find a version" in done.stderr:
        pytest.skip(f"pip has no index here: {done.stderr.strip().splitlines()[-1]}")
    assert done.returncode == 0, done.stderr
    return folder / "bin"


def clean(home: Path, *programs: Path) -> dict[str, str]:
    """Variables of a user who has only this installed."""
    path = os.pathsep.join([*map(str, programs), "/usr/local/bin", "/usr/bin", "/bin"])
    return {"PATH": path, "HOME": str(home), "SHOAL_HOME": str(home / "state")}


def say(environ: dict[str, str], folder: Path, *command: str, code: int = 0) -> str:
    done = subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == code, (command, done.stdout, done.stderr)
    return done.stdout + done.stderr


def size_bytes(packages: Path) -> int:
    """What `du` says of the folder, without what the environment had before. Whole blocks are counted, and the bytecode
    that pip compiles."""
    counted = [each for each in packages.iterdir() if not each.name.startswith(NOT_OURS)]
    shown = subprocess.run(["du", "-sk", "-c", *map(str, counted)], capture_output=True, text=True, check=True).stdout
    return int(shown.splitlines()[-1].split()[0]) * 1024


def test_the_base_install_is_small_and_has_the_command_line_and_the_libraries(wheel: Path, tmp_path: Path) -> None:
    programs = environment(tmp_path / "venv", str(wheel))
    (packages,) = (tmp_path / "venv" / "lib").glob("python3*/site-packages")
    size = size_bytes(packages)
    print(f"base install: {size / 1e6:.1f} MB")
    assert size < LIMIT_BYTES
    environ = clean(tmp_path, programs)
    folder = tmp_path / "empty"
    folder.mkdir()
    assert "shoal   " in say(environ, folder, "shoal", "version")
    assert say(environ, folder, "python", "-c", LIBRARIES).startswith("1.")
    assert "examples/hello.yaml" in say(environ, folder, "shoal", "examples")
    assert "complete -o default" in say(environ, folder, "shoal", "completion", "bash")
    assert "kind: ClusterRole" in say(environ, folder, "shoal", "krane", "manifests")
    said = say(environ, folder, "shoal", "up", code=2)
    assert said.startswith("error: `shoal up` needs packages") and said.endswith("pip install 'shoal-fleet[all]'\n")
    assert not (tmp_path / "state").exists()


@pytest.mark.parametrize("tool", ["pipx", "uv"])
def test_tools_that_install_programs_take_the_wheel(tool: str, wheel: Path, tmp_path: Path) -> None:
    found = shutil.which(tool) or shutil.which(str(Path(sys.executable).with_name(tool)))
    if found is None:
        pytest.skip(f"{tool} is not installed")
    programs = tmp_path / "programs"
    told = {"PIPX_HOME": "pipx", "PIPX_BIN_DIR": "programs", "UV_TOOL_DIR": "uv", "UV_TOOL_BIN_DIR": "programs"}
    environ = {**os.environ, **{name: str(tmp_path / value) for name, value in told.items()}}
    install = ["install", str(wheel)] if tool == "pipx" else ["tool", "install", "--python", sys.executable, str(wheel)]
    done = subprocess.run([found, *install], env=environ, capture_output=True, text=True, check=False, cwd=tmp_path)
    if "No matching distribution" in done.stderr or "was not found in the package registry" in done.stderr:
        pytest.skip(f"{tool} has no index here")
    assert done.returncode == 0, done.stderr
    assert "shoal   " in say(clean(tmp_path, programs), tmp_path, "shoal", "version")
    (packages,) = tmp_path.glob("*/**/shoal-fleet/lib/python3*/site-packages")
    size = size_bytes(packages)
    print(f"installed by {tool}: {size / 1e6:.1f} MB")
    assert size < LIMIT_BYTES


@pytest.fixture(scope="module")
def fleet(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[dict[str, str], Path, list[str]]]:
    """`shoal up` from the wheel in an empty folder: variables, the folder, and what it printed."""
    home = tmp_path_factory.mktemp("user")
    environ = clean(home, environment(home / "venv", f"{wheel}[all]"))
    folder = home / "empty"
    folder.mkdir()
    began = time.monotonic()
    process = subprocess.Popen(["shoal", "up"], cwd=folder, env=environ, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    said = []
    for line in process.stdout:
        said.append(line.rstrip("\n"))
        if said[-1] == "ready":
            break
    assert said and said[-1] == "ready", said
    print(f"`shoal up` from the wheel: ready in {time.monotonic() - began:.0f} s")
    yield environ, folder, said
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 0
    process.stdout.close()


def test_the_tour_of_the_readme_runs_without_a_checkout(fleet: tuple[dict[str, str], Path, list[str]]) -> None:
    environ, folder, said = fleet
    printed = [line.strip() for line in said if line.startswith("  shoal ")]
    assert printed[:2] == ["shoal examples", "shoal apply -f examples/hello.yaml"]
    for line in printed[:2]:
        say(environ, folder, *line.split())
    say(environ, folder, "shoal", "status", "hello", "--wait-ready", "--timeout", "120s")
    shown = say(environ, folder, "shoal", "status")
    assert shown.count("demo/production/hello") == 2 and shown.count("Ready") >= 4
    assert "eu-1" in say(environ, folder, "shoal", "explain", "hello")
    query = "pods where image ~ 'demo-app' and ready count by region"
    assert "eu" in say(environ, folder, "shoal", "query", query)
    assert "unknown-subset" in say(environ, folder, "shoal", "lint", code=1)
    addresses = [line for line in said if "curl --noproxy" in line]
    assert len(addresses) == 2
    for line in addresses:
        assert "curl" in line and say(environ, folder, "sh", "-c", line.partition("#")[0])
    assert "usage: shoal-load" in say(environ, folder, "shoal-load", "--help")
    say(environ, folder, "shoal", "delete", "app", "hello")


def test_the_pytest_plugin_needs_only_what_it_names(wheel: Path, tmp_path: Path) -> None:
    """Installed beside nothing, it runs the test of its README, and controllers and nodes too."""
    plugin = build_wheel(wheel.parent, PLUGIN)
    programs = environment(tmp_path / "venv", str(plugin), "-f", str(wheel.parent))
    environ, folder = clean(tmp_path, programs), tmp_path / "project"
    folder.mkdir()
    (example,) = re.findall(r"```python\n(.*?)```", (PLUGIN / "README.md").read_text(), re.DOTALL)
    (folder / "test_readme.py").write_text(example)
    assert "1 passed" in say(environ, folder, "pytest", "-q", "-p", "no:cacheprovider")
    assert "1 passed" in say(environ, folder, "pytest", "-q", "-p", "no:cacheprovider", "--kube", "nodes")
