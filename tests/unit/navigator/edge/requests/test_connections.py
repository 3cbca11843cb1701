"""Calls between services: the queries to Prometheus, and the connections from their results."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qs, urlsplit

import orjson
import pytest

from shoal.errors import BadRequest, ServiceUnavailable
from shoal.navigator.connections import CallEndpoint, connections_json, read_connections
from shoal.navigator.edge.requests.connections import Connections, connections, queries

PAIR = {
    "reporter": "source",
    "source_cluster": "east", "source_workload_namespace": "shop", "source_canonical_service": "front",
    "destination_cluster": "west", "destination_service_namespace": "shop", "destination_canonical_service": "stock",
}  # fmt: skip


def sample(value: float | str, **more: str) -> dict[str, Any]:
    return {"metric": PAIR | more, "value": [0, str(value)]}


def test_every_query_is_limited_to_the_cluster_where_one_is_named() -> None:
    for asked in queries(300, cluster=("cluster", 'a"b'), namespace="", service=""):
        for query in (asked.requests, asked.errors, asked.buckets):
            assert 'cluster="a\\"b"' in query and "[300s]" in query
    (asked,) = queries(300, cluster=None, namespace="", service="")
    assert ",cluster=" not in asked.requests


def test_a_service_is_asked_for_as_the_one_called_and_as_the_caller() -> None:
    called, calling = queries(60, cluster=None, namespace="shop", service="stock")
    assert 'destination_canonical_service="stock"' in called.requests
    assert 'source_canonical_service="stock"' in calling.buckets
    assert 'source_workload_namespace="shop"' in calling.errors


def test_pairs_have_rates_errors_and_whole_histograms() -> None:
    buckets = [sample(3, le="+Inf"), sample(1, le="5"), sample(2, le="10")]
    (found,) = connections([sample(3)], [sample(0.5)], buckets).values()
    assert (found.source, found.destination) == (
        CallEndpoint("east", "shop", "front"),
        CallEndpoint("west", "shop", "stock"),
    )
    assert (found.requests, found.errors, found.reporter) == (3.0, 0.5, "source")
    assert found.latency_ms.bounds == (5.0, 10.0, float("inf")) and found.latency_ms.counts == (1.0, 2.0, 3.0)
    assert read_connections(orjson.loads(orjson.dumps(connections_json([found]))), "x") == ([found], [])


def test_measurements_of_both_ends_are_passed_on() -> None:
    found = connections([sample(3), sample(2, reporter="destination")], [], [])
    assert sorted(each.reporter for each in found.values()) == ["destination", "source"]


def test_errors_never_exceed_requests_and_all_values_are_numbers() -> None:
    (found,) = connections([sample(1.0)], [sample(1.0000000001)], [sample("NaN", le="5")]).values()
    assert found.errors == 1.0 and found.latency_ms.counts == (0.0,)
    assert connections([sample("NaN")], [], []) == {} and connections([sample(0)], [], []) == {}


async def test_prometheus_is_asked_at_the_end_over_the_whole_time() -> None:
    asked: list[dict[str, list[str]]] = []

    async def fetch(target: str) -> bytes:
        asked.append(parse_qs(urlsplit(target).query))
        return orjson.dumps({"status": "success", "data": {"resultType": "vector", "result": [sample(2, le="5")]}})

    found = await Connections(fetch, cluster=None).between(1000.0, 1600.0, namespace="", service="")
    assert len(found) == 1 and len(asked) == 3
    assert {each["time"][0] for each in asked} == {"1600.000"} and "[600s]" in asked[0]["query"][0]
    with pytest.raises(BadRequest):
        await Connections(fetch, cluster=None).between(5.0, 5.0, namespace="", service="")


@pytest.mark.parametrize(
    ("body", "error"),
    [
        (b'{"status":"error","error":"bad query"}', BadRequest),
        (b"<html>", ServiceUnavailable),
        (b"[]", ServiceUnavailable),
    ],
)
async def test_an_error_of_prometheus_is_passed_on(body: bytes, error: type[Exception]) -> None:
    async def fetch(target: str) -> bytes:
        return body

    with pytest.raises(error):
        await Connections(fetch, cluster=None).between(1, 2, namespace="", service="")
