"""The programs of the guide to the Python libraries run as they stand."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from shoal.testing.servers import ServerProcess, server_process

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "guides" / "python.md"
_WAIT_S = 30.0


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("guide")
    files = re.findall(r"Save as `([\w.]+)`:\n\n```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    assert [name for name, _ in files] == ["maps.py", "greeter.py", "test_in_process.py"]
    for name, text in files:
        (made / name).write_text(text)
    return made


def run(folder: Path, *command: str) -> str:
    done = subprocess.run(
        [sys.executable, *command], cwd=folder, capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def greeted(server: ServerProcess) -> list[str]:
    command = ["kubectl", "--kubeconfig", server.kubeconfig, "get", "configmaps", "-A", "-o"]
    columns = "jsonpath={range .items[?(@.metadata.name=='greeting')]}{.data.text}{'\\n'}{end}"
    return sorted(subprocess.run([*command, columns], capture_output=True, text=True, check=True).stdout.splitlines())


def test_client_and_controller_work_with_a_server(folder: Path) -> None:
    with server_process() as server:
        said = run(folder, "maps.py", server.kubeconfig)
        assert said.startswith("conflict: ") and said.splitlines()[-1].startswith("grey ")
        controller = subprocess.Popen([sys.executable, "greeter.py", server.kubeconfig], cwd=folder)
        try:
            wanted = [f"hello {name}" for name in ("default", "kube-node-lease", "kube-public", "kube-system")]
            deadline = time.monotonic() + _WAIT_S
            while greeted(server) != wanted and time.monotonic() < deadline:
                assert controller.poll() is None
            assert greeted(server) == wanted
        finally:
            controller.kill()
            controller.wait()


def test_the_test_with_a_server_in_its_process_passes(folder: Path) -> None:
    run(folder, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", "/dev/null", "test_in_process.py")
