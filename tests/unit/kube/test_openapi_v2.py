"""OpenAPI v2: one document for all resources, as JSON and as the message that Go clients read."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import orjson
import pytest
from openapi_spec_validator import OpenAPIV2SpecValidator

from shoal.kube.openapi import V2_PROTOBUF, OpenApi
from shoal.kube.protobuf.gnostic import encode_openapi_v2
from shoal.kube.resources import BUILTIN, Resource, Subresource

GVK = "x-kubernetes-group-version-kind"
SHIP = Resource(
    group="example.com",
    version="v1",
    plural="ships",
    kind="Ship",
    custom=True,
    subresources=(Subresource("status", "Ship"),),
)
SHIP_SCHEMA = {
    "type": "object",
    "properties": {
        "spec": {
            "type": "object",
            "required": ["size", "name"],
            "properties": {
                "size": {"type": "integer", "nullable": True},
                "name": {"type": "string", "pattern": "^a", "oneOf": [{"minLength": 1}]},
                "free": {
                    "type": "object",
                    "properties": {"a": {"type": "string"}},
                    "x-kubernetes-preserve-unknown-fields": True,
                },
                "many": {"type": "array", "nullable": True, "items": {"type": "string"}},
                "either": {"x-kubernetes-int-or-string": True, "anyOf": [{"type": "integer"}, {"type": "string"}]},
            },
        }
    },
}


@cache
def document() -> dict[str, Any]:
    openapi = OpenApi()
    openapi.set_custom([(SHIP, SHIP_SCHEMA)])
    content: dict[str, Any] = orjson.loads(openapi.swagger().body)
    return content


def references(value: Any) -> Iterator[str]:
    if isinstance(value, list):
        for part in value:
            yield from references(part)
    elif isinstance(value, dict):
        for key, part in value.items():
            if key == "$ref" and isinstance(part, str):
                yield part
            elif key == "properties":
                yield from references(list(part.values()))
            else:
                yield from references(part)


def test_the_document_is_valid_swagger() -> None:
    assert [str(error)[:200] for error in OpenAPIV2SpecValidator(document()).iter_errors()] == []


def test_every_reference_resolves() -> None:
    for reference in set(references(document())):
        prefix, _, name = reference.rpartition("/")
        assert prefix == "#/definitions"
        assert name in document()["definitions"], reference


def test_every_kind_is_defined_and_patchable() -> None:
    defined = [kind for schema in document()["definitions"].values() for kind in schema.get(GVK) or ()]
    patched = [
        (item["patch"][GVK], {p["name"] for p in item["patch"].get("parameters", ())})
        for item in document()["paths"].values()
        if "patch" in item
    ]
    for resource in (*BUILTIN, SHIP):
        kind = {"group": resource.group, "version": resource.version, "kind": resource.kind}
        assert kind in defined
        if "patch" in resource.verbs:
            assert all("fieldValidation" in asked for of, asked in patched if of == kind)
            assert any(of == kind for of, _ in patched)


def test_scalars_are_written_so_that_version_2_can_say_them() -> None:
    definitions = document()["definitions"]
    assert definitions["io.k8s.apimachinery.pkg.api.resource.Quantity"]["type"] == "string"
    assert definitions["io.k8s.apimachinery.pkg.util.intstr.IntOrString"]["format"] == "int-or-string"


def test_references_keep_their_description() -> None:
    spec = document()["definitions"]["io.k8s.api.core.v1.Pod"]["properties"]["spec"]
    assert spec["$ref"] == "#/definitions/io.k8s.api.core.v1.PodSpec"
    assert spec["description"]


def test_custom_schemas_are_cut_down_to_what_kubectl_can_read() -> None:
    spec = document()["definitions"]["com.example.v1.Ship"]["properties"]["spec"]
    assert spec["required"] == ["name"]
    assert spec["properties"] == {
        "size": {},
        "name": {"type": "string", "pattern": "^a"},
        "free": {"x-kubernetes-preserve-unknown-fields": True},
        "many": {},
        "either": {"x-kubernetes-int-or-string": True},
    }


def test_a_custom_kind_with_unknown_fields_at_its_root_lists_no_fields() -> None:
    openapi = OpenApi()
    openapi.set_custom([(SHIP, {**SHIP_SCHEMA, "x-kubernetes-preserve-unknown-fields": True})])
    ship = orjson.loads(openapi.swagger().body)["definitions"]["com.example.v1.Ship"]
    assert ship == {"type": "object", GVK: [{"group": "example.com", "version": "v1", "kind": "Ship"}]}


def test_custom_resources_appear_and_disappear_at_once() -> None:
    openapi = OpenApi()
    before = openapi.swagger()
    openapi.set_custom([(SHIP, SHIP_SCHEMA)])
    with_ship = openapi.swagger()
    assert b"com.example.v1.ShipList" in with_ship.body
    assert with_ship.headers["ETag"] != before.headers["ETag"]
    openapi.set_custom([])
    assert openapi.swagger() == before


def test_the_document_is_built_once() -> None:
    openapi = OpenApi()
    assert openapi.swagger() is openapi.swagger()


@pytest.mark.parametrize(
    ("accept", "content_type"),
    [
        ("application/com.github.proto-openapi.spec.v2@v1.0+protobuf", V2_PROTOBUF),
        ("application/com.github.proto-openapi.spec.v2.v1.0+protobuf", V2_PROTOBUF),
        ("application/json", "application/json"),
        ("*/*", "application/json"),
        ("", "application/json"),
    ],
)
def test_the_accept_header_chooses_the_form(accept: str, content_type: str) -> None:
    answer = OpenApi().resolve("/openapi/v2", "", accept)
    assert answer is not None
    assert answer.content_type == content_type


def fields(message: bytes) -> dict[int, bytes]:
    """The length-delimited fields of a message, those of one number put together as a reader does."""
    found: dict[int, bytes] = {}
    position = 0

    def number() -> int:
        nonlocal position
        value = shift = 0
        while True:
            byte = message[position]
            position += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while position < len(message):
        key = number()
        assert key & 7 == 2
        length = number()
        found[key >> 3] = found.get(key >> 3, b"") + message[position : position + length]
        position += length
    return found


def test_the_message_put_together_from_parts_reads_like_that_of_the_whole_document() -> None:
    openapi = OpenApi()
    openapi.set_custom([(SHIP, SHIP_SCHEMA)])
    assert fields(openapi.swagger(protobuf=True).body) == fields(encode_openapi_v2(document()))
