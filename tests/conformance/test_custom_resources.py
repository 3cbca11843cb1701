"""Custom resource definitions: creation, collection, status, discovery, defaults, watches and selectable fields."""

from __future__ import annotations

from conformance_api import Api, Watch, conformance, labelled, refused, unique
from conformance_definitions import custom, defined, definition, definitions, establish, instance, version
from conformance_steps import check_discovery

from shoal.testing.waiting import eventually_blocking


@conformance(
    "[sig-api-machinery] CustomResourceDefinition resources [Privileged:ClusterAdmin] Simple CustomResourceDefinition"
    " creating/deleting custom resource definition objects works [Conformance]"
)
def test_definition_is_created_and_deleted(api: Api) -> None:
    with defined(api, definition()) as crd:
        assert crd["status"]["acceptedNames"]["plural"] == crd["spec"]["names"]["plural"]
        assert crd["status"]["storedVersions"] == ["v1"]
        assert custom(api, crd).items() == []
    refused("NotFound", custom(api, crd).list)


@conformance(
    "[sig-api-machinery] CustomResourceDefinition resources [Privileged:ClusterAdmin] Simple CustomResourceDefinition"
    " listing custom resource definition objects works [Conformance]"
)
def test_definitions_are_listed_and_deleted_by_label(api: Api) -> None:
    crds, run = definitions(api), unique("run")
    created = [establish(api, labelled(definition(), **{"e2e-list-test-uuid": run})) for _ in range(10)]
    other = establish(api, definition())
    listed = {item["metadata"]["name"]: item["spec"] for item in crds.items(f"e2e-list-test-uuid={run}")}
    assert listed == {crd["metadata"]["name"]: crd["spec"] for crd in created}
    crds.delete_collection(f"e2e-list-test-uuid={run}")
    eventually_blocking(lambda: not crds.names(f"e2e-list-test-uuid={run}"))
    assert not crds.is_gone(other["metadata"]["name"])
    crds.delete(other["metadata"]["name"])


@conformance(
    "[sig-api-machinery] CustomResourceDefinition resources [Privileged:ClusterAdmin] Simple CustomResourceDefinition"
    " getting/updating/patching custom resource definition status sub-resource works [Conformance]"
)
def test_definition_status(api: Api) -> None:
    with defined(api, definition()) as crd:
        crds, name = definitions(api), crd["metadata"]["name"]
        assert crds.get(name, "status")["spec"] == crd["spec"]
        empty = {"type": "", "status": "", "lastTransitionTime": None, "message": "updated"}
        updated = crds.update(name, lambda obj: obj["status"]["conditions"].append(empty), "status")
        assert "updated" in [c.get("message") for c in updated["status"]["conditions"]]
        patch = [{"op": "add", "path": "/status/conditions", "value": [{"message": "patched"}]}]
        patched = crds.patch(name, patch, "json", "status")
        assert "patched" in [c.get("message") for c in patched["status"]["conditions"]]


@conformance(
    "[sig-api-machinery] CustomResourceDefinition resources [Privileged:ClusterAdmin] should include custom resource"
    " definition resources in discovery documents [Conformance]"
)
def test_definitions_are_in_discovery(api: Api) -> None:
    check_discovery(api, "apiextensions.k8s.io/v1", "customresourcedefinitions", "customresourcedefinitions/status")


