"""Where pods may run, and what they must ask for."""

from __future__ import annotations

from typing import Any

from conformance_api import Api, conformance, refused, unique
from conformance_live import (
    asking,
    bound,
    is_ready,
    nodes,
    on_node,
    own_node,
    ready_pods,
    reason,
    settles,
    unschedulable,
)
from conformance_objects import IMAGE, pod

from shoal.kube.objects import Obj


def asks(name: str, resources: Obj, **spec: Any) -> Obj:
    return pod(name, containers=[{"name": "main", "image": IMAGE, "resources": resources}], **spec)


@conformance("[sig-architecture] Conformance Tests should have at least two untainted nodes [Conformance]")
def test_two_nodes_without_taints(live: Api) -> None:
    assert len(nodes(live)) >= 2


@conformance("[sig-node] Pods should get a host IP [Conformance] [NodeConformance]")
def test_a_pod_has_the_address_of_its_host(live: Api, space: str) -> None:
    pods = live.of("v1", "pods", space)
    pods.create(pod("pod"))
    [found] = ready_pods(pods, 1)
    addresses = live.of("v1", "nodes").get(found["spec"]["nodeName"])["status"]["addresses"]
    assert found["status"]["hostIP"] in [each["address"] for each in addresses]
    assert found["status"]["hostIPs"][0]["ip"] == found["status"]["hostIP"]


@conformance(
    "[sig-scheduling] SchedulerPredicates validates resource limits of pods that are allowed to run [Conformance]"
    " [Serial]"
)
def test_a_full_node_takes_no_more(live: Api, space: str) -> None:
    pods = live.of("v1", "pods", space)
    with own_node(live) as node:
        pods.create(asks("filler", asking("cpu", "2800m"), **on_node(node)))
        assert bound(pods, "filler")["spec"]["nodeName"] == node
        pods.create(asks("additional", asking("cpu", 2), **on_node(node)))
        refusal = unschedulable(pods, "additional")["status"]["conditions"][0]["message"]
        assert "1 Insufficient cpu" in refusal
        events = live.of("v1", "events", space)
        settles(lambda: any(each["reason"] == "FailedScheduling" for each in events.items()))
        pods.delete("filler")
        assert bound(pods, "additional")["spec"]["nodeName"] == node


@conformance(
    "[sig-scheduling] SchedulerPredicates validates that NodeSelector is respected if not matching [Conformance] [Serial]"
)
def test_no_node_has_the_label(live: Api, space: str) -> None:
    pods = live.of("v1", "pods", space)
    pods.create(pod("restricted", nodeSelector={"label": "nonempty"}))
    found = unschedulable(pods, "restricted")
    assert "didn't match Pod's node affinity/selector" in found["status"]["conditions"][0]["message"]
    assert reason(found, "PodScheduled") == "Unschedulable"


@conformance(
    "[sig-scheduling] SchedulerPredicates validates that NodeSelector is respected if matching [Conformance] [Serial]"
)
def test_the_node_with_the_label_is_taken(live: Api, space: str) -> None:
    pods, all_nodes = live.of("v1", "pods", space), live.of("v1", "nodes")
    node, label = nodes(live)[1], f"kubernetes.io/e2e-{unique('label')}"
    all_nodes.patch(node, {"metadata": {"labels": {label: "42"}}})
    pods.create(pod("with-labels", nodeSelector={label: "42"}))
    assert bound(pods, "with-labels")["spec"]["nodeName"] == node
    all_nodes.patch(node, {"metadata": {"labels": {label: None}}})


@conformance(
    "[sig-scheduling] SchedulerPredicates validates that there exists conflict between pods with same hostPort and"
    " protocol but one using 0.0.0.0 hostIP [Conformance] [Serial]"
)
def test_a_port_of_all_addresses_is_one_of_each(live: Api, space: str) -> None:
    pods = live.of("v1", "pods", space)

    def with_port(name: str, node: str, protocol: str = "TCP", **port: str) -> Obj:
        ports = [{"containerPort": 8080, "hostPort": 54322, "protocol": protocol, **port}]
        return pod(name, containers=[{"name": "main", "image": IMAGE, "ports": ports}], **on_node(node))

    node = nodes(live)[0]
    pods.create(with_port("everywhere", node))
    settles(lambda: is_ready(pods.get("everywhere")))
    pods.create(with_port("loopback", node, hostIP="127.0.0.1"))
    pods.create(with_port("other-protocol", node, "UDP", hostIP="127.0.0.1"))
    found = unschedulable(pods, "loopback")
    assert "didn't have free ports" in found["status"]["conditions"][0]["message"]
    assert bound(pods, "other-protocol")["spec"]["nodeName"] == node


