"""OpenAPI of custom resources: published, changed and withdrawn with their definitions."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from conformance_api import Api, conformance, refused, unique
from conformance_definitions import custom, defined, definition, definitions, instance, version

from shoal.kube.objects import Obj
from shoal.testing.waiting import eventually_blocking

STRICT = {"fieldValidation": "Strict"}


def text(description: str, **more: Any) -> Obj:
    return {"type": "string", "description": description, **more}


def array(description: str, items: Obj) -> Obj:
    return {"type": "array", "description": description, "items": items}


BAR: Obj = {
    "type": "object",
    "required": ["name"],
    "properties": {
        "name": text("Name of Bar."),
        "age": text("Age of Bar."),
        "feeling": text("Whether Bar is feeling great.", enum=["Great", "Down"]),
        "bazs": array("List of Bazs.", {"type": "string"}),
    },
}
BAR_STATUS: Obj = {
    "type": "object",
    "properties": {
        "name": text("Name of Bar."),
        "available": {"type": "boolean", "description": "Whether the Bar is installed."},
        "quxType": text("Indicates to external qux type.", pattern="in-tree|out-of-tree"),
    },
}
FOO: Obj = {
    "type": "object",
    "description": "Foo CRD for Testing",
    "properties": {
        "spec": {
            "type": "object",
            "description": "Specification of Foo",
            "properties": {"bars": array("List of Bars and their specs.", BAR)},
        },
        "status": {
            "type": "object",
            "description": "Status of Foo",
            "properties": {"bars": array("List of Bars and their statuses.", BAR_STATUS)},
        },
    },
}
WALDO: Obj = {
    "type": "object",
    "description": "Waldo CRD for Testing",
    "properties": {
        "spec": {
            "type": "object",
            "description": "Specification of Waldo",
            "properties": {"dummy": {"type": "object", "description": "Dummy property."}},
        },
        "status": {
            "type": "object",
            "description": "Status of Waldo",
            "properties": {"bars": array("List of Bars and their statuses.", {"type": "object"})},
        },
    },
}


def preserving_root() -> Obj:
    return {**WALDO, "x-kubernetes-preserve-unknown-fields": True}


def preserving_spec() -> Obj:
    schema = copy.deepcopy(WALDO)
    schema["properties"]["spec"]["x-kubernetes-preserve-unknown-fields"] = True
    return schema


def definition_name(crd: Obj, served: str) -> str:
    """The group backwards, then version and kind."""
    backwards = ".".join(reversed(crd["spec"]["group"].split(".")))
    return f"{backwards}.{served}.{crd['spec']['names']['kind']}"


def published(api: Api, crd: Obj, served: str) -> Obj | None:
    """The schema of a version as OpenAPI v2 has it, without what the server adds to every kind."""
    found: Obj | None = api.get("/openapi/v2")["definitions"].get(definition_name(crd, served))
    if found is not None:
        gvk = {"group": crd["spec"]["group"], "version": served, "kind": crd["spec"]["names"]["kind"]}
        assert found.pop("x-kubernetes-group-version-kind") == [gvk]
        if "properties" in found:
            for name in ("apiVersion", "kind", "metadata"):
                found["properties"].pop(name, None)
    return found


def wait_published(api: Api, crd: Obj, *versions: str, schema: Obj) -> None:
    for served in versions:
        eventually_blocking(lambda served=served: published(api, crd, served) == schema)  # type: ignore[misc]
        document = api.get(f"/openapi/v3/apis/{crd['spec']['group']}/{served}")
        assert definition_name(crd, served) in document["components"]["schemas"]


def wait_withdrawn(api: Api, crd: Obj, served: str) -> None:
    eventually_blocking(lambda: published(api, crd, served) is None)


def versions(*names: str, schema: Obj) -> list[Obj]:
    return [version(name, schema, storage=name == names[0]) for name in names]


@conformance(
    "[sig-api-machinery] CustomResourcePublishOpenAPI [Privileged:ClusterAdmin] works for CRD with validation schema"
    " [Conformance]"
)
def test_validating_schema(api: Api, namespace: str) -> None:
    with defined(api, definition(FOO, scope="Namespaced")) as crd:
        wait_published(api, crd, "v1", schema=FOO)
        objects = custom(api, crd, namespace)

        def bars(*given: Obj) -> Obj:
            return instance(crd, "test-foo", spec={"bars": list(given)})

        objects.create(bars({"name": "test-bar"}), **STRICT)
        objects.delete("test-foo")
        objects.apply("test-foo", bars({"name": "test-bar"}), **STRICT)
        objects.delete("test-foo")

        error = refused("Invalid", objects.create, bars({"name": "test-bar", "feeling": "NonExistentValue"}), **STRICT)
        assert 'Unsupported value: "NonExistentValue"' in error.message
        unknown = instance(crd, "test-foo", spec={"foo": True})
        assert 'unknown field "spec.foo"' in refused("BadRequest", objects.create, unknown, **STRICT).message
        error = refused("Invalid", objects.create, bars({"age": "10"}), **STRICT)
        assert "spec.bars[0].name: Required value" in error.message
    wait_withdrawn(api, crd, "v1")


def check_permissive(api: Api, namespace: str, schema: Obj | None, **fields: Any) -> Obj:
    """Objects keep fields that are not declared; returns the published schema."""
    with defined(api, definition(schema, scope="Namespaced")) as crd:
        objects = custom(api, crd, namespace)
        writes: list[Callable[[Obj], Obj]] = [
            lambda obj: objects.create(obj, **STRICT),
            lambda obj: objects.apply("test-cr", obj, **STRICT),
        ]
        for write in writes:
            stored = write(instance(crd, "test-cr", **fields))
            assert {name: stored[name] for name in fields} == fields
            objects.delete("test-cr")
        found: Obj = eventually_blocking(lambda: published(api, crd, "v1"))
    wait_withdrawn(api, crd, "v1")
    return found


@conformance(
    "[sig-api-machinery] CustomResourcePublishOpenAPI [Privileged:ClusterAdmin] works for CRD without validation schema"
    " [Conformance]"
)
def test_no_schema(api: Api, namespace: str) -> None:
    assert check_permissive(api, namespace, None, a={"b": [{"c": "d"}]}) == {"type": "object"}


@conformance(
    "[sig-api-machinery] CustomResourcePublishOpenAPI [Privileged:ClusterAdmin] works for CRD preserving unknown fields"
    " at the schema root [Conformance]"
)
def test_preserving_at_the_root(api: Api, namespace: str) -> None:
    check_permissive(api, namespace, preserving_root(), a={"b": [{"c": "d"}]})


@conformance(
    "[sig-api-machinery] CustomResourcePublishOpenAPI [Privileged:ClusterAdmin] works for CRD preserving unknown fields"
    " in an embedded object [Conformance]"
)
def test_preserving_in_an_embedded_object(api: Api, namespace: str) -> None:
    found = check_permissive(api, namespace, preserving_spec(), spec={"a": None, "b": [{"c": "d"}]})
    assert found["description"] == "Waldo CRD for Testing"


@conformance(
    "[sig-api-machinery] CustomResourcePublishOpenAPI [Privileged:ClusterAdmin] works for multiple CRDs of different"
    " groups [Conformance]"
)
def test_two_groups(api: Api) -> None:
    with (
        defined(api, definition(versions=versions("v1", schema=FOO))) as foo,
        defined(api, definition(versions=versions("v1beta1", schema=WALDO))) as waldo,
    ):
        assert foo["spec"]["group"] != waldo["spec"]["group"]
        wait_published(api, waldo, "v1beta1", schema=WALDO)
        wait_published(api, foo, "v1", schema=FOO)
    wait_withdrawn(api, foo, "v1")
    wait_withdrawn(api, waldo, "v1beta1")


@conformance(
    "[sig-api-machinery] CustomResourcePublishOpenAPI [Privileged:ClusterAdmin] works for multiple CRDs of same group"
    " but different versions [Conformance]"
)
def test_two_versions(api: Api) -> None:
    with defined(api, definition(versions=versions("v2", "v3", schema=FOO))) as crd:
        wait_published(api, crd, "v3", "v2", schema=FOO)
    check_one_group(api, "v4", "v5")


@conformance(
    "[sig-api-machinery] CustomResourcePublishOpenAPI [Privileged:ClusterAdmin] works for multiple CRDs of same group"
    " and version but different kinds [Conformance]"
)
def test_two_kinds(api: Api) -> None:
    check_one_group(api, "v6", "v6")


def check_one_group(api: Api, first: str, second: str) -> None:
    group = f"{unique('common')}.example.com"
    with (
        defined(api, definition(group=group, versions=versions(first, schema=FOO))) as foo,
        defined(api, definition(group=group, versions=versions(second, schema=WALDO))) as waldo,
    ):
        wait_published(api, waldo, second, schema=WALDO)
        wait_published(api, foo, first, schema=FOO)


@conformance(
    "[sig-api-machinery] CustomResourcePublishOpenAPI [Privileged:ClusterAdmin] updates the published spec when one"
    " version gets renamed [Conformance]"
)
def test_renamed_version(api: Api) -> None:
    with defined(api, definition(versions=versions("v2", "v3", schema=FOO))) as crd:
        wait_published(api, crd, "v2", "v3", schema=FOO)
        rename = [
            {"op": "test", "path": "/spec/versions/1/name", "value": "v3"},
            {"op": "replace", "path": "/spec/versions/1/name", "value": "v4"},
        ]
        definitions(api).patch(crd["metadata"]["name"], rename, "json")
        wait_published(api, crd, "v4", schema=FOO)
        wait_withdrawn(api, crd, "v3")
        wait_published(api, crd, "v2", schema=FOO)


@conformance(
    "[sig-api-machinery] CustomResourcePublishOpenAPI [Privileged:ClusterAdmin] removes definition from spec when one"
    " version gets changed to not be served [Conformance]"
)
def test_version_that_is_no_longer_served(api: Api) -> None:
    with defined(api, definition(versions=versions("v5", "v6alpha1", schema=FOO))) as crd:
        wait_published(api, crd, "v5", "v6alpha1", schema=FOO)
        updated = definitions(api).update(
            crd["metadata"]["name"], lambda obj: obj["spec"]["versions"][1].update(served=False)
        )
        assert int(updated["metadata"]["resourceVersion"]) > int(crd["metadata"]["resourceVersion"])
        wait_withdrawn(api, crd, "v6alpha1")
        wait_published(api, crd, "v5", schema=FOO)
        refused("NotFound", custom(api, crd, version="v6alpha1").list)
