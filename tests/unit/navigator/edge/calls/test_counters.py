"""Calls from the metrics pages of gateways and of Istio's proxies."""

from __future__ import annotations

from math import inf

import pytest

from shoal.navigator.connections import CallEndpoint
from shoal.navigator.edge.calls.counters import Calls, connection_of, gateway_calls, istio_calls

GATE = CallEndpoint("", "sentinel", "gate")
WEB = CallEndpoint("", "", "", "dep_web")
GATEWAY_PAGE = """\
# TYPE shoal_sentinel_requests_total counter
shoal_sentinel_requests_total{code="2xx",deployment="dep_web",region="eu"} 8.0
shoal_sentinel_requests_total{code="4xx",deployment="dep_web",region="eu"} 1.0
shoal_sentinel_requests_total{code="5xx",deployment="dep_web",region="eu"} 1.0
shoal_sentinel_requests_total{code="2xx",deployment="dep_idle",region="eu"} 0.0
shoal_sentinel_requests_total{code="2xx",deployment="other",region="eu"} 7.0
shoal_sentinel_requests_total{code="2xx",deployment="dep_bad"} many
shoal_sentinel_requests_totally{deployment="dep_web"} 5
shoal_sentinel_request_duration_seconds_bucket{deployment="dep_web",le="0.005",region="eu"} 6.0
shoal_sentinel_request_duration_seconds_bucket{deployment="dep_web",le="+Inf",region="eu"} 10.0
"""


def test_a_gateway_counts_requests_errors_and_times_per_deployment() -> None:
    assert gateway_calls(GATEWAY_PAGE, GATE) == {("source", GATE, WEB): Calls(10.0, 2.0, {5.0: 6.0, inf: 10.0})}


def istio(code: str, value: float, *, reporter: str = "source", service: str = "cart") -> str:
    labels = (
        f'reporter="{reporter}",source_workload="web",source_canonical_service="web",source_workload_namespace="shop",'
        f'source_cluster="east",destination_canonical_service="{service}",destination_service_namespace="shop",'
        f'destination_cluster="unknown",response_code="{code}"'
    )
    return (
        f"istio_requests_total{{{labels}}} {value}\n"
        f'istio_request_duration_milliseconds_bucket{{{labels},le="10"}} {value / 2}\n'
        f'istio_request_duration_milliseconds_bucket{{{labels},le="+Inf"}} {value}\n'
    )


def test_a_proxy_of_istio_names_both_ends() -> None:
    page = istio("200", 6) + istio("503", 2) + istio("200", 1, reporter="waypoint")
    (pair,) = (found := istio_calls(page))
    assert pair == ("source", CallEndpoint("east", "shop", "web"), CallEndpoint("", "shop", "cart"))
    assert found[pair] == Calls(8.0, 2.0, {10.0: 4.0, inf: 8.0})


def test_escaped_labels_are_read() -> None:
    (pair,) = istio_calls(istio("200", 1, service=r"a\"b\\c"))
    assert pair[2].service == 'a"b\\c'


@pytest.mark.parametrize("page", ["", "\x00", "istio_requests_total", "istio_requests_total{} x", "<html>"])
def test_a_page_of_something_else_has_no_calls(page: str) -> None:
    assert istio_calls(page) == {} and gateway_calls(page, GATE) == {}


def test_rates_are_counts_by_time() -> None:
    found = connection_of(("source", GATE, WEB), Calls(10.0, 2.0, {inf: 10.0, 5.0: 6.0}), 5.0)
    assert (found.requests, found.errors, found.success_rate) == (2.0, 0.4, 0.8)
    assert found.latency_ms.bounds == (5.0, inf) and found.latency_ms.counts == (1.2, 2.0)