@conformance(
    "[sig-scheduling] LimitRange should create a LimitRange with defaults and ensure pod has those defaults applied."
    " [Conformance]"
)
def test_limit_ranges_give_defaults_and_bounds(live: Api, space: str) -> None:
    ranges, pods = live.of("v1", "limitranges", space), live.of("v1", "pods", space)
    most, few = {"cpu": "500m", "memory": "500Mi"}, {"cpu": "50m", "memory": "100Mi"}
    usual = {"cpu": "100m", "memory": "200Mi"}
    limit = {"type": "Container", "min": few, "max": most, "default": most, "defaultRequest": usual}
    ranges.create({"metadata": {"name": "limits"}, "spec": {"limits": [limit]}})

    def resources(name: str, given: Obj) -> Obj:
        found: Obj = pods.create(asks(name, given))["spec"]["containers"][0]["resources"]
        return found

    assert resources("none", {}) == {"requests": usual, "limits": most}
    partial = resources("partial", {"requests": {"memory": "150Mi"}, "limits": {"cpu": "300m"}})
    assert partial["requests"] == {"cpu": "300m", "memory": "150Mi"}
    assert partial["limits"] == {"cpu": "300m", "memory": "500Mi"}
    small, too_much = {"requests": {"cpu": "10m", "memory": "50Mi"}}, {"cpu": "600m", "memory": "600Mi"}
    large = {"requests": too_much, "limits": too_much}
    refused("Forbidden", pods.create, asks("small", small))
    refused("Forbidden", pods.create, asks("large", large))

    ranges.update("limits", lambda obj: obj["spec"]["limits"][0].update(min={"cpu": "9m", "memory": "49Mi"}))
    resources("small", small)
    refused("Forbidden", pods.create, asks("large", large))
    ranges.delete("limits")
    assert ranges.is_gone("limits")
    resources("large", large)


def runtime_class(live: Api, **more: Any) -> str:
    name = unique("runtime")
    live.of("node.k8s.io/v1", "runtimeclasses").create({"metadata": {"name": name}, "handler": "simulated", **more})
    return name


@conformance(
    "[sig-node] RuntimeClass should schedule a Pod requesting a RuntimeClass without PodOverhead [Conformance]"
    " [NodeConformance]"
)
def test_a_pod_with_a_runtime_class_is_scheduled(live: Api, space: str) -> None:
    pods = live.of("v1", "pods", space)
    created = pods.create(pod("pod", runtimeClassName=runtime_class(live)))
    assert "overhead" not in created["spec"]
    bound(pods, "pod")


@conformance(
    "[sig-node] RuntimeClass should schedule a Pod requesting a RuntimeClass and initialize its Overhead [Conformance]"
    " [NodeConformance]"
)
def test_overhead_comes_from_the_runtime_class(live: Api, space: str) -> None:
    pods = live.of("v1", "pods", space)
    overhead = {"cpu": "10m", "memory": "1Mi"}
    created = pods.create(pod("pod", runtimeClassName=runtime_class(live, overhead={"podFixed": overhead})))
    assert created["spec"]["overhead"] == overhead
    bound(pods, "pod")


@conformance(
    "[sig-node] RuntimeClass should reject a Pod requesting a non-existent RuntimeClass [Conformance] [NodeConformance]"
)
def test_an_unknown_runtime_class_is_refused(live: Api, space: str) -> None:
    refused("Forbidden", live.of("v1", "pods", space).create, pod("pod", runtimeClassName="nonexistent"))


@conformance(
    "[sig-node] RuntimeClass should reject a Pod requesting a deleted RuntimeClass [Conformance] [NodeConformance]"
)
def test_a_deleted_runtime_class_is_refused(live: Api, space: str) -> None:
    pods, classes = live.of("v1", "pods", space), live.of("node.k8s.io/v1", "runtimeclasses")
    name = runtime_class(live)
    pods.create(pod("before", runtimeClassName=name))
    classes.delete(name)
    settles(lambda: classes.is_gone(name))
    refused("Forbidden", pods.create, pod("after", runtimeClassName=name))
