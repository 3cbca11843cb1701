"""Pods that take the place of less important ones, and pods that a taint drives away."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from conformance_api import Api, conformance, unique
from conformance_live import (
    asking,
    bound,
    conditions,
    find,
    name_of,
    on_node,
    own_node,
    ready_pods,
    reason,
    settles,
    unschedulable,
)
from conformance_objects import IMAGE, pod, workload

from shoal.kube.objects import Obj

TAINT = {"key": "kubernetes.io/e2e-evict-taint-key", "value": "evictTaintVal", "effect": "NoExecute"}


@pytest.fixture
def levels(live: Api) -> Iterator[list[str]]:
    """Names of priority classes, from the lowest to the highest."""
    classes = live.of("scheduling.k8s.io/v1", "priorityclasses")
    names = [unique(f"p{number}") for number in range(1, 5)]
    for number, name in enumerate(names):
        classes.create({"metadata": {"name": name}, "value": number + 1})
    yield names
    for name in names:
        classes.delete(name)


def spec(node: str, priority: str, amount: int) -> Obj:
    container = {"name": "main", "image": IMAGE, "resources": asking("fakecpu", amount)}
    return {"containers": [container], "priorityClassName": priority, **on_node(node)}


def demanding(name: str, node: str, priority: str, amount: int, **metadata: Any) -> Obj:
    return {"metadata": {"name": name, **metadata}, "spec": spec(node, priority, amount)}


@conformance("[sig-scheduling] SchedulerPreemption validates basic preemption works [Conformance] [Serial]")
def test_the_least_important_pod_makes_room(live: Api, space: str, levels: list[str]) -> None:
    pods = live.of("v1", "pods", space)
    low, medium, high, _ = levels
    with own_node(live, fakecpu="4") as node:
        pods.create(demanding("low", node, low, 2))
        pods.create(demanding("medium", node, medium, 2))
        ready_pods(pods, 2)
        pods.create(demanding("high", node, high, 2))
        assert bound(pods, "high")["spec"]["nodeName"] == node
        assert sorted(pods.names()) == ["high", "medium"]
        assert "deletionTimestamp" not in pods.get("medium")["metadata"]


@conformance(
    "[sig-scheduling] SchedulerPreemption validates lower priority pod preemption by critical pod [Conformance] [Serial]"
)
def test_a_critical_pod_makes_itself_room(live: Api, space: str, levels: list[str]) -> None:
    pods, system = live.of("v1", "pods", space), live.of("v1", "pods", "kube-system")
    with own_node(live, fakecpu="4") as node:
        pods.create(demanding("low", node, levels[0], 2))
        pods.create(demanding("medium", node, levels[1], 2))
        ready_pods(pods, 2)
        critical = unique("critical")
        system.create(demanding(critical, node, "system-cluster-critical", 2))
        assert bound(system, critical)["spec"]["nodeName"] == node
        assert pods.names() == ["medium"]


@conformance(
    "[sig-scheduling] SchedulerPreemption validates pod disruption condition is added to the preempted pod"
    " [Conformance] [Serial]"
)
def test_a_victim_knows_why(live: Api, space: str, levels: list[str]) -> None:
    pods = live.of("v1", "pods", space)
    with own_node(live, fakecpu="1") as node:
        pods.create(demanding("victim", node, levels[0], 1, finalizers=["example.com/test-finalizer"]))
        ready_pods(pods, 1)
        pods.create(demanding("preemptor", node, levels[2], 1))
        settles(lambda: "deletionTimestamp" in pods.get("victim")["metadata"])
        victim = pods.get("victim")
        assert conditions(victim)["DisruptionTarget"] == "True"
        assert reason(victim, "DisruptionTarget") == "PreemptionByScheduler"
        pods.patch("victim", {"metadata": {"finalizers": None}})
        bound(pods, "preemptor")


@conformance(
    "[sig-scheduling] SchedulerPreemption PreemptionExecutionPath runs ReplicaSets to verify preemption running path"
    " [Conformance] [Serial]"
)
def test_no_more_victims_than_needed(live: Api, space: str, levels: list[str]) -> None:
    pods, sets = live.of("v1", "pods", space), live.of("apps/v1", "replicasets", space)
    with own_node(live, fakecpu="1000") as node:
        for name, priority, amount in zip(("one", "two", "three"), levels, (200, 300, 450), strict=False):
            made = workload(name, 1)
            made["spec"]["template"]["spec"] = spec(node, priority, amount)
            sets.create(made)
        before = {name_of(each) for each in ready_pods(pods, 3)}
        with pods.watch(after=pods.list()) as watch:
            pods.create(demanding("four", node, levels[3], 500))
            assert bound(pods, "four")["spec"]["nodeName"] == node
            made_again = [watch.until("ADDED", lambda obj: name_of(obj) != "four") for _ in range(2)]
        assert sorted(each["metadata"]["labels"]["app"] for each in made_again) == ["one", "two"]
        for each in made_again:
            unschedulable(pods, name_of(each))
        assert set(pods.names()) - before == {"four", *map(name_of, made_again)}


def tolerating(name: str, node: str, seconds: int) -> Obj:
    return pod(name, tolerations=[{**TAINT, "tolerationSeconds": seconds}], **on_node(node))


@conformance(
    "[sig-node] NoExecuteTaintManager Multiple Pods evicts pods with minTolerationSeconds [Conformance] [Disruptive]"
    " [Serial]"
)
def test_pods_go_when_they_tolerate_no_longer(live: Api, space: str) -> None:
    pods, all_nodes = live.of("v1", "pods", space), live.of("v1", "nodes")
    with own_node(live) as node:
        for number, seconds in enumerate((0, 1, 3600)):
            pods.create(tolerating(f"pod-{number}", node, seconds))
        ready_pods(pods, 3)
        with pods.watch(after=pods.list()) as watch:
            all_nodes.patch(node, {"spec": {"taints": [TAINT]}})
            assert [name_of(watch.until("DELETED")) for _ in range(2)] == ["pod-0", "pod-1"]
        assert pods.names() == ["pod-2"]


@conformance(
    "[sig-node] NoExecuteTaintManager Single Pod removing taint cancels eviction [Conformance] [Disruptive] [Serial]"
)
def test_a_taint_that_is_removed_in_time_evicts_no_pod(live: Api, space: str) -> None:
    pods, all_nodes, seconds = live.of("v1", "pods", space), live.of("v1", "nodes"), 1
    with own_node(live) as node:
        pods.create(tolerating("stays", node, seconds))
        pods.create(tolerating("marker", node, 0))
        ready_pods(pods, 2)
        with pods.watch(fields="metadata.name=stays", after=pods.list()) as watch:
            all_nodes.patch(node, {"spec": {"taints": [TAINT]}})
            settles(lambda: find(pods, "marker") is None)  # the taint has been seen
            all_nodes.patch(node, {"spec": {"taints": None}})
            watch.silent(seconds + 0.5)
        assert "deletionTimestamp" not in pods.get("stays")["metadata"]
