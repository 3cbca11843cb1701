"""Server processes that the client tests of one pytest worker share, and a new namespace for each test."""

from __future__ import annotations

import itertools
import json
import os
import re
import shutil
import ssl
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from shoal.testing.servers import ServerProcess, server_process
from shoal.testing.waiting import eventually_blocking

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def api_server() -> Iterator[ServerProcess]:
    with server_process() as started:
        yield started


@pytest.fixture(scope="session")
def cluster(api_server: ServerProcess) -> ServerProcess:
    """The cluster of a test's namespace and clients: an API server alone, unless the test's module overrides this."""
    return api_server


ALL_COMPONENTS = "apiserver,scheduler,controllers,nodes"
# the flags of a cluster that runs workloads, on nodes that simulate their pods
SIMULATED = (
    "--port", "0", "--components", ALL_COMPONENTS, "--nodes", "3", "--runtime", "simulated",
)  # fmt: skip
NODES = ("node-1", "node-2", "node-3")


@pytest.fixture(scope="session")
def simulated_cluster() -> Iterator[ServerProcess]:
    """A cluster with controllers, a scheduler and nodes. A module that needs it overrides ``cluster`` with it."""
    with server_process(None, *SIMULATED) as started:
        yield started
        assert not refusals(started), "components were refused what they need"


@pytest.fixture(scope="session")
def process_cluster() -> Iterator[ServerProcess]:
    """A cluster with one node whose containers are processes of this machine."""
    with server_process(None, "--port", "0", "--components", ALL_COMPONENTS, "--nodes", "1") as started:
        yield started
        assert not refusals(started), "components were refused what they need"


def refusals(cluster: ServerProcess) -> list[str]:
    """Requests of the cluster's own components that were forbidden, from its audit log. A node's request for a pod that
    was just deleted is forbidden too, and left out here."""
    events = [json.loads(line) for line in (cluster.directory / "audit.log").read_text().splitlines()]
    told = [
        event["responseStatus"].get("message", "")
        for event in events
        if event["user"]["username"].startswith(("system:", "shoal:"))
    ]
    return [text for text in told if 'is forbidden: User "' in text and "no relationship found" not in text]


@pytest.fixture
def namespace(cluster: ServerProcess, request: pytest.FixtureRequest) -> Iterator[str]:
    """A namespace of the test's own; its deletion begins when the test ends."""
    slug = re.sub("[^a-z0-9]+", "-", request.node.name.lower().removeprefix("test_"))[:40].strip("-")
    name = f"{slug}-{next(_numbers)}"
    assert _status(cluster, "POST", "/api/v1/namespaces", {"metadata": {"name": name}}) == 201
    yield name
    if cluster.process.poll() is None:
        _status(cluster, "DELETE", f"/api/v1/namespaces/{name}")


def _status(cluster: ServerProcess, method: str, path: str, body: object = None) -> int:
    """The status code that the administrator gets."""
    context = ssl.create_default_context(cafile=cluster.ca_file)
    headers = {"authorization": f"Bearer {cluster.token}", "content-type": "application/json"}
    data = None if body is None else json.dumps(body).encode()
    made = urllib.request.Request(f"{cluster.url}{path}", data, headers, method=method)
    try:
        with urllib.request.urlopen(made, context=context, timeout=30) as answer:
            status: int = answer.status
    except urllib.error.HTTPError as error:
        return error.code
    return status


@pytest.fixture
def group(namespace: str) -> str:
    """An API group of the test's own."""
    return f"{namespace}.example.com"


def find_kubectl() -> str:
    """The kubectl that `make setup` found or installed; its absence is a failure, not a skip."""
    beside = Path(sys.executable).parent / "kubectl"
    found = str(beside) if beside.exists() else shutil.which("kubectl")
    assert found, "kubectl is missing: run `make setup`"
    return found


