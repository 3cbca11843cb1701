"""Which pods the collector removes."""

from __future__ import annotations

from shoal.controllers.podgc.plan import (
    due_nodes,
    missing_nodes,
    stuck_out_of_service,
    surplus,
    unscheduled_ending,
)


def a_pod(name, phase="Running", node="n", created="2024-01-01T00:00:00Z", deleting=False, reason=""):
    about = {"name": name, "creationTimestamp": created} | ({"deletionTimestamp": created} if deleting else {})
    return {"metadata": about, "spec": {"nodeName": node}, "status": {"phase": phase, "reason": reason}}


def names(removals):
    return [each.pod["metadata"]["name"] for each in removals]


def test_finished_pods_beyond_the_limit_go_evicted_and_oldest_first():
    pods = [
        a_pod("new", "Succeeded", created="2024-01-03T00:00:00Z"),
        a_pod("old", "Failed", created="2024-01-01T00:00:00Z"),
        a_pod("evicted", "Failed", created="2024-01-04T00:00:00Z", reason="Evicted"),
        a_pod("running", created="2023-01-01T00:00:00Z"),
    ]
    assert names(surplus(pods, 1)) == ["evicted", "old"]
    assert surplus(pods, 3) == []
    assert surplus(pods, 0) == []


def test_pods_that_end_without_a_node_go():
    assert names(unscheduled_ending([a_pod("a", node="", deleting=True), a_pod("b", deleting=True), a_pod("c")])) == [
        "a"
    ]


def test_pods_that_end_on_a_node_out_of_service_go():
    taints = [{"key": "node.kubernetes.io/out-of-service", "effect": "NoExecute"}]
    dead = {"spec": {"taints": taints}, "status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}}
    alive = {"spec": {"taints": taints}, "status": {"conditions": [{"type": "Ready", "status": "True"}]}}
    pods = [a_pod("a", node="dead", deleting=True), a_pod("b", node="dead"), a_pod("c", node="alive", deleting=True)]
    assert names(stuck_out_of_service(pods, {"dead": dead, "alive": alive})) == ["a"]


def test_a_missing_node_is_in_quarantine_for_forty_seconds():
    missing = missing_nodes(["", "here", "gone"], {"here": {}}, {}, 100.0)
    assert missing == {"gone": 100.0}
    assert due_nodes(missing, 139.0) == []
    again = missing_nodes(["gone"], {}, missing, 140.0)
    assert due_nodes(again, 140.0) == ["gone"]
    assert missing_nodes(["gone"], {"gone": {}}, again, 150.0) == {}
