"""What people write is read whole, every fault is found at once, and each says where it is and what was meant."""

from __future__ import annotations

from typing import Any

import pytest
from fleet_world import an_app, doc
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.control.domain.kinds.app import AppSpec
from shoal.control.domain.kinds.credentials import SecretSpec
from shoal.control.domain.kinds.policy import KINDS as POLICY_KINDS
from shoal.control.domain.kinds.policy import PolicySpec
from shoal.control.domain.kinds.route import RouteSpec
from shoal.control.domain.specs import KINDS, parse
from shoal.errors import BadRequest, Invalid


def faults(document: Any) -> dict[str, str]:
    with pytest.raises(Invalid) as caught:
        parse(document)
    return {error.field: error.body for error in caught.value.errors}


def policy(**spec: Any) -> dict[str, Any]:
    return doc("Policy", "p", spec)


def route(**spec: Any) -> dict[str, Any]:
    return doc("Route", "r", {"host": "a.example.com", "app": "web", **spec})


def test_an_app_is_read_with_its_defaults() -> None:
    spec = parse(an_app(regions=("eu", "us"), replicas=2, resources={"cpu": "0.5", "memory": "1Gi"})).spec
    assert isinstance(spec, AppSpec)
    assert (spec.port, spec.protocol, spec.drift, spec.desired) == (8080, "http1", "correct", "running")
    assert (spec.resources.cpu_millicores, spec.resources.memory_mib) == (500, 1024)
    assert [(row.region, row.replicas) for row in spec.topology] == [("eu", 2), ("us", 2)]


def test_every_fault_is_found_in_one_pass() -> None:
    found = faults(
        an_app(
            image="Not An Image",
            port=70000,
            protocol="spdy",
            resources={"cpu": "lots"},
            healthcheck={"http": {"path": "no-slash"}, "tcp": {}},
            autoscaling={"min": 3, "max": 2},
            placement={"cel": "cluster.nam == 'x'", "tolerations": [{"operator": "Equal"}]},
            topology=[{"region": "eu", "replicas": -1}, {"region": "eu"}, {}],
        )
    )
    assert {
        "spec.image", "spec.port", "spec.protocol", "spec.resources.cpu", "spec.healthcheck.tcp",
        "spec.healthcheck.http.path", "spec.autoscaling.max", "spec.placement.cel",
        "spec.placement.tolerations[0].key", "spec.topology[0].replicas", "spec.topology[1].region",
        "spec.topology[2].region",
    } <= set(found)  # fmt: skip


@pytest.mark.parametrize(
    ("spec", "field", "hint"),
    [
        ({"topolgy": []}, "spec.topolgy", "did you mean topology?"),
        ({"Image": "x"}, "spec.Image", "did you mean image?"),
        ({"zzz": 1}, "spec.zzz", "known fields"),
        ({"resources": {"cpus": "1"}}, "spec.resources.cpus", "did you mean cpu?"),
        ({"topology": [{"region": "eu", "replica": 1}]}, "spec.topology[0].replica", "did you mean replicas?"),
    ],
)
def test_an_unknown_field_is_refused_with_a_hint(spec: dict[str, Any], field: str, hint: str) -> None:
    assert hint in faults(an_app(**spec))[field]


@pytest.mark.parametrize("name", ["1ABC", "A B", "", "SHOAL_REGION", "A=B", "ä"])
def test_names_of_variables_are_checked_when_they_are_written(name: str) -> None:
    assert "spec.env" in faults(an_app(env={name: "x"}))
    assert "spec.topology[0].overrides.env" in faults(
        an_app(topology=[{"region": "eu", "overrides": {"env": {name: "x"}}}])
    )
    assert "spec.values" in faults(doc("Secret", "s", {"values": {name: "x"}}))


def test_values_of_variables_are_strings_and_the_fault_says_so() -> None:
    assert "quotes" in faults(an_app(env={"PORT": 8080}))["spec.env[PORT]"]


@pytest.mark.parametrize(
    "image",
    [
        "nginx",
        "nginx:1.27",
        "shop/web:v1",
        "registry.example.com:5000/a/b__c:1",
        "a@sha256:" + "0" * 64,
        "[::1]:5000/a:b",
    ],
)
def test_images_are_references(image: str) -> None:
    parse(an_app(image=image))


@pytest.mark.parametrize("image", ["", "UPPER", "a b", "a:", "a@sha256:12", "http://a/b", "a//b", ":x"])
def test_what_is_no_image_is_refused(image: str) -> None:
    assert "spec.image" in faults(an_app(image=image))


