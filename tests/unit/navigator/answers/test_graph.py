"""The service graph, from the answers of several edges."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from answers_world import a_connection

from shoal.errors import ServiceUnavailable
from shoal.navigator.answers.graph import GraphRequest, graph
from shoal.navigator.connections import CallEndpoint, ServiceConnection, connections_json
from shoal.testing.views import AT_S, MemoryEdges


async def asked(edges: MemoryEdges, clusters: list[str]) -> dict[str, Any]:
    request = GraphRequest(start_s=AT_S - 300, end_s=AT_S)
    return await graph(edges, clusters, request, deadline_s=5)


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
