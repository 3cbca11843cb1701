"""The mistakes that are found, each with a similar configuration that is correct."""

from __future__ import annotations

from typing import Any

import pytest

from shoal.kube.objects import Obj
from shoal.navigator.istio.analysis import mistakes
from shoal.navigator.istio.mistakes.routes import takes_all
from shoal.navigator.istio.model import ROOT_NAMESPACE
from shoal.testing.meshes import bookshop, route_to, thing

FULL = "books.default.svc.cluster.local"
EDGE = {"selector": {"istio": "ingressgateway"}, "servers": [{"port": {"number": 80}, "hosts": ["*.example.com"]}]}


def virtual(name: str = "v", *http: Obj, namespace: str = "default", hosts: Any = ("books",), **more: Any) -> Obj:
    routes = list(http) or [route_to({"host": FULL})]
    return thing("virtualservices", name, {"hosts": list(hosts), "http": routes, **more}, namespace=namespace)


def rule(name: str = "r", host: str = FULL, *subsets: str, namespace: str = "default", **more: Any) -> Obj:
    spec: Obj = {"host": host, **more}
    if subsets:
        spec["subsets"] = [{"name": it, "labels": {"version": it}} for it in subsets]
    return thing("destinationrules", name, spec, namespace=namespace)


def peer(mode: str, name: str = "p", *, created: int = 0, **more: Any) -> Obj:
    return thing("peerauthentications", name, {"mtls": {"mode": mode}, **more}, created=created)


def gateway(name: str = "edge", namespace: str = "default", **changed: Any) -> Obj:
    return thing("gateways", name, EDGE | changed, namespace=namespace)


def tls(mode: str) -> dict[str, Any]:
    return {"trafficPolicy": {"tls": {"mode": mode}}}


