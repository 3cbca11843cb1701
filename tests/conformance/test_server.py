"""Version, discovery in both forms, and what cannot be shown as a table."""

from __future__ import annotations

import pytest
from conformance_api import AGGREGATED, Api, Refused, conformance
from conformance_definitions import defined, definition

from shoal.testing.waiting import eventually_blocking

BUILT_IN = {
    ("admissionregistration.k8s.io", "v1", "validatingwebhookconfigurations"),
    ("apiextensions.k8s.io", "v1", "customresourcedefinitions"),
    ("apiregistration.k8s.io", "v1", "apiservices"),
    ("apps", "v1", "deployments"),
    ("authentication.k8s.io", "v1", "tokenreviews"),
    ("authorization.k8s.io", "v1", "selfsubjectaccessreviews"),
    ("autoscaling", "v1", "horizontalpodautoscalers"),
    ("autoscaling", "v2", "horizontalpodautoscalers"),
    ("batch", "v1", "jobs"),
    ("certificates.k8s.io", "v1", "certificatesigningrequests"),
    ("coordination.k8s.io", "v1", "leases"),
    ("discovery.k8s.io", "v1", "endpointslices"),
    ("events.k8s.io", "v1", "events"),
    ("networking.k8s.io", "v1", "ingresses"),
    ("node.k8s.io", "v1", "runtimeclasses"),
    ("policy", "v1", "poddisruptionbudgets"),
    ("scheduling.k8s.io", "v1", "priorityclasses"),
    ("storage.k8s.io", "v1", "csinodes"),
}


def aggregated(api: Api, path: str) -> set[tuple[str, str, str]]:
    """(group, version, resource) of everything in an aggregated discovery document."""
    response = api.send("GET", path, headers={"Accept": AGGREGATED})
    assert "as=APIGroupDiscoveryList" in response.headers["content-type"]
    document = response.json()
    assert (document["kind"], document["apiVersion"]) == ("APIGroupDiscoveryList", "apidiscovery.k8s.io/v2")
    return {
        (group["metadata"].get("name", ""), version["version"], resource["resource"])
        for group in document["items"]
        for version in group["versions"]
        for resource in version["resources"]
    }


@conformance("[sig-api-machinery] server version should find the server version [Conformance]")
def test_server_version(api: Api) -> None:
    version = api.get("/version")
    assert version["major"] == "1"
    assert version["minor"].rstrip("+").isdigit()


@conformance("[sig-api-machinery] Discovery should validate PreferredVersion for each APIGroup [Conformance]")
def test_preferred_version_is_one_of_the_versions(api: Api) -> None:
    groups = api.get("/apis/")["groups"]
    assert groups
    for name in [group["name"] for group in groups if not group["name"].endswith(".example.com")]:
        group = api.get(f"/apis/{name}/")
        assert group["preferredVersion"] in group["versions"], name


@conformance(
    "[sig-api-machinery] Discovery should locate the groupVersion and a resource within each APIGroup [Conformance]"
)
def test_group_versions_have_resources(api: Api) -> None:
    for group in api.get("/apis")["groups"]:
        for version in () if group["name"].endswith(".example.com") else group["versions"]:
            document = api.get(f"/apis/{version['groupVersion']}")
            assert document["groupVersion"] == version["groupVersion"]
            assert document["resources"]
    core = api.get("/api/v1")
    assert core["groupVersion"] == "v1"
    assert {"namespaces", "pods", "services"} <= {resource["name"] for resource in core["resources"]}


@conformance("[sig-api-machinery] AggregatedDiscovery should support aggregated discovery interface [Conformance]")
def test_aggregated_discovery_holds_every_group(api: Api) -> None:
    found = aggregated(api, "/apis")
    assert BUILT_IN <= found
    named = {group["name"] for group in api.get("/apis")["groups"] if not group["name"].endswith(".example.com")}
    assert named <= {group for group, _, _ in found}
    for group, version, plural in BUILT_IN:
        listed = api.get(f"/apis/{group}/{version}")["resources"]
        assert plural in [resource["name"] for resource in listed]


@conformance(
    "[sig-api-machinery] AggregatedDiscovery should support raw aggregated discovery endpoint Accept headers"
    " [Conformance]"
)
def test_aggregated_discovery_by_accept_header(api: Api) -> None:
    assert BUILT_IN <= aggregated(api, "/apis")
    assert ("", "v1", "namespaces") in aggregated(api, "/api")
    assert api.get("/apis")["kind"] == "APIGroupList"
    assert api.get("/api")["kind"] == "APIVersions"


@conformance(
    "[sig-api-machinery] AggregatedDiscovery should support raw aggregated discovery request for CRDs [Conformance]"
)
def test_definition_appears_in_aggregated_discovery(api: Api) -> None:
    with defined(api, definition(scope="Namespaced")) as crd:
        wanted = (crd["spec"]["group"], "v1", crd["spec"]["names"]["plural"])
        eventually_blocking(lambda: wanted in aggregated(api, "/apis"))
    eventually_blocking(lambda: wanted not in aggregated(api, "/apis"))


@conformance(
    "[sig-api-machinery] AggregatedDiscovery should support aggregated discovery interface for CRDs [Conformance]"
)
def test_definition_appears_in_both_forms_of_discovery(api: Api) -> None:
    with defined(api, definition(scope="Namespaced")) as crd:
        group, plural = crd["spec"]["group"], crd["spec"]["names"]["plural"]
        eventually_blocking(lambda: (group, "v1", plural) in aggregated(api, "/apis"))
        assert plural in [resource["name"] for resource in api.get(f"/apis/{group}/v1")["resources"]]


@conformance(
    "[sig-api-machinery] Servers with support for Table transformation should return a 406 for a backend which does"
    " not implement metadata [Conformance]"
)
def test_a_review_is_no_table(api: Api) -> None:
    review = {"spec": {"nonResourceAttributes": {"path": "/", "verb": "get"}}}
    with pytest.raises(Refused) as caught:
        api.send(
            "POST",
            "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
            review,
            headers={"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io"},
        )
    assert caught.value.code == 406
    assert caught.value.reason == "NotAcceptable"
