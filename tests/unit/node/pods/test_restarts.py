"""Restart rules of containers."""

from __future__ import annotations

from pod_views import a_pod

from shoal.node.containers import ContainerRole
from shoal.node.pods.restarts import restarts


def test_restart_rules_of_a_container_take_precedence_over_its_policy() -> None:
    rules = [{"action": "Restart", "exitCodes": {"operator": "In", "values": [42]}}]
    container = {"name": "c", "restartPolicy": "Never", "restartPolicyRules": rules}
    pod = a_pod(restartPolicy="Never")
    assert restarts(container, ContainerRole.MAIN, pod, 42)
    assert not restarts(container, ContainerRole.MAIN, pod, 1)
