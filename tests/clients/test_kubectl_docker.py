"""kubectl with a cluster whose pods are containers of an engine: podman's Docker-compatible service.

The cluster and kubectl run on the engine's network, as they would on a machine whose own engine it is.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.clients.conftest import Kubectl, find_kubectl

from shoal.testing import podman
from shoal.testing.podman import Podman
from shoal.testing.waiting import eventually_blocking

WITHIN = "--timeout=50s"
_READY_S = 60.0
_STOP_S = 20.0
_FETCH = """
import http.client, sys
connection = http.client.HTTPConnection(sys.argv[1], int(sys.argv[2]), timeout=10)
connection.request("GET", "/name")
sys.stdout.buffer.write(connection.getresponse().read())
"""


class DockerCluster:
    """A cluster that can be ended and started again in its directory."""

    def __init__(self, engine: Podman, directory: Path) -> None:
        self.engine = engine
        self._directory = directory
        self._log = directory.with_suffix(".log")
        self.process = self.start()
        wrapper = directory.with_suffix(".kubectl")
        words = " ".join(engine.on_its_network(find_kubectl()))
        wrapper.write_text(f'#!/bin/sh\nexec {words} "$@"\n')
        wrapper.chmod(0o700)
        self.kubectl = Kubectl(str(wrapper), str(directory / "kubeconfig"), "default", directory)

    def start(self) -> subprocess.Popen[str]:
        command = self.engine.on_its_network(
            sys.executable, "-m", "shoal", "cluster", "start", "--dir", str(self._directory), "--port", "0",
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

    def run(self, name: str, *command: str) -> None:
        self.kubectl("run", name, f"--image={podman.IMAGE}", "--command", "--", *command)
        self.kubectl("wait", "--for=condition=Ready", f"pod/{name}", WITHIN)

    def container_of(self, pod: str) -> str:
        text = self.kubectl("get", "pod", pod, "-o", "jsonpath={.status.containerStatuses[0].containerID}")
        return text.removeprefix("docker://")


@pytest.fixture
def docker_cluster(tmp_path: Path) -> Iterator[DockerCluster]:
    if reason := podman.why_not():
        pytest.skip(reason)
    engine = podman.shared_podman()
    cluster = DockerCluster(engine, tmp_path / "cluster")
    try:
        yield cluster
    finally:
        if cluster.process.poll() is None:
            cluster.stop()
        engine.remove_containers()


def test_a_pod_runs_in_a_container_with_logs_exec_volumes_and_an_end(docker_cluster: DockerCluster) -> None:
    kubectl = docker_cluster.kubectl
    eventually_blocking(
        lambda: kubectl("get", "nodes", "--no-headers"), until=lambda text: " Ready " in text, timeout_s=30
    )
    version = kubectl("get", "nodes", "-o", "jsonpath={.items[0].status.nodeInfo.containerRuntimeVersion}")
    assert version.startswith("docker://")

    kubectl("create", "configmap", "greeting", "--from-literal=text=hello")
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p"},
        "spec": {
            "terminationGracePeriodSeconds": 1,
            "containers": [
                {
                    "name": "main",
                    "image": podman.IMAGE,
                    "command": ["sh", "-c", "echo begun as $NAME; exec sleep 1000"],
                    "env": [{"name": "NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
                    "volumeMounts": [{"name": "greeting", "mountPath": "/etc/greeting"}],
                }
            ],
            "volumes": [{"name": "greeting", "configMap": {"name": "greeting"}}],
        },
    }
    kubectl("apply", "-f", "-", stdin=json.dumps(pod))
    kubectl("wait", "--for=condition=Ready", "pod/p", WITHIN)
    assert docker_cluster.container_of("p") in docker_cluster.containers()
    assert eventually_blocking(lambda: kubectl("logs", "p")) == "begun as p\n"
    assert kubectl("exec", "p", "--", "cat", "/etc/greeting/text") == "hello"
    assert kubectl.run("exec", "p", "--", "sh", "-c", "exit 7").returncode == 7

    kubectl("run", "bad", f"--image={podman.MISSING_IMAGE}")
    eventually_blocking(
        lambda: kubectl("get", "pod", "bad", "--no-headers"), until=lambda text: "Pull" in text, timeout_s=30
    )
    kubectl("delete", "pod", "p", "bad", WITHIN)
    eventually_blocking(lambda: docker_cluster.containers("--all"), until=lambda found: not found, timeout_s=30)


def test_services_lead_to_containers_and_ports_are_forwarded(docker_cluster: DockerCluster) -> None:
    kubectl = docker_cluster.kubectl
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "web", "labels": {"app": "web"}},
        "spec": {
            "containers": [
                {
                    "name": "web",
                    "image": podman.IMAGE,
                    "command": ["sh", "-c", "mkdir /www; hostname > /www/name; exec httpd -f -p 8080 -h /www"],
                    "ports": [{"containerPort": 8080}],
                    "readinessProbe": {"httpGet": {"path": "/name", "port": 8080}, "periodSeconds": 1},
                }
            ]
        },
    }
    kubectl("apply", "-f", "-", stdin=json.dumps(pod))
    kubectl("expose", "pod", "web", "--port=8080")
    kubectl("wait", "--for=condition=Ready", "pod/web", WITHIN)
    address = kubectl("get", "service", "web", "-o", "jsonpath={.spec.clusterIP}")

    def fetched(host: str, port: str) -> str:
        command = docker_cluster.engine.on_its_network(sys.executable, "-I", "-c", _FETCH, host, port)
        return subprocess.run(command, capture_output=True, text=True, timeout=20).stdout

    assert eventually_blocking(lambda: fetched(address, "8080"), timeout_s=30) == "web\n"
    with kubectl.started("port-forward", "pod/web", ":8080") as forwarding:
        assert forwarding.stdout is not None
        port = forwarding.stdout.readline().partition(" -> ")[0].rpartition(":")[2]
        assert fetched("127.0.0.1", port) == "web\n"


def test_containers_outlive_a_killed_cluster_and_end_with_one_that_is_stopped(docker_cluster: DockerCluster) -> None:
    docker_cluster.run("p", "sh", "-c", "trap 'exit 0' TERM; while :; do sleep 0.1; done")
    running = docker_cluster.container_of("p")
    docker_cluster.stop(signal.SIGKILL)
    assert running in docker_cluster.containers()
    docker_cluster.start()
    kubectl = docker_cluster.kubectl
    kubectl("wait", "--for=condition=Ready", "pod/p", WITHIN)
    assert docker_cluster.container_of("p") == running

    docker_cluster.stop()
    assert docker_cluster.containers() == []
    docker_cluster.start()
    found = eventually_blocking(lambda: docker_cluster.containers(), until=lambda found: len(found) == 2, timeout_s=40)
    assert running not in found
    kubectl("wait", "--for=condition=Ready", "pod/p", WITHIN)
    eventually_blocking(lambda: docker_cluster.container_of("p"), until=lambda text: text in found, timeout_s=20)
