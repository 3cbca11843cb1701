"""Which resources act on a workload: one case per rule of Istio's."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from shoal.errors import NotFound
from shoal.kube.objects import Obj
from shoal.navigator.istio.analysis import acting_on
from shoal.navigator.istio.model import ROOT_NAMESPACE
from shoal.testing.meshes import bookshop, namespace, pod, service, thing

BOOKS = {"hosts": ["books"], "http": [{"route": [{"destination": {"host": "books"}}]}]}
LABELS = {"matchLabels": {"app": "books"}}
BOOKS_SELECTOR = {"selector": LABELS}
FULL = "books.default.svc.cluster.local"


def acting(name: str, *objects: Obj, namespace: str = "default", **more: Any) -> list[str]:
    return [it.name for it in acting_on(bookshop(*objects, **more), namespace, name)]


def reason(name: str, *objects: Obj, namespace: str = "default") -> str:
    (found,) = acting_on(bookshop(*objects), namespace, name)
    return found.reason


# --- VirtualService: (spec, namespace of it) -> the pods it acts on, of front-1, prod/books-1, ingress-1
ROUTES = {
    "without gateways it is for every sidecar": (BOOKS, "default", {"front-1", "prod/books-1"}),
    "mesh among the gateways is every sidecar": (BOOKS | {"gateways": ["edge", "mesh"]}, "default", {"front-1", "prod/books-1"}),
    "bound to a gateway it is for the gateway's pods alone": (BOOKS | {"gateways": ["edge"]}, ROOT_NAMESPACE, {"ingress-1"}),
    "a gateway of another namespace is named with it": (BOOKS | {"gateways": ["istio-system/edge"]}, "default", {"ingress-1"}),
    "a gateway's short name is of the route's own namespace": (BOOKS | {"gateways": ["edge"]}, "default", set()),
    "exported to its own namespace": (BOOKS | {"exportTo": ["."]}, "default", {"front-1"}),
    "exported to another namespace only": (BOOKS | {"exportTo": ["prod"]}, "default", {"prod/books-1"}),
    "exported to all": (BOOKS | {"exportTo": ["*"]}, "default", {"front-1", "prod/books-1"}),
    "exported to nobody": (BOOKS | {"exportTo": ["~"]}, "default", set()),
}  # fmt: skip
SEEN = {
    "front-1": ("default", "front-1"),
    "prod/books-1": ("prod", "books-1"),
    "ingress-1": (ROOT_NAMESPACE, "ingress-1"),
}
EDGE = thing(
    "gateways",
    "edge",
    {"selector": {"istio": "ingressgateway"}, "servers": [{"port": {"number": 80}, "hosts": ["*"]}]},
    namespace=ROOT_NAMESPACE,
)


@pytest.mark.parametrize("case", ROUTES)
def test_a_virtual_service_acts_where_its_gateways_and_its_audience_say(case: str) -> None:
    spec, home, expected = ROUTES[case]
    mesh = bookshop(EDGE, thing("virtualservices", "routes", spec, namespace=home))
    found = {name for name, (where, who) in SEEN.items() if "routes" in {it.name for it in acting_on(mesh, where, who)}}
    assert found == expected


def test_nothing_acts_on_a_pod_without_a_proxy() -> None:
    assert acting("ratings-1", thing("virtualservices", "routes", BOOKS), thing("peerauthentications", "all")) == []


def test_an_unknown_pod_is_an_error() -> None:
    with pytest.raises(NotFound):
        acting("nobody")


# --- Gateways


def test_a_gateway_with_an_empty_selector_is_for_gateways_and_not_for_every_sidecar() -> None:
    everywhere = thing("gateways", "everywhere", {"servers": []})
    assert acting("front-1", everywhere) == []
    assert acting("ingress-1", everywhere, namespace=ROOT_NAMESPACE) == ["everywhere"]


def test_a_gateway_acts_on_the_gateway_pods_that_it_selects() -> None:
    other = thing("gateways", "other", {"selector": {"istio": "egressgateway"}})
    assert acting("ingress-1", EDGE, other, namespace=ROOT_NAMESPACE) == ["edge"]


# --- Sidecar


def sidecar(name: str, *hosts: str, namespace: str = "default", labels: dict[str, str] | None = None) -> Obj:
    spec: Obj = {"egress": [{"hosts": list(hosts)}]}
    if labels:
        spec["workloadSelector"] = {"labels": labels}
    return thing("sidecars", name, spec, namespace=namespace)


def test_of_the_sidecars_the_most_specific_acts_alone() -> None:
    mesh_wide = sidecar("mesh", "*/*", namespace=ROOT_NAMESPACE)
    of_namespace = sidecar("plain", "*/*")
    of_pod = sidecar("chosen", "*/*", labels={"app": "front"})
    assert acting("front-1", mesh_wide, of_namespace, of_pod) == ["chosen"]
    assert acting("books-1", mesh_wide, of_namespace, of_pod) == ["plain"]
    assert acting("books-1", mesh_wide, of_namespace, of_pod, namespace="prod") == ["mesh"]
    assert acting("ingress-1", mesh_wide, namespace=ROOT_NAMESPACE) == [], "gateways have none"


def test_a_sidecar_hides_the_routes_of_what_it_does_not_import() -> None:
    routes = thing("virtualservices", "routes", BOOKS, namespace="prod")
    assert acting("front-1", sidecar("s", "./*"), routes) == ["s"]
    assert "routes" in acting("front-1", sidecar("s", "prod/*"), routes)
    assert "routes" in acting("front-1", sidecar("s", "*/books.prod.svc.cluster.local"), routes)
    assert "routes" not in acting("front-1", sidecar("s", "prod/ratings.prod.svc.cluster.local"), routes)
    assert "routes" in acting("front-1", thing("sidecars", "s"), routes), "without egress it imports all"


# --- DestinationRule


def rule(name: str, host: str = FULL, *, namespace: str = "default", **spec: Any) -> Obj:
    return thing("destinationrules", name, {"host": host, **spec}, namespace=namespace)


def test_a_destination_rule_acts_only_where_its_host_exists() -> None:
    assert acting("front-1", rule("books"), rule("nothing", "nothing.default.svc.cluster.local")) == ["books"]


def test_the_rule_of_the_callers_namespace_wins_then_the_services_then_the_roots() -> None:
    callers = rule("callers", namespace="prod")
    services = rule("services")
    roots = rule("roots", namespace=ROOT_NAMESPACE)
    assert acting("books-1", callers, services, roots, namespace="prod") == ["callers"]
    assert acting("books-1", services, roots, namespace="prod") == ["services"]
    assert acting("books-1", roots, namespace="prod") == ["roots"]


def test_the_exact_host_wins_over_a_wildcard_of_the_same_namespace() -> None:
    assert acting("front-1", rule("wide", "*.default.svc.cluster.local"), rule("exact")) == ["exact", "wide"]
    (exact, wide) = acting_on(
        bookshop(rule("wide", "*.default.svc.cluster.local"), rule("exact")), "default", "front-1"
    )
    assert FULL in exact.reason and FULL not in wide.reason


def test_a_short_host_is_of_the_rules_own_namespace() -> None:
    assert "books.prod.svc" in reason("front-1", rule("short", "books", namespace="prod"))
    assert acting("front-1", rule("dotted", "books.prod")) == [], "a name with a dot is taken as it is"


def test_a_rule_that_is_not_exported_acts_only_in_its_namespace() -> None:
    assert acting("books-1", rule("own", exportTo=["."]), namespace="prod") == []
    assert acting("front-1", rule("own", exportTo=["."])) == ["own"]


def test_a_rule_with_a_selector_is_for_the_callers_it_selects() -> None:
    chosen = rule("chosen", workloadSelector={"matchLabels": {"app": "front"}})
    assert acting("front-1", chosen) == ["chosen"]
    assert acting("books-1", chosen) == []


def test_a_rule_for_a_service_entry_acts() -> None:
    entry = thing("serviceentries", "outside", {"hosts": ["api.example.com"]})
    assert acting("front-1", entry, rule("r", "*.example.com")) == ["r", "outside"]


# --- ServiceEntry


def test_a_service_entry_acts_where_it_is_visible_and_on_its_own_pods() -> None:
    entry = thing("serviceentries", "outside", {"hosts": ["api.example.com"], "exportTo": ["."]})
    assert acting("front-1", entry) == ["outside"]
    assert acting("books-1", entry, namespace="prod") == []
    own = thing(
        "serviceentries", "own", {"hosts": ["vm.example.com"], "workloadSelector": {"labels": {"app": "books"}}}
    )
    assert "endpoint" in reason("books-1", own)
    assert "call" in reason("front-1", own)


# --- policies: (namespace, spec) -> acts on default/books-1, default/front-1, prod/books-1
POLICIES: dict[str, tuple[str, Obj, set[str]]] = {
    "in its namespace by selector": ("default", BOOKS_SELECTOR, {"default/books-1"}),
    "in its namespace on all": ("default", {}, {"default/books-1", "default/front-1"}),
    "in the root namespace on all": (ROOT_NAMESPACE, {}, {"default/books-1", "default/front-1", "prod/books-1"}),
    "in the root namespace by selector in every namespace": (ROOT_NAMESPACE, BOOKS_SELECTOR, {"default/books-1", "prod/books-1"}),
    "with a selector that matches nothing": ("default", {"selector": {"matchLabels": {"app": "x"}}}, set()),
    "with a target that is no gateway of this pod": ("default", {"targetRefs": [{"kind": "Service", "name": "books"}]}, set()),
}  # fmt: skip
PLACES = (("default", "books-1"), ("default", "front-1"), ("prod", "books-1"))


@pytest.mark.parametrize("case", POLICIES)
@pytest.mark.parametrize("kind", ["authorizationpolicies", "requestauthentications", "wasmplugins"])
def test_a_policy_acts_by_namespace_and_selector(kind: str, case: str) -> None:
    home, spec, expected = POLICIES[case]
    mesh = bookshop(thing(kind, "policy", spec, namespace=home))
    assert {f"{where}/{who}" for where, who in PLACES if acting_on(mesh, where, who)} == expected


def test_an_envoy_filter_acts_by_its_workload_selector() -> None:
    filter_ = thing("envoyfilters", "f", {"workloadSelector": {"labels": {"app": "books"}}})
    assert acting("books-1", filter_) == ["f"]
    assert acting("front-1", filter_) == []


def test_a_policy_that_targets_a_gateway_acts_on_its_pods() -> None:
    ref = {"group": "networking.istio.io", "kind": "Gateway", "name": "edge"}
    policy = thing("authorizationpolicies", "p", {"targetRefs": [ref]}, namespace=ROOT_NAMESPACE)
    assert acting("ingress-1", EDGE, policy, namespace=ROOT_NAMESPACE) == ["p", "edge"]
    elsewhere = thing("authorizationpolicies", "p", {"targetRefs": [ref]})
    assert acting("ingress-1", EDGE, elsewhere, namespace=ROOT_NAMESPACE) == ["edge"], "only in the gateway's namespace"


def test_a_policy_that_targets_a_gateway_of_the_gateway_api_acts_on_its_instances() -> None:
    instance = pod("gw-1", {"gateway.networking.k8s.io/gateway-name": "gw"}, proxy="router")
    ref = {"group": "gateway.networking.k8s.io", "kind": "Gateway", "name": "gw"}
    policy = thing("authorizationpolicies", "p", {"targetRefs": [ref]})
    assert acting("gw-1", policy, pods=(instance,)) == ["p"]
    assert acting("front-1", policy, pods=(instance,)) == []


def test_a_policy_that_targets_a_service_acts_on_the_waypoint_that_the_service_uses() -> None:
    labels = {"gateway.networking.k8s.io/gateway-name": "way", "gateway.istio.io/managed": "istio.io-mesh-controller"}
    waypoint = pod("way-1", labels, proxy="router")
    used = service("orders")
    used["metadata"]["labels"] = {"istio.io/use-waypoint": "way"}
    policy = thing("authorizationpolicies", "p", {"targetRefs": [{"kind": "Service", "name": "orders"}]})
    other = thing("authorizationpolicies", "o", {"targetRefs": [{"kind": "Service", "name": "books"}]})
    plain = thing("authorizationpolicies", "plain", {})
    assert acting("way-1", policy, other, plain, pods=(waypoint,), services=(used,)) == ["p"]


# --- PeerAuthentication


def peer(name: str, mode: str = "", *, namespace: str = "default", created: int = 0, **spec: Any) -> Obj:
    mtls = {"mtls": {"mode": mode}} if mode else {}
    return thing("peerauthentications", name, {**mtls, **spec}, namespace=namespace, created=created)


def reasons(*objects: Obj) -> dict[str, str]:
    return {it.name: it.reason for it in acting_on(bookshop(*objects), "default", "books-1")}


def test_the_most_specific_peer_authentication_decides() -> None:
    found = reasons(
        peer("mesh", "STRICT", namespace=ROOT_NAMESPACE),
        peer("here", "PERMISSIVE"),
        peer("books", "DISABLE", selector=LABELS),
    )
    assert "decides mutual TLS: DISABLE" in found["books"]
    assert "overridden by default/books" in found["here"]
    assert "overridden by default/books" in found["mesh"]


def test_an_unset_peer_authentication_lets_the_next_decide() -> None:
    found = reasons(
        peer("mesh", "STRICT", namespace=ROOT_NAMESPACE), peer("here", "UNSET"), peer("books", selector=LABELS)
    )
    assert "decides mutual TLS: STRICT" in found["mesh"]
    assert "decides" not in found["here"] + found["books"]


def test_of_two_for_one_namespace_the_older_takes_effect() -> None:
    assert reasons(peer("new", "DISABLE", created=2), peer("old", "STRICT", created=1)).keys() == {"old"}


def test_peer_authentications_do_not_act_on_gateways() -> None:
    assert acting("ingress-1", peer("mesh", "STRICT", namespace=ROOT_NAMESPACE), namespace=ROOT_NAMESPACE) == []


def test_only_mutual_tls_and_authorization_act_on_ambient_pods() -> None:
    ambient = pod("amb-1", {"app": "amb"}, proxy="ztunnel")
    objects = (
        peer("p", "STRICT"), thing("authorizationpolicies", "a"), thing("virtualservices", "routes", BOOKS),
        thing("envoyfilters", "f"), rule("r"),
    )  # fmt: skip
    assert acting("amb-1", *objects, pods=(ambient,)) == ["a", "p"]


def test_a_namespaces_labels_can_choose_the_waypoint_of_its_services() -> None:
    labels = {"gateway.networking.k8s.io/gateway-name": "way", "gateway.istio.io/managed": "istio.io-mesh-controller"}
    policy = thing("authorizationpolicies", "p", {"targetRefs": [{"kind": "Service", "name": "books"}]})
    mesh = bookshop(policy, pods=(pod("way-1", labels, proxy="router"),))
    assert acting_on(mesh, "default", "way-1") == []
    chosen = replace(mesh, namespaces=(namespace("default", {"istio.io/use-waypoint": "way"}),))
    assert [it.name for it in acting_on(chosen, "default", "way-1")] == ["p"]
