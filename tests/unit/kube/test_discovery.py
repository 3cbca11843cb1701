"""Discovery documents in both forms, and their change with the resources."""

from __future__ import annotations

from hashlib import sha512
from typing import Any

import orjson
import pytest

from shoal.kube.discovery import AGGREGATED_JSON, AggregatedVersion, DiscoveryDocuments, version_order, wants_aggregated
from shoal.kube.resources import BUILTIN, Resource, Subresource

SHIP = Resource(
    group="example.com",
    version="v1",
    plural="ships",
    kind="Ship",
    short_names=("sh",),
    categories=("all", "fleet"),
    status=True,
    custom=True,
    subresources=(
        Subresource("status", "Ship"),
        Subresource("scale", "Scale", group="autoscaling", version="v1"),
    ),
)


def read(discovery: DiscoveryDocuments, path: str, *, aggregated: bool = False) -> dict[str, Any]:
    document = discovery.get(path, aggregated=aggregated)
    assert document is not None, path
    content: dict[str, Any] = orjson.loads(document.body)
    return content


def entries(discovery: DiscoveryDocuments, path: str) -> dict[str, dict[str, Any]]:
    return {entry["name"]: entry for entry in read(discovery, path)["resources"]}


def test_api_names_the_core_version_and_the_server() -> None:
    assert read(DiscoveryDocuments(server_address="10.0.0.1:6443"), "/api") == {
        "kind": "APIVersions",
        "versions": ["v1"],
        "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": "10.0.0.1:6443"}],
    }


def test_every_group_has_a_preferred_version_that_it_also_lists() -> None:
    discovery = DiscoveryDocuments((*BUILTIN, SHIP))
    groups = read(discovery, "/apis")["groups"]
    assert {group["name"] for group in groups} == {r.group for r in (*BUILTIN, SHIP)} - {""}
    for group in groups:
        assert group["preferredVersion"] in group["versions"]
        assert read(discovery, f"/apis/{group['name']}") == {"kind": "APIGroup", "apiVersion": "v1", **group}


def test_every_listed_group_version_resolves_to_a_list_of_that_group_version() -> None:
    discovery = DiscoveryDocuments((*BUILTIN, SHIP))
    for group in read(discovery, "/apis")["groups"]:
        for version in group["versions"]:
            listed = read(discovery, f"/apis/{version['groupVersion']}")
            assert listed["kind"] == "APIResourceList"
            assert listed["groupVersion"] == version["groupVersion"]
            assert listed["resources"]


def test_every_resource_entry_has_the_keys_clients_require() -> None:
    discovery = DiscoveryDocuments()
    for group, version in discovery.group_versions():
        path = f"/apis/{group}/{version}" if group else f"/api/{version}"
        names = [entry["name"] for entry in read(discovery, path)["resources"]]
        assert names == sorted(names)
        for entry in entries(discovery, path).values():
            assert {"kind", "name", "namespaced", "singularName", "verbs"} <= entry.keys()
            assert entry["verbs"] == sorted(entry["verbs"])
            assert bool(entry["singularName"]) == ("/" not in entry["name"])


def test_pods_are_listed_as_kubectl_expects_them() -> None:
    assert entries(DiscoveryDocuments(), "/api/v1")["pods"] == {
        "name": "pods",
        "singularName": "pod",
        "namespaced": True,
        "kind": "Pod",
        "verbs": ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"],
        "shortNames": ["po"],
        "categories": ["all"],
        "storageVersionHash": "xPOwRZ+Yhw8=",
    }


def test_subresources_whose_kind_lives_elsewhere_say_where() -> None:
    core = entries(DiscoveryDocuments(), "/api/v1")
    for name, group, version, kind in (
        ("pods/eviction", "policy", "v1", "Eviction"),
        ("serviceaccounts/token", "authentication.k8s.io", "v1", "TokenRequest"),
        ("replicationcontrollers/scale", "autoscaling", "v1", "Scale"),
    ):
        assert (core[name]["group"], core[name]["version"], core[name]["kind"]) == (group, version, kind)
    assert "group" not in core["pods/log"]
    assert entries(DiscoveryDocuments(), "/apis/apps/v1")["deployments/scale"]["group"] == "autoscaling"


