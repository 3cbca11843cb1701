"""The certificate authority of a running cluster is replaced while clients of all ages use it."""

from __future__ import annotations

import base64
import json
import shutil
import ssl
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from shoal.app.kubectl import find_kubectl
from shoal.testing.waiting import eventually

OVERLAP_S = 8


def kubectl(kubeconfig: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    program = find_kubectl()
    assert program is not None
    return subprocess.run(
        [program, "--kubeconfig", str(kubeconfig), *arguments], capture_output=True, text=True, check=False, timeout=60
    )


def authorities(kubeconfig: Path) -> int:
    cluster = json.loads(kubeconfig.read_bytes())["clusters"][0]["cluster"]
    return base64.b64decode(cluster["certificate-authority-data"]).count(b"BEGIN CERTIFICATE")


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """The directory of a running cluster with a node."""
    folder = tmp_path / "cluster"
    command = [sys.executable, "-m", "shoal", "cluster", "start", "--dir", str(folder), "--port", "0"]
    with (
        (tmp_path / "log").open("wb") as log,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log) as process,
    ):
        assert process.stdout is not None
        assert process.stdout.readline().startswith(b"ready ")
        yield folder
        process.terminate()


@pytest.mark.skipif(find_kubectl() is None, reason="needs kubectl")
async def test_a_rotation_reaches_kubeconfigs_and_pods_before_the_new_authority_signs(
    tmp_path: Path, folder: Path
) -> None:
    current, before = folder / "kubeconfig", tmp_path / "before"
    shutil.copy(current, before)
    assert kubectl(before, "get", "nodes").returncode == 0

    def leaves() -> dict[str, str]:
        found = (folder / "pki").glob("*.crt")
        return {path.name: path.read_text() for path in found if path.name != "ca.crt"}

    at_start = leaves()
    rotated = subprocess.run(
        [sys.executable, "-m", "shoal", "cluster", "rotate-ca", "--dir", str(folder), "--overlap", f"{OVERLAP_S}s"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert "a new authority is trusted from now on" in rotated.stdout

    def published() -> bool:
        found = kubectl(before, "-n", "default", "get", "configmap", "kube-root-ca.crt", "-o", "json")
        assert found.returncode == 0, found.stderr  # the old kubeconfig still works
        data: Any = json.loads(found.stdout)["data"]
        return str(data["ca.crt"]).count("BEGIN CERTIFICATE") == 2

    await eventually(published, timeout_s=30)
    await eventually(lambda: authorities(current) == 2, timeout_s=30)
    assert leaves() == at_start  # nothing else is made again
    lines = (json.loads(line) for line in (tmp_path / "log").read_text().splitlines() if line.startswith("{"))
    used = Counter(line["certificate"] for line in lines if line["message"] == "a new certificate is used")
    assert set(used.values()) == {1}  # with the new authorities, and not before
    during = tmp_path / "during"
    shutil.copy(current, during)

    def switched() -> bool:
        assert kubectl(during, "get", "nodes").returncode == 0  # all the time
        return "unknown authority" in kubectl(before, "get", "nodes").stderr

    await eventually(switched, timeout_s=60)
    logs = kubectl(during, "get", "--raw", "/api/v1/nodes/node-1/proxy/healthz")
    assert (logs.returncode, logs.stdout) == (0, "ok"), logs.stderr  # the API server and its nodes trust each other

    def forgotten() -> bool:
        assert kubectl(during, "get", "nodes").returncode == 0
        return (folder / "pki" / "ca.crt").read_text().count("BEGIN CERTIFICATE") == 1

    await eventually(forgotten, timeout_s=60)
    assert kubectl(during, "get", "--raw", "/api/v1/nodes/node-1/proxy/healthz").stdout == "ok"
    context = ssl.create_default_context(cafile=folder / "pki" / "ca.crt")
    assert context.get_ca_certs()
