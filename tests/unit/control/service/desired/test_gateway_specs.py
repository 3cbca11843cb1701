"""What gateways are sent is what they can read: deployments in place of apps, and nothing their schema refuses."""

from __future__ import annotations

import pytest

from shoal.control.domain.routing import RoutedDeployment, RoutedShare
from shoal.control.service.desired.gateway_specs import policy_spec, rollout_spec, route_spec
from shoal.crds import sentinel

WEB = RoutedDeployment(deployment="dep_1", namespace="shop-prod-x", name="web-1-x", port=9000, protocol="h2c")
OLD = RoutedDeployment(deployment="dep_0", namespace="shop-prod-x", name="web-0-x", port=8080, protocol="http1")


def test_a_route_leads_to_the_deployments_that_serve_its_apps() -> None:
    spec = {
        "host": "Shop.example.com",
        "backends": [{"app": "web"}, {"app": "web", "deployment": "dep_0", "weight": 5}, {"app": "none", "weight": 7}],
        "mirror": {"app": "web", "percent": 10},
        "headers": [{"name": "x-beta"}],
        "sticky": {"cookie": "who"},
        "policies": ["limit"],
    }
    found = sentinel.read_route(
        route_spec(spec, "env_1", {"web": [RoutedShare(WEB, 100)]}, {"dep_0": OLD, "dep_1": WEB})
    )
    assert [(one.deployment, one.namespace, one.service, one.weight) for one in found.backends] == [
        ("dep_1", "shop-prod-x", "web-1-x", 100), ("dep_0", "shop-prod-x", "web-0-x", 5), ("", "", "", 7),
    ]  # fmt: skip
    assert (found.backends[0].port, found.backends[0].protocol) == (9000, "h2c")
    assert found.mirror is not None and (found.mirror.deployment, found.mirror.percent) == ("dep_1", 10)
    assert (found.environment, found.host, found.headers[0].present) == ("env_1", "shop.example.com", True)
    assert found.policies == ["limit"] and found.sticky is not None and found.sticky.cookie == "who"


def test_revisions_of_an_app_share_the_weight_of_its_backend() -> None:
    live = {"web": [RoutedShare(WEB, 30), RoutedShare(OLD, 70)]}
    spec = {"host": "a.example", "backends": [{"app": "web", "weight": 90}, {"app": "none", "weight": 10}]}
    found = sentinel.read_route(route_spec(spec, "env_1", live, {}))
    assert [(one.deployment, one.weight) for one in found.backends] == [("dep_1", 2700), ("dep_0", 6300), ("", 1000)]


@pytest.mark.parametrize(
    "spec",
    [
        {"host": "a.example", "app": "web"},
        {"host": "*.example", "redirect": {"host": "b.example", "code": 301}},
        {"host": "a.example", "app": "web", "path": "/api", "rewrite": {"prefix": "/"}, "tls": {"secret": "cert"}},
        {"host": "a.example", "app": "web", "timeouts": {"total": 5}, "retries": 0, "policies": []},
    ],
)
def test_every_form_of_a_route_can_be_read_by_a_gateway(spec: dict[str, object]) -> None:
    sentinel.read_route(route_spec(spec, "env_1", {"web": [RoutedShare(WEB, 100)]}, {}))


@pytest.mark.parametrize(
    "spec",
    [
        {"keyAuth": {}},
        {"keyAuth": {"locations": [{"header": "x-key", "stripPrefix": "Key "}], "permissions": ["read"]}},
        {"jwt": {"oidcIssuer": "https://issuer.example", "audiences": ["a"]}, "routes": ["front"]},
        {"rateLimit": {"limit": 5, "identifier": {"header": "x-user"}}, "order": 5, "enabled": False, "failOpen": True},
        {"firewall": {"cidrs": ["10.0.0.0/8"]}, "match": [{"method": ["GET"]}, {"path": {"prefix": "/admin"}}]},
        {"requestSize": {"maxBytes": "1Mi"}, "match": [{"header": {"name": "x", "exact": "y", "ignoreCase": True}}]},
        {"cors": {"origins": ["*"]}, "match": [{"query": {"name": "debug"}}]},
    ],
)
def test_every_kind_of_policy_can_be_read_by_a_gateway(spec: dict[str, object]) -> None:
    found = sentinel.read_policy(policy_spec(spec, "env_1"))
    assert found.environment == "env_1" and found.enabled == spec.get("enabled", True)
    if "requestSize" in spec:
        assert found.request_size is not None and found.request_size.max_bytes == 1 << 20


def test_what_candidates_have_is_beside_the_spec_and_can_be_read_by_a_gateway() -> None:
    extras = {
        "header": {"name": "x-beta", "value": "1"}, "cookie": {"name": "b", "value": ""}, "mirror": 5,
        "previewHost": "next.example",
    }  # fmt: skip
    live = {"web": [RoutedShare(WEB, 0, extras), RoutedShare(OLD, 100)]}
    spec = {"host": "a.example", "app": "web"}
    found = sentinel.read_rollout(rollout_spec(spec, live))
    assert [(one.header or one.cookie, one.target.deployment) for one in found.testers] == [
        (sentinel.NamedValue(name="x-beta", value="1"), "dep_1"), (sentinel.NamedValue(name="b", value=""), "dep_1"),
    ]  # fmt: skip
    assert [(one.percent, one.service, one.port) for one in found.mirrors] == [(5.0, "web-1-x", 9000)]
    assert [(one.host, one.target.protocol) for one in found.previews] == [("next.example", "h2c")]
    sentinel.read_route(route_spec(spec, "env_1", live, {}))
    assert rollout_spec(spec, {"web": [RoutedShare(WEB, 100)]}) == {}