def test_all_versions_of_a_kind_share_the_hash_of_the_stored_one() -> None:
    discovery = DiscoveryDocuments()
    stored = entries(discovery, "/apis/autoscaling/v2")["horizontalpodautoscalers"]["storageVersionHash"]
    assert stored == "qwQve8ut294="
    assert entries(discovery, "/apis/autoscaling/v1")["horizontalpodautoscalers"]["storageVersionHash"] == stored
    events = entries(discovery, "/api/v1")["events"]["storageVersionHash"]
    assert events == entries(discovery, "/apis/events.k8s.io/v1")["events"]["storageVersionHash"] == "r2yiGXH7wu8="


def test_kinds_that_are_not_stored_have_no_hash() -> None:
    discovery = DiscoveryDocuments()
    assert "storageVersionHash" not in entries(discovery, "/api/v1")["componentstatuses"]
    reviews = entries(discovery, "/apis/authorization.k8s.io/v1")["subjectaccessreviews"]
    assert "storageVersionHash" not in reviews
    assert reviews["verbs"] == ["create"]


def test_unknown_paths_have_no_document() -> None:
    discovery = DiscoveryDocuments()
    for path in ("/api/v2", "/apis/none", "/apis/apps/v2", "/apis//v1", "/apis/apps/v1/more", "/", ""):
        assert discovery.get(path) is None, path


def test_a_trailing_slash_changes_nothing() -> None:
    discovery = DiscoveryDocuments()
    assert discovery.get("/apis/") == discovery.get("/apis")


def test_aggregated_documents_exist_for_both_roots_with_their_content_type_and_tag() -> None:
    discovery = DiscoveryDocuments()
    for path in ("/api", "/apis"):
        document = discovery.get(path, aggregated=True)
        assert document is not None
        assert document.content_type == AGGREGATED_JSON
        assert document.etag == f'"{sha512(document.body).hexdigest().upper()}"'
        content = orjson.loads(document.body)
        assert content["kind"] == "APIGroupDiscoveryList"
        assert content["apiVersion"] == "apidiscovery.k8s.io/v2"


def test_the_aggregated_core_group_is_one_item_without_a_name() -> None:
    items = read(DiscoveryDocuments(), "/api", aggregated=True)["items"]
    assert [item["metadata"].get("name", "") for item in items] == [""]
    pods = next(r for r in items[0]["versions"][0]["resources"] if r["resource"] == "pods")
    assert pods["scope"] == "Namespaced"
    assert pods["responseKind"] == {"group": "", "version": "v1", "kind": "Pod"}
    eviction = next(s for s in pods["subresources"] if s["subresource"] == "eviction")
    assert eviction["responseKind"] == {"group": "policy", "version": "v1", "kind": "Eviction"}


def test_both_forms_tell_the_same() -> None:
    discovery = DiscoveryDocuments((*BUILTIN, SHIP))
    for root in ("/api", "/apis"):
        for item in read(discovery, root, aggregated=True)["items"]:
            for version in item["versions"]:
                assert version["freshness"] == "Current"
                name = item["metadata"].get("name", "")
                path = f"/apis/{name}/{version['version']}" if name else f"/api/{version['version']}"
                plain = entries(discovery, path)
                told = {}
                for resource in version["resources"]:
                    told[resource["resource"]] = resource["verbs"]
                    for sub in resource.get("subresources", ()):
                        told[f"{resource['resource']}/{sub['subresource']}"] = sub["verbs"]
                assert told == {key: entry["verbs"] for key, entry in plain.items()}


def test_groups_come_by_priority_and_custom_ones_last_by_name() -> None:
    custom = [Resource(group=group, version="v1", plural="xs", kind="X", custom=True) for group in ("b.io", "a.io")]
    names = [
        item["metadata"]["name"]
        for item in read(DiscoveryDocuments((*custom, *BUILTIN)), "/apis", aggregated=True)["items"]
    ]
    assert names[:4] == ["apiregistration.k8s.io", "apps", "events.k8s.io", "authentication.k8s.io"]
    assert names[-2:] == ["a.io", "b.io"]


def test_the_preferred_version_comes_first() -> None:
    items = read(DiscoveryDocuments(), "/apis", aggregated=True)["items"]
    autoscaling = next(item for item in items if item["metadata"]["name"] == "autoscaling")
    assert [version["version"] for version in autoscaling["versions"]] == ["v2", "v1"]


