"""Pods as the analysis of the mesh needs them."""

from __future__ import annotations

import pytest
from answers_world import a_pod

from shoal.navigator.answers.mesh import pod_stub
from shoal.navigator.summaries import proxy_of
from shoal.testing.views import MemoryView, a_cluster


@pytest.mark.parametrize("proxy", ["", "sidecar", "router"])
def test_the_stub_of_a_pod_has_the_proxy_of_the_pod(proxy: str) -> None:
    view = MemoryView([a_cluster("c")])
    view.put("c", "pods", a_pod("p", proxy=proxy, labels={"app": "web"}))
    (row,) = view.rows("pods")
    stub = pod_stub(row)
    assert proxy_of(stub) == (proxy or "none")
    assert stub["metadata"] == {"name": "p", "namespace": "shop", "labels": {"app": "web"}}


def test_the_stub_of_a_pod_that_ztunnel_serves_says_so() -> None:
    view = MemoryView([a_cluster("c")])
    pod = a_pod("p")
    pod["metadata"]["annotations"] = {"ambient.istio.io/redirection": "enabled"}
    view.put("c", "pods", pod)
    (row,) = view.rows("pods")
    assert proxy_of(pod_stub(row)) == "ztunnel"
