"""Summaries of what leads traffic to services."""

from __future__ import annotations

from typing import Any

import pytest

from shoal.navigator.route_summaries import (
    PolicySummary,
    RouteSummary,
    http_route,
    ingress,
    sentinel_policy,
    sentinel_route,
)
from shoal.navigator.summaries import summarize

METADATA = {"name": "front", "namespace": "shop", "creationTimestamp": "2026-01-02T03:04:05Z"}


def an_object(**spec: Any) -> dict[str, Any]:
    return {"metadata": METADATA, "spec": spec}


def test_an_ingress_names_hosts_paths_and_services_of_its_namespace() -> None:
    web, api = ({"service": {"name": name, "port": {"number": 80}}} for name in ("web", "api"))
    rules = [
        {"host": "a.test", "http": {"paths": [{"path": "/", "backend": web}, {"path": "/api", "backend": api}]}},
        {"http": {"paths": [{"backend": web}]}},
    ]
    made = ingress(an_object(rules=rules, ingressClassName="nginx", tls=[{}], defaultBackend=api))
    assert made == RouteSummary(
        created_at=METADATA["creationTimestamp"], hosts=("a.test", "*"), paths=("/", "/api"),
        backends=("shop/web", "shop/api"), gateways=("nginx",), tls=True,
    )  # fmt: skip


def test_an_http_route_without_matches_takes_every_path() -> None:
    rules = [
        {"backendRefs": [{"name": "web"}, {"name": "api", "namespace": "core"}]},
        {"matches": [{"path": {"type": "PathPrefix", "value": "/v2"}}], "backendRefs": [{"name": "web"}]},
    ]
    made = http_route(an_object(rules=rules, hostnames=["a.test"], parentRefs=[{"name": "public"}]))
    assert isinstance(made, RouteSummary)
    assert (made.hosts, made.paths) == (("a.test",), ("/", "/v2"))
    assert (made.backends, made.gateways) == (("shop/web", "core/api"), ("shop/public",))


def test_a_route_of_a_gateway_names_the_services_of_its_backends() -> None:
    backends = [{"deployment": f"dep-{each}", "namespace": "demo", "service": f"web-{each}"} for each in (1, 2)]
    made = sentinel_route(an_object(host="*.test", path="/shop", backends=backends))
    assert isinstance(made, RouteSummary)
    assert (made.hosts, made.paths, made.backends) == (("*.test",), ("/shop",), ("demo/web-1", "demo/web-2"))


def test_a_policy_has_the_type_of_its_one_rule() -> None:
    assert sentinel_policy(an_object(order=7, enabled=False, jwt={"issuer": "x"}, routes=["a"])) == PolicySummary(
        created_at=METADATA["creationTimestamp"], type="jwt", order=7, enabled=False, routes=("a",)
    )


@pytest.mark.parametrize("kind", ["ingresses", "httproutes", "sentinelroutes", "sentinelpolicies"])
@pytest.mark.parametrize("spec", ["text", {"rules": 3, "host": 5}, {"routes": "text", "rules": [{"http": "x"}]}, None])
def test_an_object_of_the_wrong_shape_has_a_summary_of_its_kind(kind: str, spec: Any) -> None:
    expected = PolicySummary if kind == "sentinelpolicies" else RouteSummary
    assert isinstance(summarize(kind, {"metadata": METADATA, "spec": spec}), expected)
