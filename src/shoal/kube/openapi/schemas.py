"""The schemas of a document: those of its operations and all that these refer to, for both versions of OpenAPI.

In the schema package, definitions refer to each other by name (``{"$ref": "io.k8s.api.core.v1.PodSpec"}``). Conversion
writes references in the syntax of the version and collects the definitions that they need.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Set
from functools import cache
from typing import Any, Final

from shoal.kube.openapi.operations import schema_name
from shoal.kube.resources import Resource
from shoal.kube.schema.builtin import META, described_definitions

Schema = dict[str, Any]
Convert = Callable[[Schema, set[str]], Schema]

GVK: Final = "x-kubernetes-group-version-kind"
_OBJECT_META: Final = META + "ObjectMeta"
_LIST_META: Final = META + "ListMeta"
_QUANTITY: Final = "io.k8s.apimachinery.pkg.api.resource.Quantity"
_INT_OR_STRING: Final = "io.k8s.apimachinery.pkg.util.intstr.IntOrString"

_LISTS: Final = frozenset({"allOf", "anyOf", "oneOf"})
_SINGLE: Final = frozenset({"items", "additionalProperties", "not"})

# The two scalars that are a text or a number in JSON, which the schema package describes incompletely.
_V3_SCALARS: Final = {
    _QUANTITY: {
        "description": "An amount such as 500m, 2 or 1Gi: a number with an optional suffix.",
        "oneOf": [{"type": "string"}, {"type": "number"}],
    },
    _INT_OR_STRING: {
        "description": "A whole number, or text such as a name or a percentage.",
        "format": "int-or-string",
        "oneOf": [{"type": "integer"}, {"type": "string"}],
    },
}
_V2_SCALARS: Final = {
    _QUANTITY: {"description": _V3_SCALARS[_QUANTITY]["description"], "type": "string"},
    _INT_OR_STRING: {
        "description": _V3_SCALARS[_INT_OR_STRING]["description"],
        "format": "int-or-string",
        "type": "string",
    },
}


def closure(
    roots: Iterable[str], definitions: Mapping[str, Schema], convert: Convert, known: Set[str] = frozenset()
) -> dict[str, Schema]:
    """The named definitions and all that they refer to, converted, without known ones. The order is deterministic."""
    made: dict[str, Schema] = {}
    pending = sorted(roots)
    while pending:
        name = pending.pop()
        if name in made or name in known:
            continue
        found: set[str] = set()
        made[name] = convert(definitions[name], found)
        pending += sorted(found)
    return made


def builtin_definitions(described: dict[str, Schema], *, version: int) -> None:
    """Correct a few definitions of the schema package, in place."""
    described.update(_V3_SCALARS if version == 3 else _V2_SCALARS)
    options = described[META + "DeleteOptions"]
    options["properties"]["apiVersion"].pop("enum", None)


def only_of(schema: Schema, group: str, version: str) -> None:
    """A definition can be shared by kinds of many groups (every group has a DeleteOptions): keep the kinds of one group
    version and of the core group, in place."""
    kinds = schema.get(GVK)
    if kinds is not None and len(kinds) > 1:
        wanted = {("", "v1"), (group, version)}
        schema[GVK] = [kind for kind in kinds if (kind["group"], kind["version"]) in wanted]


def convert_v3(schema: Schema, found: set[str]) -> Schema:
    """To OpenAPI 3.0, which ignores the siblings of a reference: the reference moves into ``allOf``."""
    reference = schema.get("$ref")
    if isinstance(reference, str):
        found.add(reference)
        link = {"$ref": f"#/components/schemas/{reference}"}
        if len(schema) == 1:
            return link
        rest = {key: value for key, value in schema.items() if key != "$ref"}
        rest["allOf"] = [link]
        return rest
    return _parts(schema, found, convert_v3)


def convert_v2(schema: Schema, found: set[str]) -> Schema:
    """To Swagger 2.0 as kubectl reads it: references may have siblings."""
    reference = schema.get("$ref")
    if isinstance(reference, str):
        found.add(reference)
        return {**schema, "$ref": f"#/definitions/{reference}"}
    return _parts(schema, found, convert_v2)


def _parts(schema: Schema, found: set[str], convert: Convert) -> Schema:
    made: Schema = {}
    for key, value in schema.items():
        if key == "properties":
            made[key] = {name: convert(part, found) for name, part in value.items()}
        elif key in _SINGLE and isinstance(value, dict):
            made[key] = convert(value, found)
        elif key in _LISTS:
            made[key] = [convert(part, found) for part in value]
        else:
            made[key] = value
    return made


@cache
def _common() -> dict[str, Schema]:
    """The fields that every kind has, with the descriptions of built-in kinds."""
    texts = described_definitions()["io.k8s.api.core.v1.Pod"]["properties"]
    return {
        "apiVersion": {"description": texts["apiVersion"]["description"], "type": "string"},
        "kind": {"description": texts["kind"]["description"], "type": "string"},
        "metadata": {"description": texts["metadata"]["description"], "$ref": _OBJECT_META},
    }


def custom_definitions(resource: Resource, schema: Schema | None, *, version: int) -> dict[str, Schema]:
    """The definitions of a custom kind and of its list, by name."""
    group, kind = resource.group, resource.kind
    name = schema_name(group, resource.version, kind, custom=True)
    list_name = schema_name(group, resource.version, resource.list_kind, custom=True)
    own = _custom(schema, version)
    own[GVK] = [{"group": group, "version": resource.version, "kind": kind}]
    listed: Schema = {
        "description": f"A list of objects of kind {kind}.",
        "type": "object",
        "required": ["items"],
        "properties": {
            "apiVersion": _common()["apiVersion"],
            "kind": _common()["kind"],
            "metadata": {"description": "Metadata of the list.", "$ref": _LIST_META},
            "items": {"description": f"The {resource.plural}.", "type": "array", "items": {"$ref": name}},
        },
        GVK: [{"group": group, "version": resource.version, "kind": resource.list_kind}],
    }
    return {name: own, list_name: listed}


def _custom(schema: Schema | None, version: int) -> Schema:
    # Without a schema, or if unknown fields are allowed, kubectl would refuse all fields that are not listed.
    if schema is None or (version == 2 and schema.get("x-kubernetes-preserve-unknown-fields")):
        return {"type": "object"}
    own = _simplified(schema) if version == 2 else _embedded(schema)
    own["properties"] = {**(own.get("properties") or {}), **_common()}
    return own


def _embedded(schema: Schema) -> Schema:
    """Add the type and metadata of embedded resources."""
    made = _parts(schema, set(), lambda part, _: _embedded(part))
    if schema.get("x-kubernetes-embedded-resource"):
        made["properties"] = {**(made.get("properties") or {}), **_common()}
        required = list(made.get("required") or ())
        made["required"] = required + [field for field in ("kind", "apiVersion") if field not in required]
    return made


def _simplified(schema: Schema) -> Schema:
    """A custom schema reduced to what Swagger 2.0 and kubectl support: no alternatives, no null, and no list of fields
    if unknown ones are allowed."""
    made = {key: value for key, value in schema.items() if key not in _LISTS and key not in ("not", "nullable")}
    if schema.get("nullable"):
        for key in ("type", "items", "properties"):
            made.pop(key, None)
    if schema.get("x-kubernetes-preserve-unknown-fields"):
        for key in ("items", "properties"):
            made.pop(key, None)
        if made.get("type") == "object":
            del made["type"]
    if made.get("type") == "array" and "items" not in made:
        del made["type"]
    properties = made.get("properties") or {}
    if "required" in made:
        kept = [field for field in made["required"] if not (properties.get(field) or {}).get("nullable")]
        made.pop("required")
        if kept:
            made["required"] = kept
    return _parts(made, set(), lambda part, _: _simplified(part))