@dataclass(frozen=True)
class Kubectl:
    """Runs kubectl and returns what it printed."""

    path: str
    kubeconfig: str
    namespace: str
    home: Path

    def run(self, *args: str, stdin: str = "", env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
        command = [self.path, "--kubeconfig", self.kubeconfig, "-n", self.namespace, *args]
        full = {**os.environ, "HOME": str(self.home), **(env or {})}
        return subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=60, env=full)

    def __call__(self, *args: str, stdin: str = "", env: dict[str, str] | None = None) -> str:
        done = self.run(*args, stdin=stdin, env=env)
        assert done.returncode == 0, f"kubectl {' '.join(args)}: {done.stderr}"
        return done.stdout

    def fails(self, *args: str, stdin: str = "") -> str:
        done = self.run(*args, stdin=stdin)
        assert done.returncode != 0, f"kubectl {' '.join(args)} should have failed: {done.stdout}"
        return done.stderr

    @contextmanager
    def started(self, *args: str) -> Iterator[subprocess.Popen[str]]:
        """kubectl in the background; it is killed at the end of the block."""
        command = [self.path, "--kubeconfig", self.kubeconfig, "-n", self.namespace, *args]
        env = {**os.environ, "HOME": str(self.home)}
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env) as process:
            try:
                yield process
            finally:
                process.kill()


def finished(process: subprocess.Popen[str]) -> str:
    """Wait for a process, which must succeed; returns its output."""
    out, err = process.communicate(timeout=30)
    assert process.returncode == 0, err
    return out


@pytest.fixture
def kubectl(cluster: ServerProcess, namespace: str, tmp_path: Path) -> Kubectl:
    return Kubectl(find_kubectl(), cluster.kubeconfig, namespace, tmp_path)


def a_deployment(name: str) -> dict[str, Any]:
    labels = {"app": name}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "i:1"}]}},
        },
    }


def a_widget(group: str, name: str, **spec: Any) -> dict[str, Any]:
    """An object of the kind that ``a_definition`` defines."""
    return {"apiVersion": f"{group}/v1", "kind": "Widget", "metadata": {"name": name}, "spec": spec}


def a_definition(group: str, *, open_status: bool = False) -> dict[str, Any]:
    """A small custom resource definition in a group of the test's own.

    ``open_status`` keeps status fields that the schema does not name, which operators rely on.
    """
    status: dict[str, Any] = {
        "type": "object",
        "properties": {"replicas": {"type": "integer"}, "phase": {"type": "string"}},
    }
    if open_status:
        status["x-kubernetes-preserve-unknown-fields"] = True
    schema = {
        "type": "object",
        "properties": {
            "spec": {
                "type": "object",
                "required": ["size"],
                "properties": {
                    "size": {"type": "integer", "minimum": 1},
                    "color": {"type": "string", "default": "red"},
                    "replicas": {"type": "integer"},
                },
                "x-kubernetes-validations": [{"rule": "self.size < 100", "message": "size must stay under 100"}],
            },
            "status": status,
        },
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"widgets.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"plural": "widgets", "singular": "widget", "kind": "Widget"},
            "versions": [
                {
                    "name": "v1",
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": schema},
                    "subresources": {
                        "status": {},
                        "scale": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"},
                    },
                    "additionalPrinterColumns": [{"name": "Size", "type": "integer", "jsonPath": ".spec.size"}],
                }
            ],
        },
    }


_UP_S = 120.0


@pytest.fixture(scope="session")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The environment of a shell beside a running ``shoal up`` with its demo app, where the guides begin. All guides share
    it, and each removes what it has created."""
    folder, root = tmp_path_factory.mktemp("up"), Path(__file__).resolve().parents[2]
    home, words, log = folder / "home", folder / "bin", folder / "up.log"
    words.mkdir()
    (words / "shoal").write_text(f'#!/bin/sh\nexec {sys.executable} -m shoal "$@"\n')
    (words / "shoal").chmod(0o755)
    found = {
        **os.environ, "SHOAL_HOME": str(home), "PATH": f"{words}:{os.environ['PATH']}", "PYTHONUNBUFFERED": "1",
        "PYTHONPATH": str(root / "src"), "TMP_FOLDER": str(folder),
    }  # fmt: skip
    command = [sys.executable, "-m", "shoal", "up", "--dir", str(home), "--port", "0"]
    with log.open("wb") as out:
        up = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, env=found)
    try:
        eventually_blocking(lambda: "\nready\n" in log.read_text() or up.poll() is not None, timeout_s=_UP_S)
        assert up.poll() is None, log.read_text()
        yield found
    finally:
        up.terminate()
        up.wait(60)
