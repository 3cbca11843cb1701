"""The service graph, from the answers of several edges."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from answers_world import a_connection

from shoal.errors import ServiceUnavailable
from shoal.navigator.answers.fleet import Deployments
from shoal.navigator.answers.graph import DeploymentPlaces, GraphRequest, graph
from shoal.navigator.connections import CallEndpoint, ServiceConnection, connections_json
from shoal.testing.views import AT_S, MemoryEdges, MemoryView, a_cluster


async def asked(
    edges: MemoryEdges, clusters: list[str], *, view: MemoryView | None = None, fleet: Deployments | None = None,
    **more: str,
) -> dict[str, Any]:  # fmt: skip
    request = GraphRequest(start_s=AT_S - 300, end_s=AT_S, **more)
    places = DeploymentPlaces(view or MemoryView(), fleet or Deployments())
    return await graph(edges, clusters, request, places=places, deadline_s=5)


def answering(*connections: ServiceConnection) -> Any:
    return lambda request: [orjson.dumps(connections_json(connections))]


async def test_rates_are_summed_and_percentiles_come_from_the_merged_histogram() -> None:
    fast = a_connection(
        990.0, 9.0, source=CallEndpoint("us-1", "shop", "web"), destination=CallEndpoint("us-1", "shop", "db")
    )
    slow = a_connection(10.0, 1.0, slow=10.0)
    found = await asked(MemoryEdges({"eu-1": answering(slow), "us-1": answering(fast)}), ["eu-1", "us-1"])
    (pair,) = found["connections"]
    assert (pair["requestsPerSecond"], pair["errorsPerSecond"]) == (1000.0, 10.0)
    assert pair["successRate"] == 0.99
    assert pair["p99Ms"] == pytest.approx(10.0), "990 of 1000 take at most 10 ms"
    assert [each["p99Ms"] for each in pair["between"]] == [pytest.approx(990.1), pytest.approx(9.9)]
    assert found["clusters"] == ["eu-1", "us-1"]


async def test_clusters_that_do_not_answer_are_named_with_the_reason() -> None:
    edges = MemoryEdges({
        "eu-1": answering(a_connection(5.0)), "us-1": ServiceUnavailable("no Prometheus"),
        "us-2": lambda request: [b"<html>"],
    })  # fmt: skip
    found = await asked(edges, ["eu-1", "us-1", "us-2", "us-3"])
    assert [(each["cluster"], each["code"]) for each in found["failed"]] == [
        ("us-1", "ServiceUnavailable"), ("us-2", "InternalError"), ("us-3", "ServiceUnavailable"),
    ]  # fmt: skip
    assert found["clusters"] == ["eu-1"]
    assert len(found["connections"]) == 1


def to_deployment(id_: str, *, gateway: str = "gate") -> ServiceConnection:
    return ServiceConnection(
        source=CallEndpoint("", "sentinel", gateway), destination=CallEndpoint("", "", "", id_), requests=2.0,
        reporter="source",
    )  # fmt: skip


def pod(name: str, deployment: str, app: str, namespace: str = "shop-production") -> dict[str, Any]:
    labels = {"shoal.dev/deployment": deployment, "app.kubernetes.io/name": app}
    return {"metadata": {"name": name, "namespace": namespace, "labels": labels}}


async def test_calls_of_gateways_lead_to_the_app_of_the_deployment_wherever_its_pods_are() -> None:
    view = MemoryView([a_cluster("eu-1"), a_cluster("us-1")])
    view.put("eu-1", "pods", pod("web-1", "dep_web", "web"))
    view.put("us-1", "pods", pod("web-1", "dep_web", "web"), pod("cart-1", "dep_cart", "cart"))
    edges = MemoryEdges({"eu-1": answering(to_deployment("dep_web"), to_deployment("dep_cart"))})
    found = await asked(edges, ["eu-1"], view=view)
    assert [(each["destination"]["namespace"], each["destination"]["service"]) for each in found["connections"]] == [
        ("shop-production", "cart"), ("shop-production", "web"),
    ]  # fmt: skip
    assert [[pair["destination"] for pair in each["between"]] for each in found["connections"]] == [["us-1"], ["eu-1"]]
    (only,) = (await asked(edges, ["eu-1"], view=view, service="cart"))["connections"]
    assert only["destination"]["service"] == "cart"
    assert len((await asked(edges, ["eu-1"], view=view, namespace="sentinel"))["connections"]) == 2


async def test_a_deployment_without_pods_is_named_by_the_others_of_its_app_or_by_its_id() -> None:
    view = MemoryView([a_cluster("eu-1")])
    view.put("eu-1", "pods", pod("web-2", "dep_new", "web"))
    ids = ("dep_old", "dep_new")
    fleet = Deployments(
        app=dict.fromkeys(ids, "web"), project=dict.fromkeys(ids, "shop"), environment=dict.fromkeys(ids, "production")
    )
    edges = MemoryEdges({"eu-1": answering(*(to_deployment(id_) for id_ in (*ids, "dep_gone")))})
    found = await asked(edges, ["eu-1"], view=view, fleet=fleet)
    names = [(each["destination"]["namespace"], each["destination"]["service"]) for each in found["connections"]]
    assert names == [("shop-production", "web"), ("unknown", "dep_gone")]
    assert found["connections"][0]["requestsPerSecond"] == 4.0
