"""Explanations from lists of objects alone, without a running scheduler."""

from __future__ import annotations

from typing import Any

import pytest

from shoal.base.clock import FakeClock
from shoal.kube.objects import Obj
from shoal.scheduler.explain import PodExplanation, explain_from


def node(name: str, cpu: str = "4", **spec: Any) -> Obj:
    size = {"cpu": cpu, "memory": "8Gi", "pods": "110"}
    labels = {"kubernetes.io/hostname": name}
    return {
        "metadata": {"name": name, "labels": labels}, "spec": spec, "status": {"capacity": size, "allocatable": size},
    }  # fmt: skip


def pod(name: str = "p", cpu: str = "1", node: str = "", **spec: Any) -> Obj:
    container = {"name": "c", "image": "i:1", "resources": {"requests": {"cpu": cpu}}}
    made: Obj = {"containers": [container], "schedulerName": "default-scheduler", **spec}
    if node:
        made["nodeName"] = node
    return {"metadata": {"name": name, "namespace": "default", "uid": name}, "spec": made, "status": {}}


def explained(subject: Obj, **lists: list[Obj]) -> PodExplanation:
    return explain_from(subject, lists, clock=FakeClock())


def test_nodes_come_with_their_scores_the_best_first_and_then_with_why_they_refuse() -> None:
    tainted = node("c", taints=[{"key": "k", "effect": "NoSchedule"}])
    found = explained(pod(), nodes=[node("a", "2"), node("b", "16"), tainted], pods=[])
    assert [row.node for row in found.nodes] == ["b", "a", "c"]
    assert found.nodes[0].total > found.nodes[1].total
    assert found.nodes[2].refusal is not None and found.nodes[2].refusal.plugin == "TaintToleration"
    assert found.message == ""


def test_a_running_pod_does_not_count_against_itself() -> None:
    placed = pod(cpu="3", node="a")
    other = pod("other", cpu="3", node="b")
    found = explained(placed, nodes=[node("a"), node("b")], pods=[placed, other])
    assert found.node == "a"
    assert {row.node: row.refusal is None for row in found.nodes} == {"a": True, "b": False}


def test_the_message_is_that_of_the_event_with_the_result_of_preemption() -> None:
    found = explained(pod(cpu="9"), nodes=[node("a"), node("b")], pods=[])
    assert found.message.startswith("0/2 nodes are available: 2 Insufficient cpu.")
    assert "preemption: 0/2 nodes are available" in found.message


def test_the_node_where_room_can_be_made_is_named() -> None:
    low = pod("low", cpu="3", node="a", priority=0)
    found = explained(pod(cpu="3", priority=1000), nodes=[node("a")], pods=[low])
    assert found.nominated == "a"


@pytest.mark.parametrize(
    ("subject", "message"),
    [
        (pod(schedulingGates=[{"name": "hold"}]), "waiting for scheduling gates: [hold]"),
        (pod(schedulerName="theirs"), "spec.schedulerName is theirs: not one of ours"),
    ],
)
def test_the_explanation_says_that_a_pod_is_not_scheduled(subject: Obj, message: str) -> None:
    assert explained(subject, nodes=[node("a")], pods=[]).message == message


def test_a_cluster_without_nodes_is_no_failure() -> None:
    assert explained(pod()).message == "no nodes available to schedule pods"
