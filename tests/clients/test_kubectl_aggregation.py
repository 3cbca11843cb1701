"""kubectl with an aggregated API server."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.clients.conftest import Kubectl
from tests.clients.workloads import WITHIN, create

from shoal.testing import aggregated
from shoal.testing.servers import ServerProcess


@pytest.fixture(scope="session")
def cluster(simulated_cluster: ServerProcess) -> ServerProcess:
    return simulated_cluster


@pytest.fixture
def ships(cluster: ServerProcess) -> Iterator[aggregated.AggregatedServer]:
    """A server that trusts the cluster's front proxy alone, beside the cluster's process."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    running = aggregated.aggregated_server(Path(cluster.directory) / "pki" / "front-proxy-ca.crt")
    try:
        yield asyncio.run_coroutine_threadsafe(running.__aenter__(), loop).result(20)
    finally:
        asyncio.run_coroutine_threadsafe(running.__aexit__(None, None, None), loop).result(20)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(20)
        loop.close()


def test_kubectl_works_with_the_resources_of_an_aggregated_server(
    kubectl: Kubectl, ships: aggregated.AggregatedServer
) -> None:
    service, endpoints = aggregated.service(), aggregated.endpoints(ships)
    registered = aggregated.api_service(caBundle=ships.ca_bundle)
    try:
        system = replace(kubectl, namespace=aggregated.NAMESPACE)
        create(system, {"apiVersion": "v1", "kind": "Service", **service})
        create(system, {"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", **endpoints})
        create(kubectl, registered)
        kubectl("wait", "--for=condition=Available", "apiservice/v1.sea.example", WITHIN)
        row = kubectl("get", "apiservice", "v1.sea.example", "--no-headers").split()
        assert row[:3] == ["v1.sea.example", "kube-system/ships-api", "True"]
        assert "ships" in kubectl("api-resources", "--api-group=sea.example", "-o", "name")
        create(kubectl, {"apiVersion": "sea.example/v1", "kind": "Ship", "metadata": {"name": "gull"}})
        assert kubectl("get", "sh", "-o", "name").split() == ["ship.sea.example/gull"]
        assert b"kubernetes-admin" in {each.headers[b"x-remote-user"] for each in ships.requests}
    finally:
        kubectl("delete", "apiservice/v1.sea.example", "--ignore-not-found")
        kubectl(
            "delete", "-n", aggregated.NAMESPACE, "service/ships-api", "endpointslice/ships-api", "--ignore-not-found"
        )
    assert "ships" not in kubectl("api-resources", "-o", "name")


def test_the_metrics_api_is_registered(kubectl: Kubectl) -> None:
    found = json.loads(kubectl("get", "apiservice", "v1beta1.metrics.k8s.io", "-o", "json"))
    assert found["spec"]["groupPriorityMinimum"] == 100
    assert found["status"]["conditions"][0]["reason"] == "Local"