# what is in the mesh -> "code Kind/name path" of each mistake
CASES: dict[str, tuple[list[Obj], list[str]]] = {
    "nothing wrong": ([virtual(), rule("r", FULL, "v1", "v2"), gateway()], []),
    "two VirtualServices on one host": (
        [virtual("a"), virtual("b", hosts=[FULL], namespace="prod")],
        ["host-claimed-twice VirtualService/a spec.hosts", "host-claimed-twice VirtualService/b spec.hosts"],
    ),
    "one VirtualService that names its host twice": ([virtual("a", hosts=["books", FULL])], []),
    "a Sidecar of the root namespace selects only there": (
        [thing("sidecars", "s", {"workloadSelector": {"labels": {"app": "books"}}}, namespace=ROOT_NAMESPACE)],
        ["selector-matches-nothing Sidecar/s spec.workloadSelector"],
    ),
    "the same host for different namespaces": (
        [virtual("a", exportTo=["."]), virtual("b", hosts=[FULL], namespace="prod", exportTo=["."])],
        [],
    ),
    "the same short host in two namespaces is two hosts": ([virtual("a"), virtual("b", namespace="prod")], []),
    "two on one host at a gateway are merged": (
        [gateway(), *(virtual(n, hosts=["x.example.com"], gateways=["edge"]) for n in "ab")],
        [],
    ),
    "a missing host": ([virtual("v", route_to({"host": "bokks"}))], ["unknown-host VirtualService/v spec.http[0].route[0].destination.host"]),
    "a name with a dot": ([virtual("v", route_to({"host": "books.prod"}))], ["unknown-host VirtualService/v spec.http[0].route[0].destination.host"]),
    "a mirror to a missing host": (
        [virtual("v", route_to({"host": "books"}, mirror={"host": "shadow"}))],
        ["unknown-host VirtualService/v spec.http[0].mirror.host"],
    ),
    "a host of a ServiceEntry": (
        [virtual("v", route_to({"host": "api.example.com"})), thing("serviceentries", "s", {"hosts": ["*.example.com"]})],
        [],
    ),
    "a host of a ServiceEntry that is not exported here": (
        [
            virtual("v", route_to({"host": "api.example.com"})),
            thing("serviceentries", "s", {"hosts": ["api.example.com"], "exportTo": ["."]}, namespace="prod"),
        ],
        ["unknown-host VirtualService/v spec.http[0].route[0].destination.host"],
    ),
    "a port that the service has not": (
        [virtual("v", route_to({"host": "books", "port": {"number": 81}}))],
        ["unknown-port VirtualService/v spec.http[0].route[0].destination.port.number"],
    ),
    "a subset without a rule": (
        [virtual("v", route_to({"host": "books", "subset": "v1"}))],
        ["unknown-subset VirtualService/v spec.http[0].route[0].destination.subset"],
    ),
    "a subset that the rule has not": (
        [virtual("v", route_to({"host": "books", "subset": "v3"})), rule("r", FULL, "v1", "v2")],
        ["unknown-subset VirtualService/v spec.http[0].route[0].destination.subset"],
    ),
    "a subset of a rule that is visible": ([virtual("v", route_to({"host": "books", "subset": "v2"})), rule("r", "books", "v1", "v2")], []),
    "a subset of a rule that is not exported": (
        [
            virtual("v", route_to({"host": FULL, "subset": "v1"}), namespace="prod", hosts=[FULL]),
            rule("r", FULL, "v1", exportTo=["."]),
        ],
        ["unknown-subset VirtualService/v spec.http[0].route[0].destination.subset"],
    ),
    "a missing gateway": ([virtual(gateways=["edgy"]), gateway()], ["unknown-gateway VirtualService/v spec.gateways[0]"]),
    "a gateway that does not serve the host": (
        [virtual(gateways=["edge"], hosts=["books.example.org"]), gateway()],
        ["gateway-does-not-serve-host VirtualService/v spec.gateways[0]"],
    ),
    "a gateway that serves the host": ([virtual(gateways=["edge"], hosts=["books.example.com"]), gateway()], []),
    "a gateway that serves the host to another namespace": (
        [
            virtual(gateways=["edge"], hosts=["books.example.com"]),
            gateway(servers=[{"port": {"number": 80}, "hosts": ["prod/*.example.com"]}]),
        ],
        ["gateway-does-not-serve-host VirtualService/v spec.gateways[0]"],
    ),
    "a route after one for everything": (
        [virtual("v", route_to({"host": "books"}), route_to({"host": "books"}, match=[{"uri": {"prefix": "/a"}}]))],
        ["route-never-reached VirtualService/v spec.http[1]"],
    ),
    "a rule for a missing host": ([rule("r", "nobody.default.svc.cluster.local")], ["unknown-host DestinationRule/r spec.host"]),
    "a rule for a wildcard that means something": ([rule("r", "*.prod.svc.cluster.local")], []),
    "a subset without pods": ([rule("r", FULL, "v9")], ["subset-selects-nothing DestinationRule/r spec.subsets[0].labels"]),
    "two rules with the same subset": (
        [rule("a", FULL, "v1"), rule("b", "books", "v1")],
        ["rules-contradict DestinationRule/a spec.subsets", "rules-contradict DestinationRule/b spec.subsets"],
    ),
    "two rules with different subsets are merged": ([rule("a", FULL, "v1"), rule("b", "books", "v2")], []),
    "plain text to strict pods": ([rule(**tls("DISABLE")), peer("STRICT")], ["mtls-mismatch DestinationRule/r spec.trafficPolicy.tls.mode"]),
    "plain text to permissive pods": ([rule(**tls("DISABLE")), peer("PERMISSIVE")], []),
    "mutual TLS to pods that have it off": ([rule(**tls("ISTIO_MUTUAL")), peer("DISABLE")], ["mtls-mismatch DestinationRule/r spec.trafficPolicy.tls.mode"]),
    "mutual TLS to a pod without a proxy": (
        [rule("r", "ratings.default.svc.cluster.local", **tls("ISTIO_MUTUAL"))],
        ["mtls-mismatch DestinationRule/r spec.trafficPolicy.tls.mode"],
    ),
    "mutual TLS to strict pods": ([rule(**tls("ISTIO_MUTUAL")), peer("STRICT")], []),
    "a gateway without pods": ([gateway(selector={"istio": "egress"})], ["selector-matches-nothing Gateway/edge spec.selector"]),
    "a gateway that selects a sidecar": ([gateway(selector={"app": "books"})], ["selector-matches-nothing Gateway/edge spec.selector"]),
    "two gateways on one port and host": (
        [gateway(), gateway("two", servers=[{"port": {"number": 80}, "hosts": ["*"]}])],
        ["gateways-overlap Gateway/edge spec.servers"],
    ),
    "two gateways on two ports": ([gateway(), gateway("two", servers=[{"port": {"number": 443}, "hosts": ["*"]}])], []),
    "a policy that selects nothing": (
        [thing("authorizationpolicies", "a", {"selector": {"matchLabels": {"app": "bokks"}}})],
        ["selector-matches-nothing AuthorizationPolicy/a spec.selector"],
    ),
    "a policy of the root namespace that selects elsewhere": (
        [thing("authorizationpolicies", "a", {"selector": {"matchLabels": {"app": "books"}}}, namespace=ROOT_NAMESPACE)],
        [],
    ),
    "an EnvoyFilter that selects nothing": (
        [thing("envoyfilters", "f", {"workloadSelector": {"labels": {"app": "x"}}})],
        ["selector-matches-nothing EnvoyFilter/f spec.workloadSelector"],
    ),
    "a missing target": (
        [thing("authorizationpolicies", "a", {"targetRefs": [{"kind": "Service", "name": "bokks"}]})],
        ["unknown-target AuthorizationPolicy/a spec.targetRefs[0]"],
    ),
    "both selector and targets": (
        [
            thing(
                "authorizationpolicies",
                "a",
                {"targetRefs": [{"kind": "Service", "name": "books"}], "selector": {"matchLabels": {"app": "books"}}},
            )
        ],
        ["selector-and-targets AuthorizationPolicy/a spec.targetRefs"],
    ),
    "two PeerAuthentications for a namespace": (
        [peer("STRICT", "old", created=1), peer("DISABLE", "new", created=2)],
        ["not-heard PeerAuthentication/new metadata.name"],
    ),
    "two Sidecars for a namespace": (
        [thing("sidecars", "a", created=1), thing("sidecars", "b", created=2)],
        ["not-heard Sidecar/b metadata.name"],
    ),
    "exported to a missing namespace": ([virtual(exportTo=["prd"])], ["unknown-namespace VirtualService/v spec.exportTo[0]"]),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_exactly_the_expected_mistakes_are_found(case: str) -> None:
    objects, expected = CASES[case]
    found = mistakes(bookshop(*objects))
    assert sorted(f"{it.code} {it.kind}/{it.name} {it.path}" for it in found) == sorted(expected)
    assert all(it.message and it.fix for it in found)


def test_a_fix_suggests_the_nearest_known_name() -> None:
    def fix(*objects: Obj) -> str:
        return mistakes(bookshop(*objects))[0].fix

    assert fix(virtual("v", route_to({"host": "bokks"}))) == f"did you mean {FULL}?"
    assert "write books.prod.svc.cluster.local" in fix(virtual("v", route_to({"host": "books.prod"})))
    assert fix(virtual(gateways=["edgy"]), gateway()) == "did you mean default/edge?"
    assert "v1, v2" in fix(virtual("v", route_to({"host": "books", "subset": "canary"})), rule("r", FULL, "v1", "v2"))


def test_errors_come_first_and_name_what_they_contradict() -> None:
    found = mistakes(bookshop(rule("r", FULL, "v9", **tls("DISABLE")), peer("STRICT")))
    assert [it.severity for it in found] == ["error", "warning"]
    assert found[0].related == ("PeerAuthentication/default/p",)


ANY: list[Obj] = []
PATH_A = [{"uri": {"prefix": "/a"}}]
COVERED = {
    "everything takes all": (ANY, PATH_A, True),
    "a path does not take everything": (PATH_A, ANY, False),
    "the root path takes everything": ([{"uri": {"prefix": "/"}}], ANY, True),
    "a prefix takes a longer prefix": (PATH_A, [{"uri": {"prefix": "/a/b"}}], True),
    "a prefix takes an exact path": (PATH_A, [{"uri": {"exact": "/a/b"}}], True),
    "an exact path does not take a prefix": ([{"uri": {"exact": "/a"}}], PATH_A, False),
    "with a header it takes less": ([PATH_A[0] | {"headers": {"x": {"exact": "1"}}}], PATH_A, False),
    "without the header it takes more": (PATH_A, [PATH_A[0] | {"headers": {"x": {"exact": "1"}}}], True),
    "two of which each takes one": (
        [*PATH_A, {"uri": {"prefix": "/b"}}],
        [{"uri": {"exact": "/a"}}, {"uri": {"exact": "/b"}}],
        True,
    ),
    "two of which one is left": (PATH_A, [{"uri": {"exact": "/a"}}, {"uri": {"exact": "/b"}}], False),
    "another method": ([{"method": {"exact": "GET"}}], [{"method": {"exact": "POST"}}], False),
    "a port of its own": ([{"port": 80}], [{"port": 81}], False),
    "an expression is not judged": ([{"uri": {"regex": "/.*"}}], PATH_A, False),
    "the same expression is": ([{"uri": {"regex": "/.*"}}], [{"uri": {"regex": "/.*"}}], True),
    "case matters": (PATH_A, [PATH_A[0] | {"ignoreUriCase": True}], False),
}


@pytest.mark.parametrize("case", COVERED)
def test_a_route_is_shadowed_only_by_a_route_that_surely_matches_all_its_requests(case: str) -> None:
    earlier, later, expected = COVERED[case]
    assert takes_all(earlier, later) is expected
