"""kubectl with nodes that are drained, cordoned and tainted, and the pods on them."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from tests.clients.conftest import NODES, Kubectl, finished
from tests.clients.workloads import WITHIN, create, create_web, pods, read, rolled_out, workload

from shoal.testing.servers import ServerProcess
from shoal.testing.waiting import eventually_blocking


@pytest.fixture(scope="session")
def cluster(simulated_cluster: ServerProcess) -> ServerProcess:
    return simulated_cluster


@pytest.fixture(autouse=True)
def schedulable(kubectl: Kubectl) -> Iterator[None]:
    """Nodes are shared by all tests: they are left as they were."""
    yield
    kubectl("uncordon", *NODES)
    for node in json.loads(kubectl("get", "nodes", "-o", "json"))["items"]:
        for taint in node["spec"].get("taints") or ():
            if taint["key"] == "trouble":
                kubectl("taint", "node", node["metadata"]["name"], f"trouble:{taint['effect']}-")


def nodes_of(kubectl: Kubectl, label: str) -> list[str]:
    return kubectl("get", "pods", "-l", label, "-o", "jsonpath={.items[*].spec.nodeName}").split()


def test_a_drain_waits_for_the_disruption_budget(kubectl: Kubectl) -> None:
    create_web(kubectl, 3)
    kubectl("create", "pdb", "web", "--selector=app=web", "--min-available=3")
    kubectl("wait", "--for=jsonpath={.status.expectedPods}=3", "pdb/web", WITHIN)
    header, row = kubectl("get", "pdb", "web").splitlines()
    assert row.split()[:4] == ["web", "3", "N/A", "0"]
    with kubectl.started("drain", "node-2", "--pod-selector=app=web", WITHIN) as draining:
        assert draining.stderr is not None
        refusal = draining.stderr.readline()
        assert "Cannot evict pod as it would violate the pod's disruption budget." in refusal
        assert "node-2" in nodes_of(kubectl, "app=web")
        assert "SchedulingDisabled" in kubectl("get", "node", "node-2")
        kubectl("patch", "pdb", "web", "-p", '{"spec":{"minAvailable":2}}')
        told = finished(draining)
    assert "evicted" in told and "node/node-2 drained" in told
    kubectl("wait", "--for=jsonpath={.status.readyReplicas}=3", "deploy/web", WITHIN)
    assert set(nodes_of(kubectl, "app=web")) == {"node-1", "node-3"}


def test_a_drain_refuses_pods_that_no_controller_would_replace(kubectl: Kubectl) -> None:
    kubectl("run", "lone", "--image=x", "--labels=app=lone", '--overrides={"spec":{"nodeName":"node-3"}}')
    create(kubectl, workload("daemonset", "agent"))
    rolled_out(kubectl, "ds/agent")
    mine = "--pod-selector=app in (lone, agent)"
    refused = kubectl.fails("drain", "node-3", mine)
    assert "no controller" in refused and "DaemonSet-managed" in refused
    kubectl("drain", "node-3", mine, "--ignore-daemonsets", "--force", WITHIN)
    assert pods(kubectl, "app=lone") == []
    assert nodes_of(kubectl, "app=agent").count("node-3") == 1


def test_a_cordoned_node_takes_no_new_pods(kubectl: Kubectl) -> None:
    assert "cordoned" in kubectl("cordon", "node-1", "node-2")
    create_web(kubectl, 3)
    assert set(nodes_of(kubectl, "app=web")) == {"node-3"}
    kubectl("cordon", "node-3")
    kubectl("run", "waits", "--image=x")
    text = eventually_blocking(
        lambda: kubectl("describe", "pod", "waits"), until=lambda text: "FailedScheduling" in text
    )
    assert "0/3 nodes are available: 3 node(s) were unschedulable." in text
    assert "uncordoned" in kubectl("uncordon", "node-1")
    kubectl("wait", "--for=condition=Ready", "pod/waits", WITHIN)
    assert read(kubectl, "pod/waits", ".spec.nodeName") == "node-1"


def test_taints_keep_pods_away_or_drive_them_out(kubectl: Kubectl) -> None:
    assert "tainted" in kubectl("taint", "nodes", "node-1", "trouble=yes:NoSchedule")
    create_web(kubectl, 3)
    assert "node-1" not in nodes_of(kubectl, "app=web")
    tolerant = {"spec": {"tolerations": [{"key": "trouble", "operator": "Exists"}], "nodeName": None}}
    kubectl("run", "brave", "--image=x", f"--overrides={json.dumps(tolerant)}")
    kubectl("taint", "nodes", "node-2", "node-3", "trouble=yes:NoExecute")
    eventually_blocking(
        lambda: nodes_of(kubectl, "app=web"), until=lambda found: "node-2" not in found and "node-3" not in found
    )
    kubectl("wait", "--for=condition=Ready", "pod/brave", WITHIN)
    evicted = eventually_blocking(
        lambda: kubectl("get", "events"), until=lambda text: text.count("Marking for deletion Pod") >= 3
    )
    assert "TaintManagerEviction" in evicted
    text = eventually_blocking(
        lambda: kubectl("describe", "pods", "-l", "app=web"), until=lambda text: text.count("FailedScheduling") == 3
    )
    assert "3 node(s) had untolerated taint(s)" in text
    kubectl("taint", "nodes", *NODES, "trouble-")
    rolled_out(kubectl)


def test_describe_of_a_node_adds_up_what_its_pods_ask_for(kubectl: Kubectl) -> None:
    web = workload("deployment")
    web["spec"]["template"]["spec"] |= {"nodeSelector": {"kubernetes.io/hostname": "node-2"}}
    web["spec"]["template"]["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "500m", "memory": "1Gi"}}
    create(kubectl, web)
    rolled_out(kubectl)
    text = eventually_blocking(  # the controller looks for new nodes every few seconds
        lambda: kubectl("describe", "node", "node-2"), until=lambda text: "RegisteredNode" in text
    )
    mine = [line.split() for line in text.splitlines() if line.split()[:1] == [kubectl.namespace]]
    assert [words[2:4] for words in mine] == [["500m", "(3%)"]] * 2
    assert "KubeletReady" in text and "node-controller" in text