def test_versions_are_preferred_as_kubernetes_does() -> None:
    expected = ["v10", "v2", "v1", "v11beta2", "v10beta3", "v3beta1", "v12alpha1", "v11alpha2", "foo1", "foo10", "v1x"]
    shuffled = [*expected[5:], *expected[:5]]
    assert sorted(shuffled, key=version_order) == expected


def test_a_new_custom_resource_shows_at_once_and_its_removal_too() -> None:
    discovery = DiscoveryDocuments()
    before = discovery.get("/apis", aggregated=True)
    assert discovery.get("/apis/example.com/v1") is None
    discovery.set_resources((*BUILTIN, SHIP))
    assert list(entries(discovery, "/apis/example.com/v1")) == ["ships", "ships/scale", "ships/status"]
    after = discovery.get("/apis", aggregated=True)
    assert before is not None and after is not None and before.etag != after.etag
    discovery.set_resources(BUILTIN)
    assert discovery.get("/apis/example.com") is None
    assert discovery.get("/apis", aggregated=True) == before


def test_documents_are_built_once() -> None:
    discovery = DiscoveryDocuments()
    first = discovery.get("/apis", aggregated=True)
    discovery.set_resources(list(BUILTIN))
    assert discovery.get("/apis", aggregated=True) is first


@pytest.mark.parametrize(
    ("accept", "wanted"),
    [
        ("application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json", True),
        ("application/json;as=APIGroupDiscoveryList;v=v2;g=apidiscovery.k8s.io", True),
        ("application/json; v=v2; as=APIGroupDiscoveryList; g=apidiscovery.k8s.io; profile=nopeer", True),
        ("application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json", False),
        (
            "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,"
            "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json",
            True,
        ),
        ("application/json,application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList", False),
        ("application/json;q=0.5,application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList;q=0.9", True),
        ("application/vnd.kubernetes.protobuf;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList", False),
        ("application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList;q=0", False),
        ("application/json;q=nonsense", False),
        ("*/*", False),
        ("", False),
    ],
)
def test_the_accept_header_chooses_the_form(accept: str, wanted: bool) -> None:
    assert wants_aggregated(accept) is wanted


def test_priorities_order_groups_and_versions() -> None:
    discovery = DiscoveryDocuments()
    ships = [Resource(group=g, version=v, plural="ships", kind="Ship", custom=True)
             for g, v in (("a.example", "v1"), ("a.example", "v2"), ("b.example", "v1"))]  # fmt: skip
    discovery.update((*BUILTIN, *ships), {("b.example", "v1"): (19000, 5), ("a.example", "v1"): (10, 200)}, ())
    listed = read(discovery, "/apis")["groups"]
    assert [group["name"] for group in listed][:3] == ["apiregistration.k8s.io", "b.example", "apps"]
    assert [each["version"] for each in read(discovery, "/apis/a.example")["versions"]] == ["v1", "v2"]


def test_group_versions_of_aggregated_servers_are_listed() -> None:
    discovery = DiscoveryDocuments()
    entries = (
        {"name": "ships/hold", "kind": "Hold", "namespaced": True, "verbs": ["get"], "version": "v9"},
        {"name": "ships", "singularName": "ship", "kind": "Ship", "namespaced": True, "verbs": ["list"],
         "shortNames": ["sh"]},
    )  # fmt: skip
    elsewhere = [
        AggregatedVersion("sea.example", "v1", entries),
        AggregatedVersion("old.example", "v1", (), stale=True),
    ]
    discovery.update(tuple(BUILTIN), {}, elsewhere)
    assert {"sea.example", "old.example"} <= {group["name"] for group in read(discovery, "/apis")["groups"]}
    assert discovery.get("/apis/sea.example/v1") is None  # its server answers
    found = {item["metadata"]["name"]: item for item in read(discovery, "/apis", aggregated=True)["items"]}
    assert found["old.example"]["versions"] == [{"version": "v1", "resources": [], "freshness": "Stale"}]
    assert found["sea.example"]["versions"][0]["resources"] == [
        {
            "resource": "ships",
            "responseKind": {"group": "sea.example", "version": "v1", "kind": "Ship"},
            "scope": "Namespaced",
            "singularResource": "ship",
            "verbs": ["list"],
            "shortNames": ["sh"],
            "subresources": [
                {
                    "subresource": "hold",
                    "responseKind": {"group": "sea.example", "version": "v9", "kind": "Hold"},
                    "verbs": ["get"],
                }
            ],
        }
    ]
