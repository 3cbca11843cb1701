"""kubectl with a cluster whose pods are containers of an engine: podman's Docker-compatible service.

The cluster and kubectl run on the engine's network, as they would on a machine whose own engine it is.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.clients.docker_cluster import WITHIN, DockerCluster

from shoal.testing import podman
from shoal.testing.podman import Podman
from shoal.testing.waiting import eventually_blocking

_FETCH = """
import http.client, sys
connection = http.client.HTTPConnection(sys.argv[1], int(sys.argv[2]), timeout=10)
connection.request("GET", "/name")
sys.stdout.buffer.write(connection.getresponse().read())
"""


_ASK = "printf 'GET /name HTTP/1.0\\r\\n\\r\\n' | nc -w 5 $1 $2"
_TRUST = """
import socket, ssl, sys
context = ssl.create_default_context(cafile=sys.argv[1])
with socket.create_connection(sys.argv[2:4], timeout=10) as connection:
    context.wrap_socket(connection, server_hostname=sys.argv[2]).close()
"""


def answered(engine: Podman, *place: str) -> str:
    """What a server says to a process of the machine."""
    host, port = (*place, "80")[:2]
    command = engine.on_its_network(sys.executable, "-I", "-c", _FETCH, host, port)
    return subprocess.run(command, capture_output=True, text=True, timeout=20).stdout


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
    engine = docker_cluster.engine
    assert eventually_blocking(lambda: answered(engine, address, "8080"), timeout_s=30) == "web\n"
    with kubectl.started("port-forward", "pod/web", ":8080") as forwarding:
        assert forwarding.stdout is not None
        port = forwarding.stdout.readline().partition(" -> ")[0].rpartition(":")[2]
        assert answered(engine, "127.0.0.1", port) == "web\n"


def test_containers_reach_services_and_the_api_server_and_others_do_not(docker_cluster: DockerCluster) -> None:
    kubectl, engine = docker_cluster.kubectl, docker_cluster.engine
    docker_cluster.run("web", "sh", "-c", "mkdir /www; echo hello > /www/name; exec httpd -f -p 8080 -h /www")
    docker_cluster.run("client", "sleep", "1000")
    kubectl("label", "pod", "web", "app=web")
    kubectl("expose", "pod", "web", "--port=80", "--target-port=8080", "--type=NodePort")
    address, port = kubectl(
        "get", "service", "web", "-o", "jsonpath={.spec.clusterIP} {.spec.ports[0].nodePort}"
    ).split()
    node = kubectl("get", "node", "node-1", "-o", "jsonpath={.status.addresses[0].address}")
    container = docker_cluster.container_of("client")

    def fetched(host: str, port: str = "80") -> str:
        return engine.command("exec", container, "sh", "-c", _ASK, "sh", host, port).rpartition("\n\n")[2]

    eventually_blocking(lambda: answered(engine, address), timeout_s=30)
    assert [fetched(address), fetched(node, port)] == ["hello\n"] * 2

    endpoint = kubectl("get", "endpoints", "kubernetes", "-o", "jsonpath={.subsets[0].addresses[0].ip}")
    api_port = kubectl("get", "endpoints", "kubernetes", "-o", "jsonpath={.subsets[0].ports[0].port}")
    service = engine.command("exec", container, "sh", "-c", "echo $KUBERNETES_SERVICE_HOST").strip()
    for place in ((service, "443"), (endpoint, api_port)):
        engine.command("exec", container, "nc", "-w", "3", *place, "-e", "true")  # it listens
        trusted = (str(docker_cluster.directory / "pki" / "ca.crt"), *place)
        subprocess.run(engine.on_its_network(sys.executable, "-I", "-c", _TRUST, *trusted), check=True, timeout=20)

    piece = {
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "metadata": {"name": "in"},
        "addressType": "IPv4", "endpoints": [{"addresses": ["127.0.0.1"]}], "ports": [{"port": 22}],
    }  # fmt: skip
    refused = kubectl.run("apply", "-f", "-", stdin=json.dumps(piece))
    assert "may not be in the loopback range" in refused.stderr, "containers would get into the machine"

    engine.command("network", "create", "elsewhere")
    other = ("run", "--rm", "--network=elsewhere", podman.IMAGE, "sh", "-c", f"{_ASK}; true", "sh", address, "80")
    assert engine.command(*other) == "", "containers of others"
    engine.command("network", "rm", "elsewhere")

    docker_cluster.stop(signal.SIGKILL)
    assert fetched(address) == "hello\n", "while the cluster's process is down"
    docker_cluster.start()
    assert fetched(address) == "hello\n"
    assert docker_cluster.routes() != []
    docker_cluster.stop()
    assert docker_cluster.routes() == [], "the machine's network is as before"


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
