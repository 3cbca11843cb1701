"""Pods that a node refuses: resources, node affinity, host ports."""

from __future__ import annotations

from typing import Any

import pytest
from node_pods import requesting

from shoal.node.admission import refusal


def a_node(**labels: str) -> dict[str, Any]:
    room = {"cpu": "4", "memory": "8Gi", "pods": "3"}
    return {"metadata": {"name": "node", "labels": labels}, "status": {"allocatable": room}}


def needing(**more: Any) -> dict[str, Any]:
    return {"metadata": {"name": "p"}, "spec": {"containers": [requesting("c", cpu="2")], **more}}


def test_pods_are_admitted_while_resources_are_free() -> None:
    assert refusal(needing(), a_node(), [needing()]) is None
    found = refusal(needing(), a_node(), [needing(), needing()])
    assert found is not None and found.rejected
    assert (found.reason, found.message) == (
        "OutOfcpu",
        "Pod was rejected: Node didn't have enough resource: cpu, requested: 2000, used: 4000, capacity: 4000",
    )
    small = {"metadata": {}, "spec": {"containers": [{"name": "c"}]}}
    full = refusal(small, a_node(), [small] * 3)
    assert full is not None and full.reason == "OutOfpods"


@pytest.mark.parametrize(
    ("expression", "fits"),
    [
        ({"key": "disk", "operator": "In", "values": ["ssd"]}, True),
        ({"key": "disk", "operator": "NotIn", "values": ["ssd"]}, False),
        ({"key": "gpu", "operator": "DoesNotExist"}, True), ({"key": "disk", "operator": "Exists"}, True),
        ({"key": "size", "operator": "Gt", "values": ["3"]}, True), ({"key": "size", "operator": "Lt", "values": ["3"]}, False),
    ],
)  # fmt: skip
def test_a_pod_is_admitted_only_if_its_affinity_matches_the_node(expression: dict[str, Any], fits: bool) -> None:
    terms = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    found = refusal(needing(affinity=affinity), a_node(disk="ssd", size="5"), [])
    assert (found is None) is fits
    assert fits or (found is not None and found.reason == "NodeAffinity")


def test_a_host_port_belongs_to_one_pod() -> None:
    def with_port(address: str = "") -> dict[str, Any]:
        port = {"containerPort": 80, "hostPort": 8080, **({"hostIP": address} if address else {})}
        return {"metadata": {}, "spec": {"containers": [{"name": "c", "ports": [port]}]}}

    found = refusal(with_port(), a_node(), [with_port("10.0.0.1")])
    assert found is not None and found.reason == "NodePorts"
    assert refusal(with_port("10.0.0.2"), a_node(), [with_port("10.0.0.1")]) is None
