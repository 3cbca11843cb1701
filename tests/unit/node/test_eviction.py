"""The choice of the pod to evict, and its message."""

from __future__ import annotations

from node_pods import requesting

from shoal.node.eviction import PodUse, Pressure, eviction_failure, victim


def test_among_the_lowest_priority_the_pod_furthest_over_its_requests_is_evicted() -> None:
    def use(name: str, used: int, request: str = "0", priority: int = 0) -> PodUse:
        pod = {
            "metadata": {"name": name},
            "spec": {"priority": priority, "containers": [requesting("c", memory=request)]},
        }
        return PodUse(pod, {"memory": used}, {"c": {"memory": used}})

    pressure = Pressure("memory", 100 << 20, 10 << 20)
    within, over, important = use("within", 500, "1Gi"), use("over", 900), use("important", 5000, priority=10)
    critical = use("critical", 1 << 40, priority=2_000_001_000)
    assert victim(pressure, [within, important, over, critical]) is over
    assert victim(pressure, [within, important]) is important
    assert victim(pressure, [critical]) is None
    text = eviction_failure(pressure, use("over", 20 << 20)).message
    assert text == (
        "The node was low on resource: memory. Threshold quantity: 100Mi, available: 10Mi. "
        "Container c was using 20Mi, request is 0, has larger consumption of memory. "
    )