@conformance(
    "[sig-api-machinery] CustomResourceDefinition resources [Privileged:ClusterAdmin] custom resource defaulting for"
    " requests and from storage works [Conformance]"
)
def test_defaults_of_requests_and_of_stored_objects(api: Api) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "string"}}}
    with defined(api, definition(schema)) as crd:
        objects, crds, name = custom(api, crd), definitions(api), crd["metadata"]["name"]
        path = "/spec/versions/0/schema/openAPIV3Schema/properties"
        first = objects.create(instance(crd, "cr-1"))
        assert "a" not in first
        crds.patch(name, [{"op": "add", "path": f"{path}/a/default", "value": "A"}], "json")
        eventually_blocking(lambda: objects.get("cr-1").get("a") == "A")
        second = objects.create(instance(crd, "cr-2"))
        assert second["a"] == "A"
        swap = [
            {"op": "remove", "path": f"{path}/a/default"},
            {"op": "add", "path": f"{path}/b/default", "value": "B"},
        ]
        crds.patch(name, swap, "json")
        eventually_blocking(lambda: objects.get("cr-2").get("b") == "B")
        assert objects.get("cr-2")["a"] == "A"
        assert "a" not in objects.get("cr-1")
        assert int(first["metadata"]["resourceVersion"]) < int(second["metadata"]["resourceVersion"])


@conformance(
    "[sig-api-machinery] CustomResourceDefinition Watch [Privileged:ClusterAdmin] CustomResourceDefinition Watch watch"
    " on custom resource definition objects [Conformance]"
)
def test_custom_objects_are_watched_by_name(api: Api) -> None:
    with defined(api, definition()) as crd:
        objects = custom(api, crd)
        with objects.watch(fields="metadata.name=name1") as one, objects.watch(fields="metadata.name=name2") as two:
            for name, mine, other in (("name1", one, two), ("name2", two, one)):
                created = objects.create(instance(crd, name))
                assert mine.expect("ADDED") == created
                objects.patch(name, [{"op": "add", "path": "/dummy", "value": "test"}], "json")
                assert mine.expect("MODIFIED", name)["dummy"] == "test"
                objects.delete(name)
                mine.expect("DELETED", name)
                other.silent()


@conformance(
    "[sig-api-machinery] CustomResourceFieldSelectors [Privileged:ClusterAdmin] CustomResourceFieldSelectors MUST list"
    " and watch custom resources matching the field selector [Conformance]"
)
def test_selectable_fields(api: Api, namespace: str) -> None:
    """Two versions with selectable fields of their own; no webhook converts between them."""
    schema = {"type": "object", "properties": {"host": {"type": "string"}, "port": {"type": "string"}}}
    host, port = {"jsonPath": ".host"}, {"jsonPath": ".port"}
    versions = [
        version("v2", schema, storage=True, selectableFields=[host, port]),
        version("v1", schema, selectableFields=[host]),
    ]
    with defined(api, definition(scope="Namespaced", versions=versions)) as crd:
        new, old = custom(api, crd, namespace, "v2"), custom(api, crd, namespace, "v1")
        refused("BadRequest", old.list, fields="port=80")
        with (
            new.watch(fields="host=host1") as by_host,
            new.watch(fields="host=host1,port=80") as by_both,
            old.watch(fields="host=host1") as by_old,
        ):
            new.create(instance(crd, "a", "v2", host="host1", port="80"))
            new.create(instance(crd, "b", "v2", host="host1", port="8080"))
            new.create(instance(crd, "c", "v2", host="host2"))
            assert new.names(fields="host=host1") == old.names(fields="host=host1") == ["a", "b"]
            assert new.names(fields="host=host1,port=80") == ["a"]
            assert new.names(fields="host!=host1") == ["c"]
            expect(by_host, "ADDED", "a", "b")
            expect(by_both, "ADDED", "a")
            expect(by_old, "ADDED", "a", "b")

            new.delete_collection(fields="host=host1,port=80", options={"gracePeriodSeconds": 0})
            new.update("b", lambda obj: obj.update(host="host2"))
            assert new.names(fields="host=host1") == new.names(fields="host=host1,port=80") == []
            expect(by_host, "DELETED", "a", "b")
            expect(by_both, "DELETED", "a")
            expect(by_old, "DELETED", "a", "b")
            for watch in (by_host, by_both, by_old):
                watch.silent()


def expect(watch: Watch, kind: str, *names: str) -> None:
    for name in names:
        watch.expect(kind, name)