def test_expressions_are_checked_against_the_types_of_clusters() -> None:
    parse(an_app(placement={"cel": 'cluster.labels["tier"] == "gold" && cluster.capacity.cpu > 1000'}))
    assert "undefined field" in faults(an_app(placement={"cel": "cluster.lables.a == 'b'"}))["spec.placement.cel"]
    assert "true or false" in faults(an_app(placement={"cel": "cluster.name"}))["spec.placement.cel"]
    assert "spec.placement.cel" in faults(an_app(placement={"cel": "cluster.capacity.cpu == 'a'"}))


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in ("Region", "Cluster", "Project", "Sentinel")])
def test_what_is_in_a_project_must_name_it(kind: str) -> None:
    found = faults({"apiVersion": "shoal.dev/v1", "kind": kind, "metadata": {"name": "a"}, "spec": {}})
    assert "metadata.project" in found


@pytest.mark.parametrize(
    "document",
    [None, [], {}, {"apiVersion": "v1", "kind": "App"}, {"apiVersion": "shoal.dev/v1", "kind": "Pod"}, "App"],
)
def test_what_is_no_object_of_ours_is_a_bad_request(document: Any) -> None:
    with pytest.raises(BadRequest):
        parse(document)


def test_an_object_as_it_was_read_can_be_applied_again() -> None:
    document = an_app()
    document["metadata"] |= {"id": "app_1", "version": 7, "generation": 2, "createdAt": "x", "updatedAt": "y"}
    document["status"] = {"anything": True}
    assert parse(document).ref.name == "web"


@pytest.mark.parametrize("name", ["", "UPPER", "a.b", "-a", "a" * 41, "ä", "a_b"])
def test_names_are_dns_labels_with_room_for_more(name: str) -> None:
    assert "metadata.name" in faults({**an_app(), "metadata": {"name": name, "project": "p", "environment": "e"}})


# Policies


def test_a_policy_of_an_unknown_kind_is_refused_when_it_is_written() -> None:
    found = faults(policy(openapi={"document": "x"}))
    assert "unknown field" in found["spec.openapi"]
    assert "keyAuth" in found["spec"]


def test_a_policy_has_exactly_one_kind() -> None:
    assert "spec.cors" in faults(policy(rateLimit={"limit": 1}, cors={"origins": ["*"]}))


GOOD_POLICIES: dict[str, dict[str, Any]] = {
    "keyAuth": {"locations": [{"header": "X-Key", "stripPrefix": "Key "}, {"bearer": {}}], "permissions": ["read"]},
    "jwt": {"jwksUri": "https://issuer.example.com/keys", "audiences": ["a"]},
    "rateLimit": {"limit": 10, "window": 60, "identifier": {"header": "X-User"}},
    "firewall": {"cidrs": ["10.0.0.0/8", "1.2.3.4"], "action": "deny"},
    "requestSize": {"maxBytes": "1Mi"},
    "cors": {"origins": ["https://a.example.com"], "methods": ["GET"]},
}


def test_every_kind_of_policy_is_tried_here() -> None:
    assert set(GOOD_POLICIES) == set(POLICY_KINDS)


@pytest.mark.parametrize("kind", sorted(GOOD_POLICIES))
def test_each_kind_of_policy_is_read(kind: str) -> None:
    spec = parse(policy(**{kind: GOOD_POLICIES[kind]})).spec
    assert isinstance(spec, PolicySpec)
    assert spec.kind == kind
    assert spec.config
    assert not spec.fail_open


@pytest.mark.parametrize("kind", sorted(GOOD_POLICIES))
def test_an_unknown_field_of_a_policy_is_refused(kind: str) -> None:
    assert f"spec.{kind}.zzz" in faults(policy(**{kind: {**GOOD_POLICIES[kind], "zzz": 1}}))


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"jwt": {}}, "spec.jwt"),
        ({"jwt": {"pem": "x"}}, "spec.jwt.pem"),
        ({"jwt": {"jwksUri": "https://a", "algorithms": ["none"]}}, "spec.jwt.algorithms"),
        ({"rateLimit": {}}, "spec.rateLimit.limit"),
        ({"rateLimit": {"limit": 0}}, "spec.rateLimit.limit"),
        ({"firewall": {}}, "spec.firewall"),
        ({"firewall": {"cidrs": ["300.0.0.0/8"]}}, "spec.firewall.cidrs[0]"),
        ({"requestSize": {}}, "spec.requestSize.maxBytes"),
        ({"cors": {"origins": ["*"], "credentials": True}}, "spec.cors.credentials"),
        ({"keyAuth": {}, "failOpen": True}, "spec.failOpen"),
        ({"keyAuth": {}, "match": [{"path": {}}]}, "spec.match[0].path"),
        ({"keyAuth": {}, "match": [{"path": {"regex": "("}}]}, "spec.match[0].path.regex"),
        ({"keyAuth": {}, "match": [{"path": {"regex": "(a)\\1"}}]}, "spec.match[0].path.regex"),
        ({"keyAuth": {}, "match": [{"method": ["get"]}]}, "spec.match[0].method"),
        ({"keyAuth": {}, "match": [{"cookie": {}}]}, "spec.match[0].cookie"),
    ],
)
def test_what_is_wrong_with_a_policy_is_found(spec: dict[str, Any], field: str) -> None:
    assert field in faults(policy(**spec))


