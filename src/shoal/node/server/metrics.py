"""Metrics of a node's agent, with the names of kubelet's; made for each scrape from what runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from shoal.base.metrics import Metrics


class KubeletMetrics:
    def __init__(self, metrics: Metrics) -> None:
        self.node = metrics.gauge("kubelet_node_name", "The node's name; the value is always 1.", ("node",))
        self.pods = metrics.gauge("kubelet_running_pods", "Pods with a running container.")
        self.containers = metrics.gauge("kubelet_running_containers", "Containers, by state.", ("container_state",))


def kubelet_metrics(node: str, pods: Iterable[Iterable[str]]) -> Metrics:
    """Those of a node; ``pods`` has the states of each pod's containers."""
    metrics = Metrics()
    made = KubeletMetrics(metrics)
    made.node.labels(node).set(1)
    states = [list(containers) for containers in pods]
    made.pods.set(sum("running" in each for each in states))
    for state, count in Counter(state for each in states for state in each).items():
        made.containers.labels(state).set(count)
    return metrics
