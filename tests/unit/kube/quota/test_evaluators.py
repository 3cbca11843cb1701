"""The usage of objects, with the resource names of quotas."""

from __future__ import annotations

from typing import Any

import pytest

from shoal.kube.quota import evaluator_of, resources_behind

NOW = 1_700_000_000.0  # 2023-11-14T22:13:20Z


def shown(resource: str, obj: dict[str, Any]) -> dict[str, str]:
    return {name: str(amount) for name, amount in evaluator_of(resource).usage(obj, NOW).items()}


def pod(*containers: dict[str, Any], status: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": "p"}, "spec": {"containers": list(containers), **spec}, "status": status or {}}


def container(name: str = "c", requests: Any = None, limits: Any = None, **more: Any) -> dict[str, Any]:
    return {"name": name, "resources": {"requests": requests or {}, "limits": limits or {}}, **more}


CPU = {"cpu": "1"}


@pytest.mark.parametrize(
    ("obj", "wanted"),
    [
        (pod(container()), {"count/pods": "1", "pods": "1"}),
        (
            pod(container(requests={"cpu": "100m", "memory": "1Gi"}, limits={"cpu": "200m"}), container(requests=CPU)),
            {"count/pods": "1", "pods": "1", "cpu": "1100m", "requests.cpu": "1100m", "limits.cpu": "200m",
             "memory": "1Gi", "requests.memory": "1Gi"},
        ),
        # an init container needs more than all others together; sidecars run beside everything after them
        (pod(container(requests=CPU), initContainers=[container(requests={"cpu": "3"})]),
         {"count/pods": "1", "pods": "1", "cpu": "3", "requests.cpu": "3"}),
        (pod(container(requests=CPU), initContainers=[container(requests=CPU, restartPolicy="Always")]),
         {"count/pods": "1", "pods": "1", "cpu": "2", "requests.cpu": "2"}),
        (
            pod(container(requests={"ephemeral-storage": "1Gi", "hugepages-2Mi": "4Mi", "example.com/gpu": "2"},
                          limits={"ephemeral-storage": "2Gi", "hugepages-2Mi": "4Mi", "example.com/gpu": "2"})),
            {"count/pods": "1", "pods": "1", "ephemeral-storage": "1Gi", "requests.ephemeral-storage": "1Gi",
             "limits.ephemeral-storage": "2Gi", "hugepages-2Mi": "4Mi", "requests.hugepages-2Mi": "4Mi",
             "requests.example.com/gpu": "2"},
        ),
        # what the pod asks for as a whole, and the overhead of its runtime; limits of nothing stay nothing
        (pod(container(requests=CPU), resources={"requests": {"cpu": "5"}}),
         {"count/pods": "1", "pods": "1", "cpu": "5", "requests.cpu": "5"}),
        (pod(container(requests=CPU, limits={"memory": "1Gi"}), overhead={"cpu": "1", "memory": "1Gi"}),
         {"count/pods": "1", "pods": "1", "cpu": "2", "requests.cpu": "2", "memory": "1Gi", "requests.memory": "1Gi",
          "limits.memory": "2Gi"}),
        # a pod that is being resized costs the larger of both
        (pod(container(requests=CPU), status={"containerStatuses": [{"name": "c", "allocatedResources": {"cpu": "4"}}]}),
         {"count/pods": "1", "pods": "1", "cpu": "4", "requests.cpu": "4"}),
        (pod(container(requests={"cpu": "9"}), status={
            "containerStatuses": [{"name": "c", "resources": {"requests": {"cpu": "2"}}, "allocatedResources": CPU}],
            "conditions": [{"type": "PodResizePending", "reason": "Infeasible"}]}),
         {"count/pods": "1", "pods": "1", "cpu": "2", "requests.cpu": "2"}),
        # what is over is stored, and costs nothing else
        (pod(container(requests=CPU), status={"phase": "Succeeded"}), {"count/pods": "1"}),
        (pod(container(requests=CPU), status={"phase": "Failed"}), {"count/pods": "1"}),
    ],
)  # fmt: skip
def test_pods(obj: dict[str, Any], wanted: dict[str, str]) -> None:
    assert shown("pods", obj) == wanted


def test_a_pod_that_should_be_gone_is_free() -> None:
    obj = pod(container(requests=CPU))
    obj["metadata"] |= {"deletionTimestamp": "2023-11-14T22:13:00Z", "deletionGracePeriodSeconds": 30}
    assert "pods" in shown("pods", obj)
    obj["metadata"]["deletionGracePeriodSeconds"] = 10
    assert shown("pods", obj) == {"count/pods": "1"}


@pytest.mark.parametrize(
    ("spec", "node_ports", "balancers"),
    [
        ({"type": "ClusterIP", "ports": [{}]}, "0", "0"),
        ({"type": "NodePort", "ports": [{}, {}]}, "2", "0"),
        ({"type": "LoadBalancer", "ports": [{}, {}]}, "2", "1"),
        ({"type": "LoadBalancer", "allocateLoadBalancerNodePorts": False, "ports": [{}, {"nodePort": 1}]}, "1", "1"),
    ],
)
def test_services(spec: dict[str, Any], node_ports: str, balancers: str) -> None:
    assert shown("services", {"metadata": {}, "spec": spec}) == {
        "count/services": "1",
        "services": "1",
        "services.nodeports": node_ports,
        "services.loadbalancers": balancers,
    }


def test_claims_count_for_their_class_and_for_what_is_allocated() -> None:
    claim: dict[str, Any] = {"metadata": {}, "spec": {"resources": {"requests": {"storage": "10Gi"}}}}
    plain = {"count/persistentvolumeclaims": "1", "persistentvolumeclaims": "1", "requests.storage": "10Gi"}
    assert shown("persistentvolumeclaims", claim) == plain
    claim["spec"]["storageClassName"] = "gold"
    gold = "gold.storageclass.storage.k8s.io/"
    assert shown("persistentvolumeclaims", claim) == plain | {
        f"{gold}persistentvolumeclaims": "1",
        f"{gold}requests.storage": "10Gi",
    }
    claim["status"] = {"allocatedResources": {"storage": "20Gi"}}
    assert shown("persistentvolumeclaims", claim)["requests.storage"] == "20Gi"
    claim["spec"]["resources"]["requests"]["storage"] = "20000000000100m"
    claim["status"] = {}
    assert shown("persistentvolumeclaims", claim)["requests.storage"] == "20000000001"


def test_everything_else_counts_one() -> None:
    assert shown("widgets.example.com", {}) == {"count/widgets.example.com": "1"}
    assert shown("secrets", {}) == {"count/secrets": "1", "secrets": "1"}
    assert shown("deployments.apps", {}) == {"count/deployments.apps": "1"}


def test_a_quota_is_about_the_resources_behind_its_names() -> None:
    names = ["limits.cpu", "gold.storageclass.storage.k8s.io/requests.storage", "count/widgets.example.com", "secrets"]
    assert resources_behind(names) == {"pods", "persistentvolumeclaims", "widgets.example.com", "secrets"}
    assert resources_behind(["requests.example.com/gpu", "hugepages-1Gi"]) == {"pods"}
    assert resources_behind(["example.com/unknown"]) == set()