def test_matchers_are_by_path_method_header_and_query() -> None:
    match = [
        {"path": {"prefix": "/api", "ignoreCase": True}},
        {"method": ["GET", "POST"]},
        {"header": {"name": "X-A"}},
        {"query": {"name": "q", "exact": "1"}},
    ]
    spec = parse(policy(keyAuth={}, match=match)).spec
    assert isinstance(spec, PolicySpec)
    assert [each.on for each in spec.match] == ["path", "method", "header", "query"]
    assert spec.match[2].text is not None and spec.match[2].text.operator == "present"


# Routes


def test_a_route_leads_to_apps_by_weight() -> None:
    spec = parse(
        doc(
            "Route",
            "r",
            {"host": "A.example.com".lower(), "backends": [{"app": "a", "weight": 90}, {"app": "b", "weight": 10}]},
        )
    ).spec
    assert isinstance(spec, RouteSpec)
    assert [(each.app, each.weight) for each in spec.backends] == [("a", 90), ("b", 10)]
    assert spec.policies is None


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"host": "bad host"}, "spec.host"),
        ({"host": "*"}, "spec.host"),
        ({"path": "api"}, "spec.path"),
        ({"backends": [{"app": "b"}]}, "spec.backends"),
        ({"sticky": {}}, "spec.sticky"),
        ({"redirect": {"code": 200}}, "spec.redirect"),
        ({"timeouts": {"total": -1}}, "spec.timeouts.total"),
        ({"mirror": {"percent": 5}}, "spec.mirror.app"),
        ({"headers": [{"exact": "x"}]}, "spec.headers[0].name"),
    ],
)
def test_what_is_wrong_with_a_route_is_found(spec: dict[str, Any], field: str) -> None:
    assert field in faults(route(**spec))


def test_weights_that_are_all_zero_lead_nowhere() -> None:
    assert "spec.backends" in faults(doc("Route", "r", {"host": "a.b", "backends": [{"app": "a", "weight": 0}]}))


# Secrets


def test_the_values_of_a_secret_are_in_no_fault_and_no_stored_form() -> None:
    document = doc("Secret", "s", {"values": {"TOKEN": 12345678, "1": "hunter2", "B": "x\0hunter3"}})
    with pytest.raises(Invalid) as caught:
        parse(document)
    for hidden in ("12345678", "hunter2", "hunter3"):
        assert hidden not in str(caught.value)
        assert hidden not in str(caught.value.status())
    good = parse(doc("Secret", "s", {"values": {"TOKEN": "hunter2"}}))
    assert good.raw == {"variables": ["TOKEN"]}
    assert isinstance(good.spec, SecretSpec)
    assert "hunter2" not in repr(good)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=10,
)
FIELDS = st.sampled_from(
    ["image", "env", "topology", "healthcheck", "resources", "placement", "git", "autoscaling", "host", "backends",
     "keyAuth", "match", "values", "region", "shards", "taints", "capacity", "policies", "tls", "mirror", "sentinel",
     "readiness", "http", "min", "regions", "expiresAt", "distances"]
)  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(kind=st.sampled_from(sorted(KINDS)), spec=st.dictionaries(FIELDS, JSON, max_size=6), extra=JSON)
def test_whatever_is_written_is_read_or_refused_and_never_breaks_the_reader(kind: str, spec: Any, extra: Any) -> None:
    document = doc(kind, "a", spec)
    document["metadata"]["labels"] = extra
    try:
        parse(document)
    except (Invalid, BadRequest):
        pass


@pytest.mark.parametrize(
    ("security", "field"),
    [
        ({"capabilities": ["CAP_CHOWN"]}, "spec.security.capabilities[0]"),
        ({"capabilities": ["ALL"]}, "spec.security.capabilities[0]"),
        ({"runAsUser": 0}, "spec.security.runAsUser"),
        ({"seccomp": "Localhost"}, "spec.security.seccomp"),
        ({"privileged": True}, "spec.security.privileged"),
        ({"runAsNonRoot": "yes"}, "spec.security.runAsNonRoot"),
    ],
)
def test_what_containers_may_do_is_checked_field_by_field(security: dict[str, Any], field: str) -> None:
    spec = {"image": "a", "topology": [{"region": "eu"}], "security": security}
    metadata = {"name": "web", "project": "shop", "environment": "prod"}
    with pytest.raises(Invalid) as refused:
        parse({"apiVersion": "shoal.dev/v1", "kind": "App", "metadata": metadata, "spec": spec})
    assert [error.field for error in refused.value.errors] == [field]
