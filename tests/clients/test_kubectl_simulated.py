"""kubectl with simulated pods: top, autoscaling by their usage, and logs."""

from __future__ import annotations

import json

import pytest
from tests.clients.conftest import Kubectl
from tests.clients.workloads import WITHIN, create, workload

from shoal.testing.servers import ServerProcess
from shoal.testing.waiting import eventually_blocking


@pytest.fixture(scope="session")
def cluster(simulated_cluster: ServerProcess) -> ServerProcess:
    return simulated_cluster


def _loaded(kubectl: Kubectl, replicas: int) -> None:
    """A Deployment whose pods ask for 100m and use 180m."""
    made = workload("deployment", "loaded", cpu="180m", memory="96Mi")
    made["spec"]["replicas"] = replicas
    made["spec"]["template"]["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "100m"}}
    create(kubectl, made)
    kubectl("wait", f"--for=jsonpath={{.status.readyReplicas}}={replicas}", "deploy/loaded", WITHIN)


def _milli(cpu: str) -> int:
    return int(cpu.removesuffix("m"))


def _near_180(value: int) -> bool:
    return 160 <= value <= 200


def test_the_log_of_a_simulated_pod_says_what_it_is(kubectl: Kubectl) -> None:
    _loaded(kubectl, 1)
    assert kubectl("logs", "deploy/loaded") == "this container is simulated and writes nothing\n"
    assert "nothing to connect to" in kubectl.fails("exec", "deploy/loaded", "--", "true")


def test_top_shows_what_simulated_pods_and_nodes_use(kubectl: Kubectl) -> None:
    _loaded(kubectl, 2)

    def top() -> list[list[str]]:
        told = kubectl.run("top", "pods", "--no-headers")  # it fails while nothing has been measured
        return [line.split() for line in told.stdout.splitlines()]

    def measured(rows: list[list[str]]) -> bool:
        return len(rows) == 2 and all(_near_180(_milli(cpu)) and memory == "96Mi" for _, cpu, memory in rows)

    # nodes are asked every fifteen seconds; use is what lies between two answers, which come early or late a little
    eventually_blocking(top, until=measured, timeout_s=90)
    nodes = [line.split() for line in kubectl("top", "nodes", "--no-headers").splitlines()]
    assert [line[0] for line in nodes] == ["node-1", "node-2", "node-3"]
    assert sum(_milli(line[1]) for line in nodes) >= 2 * 160


def test_simulated_load_scales_a_deployment(kubectl: Kubectl) -> None:
    _loaded(kubectl, 1)
    kubectl("autoscale", "deployment", "loaded", "--min=1", "--max=2", "--cpu-percent=90")
    # nodes are asked every fifteen seconds and autoscalers looked at every fifteen; it takes up to three of them
    wanted = "--for=jsonpath={.status.desiredReplicas}=2"
    with kubectl.started("wait", wanted, "hpa/loaded", "--timeout=100s") as waiting:
        assert waiting.wait(110) == 0
    kubectl("wait", "--for=jsonpath={.spec.replicas}=2", "deploy/loaded", WITHIN)
    status = json.loads(kubectl("get", "hpa", "loaded", "-o", "json"))["status"]
    assert _near_180(status["currentMetrics"][0]["resource"]["current"]["averageUtilization"])
