"""The admin port of a pod's proxy."""

from __future__ import annotations

from typing import Any

from shoal.kube.objects import Obj
from shoal.navigator.edge.requests.proxies import admin_port_of


def test_the_port_of_the_admin_interface_is_found() -> None:
    def pod(*containers: Obj, **spec: Any) -> Obj:
        return {"metadata": {"name": "p"}, "spec": {"containers": list(containers), **spec}}

    named = {"name": "gateway", "ports": [{"name": "admin", "containerPort": 9901}]}
    assert admin_port_of(pod({"name": "app"}, named), 15000) == 9901
    assert admin_port_of(pod({"name": "istio-proxy"}), 15000) == 15000
    assert admin_port_of(pod({"name": "app"}, initContainers=[{"name": "istio-proxy"}]), 15001) == 15001
    assert admin_port_of(pod({"name": "edge", "image": "x/envoy:1"}), 15000) == 15000
