"""The total requests of a pod."""

from __future__ import annotations

from node_pods import requesting

from shoal.node.resources import total_requests


def test_the_requests_of_a_pod_are_its_highest_total_over_time() -> None:
    inits = [requesting("i", cpu="3"), requesting("s", cpu="1") | {"restartPolicy": "Always"}, requesting("j", cpu="1")]
    pod = {
        "spec": {"initContainers": inits, "containers": [requesting("a", cpu="500m"), requesting("b", memory="1Gi")]}
    }
    assert total_requests(pod) == {"cpu": 3000, "memory": 1 << 30}
    pod["spec"]["containers"].append(requesting("c", cpu="2"))
    pod["spec"]["overhead"] = {"cpu": "100m"}
    assert total_requests(pod)["cpu"] == 3600
