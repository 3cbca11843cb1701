"""The plugin `pytest-shoal`: the test of its README passes where only its own package has been added."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[2] / "packages" / "pytest-shoal"
MORE = """
import asyncio

from shoal.base.clock import FakeClock


def test_the_server_is_shared_and_namespaces_are_new(kube, kube_namespace):
    assert kube.url.startswith("https://127.0.0.1:") and kube_namespace.startswith("test-")


def test_a_server_in_this_process(kube_in_process):
    async def run():
        async with kube_in_process(clock=FakeClock()) as server:
            return await server.post("/api/v1/namespaces/default/configmaps", {"metadata": {"name": "a"}})

    assert asyncio.run(run())["metadata"]["uid"]
"""
NODES = """
import json
import subprocess


def test_deployments_become_ready(kubeconfig, kube_namespace):
    kubectl = ["kubectl", "-n", kube_namespace]
    subprocess.run([*kubectl, "create", "deployment", "web", "--image=any", "--replicas=2"], check=True)
    subprocess.run([*kubectl, "rollout", "status", "deployment/web", "--timeout=30s"], check=True)
    assert len(json.loads(subprocess.check_output([*kubectl, "get", "pods", "-o", "json"]))["items"]) == 2
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The plugin as pip installs it: its wheel, unpacked into a folder of its own."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run([*command, "--target", str(folder), str(PACKAGE)], check=True)
    return folder


def run(folder: Path, site: Path, *flags: str) -> str:
    environ = {**os.environ, "PYTHONPATH": str(site)}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", "/dev/null", *flags]
    done = subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, check=False, timeout=100)
    return done.stdout + done.stderr


def test_the_readme_is_true(site: Path, tmp_path: Path) -> None:
    (example,) = re.findall(r"```python\n(.*?)```", (PACKAGE / "README.md").read_text(), re.DOTALL)
    (tmp_path / "test_readme.py").write_text(example)
    (tmp_path / "test_more.py").write_text(MORE)
    said = run(tmp_path, site, ".")
    assert "3 passed" in said, said


def test_controllers_and_nodes_come_with_a_flag_and_wrong_values_are_told(site: Path, tmp_path: Path) -> None:
    (tmp_path / "test_nodes.py").write_text(NODES)
    said = run(tmp_path, site, "--kube", "nodes", "test_nodes.py")
    assert "1 passed" in said, said
    said = run(tmp_path, site, "-o", "kube=cloud", "test_nodes.py")
    assert "kube is 'cloud'" in said and "use api or nodes" in said, said
