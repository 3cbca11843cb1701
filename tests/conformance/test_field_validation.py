"""Unknown and duplicate fields, in built-in kinds and in custom ones."""

from __future__ import annotations

import orjson
from conformance_api import Api, conformance, refused
from conformance_definitions import custom, defined, definition, instance, version
from conformance_objects import workload

from shoal.kube.objects import Obj

STRICT = {"fieldManager": "field_validation_mgr", "fieldValidation": "Strict"}
PORTS: Obj = {
    "type": "array",
    "x-kubernetes-list-map-keys": ["containerPort", "protocol"],
    "x-kubernetes-list-type": "map",
    "items": {
        "type": "object",
        "properties": {
            "containerPort": {"format": "int32", "type": "integer"},
            "hostIP": {"type": "string"},
            "hostPort": {"format": "int32", "type": "integer"},
            "name": {"type": "string"},
            "protocol": {"type": "string"},
        },
        "required": ["containerPort", "protocol"],
    },
}
SPEC: Obj = {
    "type": "object",
    "properties": {
        "foo": {"type": "string"},
        "cronSpec": {"type": "string", "pattern": r"^(\d+|\*)(/\d+)?(\s+(\d+|\*)(/\d+)?){4}$"},
        "ports": PORTS,
    },
}
EMBEDDED: Obj = {
    "type": "object",
    "x-kubernetes-embedded-resource": True,
    "properties": {
        "metadata": {"type": "object", "properties": {"name": {"type": "string"}}},
        "spec": {"type": "object"},
    },
}
GIVEN: Obj = {
    "foo": "foo1",
    "cronSpec": "* * * * */5",
    "ports": [{"name": "x", "containerPort": 80, "protocol": "TCP"}],
}


def two_versions(spec: Obj | None) -> Obj:
    """A definition of versions v1beta1 and v1 with this schema of the spec, or with none at all."""
    schema = None if spec is None else {"type": "object", "properties": {"spec": spec}}
    return definition(versions=[version("v1beta1", schema), version("v1", schema, storage=True)])


@conformance(
    "[sig-api-machinery] FieldValidation should detect unknown and duplicate fields of a typed object [Conformance]"
)
def test_unknown_and_duplicate_fields(api: Api, namespace: str) -> None:
    deployments = api.of("apps/v1", "deployments", namespace)
    text = orjson.dumps({"apiVersion": "apps/v1", "kind": "Deployment", **workload("my-dep", 2)}).decode()
    broken = text.replace('"spec":{"replicas":2,', '"spec":{"unknownField":"foo","replicas":2,"replicas":3,', 1)
    error = refused("BadRequest", api.create, deployments.path, broken, **STRICT)
    assert 'strict decoding error: unknown field "spec.unknownField", duplicate field "spec.replicas"' in error.message
    assert deployments.is_gone("my-dep")


@conformance(
    "[sig-api-machinery] FieldValidation should detect unknown metadata fields of a typed object [Conformance]"
)
def test_unknown_metadata(api: Api, namespace: str) -> None:
    deployments = api.of("apps/v1", "deployments", namespace)
    made = workload("my-dep")
    made["metadata"]["unknownMeta"] = "foo"
    error = refused("BadRequest", deployments.create, made, **STRICT)
    assert 'strict decoding error: unknown field "metadata.unknownMeta"' in error.message


@conformance(
    "[sig-api-machinery] FieldValidation should create/apply a valid CR for CRD with validation schema [Conformance]"
)
def test_valid_custom_object(api: Api) -> None:
    with defined(api, two_versions(SPEC)) as crd:
        applied = custom(api, crd).patch("mytest", instance(crd, "mytest", spec=GIVEN), "apply", **STRICT)
        assert applied["spec"] == GIVEN


@conformance(
    "[sig-api-machinery] FieldValidation should create/apply a CR with unknown fields for CRD with no validation"
    " schema [Conformance]"
)
def test_unknown_fields_without_a_schema(api: Api) -> None:
    with defined(api, two_versions(None)) as crd:
        given = {**GIVEN, "unknown": "uk1"}
        applied = custom(api, crd).patch("mytest", instance(crd, "mytest", spec=given), "apply", **STRICT)
        assert applied["spec"] == given


@conformance(
    "[sig-api-machinery] FieldValidation should create/apply an invalid CR with extra properties for CRD with"
    " validation schema [Conformance]"
)
def test_undeclared_field(api: Api) -> None:
    with defined(api, two_versions(SPEC)) as crd:
        made = instance(crd, "mytest", spec=GIVEN, unknownField="unknown")
        error = refused("BadRequest", lambda: custom(api, crd).patch("mytest", made, "apply", **STRICT))
        assert ".unknownField: field not declared in schema" in error.message


@conformance(
    "[sig-api-machinery] FieldValidation should detect unknown metadata fields in both the root and embedded object of"
    " a CR [Conformance]"
)
def test_unknown_metadata_of_a_custom_object(api: Api, namespace: str) -> None:
    spec = {
        **SPEC,
        "x-kubernetes-preserve-unknown-fields": True,
        "properties": {**SPEC["properties"], "template": EMBEDDED},
    }
    with defined(api, two_versions(spec)) as crd:
        inner = {
            "apiversion": "foo/v1",
            "kind": "Sub",
            "metadata": {"unknownSubMeta": "unknown", "name": "subobject", "namespace": namespace},
        }
        made = instance(crd, "mytest", spec={**GIVEN, "template": inner})
        made["metadata"]["unknownMeta"] = "unknown"
        error = refused("BadRequest", lambda: custom(api, crd).patch("mytest", made, "apply", **STRICT))
        assert "etadata.unknown" in error.message
        assert "field not declared in schema" in error.message


@conformance(
    "[sig-api-machinery] FieldValidation should detect duplicates in a CR when preserving unknown fields [Conformance]"
)
def test_duplicates_in_a_custom_object(api: Api) -> None:
    with defined(api, two_versions({**SPEC, "x-kubernetes-preserve-unknown-fields": True})) as crd:
        body = f"""
apiVersion: {crd["spec"]["group"]}/{crd["spec"]["versions"][0]["name"]}
kind: {crd["spec"]["names"]["kind"]}
metadata:
  name: mytest
spec:
  unknown: uk1
  foo: foo1
  foo: foo2
  cronSpec: "* * * * */5"
"""
        error = refused("BadRequest", lambda: custom(api, crd).patch("mytest", body, "apply", **STRICT))
        assert 'line 9: key "foo" already set in map' in error.message
        assert custom(api, crd).is_gone("mytest")
