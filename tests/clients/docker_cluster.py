"""A cluster whose pods are containers of podman's Docker-compatible service, in the engine's own network."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from tests.clients.conftest import Kubectl, find_kubectl

from shoal.testing import podman
from shoal.testing.podman import Podman

WITHIN = "--timeout=50s"
_READY_S = 60.0
_STOP_S = 20.0


class DockerCluster:
    """A cluster that can be ended and started again in its directory."""

    def __init__(self, engine: Podman, directory: Path) -> None:
        self.engine = engine
        self.directory = directory
        self._log = directory.with_suffix(".log")
        self.process = self.start()
        wrapper = directory.with_suffix(".kubectl")
        words = " ".join(engine.on_its_network(find_kubectl()))
        wrapper.write_text(f'#!/bin/sh\nexec {words} "$@"\n')
        wrapper.chmod(0o700)
        self.kubectl = Kubectl(str(wrapper), str(directory / "kubeconfig"), "default", directory)

    def start(self) -> subprocess.Popen[str]:
        command = self.engine.on_its_network(
            sys.executable, "-m", "shoal", "cluster", "start", "--dir", str(self.directory), "--port", "0",
            "--runtime", "docker", "--docker-socket", self.engine.socket, "--stop-on-eof",
        )  # fmt: skip
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
            )
        assert self.process.stdout is not None
        limit = threading.Timer(_READY_S, self.process.kill)
        limit.start()
        line = self.process.stdout.readline()
        limit.cancel()
        if not line.startswith("ready https://"):
            self.stop(signal.SIGKILL)
            pytest.fail(f"the cluster did not start: {self._log.read_text()}")
        return self.process

    def stop(self, number: signal.Signals = signal.SIGTERM) -> None:
        self.process.send_signal(number)
        self.process.communicate(timeout=_STOP_S)

    def containers(self, *flags: str) -> list[str]:
        """What the engine has."""
        return self.engine.command("ps", "--quiet", "--no-trunc", *flags).split()

    def routes(self) -> list[str]:
        """The ranges that have been made local, besides those of interfaces."""
        command = self.engine.on_its_network("busybox", "ip", "route", "show", "table", "local")
        shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        return [line for line in shown.splitlines() if "local 10." in line and "dev lo" in line]

    def run(self, name: str, *command: str) -> None:
        self.kubectl("run", name, f"--image={podman.IMAGE}", "--command", "--", *command)
        self.kubectl("wait", "--for=condition=Ready", f"pod/{name}", WITHIN)

    def container_of(self, pod: str) -> str:
        text = self.kubectl("get", "pod", pod, "-o", "jsonpath={.status.containerStatuses[0].containerID}")
        return text.removeprefix("docker://")
