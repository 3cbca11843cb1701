"""A version's schema as published in OpenAPI v3 and the less expressive v2."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final, NamedTuple

from shoal.kube.crd.definition import names_of, schema_of, spec_of, version_of
from shoal.kube.schema.builtin import described_definitions

Schema = Mapping[str, Any]
Made = dict[str, Any]

_META: Final = "io.k8s.apimachinery.pkg.apis.meta.v1."
_JUNCTORS: Final = ("allOf", "anyOf", "oneOf", "not")


class _Texts(NamedTuple):
    """The descriptions of the common fields, the same as those of built-in kinds."""

    api_version: Made
    kind: Made
    metadata: str
    list_metadata: str


@lru_cache(maxsize=1)
def _texts() -> _Texts:
    described = described_definitions()
    one = described["io.k8s.api.core.v1.ConfigMap"]["properties"]
    many = described["io.k8s.api.core.v1.ConfigMapList"]["properties"]
    return _Texts(
        {"description": one["apiVersion"]["description"], "type": "string"},
        {"description": one["kind"]["description"], "type": "string"},
        one["metadata"].get("description") or "",
        many["metadata"].get("description") or "",
    )


def _reference(name: str, v2: bool) -> str:
    return f"#/definitions/{name}" if v2 else f"#/components/schemas/{name}"


def openapi_schema(crd: Mapping[str, Any], version: str, *, v2: bool = False) -> Made:
    """The definition of the kind, with apiVersion, kind and metadata as every kind has them."""
    spec, names = spec_of(crd), names_of(crd)
    found = version_of(crd, version)
    schema = schema_of(found)
    if schema is None or (v2 and schema.get("x-kubernetes-preserve-unknown-fields")):
        made: Made = {"type": "object"}
    else:
        made = _converted(schema, v2)
        properties = made.setdefault("properties", {})
        properties["metadata"] = _metadata("ObjectMeta", _texts().metadata, v2)
        properties["apiVersion"] = dict(_texts().api_version)
        properties["kind"] = dict(_texts().kind)
    made["x-kubernetes-group-version-kind"] = [{"group": spec["group"], "version": version, "kind": names["kind"]}]
    return _with_selectable(made, found, v2)


def _metadata(kind: str, text: str, v2: bool) -> Made:
    reference = {"$ref": _reference(_META + kind, v2)}
    return {"description": text, **reference} if v2 else {"description": text, "allOf": [reference], "default": {}}


def _with_selectable(made: Made, version: Schema, v2: bool) -> Made:
    fields = [each["jsonPath"].removeprefix(".") for each in version.get("selectableFields") or ()]
    if fields and not v2:
        made["x-kubernetes-selectable-fields"] = [{"fieldPath": path} for path in fields]
    return made


def _converted(schema: Schema, v2: bool) -> Made:
    made: Made = {}
    for key, value in schema.items():
        if key == "properties":
            made[key] = {name: _converted(each, v2) for name, each in value.items()}
        elif key in ("items", "additionalProperties", "not") and isinstance(value, Mapping):
            made[key] = _converted(value, v2)
        elif key in ("allOf", "anyOf", "oneOf"):
            made[key] = [_converted(each, v2) for each in value]
        else:
            made[key] = value
    if schema.get("x-kubernetes-int-or-string") and not v2 and not _says_int_or_string(schema):
        made["anyOf"] = [{"type": "integer"}, {"type": "string"}]
    if v2:
        _simplify(made, schema)
    if schema.get("x-kubernetes-embedded-resource") and not (v2 and schema.get("x-kubernetes-preserve-unknown-fields")):
        _embed(made, v2)
    return made


def _says_int_or_string(schema: Schema) -> bool:
    return bool(schema.get("anyOf")) or bool(schema.get("allOf"))


def _simplify(made: Made, schema: Schema) -> None:
    """Remove everything that version 2 lacks or kubectl cannot read."""
    for key in (*_JUNCTORS, "required"):
        made.pop(key, None)
    fields = schema.get("properties") or {}
    needed = [name for name in schema.get("required") or () if not (fields.get(name) or {}).get("nullable")]
    if needed:
        made["required"] = needed
    free = made.get("x-kubernetes-preserve-unknown-fields")
    if made.get("nullable") or free:
        made.pop("items", None)
        made.pop("properties", None)
    if made.pop("nullable", None) or (free and made.get("type") == "object"):
        made.pop("type", None)
    if made.get("type") == "array" and "items" not in made:
        del made["type"]


def _embed(made: Made, v2: bool) -> None:
    properties = made.setdefault("properties", {})
    properties["apiVersion"] = dict(_texts().api_version)
    properties["kind"] = dict(_texts().kind)
    properties["metadata"] = _metadata("ObjectMeta", _texts().metadata, v2)
    needed = list(made.get("required") or ())
    made["required"] = needed + [name for name in ("kind", "apiVersion") if name not in needed]
