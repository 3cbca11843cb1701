"""OpenAPI v3: the index, the documents, what kubectl needs of them, and changes of custom resources."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import orjson
import pytest
from openapi_spec_validator import OpenAPIV30SpecValidator

from shoal.errors import NotAcceptable
from shoal.kube.openapi import OpenApi, v3
from shoal.kube.resources import BUILTIN, Resource, Subresource

GVK = "x-kubernetes-group-version-kind"
METHODS = ("get", "put", "post", "delete", "patch", "head", "options")
SHIP = Resource(
    group="example.com",
    version="v1",
    plural="ships",
    kind="Ship",
    status=True,
    custom=True,
    subresources=(
        Subresource("status", "Ship"),
        Subresource("scale", "Scale", group="autoscaling", version="v1"),
    ),
)
PORT = Resource(group="example.org", version="v1beta1", plural="ports", kind="Port", namespaced=False, custom=True)
SHIP_SCHEMA = {
    "type": "object",
    "description": "A ship.",
    "properties": {
        "spec": {
            "type": "object",
            "required": ["size"],
            "properties": {
                "size": {"type": "integer", "minimum": 1},
                "cargo": {"x-kubernetes-int-or-string": True, "anyOf": [{"type": "integer"}, {"type": "string"}]},
                "boat": {"type": "object", "x-kubernetes-embedded-resource": True, "required": ["spec"]},
            },
        }
    },
}


@cache
def documents() -> dict[str, dict[str, Any]]:
    """Every document, with two custom resources among them."""
    openapi = OpenApi()
    openapi.set_custom([(SHIP, SHIP_SCHEMA), (PORT, None)])
    return {name: read(openapi, f"/openapi/v3/{name}") for name in names(openapi)}


def names(openapi: OpenApi) -> list[str]:
    return list(orjson.loads(openapi.index().body)["paths"])


def address(openapi: OpenApi, name: str) -> str:
    found: str = orjson.loads(openapi.index().body)["paths"][name]["serverRelativeURL"]
    return found


def read(openapi: OpenApi, path: str) -> dict[str, Any]:
    answer = openapi.resolve(path)
    assert answer is not None and answer.status == 200, path
    content: dict[str, Any] = orjson.loads(answer.body)
    return content


def operations(document: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, item in document["paths"].items():
        for method in METHODS:
            if method in item:
                yield path, method, item[method]


def references(value: Any) -> Iterator[str]:
    """Every reference; a property of that name is not one, and a default value holds none."""
    if isinstance(value, list):
        for part in value:
            yield from references(part)
    elif isinstance(value, dict):
        for key, part in value.items():
            if key == "$ref" and isinstance(part, str):
                yield part
            elif key in ("properties", "responses"):
                yield from references(list(part.values()))
            elif key not in ("default", "enum", "example"):
                yield from references(part)


def document_of(resource: Resource) -> dict[str, Any]:
    prefix = f"apis/{resource.group}/{resource.version}" if resource.group else f"api/{resource.version}"
    return documents()[prefix]


def kind_of(resource: Resource) -> dict[str, str]:
    return {"group": resource.group, "version": resource.version, "kind": resource.kind}


def schema_of(resource: Resource, kind: str = "") -> dict[str, Any]:
    wanted = kind_of(resource) | ({"kind": kind} if kind else {})
    found = [s for s in document_of(resource)["components"]["schemas"].values() if wanted in (s.get(GVK) or ())]
    assert len(found) == 1, (resource, len(found))
    schema: dict[str, Any] = found[0]
    return schema


# The index and the addresses.


def test_the_index_names_every_group_version_and_the_roots() -> None:
    openapi = OpenApi()
    expected = {f"apis/{r.group}/{r.version}" if r.group else f"api/{r.version}" for r in BUILTIN}
    assert set(names(openapi)) == expected | {"api", "apis", "version"}
    for name in names(openapi):
        assert address(openapi, name).startswith(f"/openapi/v3/{name}?hash=")


def test_the_index_costs_no_document(monkeypatch: pytest.MonkeyPatch) -> None:
    def unwanted() -> dict[str, Any]:
        raise AssertionError("the descriptions were read")

    monkeypatch.setattr(v3, "described_definitions", unwanted)
    assert OpenApi().index().status == 200


def test_a_document_requested_with_its_hash_can_be_cached_without_limit() -> None:
    openapi = OpenApi()
    path, _, hash = address(openapi, "apis/apps/v1").partition("?hash=")
    answer = openapi.resolve(path, hash)
    assert answer is not None
    assert answer.status == 200
    assert "immutable" in answer.headers["Cache-Control"]
    assert answer.headers["ETag"] == f'"{hash}"'
    assert answer.headers["Vary"] == "Accept"
    assert answer.content_type == "application/json"


def test_a_wrong_hash_leads_to_the_right_address() -> None:
    openapi = OpenApi()
    answer = openapi.resolve("/openapi/v3/apis/apps/v1", "STALE")
    assert answer is not None
    assert answer.status == 301
    assert answer.headers["Location"] == address(openapi, "apis/apps/v1")


def test_without_a_hash_the_document_is_not_kept_for_ever() -> None:
    answer = OpenApi().resolve("/openapi/v3/api/v1")
    assert answer is not None
    assert "Cache-Control" not in answer.headers
    assert answer.headers["ETag"]


def test_unknown_documents_are_not_there() -> None:
    for path in ("/openapi/v3/apis/none/v1", "/openapi/v3/apis/apps", "/openapi/v4"):
        assert OpenApi().resolve(path) is None


def test_only_types_that_can_be_written_are_accepted() -> None:
    openapi = OpenApi()
    for accept in ("", "*/*", "application/json", "application/json, */*", "text/html,application/*;q=0.8"):
        assert openapi.resolve("/openapi/v3", "", accept) is not None
    with pytest.raises(NotAcceptable):
        openapi.resolve("/openapi/v3", "", "application/com.github.proto-openapi.spec.v3@v1.0+protobuf")


def test_hashes_are_the_same_in_every_process_and_differ_by_document() -> None:
    first, second = OpenApi(), OpenApi()
    assert first.index().body == second.index().body
    hashes = [address(first, name).partition("?hash=")[2] for name in names(first)]
    assert len(set(hashes)) == len(hashes)


# What is in the documents.


@pytest.mark.parametrize(
    "name", ["api/v1", "apis/apps/v1", "apis/apiextensions.k8s.io/v1", "apis/example.com/v1", "version"]
)
def test_documents_are_valid_openapi(name: str) -> None:
    assert [str(error)[:200] for error in OpenAPIV30SpecValidator(documents()[name]).iter_errors()] == []


def test_every_reference_resolves_within_its_document() -> None:
    for name, document in documents().items():
        schemas = document["components"]["schemas"]
        found = set(references(document))
        assert found, name
        for reference in found:
            prefix, _, schema = reference.rpartition("/")
            assert prefix == "#/components/schemas"
            assert schema in schemas, (name, reference)


def test_references_have_no_siblings() -> None:
    def check(value: Any) -> None:
        if isinstance(value, list):
            for part in value:
                check(part)
        elif isinstance(value, dict):
            if isinstance(value.get("$ref"), str):
                assert len(value) == 1, value
            for key, part in value.items():
                if key == "properties":
                    check(list(part.values()))
                elif key != "default":
                    check(part)

    for document in documents().values():
        check(document["components"]["schemas"])


def test_every_schema_in_a_document_is_used() -> None:
    for name, document in documents().items():
        used = {reference.rpartition("/")[2] for reference in references(document)}
        assert document["components"]["schemas"].keys() == used, name


@pytest.mark.parametrize("resource", [*BUILTIN, SHIP, PORT], ids=lambda r: f"{r.group}/{r.version}/{r.kind}")
def test_every_kind_has_a_schema_and_patches_that_validate_fields(resource: Resource) -> None:
    assert schema_of(resource)["type"] == "object"
    patches = [
        operation
        for _, method, operation in operations(document_of(resource))
        if method == "patch" and operation[GVK] == kind_of(resource)
    ]
    assert bool(patches) == ("patch" in resource.verbs)
    for patch in patches:  # kubectl looks at any one of them
        asked = {p["name"]: p for p in patch["parameters"] if p["in"] == "query"}
        assert {"fieldValidation", "dryRun", "fieldManager", "force"} <= asked.keys()
        types = patch["requestBody"]["content"].keys()
        assert {"application/json-patch+json", "application/merge-patch+json", "application/apply-patch+yaml"} <= types
        assert ("application/strategic-merge-patch+json" in types) == (not resource.custom)


@pytest.mark.parametrize("resource", [*BUILTIN, SHIP, PORT], ids=lambda r: f"{r.group}/{r.version}/{r.kind}")
def test_every_verb_has_its_operations(resource: Resource) -> None:
    root = f"/apis/{resource.group}/{resource.version}" if resource.group else f"/api/{resource.version}"
    everywhere = f"{root}/{resource.plural}"
    collection = f"{root}/namespaces/{{namespace}}/{resource.plural}" if resource.namespaced else everywhere
    where = {
        "list": (collection, "get"),
        "create": (collection, "post"),
        "deletecollection": (collection, "delete"),
        "get": (f"{collection}/{{name}}", "get"),
        "update": (f"{collection}/{{name}}", "put"),
        "patch": (f"{collection}/{{name}}", "patch"),
        "delete": (f"{collection}/{{name}}", "delete"),
    }
    found = {(path, method): operation for path, method, operation in operations(document_of(resource))}
    for verb, place in where.items():
        assert (place in found) == (verb in resource.verbs), (verb, place)
    if resource.namespaced and "list" in resource.verbs:
        assert found[everywhere, "get"]["operationId"].endswith("ForAllNamespaces")
    for sub in resource.subresources:
        assert any(path == f"{collection}/{{name}}/{sub.name}" for path, _ in found)


def test_operations_have_unique_ids_and_declare_the_parameters_of_their_path() -> None:
    for document in documents().values():
        ids = [operation["operationId"] for _, _, operation in operations(document)]
        assert len(set(ids)) == len(ids)
        for path, _, operation in operations(document):
            given = [*document["paths"][path].get("parameters", ()), *operation.get("parameters", ())]
            declared = {p["name"] for p in given if p["in"] == "path"}
            assert declared == {part[1:-1] for part in path.split("/") if part.startswith("{")}
            assert len({(p["name"], p["in"]) for p in given}) == len(given)


def test_operation_ids_are_those_client_generators_know() -> None:
    ids = {operation["operationId"] for document in documents().values() for _, _, operation in operations(document)}
    assert {
        "listCoreV1NamespacedPod",
        "listCoreV1PodForAllNamespaces",
        "createCoreV1NamespacedPodEviction",
        "readCoreV1NamespacedPodLog",
        "connectCoreV1GetNamespacedPodExec",
        "connectCoreV1PostNamespacedPodProxyWithPath",
        "replaceCoreV1NamespaceFinalize",
        "patchAppsV1NamespacedDeploymentScale",
        "deleteAppsV1CollectionNamespacedDeployment",
        "readRbacAuthorizationV1ClusterRole",
        "listExampleComV1NamespacedShip",
    } <= ids


def test_operations_on_subresources_name_the_kind_they_handle() -> None:
    paths = document_of(SHIP)["paths"]
    scale = paths["/apis/example.com/v1/namespaces/{namespace}/ships/{name}/scale"]["patch"]
    assert scale[GVK] == {"group": "autoscaling", "version": "v1", "kind": "Scale"}
    status = paths["/apis/example.com/v1/namespaces/{namespace}/ships/{name}/status"]["patch"]
    assert status[GVK] == kind_of(SHIP)


def test_schemas_say_how_lists_are_merged_and_what_fields_are_for() -> None:
    schemas = documents()["apis/apps/v1"]["components"]["schemas"]
    containers = schemas["io.k8s.api.core.v1.PodSpec"]["properties"]["containers"]
    assert containers["x-kubernetes-patch-strategy"] == "merge"
    assert containers["x-kubernetes-patch-merge-key"] == "name"
    assert containers["x-kubernetes-list-type"] == "map"
    spec = schemas["io.k8s.api.apps.v1.Deployment"]["properties"]["spec"]
    assert spec["allOf"] == [{"$ref": "#/components/schemas/io.k8s.api.apps.v1.DeploymentSpec"}]
    assert spec["description"]


def test_deleting_answers_as_the_server_does() -> None:
    def answer(name: str, path: str) -> str:
        operation = documents()[name]["paths"][path]["delete"]
        reference: str = operation["responses"]["200"]["content"]["application/json"]["schema"]["$ref"]
        return reference.rpartition(".")[2]

    assert answer("api/v1", "/api/v1/namespaces/{namespace}/pods/{name}") == "Pod"
    assert answer("apis/apps/v1", "/apis/apps/v1/namespaces/{namespace}/deployments/{name}") == "Status"


def test_a_shared_definition_lists_only_the_kinds_of_its_document() -> None:
    options = documents()["apis/apps/v1"]["components"]["schemas"]["io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions"]
    assert {kind["group"] for kind in options[GVK]} == {"", "apps"}
    assert "enum" not in options["properties"]["apiVersion"]


# Custom resources.


def test_a_custom_kind_has_what_every_object_has() -> None:
    ship = schema_of(SHIP)
    assert ship["description"] == "A ship."
    assert ship["properties"].keys() == {"apiVersion", "kind", "metadata", "spec"}
    assert ship["properties"]["metadata"]["allOf"] == [
        {"$ref": "#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"}
    ]
    assert schema_of(SHIP, "ShipList")["properties"]["items"]["items"] == {
        "$ref": "#/components/schemas/com.example.v1.Ship"
    }


def test_embedded_resources_have_type_and_metadata_too() -> None:
    boat = schema_of(SHIP)["properties"]["spec"]["properties"]["boat"]
    assert boat["properties"].keys() == {"apiVersion", "kind", "metadata"}
    assert boat["required"] == ["spec", "kind", "apiVersion"]


def test_values_in_a_custom_schema_are_not_mistaken_for_references() -> None:
    hint = {"type": "object", "default": {"$ref": "text"}, "properties": {"$ref": {"type": "string"}}}
    openapi = OpenApi()
    openapi.set_custom([(SHIP, {"type": "object", "properties": {"hint": hint}})])
    ship = read(openapi, "/openapi/v3/apis/example.com/v1")["components"]["schemas"]["com.example.v1.Ship"]
    assert ship["properties"]["hint"] == hint


def test_a_custom_kind_without_schema_allows_any_field() -> None:
    assert "properties" not in schema_of(PORT)


def test_the_given_schema_is_not_changed() -> None:
    before = orjson.dumps(SHIP_SCHEMA)
    openapi = OpenApi()
    openapi.set_custom([(SHIP, SHIP_SCHEMA)])
    read(openapi, "/openapi/v3/apis/example.com/v1")
    openapi.swagger()
    assert orjson.dumps(SHIP_SCHEMA) == before


def test_a_custom_resource_appears_and_disappears_at_once() -> None:
    openapi = OpenApi()
    before = openapi.index()
    openapi.set_custom([(SHIP, SHIP_SCHEMA)])
    assert "apis/example.com/v1" in names(openapi)
    assert openapi.index().headers["ETag"] != before.headers["ETag"]
    assert openapi.resolve("/openapi/v3/apis/example.com/v1") is not None
    openapi.set_custom([])
    assert openapi.resolve("/openapi/v3/apis/example.com/v1") is None
    assert openapi.index().body == before.body


def test_only_the_touched_group_version_is_built_again() -> None:
    openapi = OpenApi()
    openapi.set_custom([(SHIP, SHIP_SCHEMA), (PORT, None)])

    def bodies() -> dict[str, bytes]:
        found = {}
        for name in ("apis/example.com/v1", "apis/example.org/v1beta1", "apis/batch/v1"):
            answer = openapi.resolve(f"/openapi/v3/{name}")
            assert answer is not None
            found[name] = answer.gzipped
        return found

    before, ship_address = bodies(), address(openapi, "apis/example.com/v1")
    openapi.set_custom([(SHIP, {**SHIP_SCHEMA, "description": "A larger ship."}), (PORT, None)])
    after = bodies()
    assert after["apis/example.com/v1"] != before["apis/example.com/v1"]
    assert after["apis/example.org/v1beta1"] is before["apis/example.org/v1beta1"]
    assert after["apis/batch/v1"] is before["apis/batch/v1"]
    assert address(openapi, "apis/example.com/v1") != ship_address


def test_setting_the_same_custom_resources_again_changes_nothing() -> None:
    openapi = OpenApi()
    openapi.set_custom([(SHIP, SHIP_SCHEMA)])
    index = openapi.index()
    openapi.set_custom([(SHIP, orjson.loads(orjson.dumps(SHIP_SCHEMA)))])
    assert openapi.index() is index


def test_a_custom_resource_may_join_a_built_in_group() -> None:
    joined = Resource(group="apps", version="v1", plural="fleets", kind="Fleet", custom=True)
    openapi = OpenApi()
    openapi.set_custom([(joined, {"type": "object"})])
    document = read(openapi, "/openapi/v3/apis/apps/v1")
    assert "/apis/apps/v1/fleets" in document["paths"]
    assert "/apis/apps/v1/deployments" in document["paths"]


def test_kinds_whose_names_run_together_keep_unique_operation_ids() -> None:
    other = Resource(group="example.com", version="v1", plural="shipstatuses", kind="ShipStatus", custom=True)
    openapi = OpenApi()
    openapi.set_custom([(SHIP, None), (other, None)])
    document = read(openapi, "/openapi/v3/apis/example.com/v1")
    ids = [operation["operationId"] for _, _, operation in operations(document)]
    assert len(set(ids)) == len(ids)
