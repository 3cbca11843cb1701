"""Validates a schema: well-formed, structural, and with valid keywords.

Three passes, each only if the one before found no error that would mislead it: the JSON types of the schema document
(``shape_errors``), the structural rules (``structural_errors``), and the keywords of each node (``keyword_errors``).
Defaults are checked in ``defaults.py``, rules in ``schema_validation.py``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from shoal.errors import FieldError, forbidden, invalid, not_supported, required
from shoal.kube.cel.regex import compile_regex

Schema = Mapping[str, Any]

TYPES: Final = ("array", "boolean", "integer", "number", "object", "string")
_UNSUPPORTED: Final = (
    ("id", "id"), ("$schema", "schema"), ("$ref", "$ref"), ("patternProperties", "patternProperties"),
    ("dependencies", "dependencies"), ("additionalItems", "additionalItems"), ("definitions", "definitions"),
)  # fmt: skip
_INT_OR_STRING: Final = [{"type": "integer"}, {"type": "string"}]

_STRINGS: Final = (
    "type", "format", "title", "description", "pattern", "id", "$schema", "$ref", "x-kubernetes-list-type",
    "x-kubernetes-map-type",
)  # fmt: skip
_BOOLS: Final = (
    "nullable", "uniqueItems", "exclusiveMaximum", "exclusiveMinimum", "x-kubernetes-preserve-unknown-fields",
    "x-kubernetes-embedded-resource", "x-kubernetes-int-or-string",
)  # fmt: skip
_COUNTS: Final = ("maxLength", "minLength", "maxItems", "minItems", "maxProperties", "minProperties")
_NUMBERS: Final = ("maximum", "minimum", "multipleOf")
_MAX_DEPTH: Final = 200


def shape_errors(schema: Any, path: str, depth: int = 0) -> list[FieldError]:
    """Values of the wrong JSON type anywhere in a schema document; the other passes rely on there being none."""
    if type(schema) is not dict:
        return [invalid(path, schema, "must be an object")]
    if depth > _MAX_DEPTH:
        return [forbidden(path, "is nested too deeply")]
    errors: list[FieldError] = []

    def expect(keys: tuple[str, ...], kinds: tuple[type, ...], what: str) -> None:
        for key in keys:
            value = schema.get(key)
            if value is not None and type(value) not in kinds:
                errors.append(invalid(f"{path}.{key}", value, f"must be {what}"))

    expect(_STRINGS, (str,), "a string")
    expect(_BOOLS, (bool,), "a boolean")
    expect(_COUNTS, (int,), "an integer")
    expect(_NUMBERS, (int, float), "a number")
    expect(("enum",), (list,), "an array")
    for key in ("required", "x-kubernetes-list-map-keys"):
        value = schema.get(key)
        if value is not None and (type(value) is not list or any(type(each) is not str for each in value)):
            errors.append(invalid(f"{path}.{key}", value, "must be an array of strings"))
    errors += _rule_shape_errors(schema.get("x-kubernetes-validations"), f"{path}.x-kubernetes-validations")
    for key in ("properties", "patternProperties", "definitions"):
        value = schema.get(key)
        if value is not None and type(value) is not dict:
            errors.append(invalid(f"{path}.{key}", value, "must be an object"))
        for name, each in (value if type(value) is dict else {}).items():
            errors += shape_errors(each, f"{path}.{key}[{name}]", depth + 1)
    for key in ("allOf", "anyOf", "oneOf"):
        value = schema.get(key)
        if value is not None and type(value) is not list:
            errors.append(invalid(f"{path}.{key}", value, "must be an array"))
        for index, each in enumerate(value if type(value) is list else ()):
            errors += shape_errors(each, f"{path}.{key}[{index}]", depth + 1)
    for key in ("not", "items", "additionalProperties"):
        value = schema.get(key)
        if value is None or (key == "additionalProperties" and type(value) is bool):
            continue
        if key == "items" and type(value) is list:
            continue
        errors += shape_errors(value, f"{path}.{key}", depth + 1)
    return errors


def _rule_shape_errors(rules: Any, path: str) -> list[FieldError]:
    if rules is None:
        return []
    if type(rules) is not list or any(type(rule) is not dict for rule in rules):
        return [invalid(path, rules, "must be an array of objects")]
    errors = []
    for index, rule in enumerate(rules):
        for key in ("rule", "message", "messageExpression", "reason", "fieldPath"):
            if rule.get(key) is not None and type(rule[key]) is not str:
                errors.append(invalid(f"{path}[{index}].{key}", rule[key], "must be a string"))
        if rule.get("optionalOldSelf") is not None and type(rule["optionalOldSelf"]) is not bool:
            errors.append(invalid(f"{path}[{index}].optionalOldSelf", rule["optionalOldSelf"], "must be a boolean"))
    return errors


def unsupported(schema: Schema) -> str:
    """The first keyword in the tree that a structural schema cannot have, as an error text; empty if there is none."""
    for each in walk(schema):
        for key, shown in _UNSUPPORTED:
            if each.get(key):
                return f"OpenAPIV3Schema '{shown}' is not supported"
        if isinstance(each.get("items"), list):
            return "OpenAPIV3Schema 'items' must be a schema, but is an array"
        if each.get("x-kubernetes-preserve-unknown-fields") is False:
            return "internal error: 'x-kubernetes-preserve-unknown-fields' must be true or undefined"
    return ""


def walk(schema: Schema) -> Iterator[Schema]:
    """The schema and every schema in it."""
    yield schema
    for _, each in children(schema):
        yield from walk(each)
    for _, each in junctors(schema):
        yield from walk(each)


def children(schema: Schema) -> Iterator[tuple[str, Schema]]:
    """The schemas of fields and items, with their paths below this one."""
    for name, each in (schema.get("properties") or {}).items():
        yield f".properties[{name}]", each
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), Mapping):
            yield f".{key}", schema[key]


def junctors(schema: Schema) -> Iterator[tuple[str, Schema]]:
    """The schemas combined by allOf, anyOf, oneOf and not."""
    for key in ("allOf", "anyOf", "oneOf"):
        for index, each in enumerate(schema.get(key) or ()):
            yield f".{key}[{index}]", each
    if isinstance(schema.get("not"), Mapping):
        yield ".not", schema["not"]


def structural_errors(schema: Schema, path: str) -> list[FieldError]:
    """The violations of the structural rules, sorted by text."""
    errors = _invariant_errors(schema, path, "root")
    for place, each in junctors(schema):
        errors += _completeness_errors(each, schema, path, path + place)
    return sorted(errors, key=str)


_MISSING_TYPE = {
    "root": "must not be empty at the root",
    "item": "must not be empty for specified array items",
    "field": "must not be empty for specified object fields",
}


def _invariant_errors(schema: Schema, path: str, level: str) -> list[FieldError]:
    kind = schema.get("type") or ""
    errors: list[FieldError] = []
    if kind == "array" and schema.get("items") is None:
        errors.append(required(f"{path}.items", "must be specified"))
    for place, each in children(schema):
        errors += _invariant_errors(each, path + place, "item" if place == ".items" else "field")
    if schema.get("additionalProperties") is not None and level == "root":
        errors.append(forbidden(f"{path}.additionalProperties", "must not be used at the root"))
    errors += _extension_errors(schema, path)
    errors += _value_errors(schema, path, schema.get("anyOf") == _INT_OR_STRING, _has_all_of_pattern(schema))
    errors += _type_errors(schema, path, level)
    errors += _meta_errors(schema, path, level)
    if schema.get("x-kubernetes-embedded-resource"):
        if schema.get("additionalProperties") is not None:
            text = "must not be used if x-kubernetes-embedded-resource is set"
            errors.append(forbidden(f"{path}.additionalProperties", text))
        if not schema.get("x-kubernetes-preserve-unknown-fields") and not schema.get("properties"):
            text = (
                "must not be empty if x-kubernetes-embedded-resource is true without "
                "x-kubernetes-preserve-unknown-fields"
            )
            errors.append(required(f"{path}.properties", text))
    return errors


def _has_all_of_pattern(schema: Schema) -> bool:
    all_of: list[Schema] = schema.get("allOf") or []
    return bool(all_of) and all_of[0].get("anyOf") == _INT_OR_STRING


def _type_errors(schema: Schema, path: str, level: str) -> list[FieldError]:
    kind, errors = schema.get("type") or "", []
    free = schema.get("x-kubernetes-int-or-string") or schema.get("x-kubernetes-preserve-unknown-fields")
    if schema.get("x-kubernetes-embedded-resource") and kind != "object":
        text = "must be object if x-kubernetes-embedded-resource is true"
        errors.append(invalid(f"{path}.type", kind, text) if kind else required(f"{path}.type", text))
    elif not kind and not free:
        errors.append(required(f"{path}.type", _MISSING_TYPE[level]))
    if level == "root" and kind and kind != "object":
        errors.append(invalid(f"{path}.type", kind, "must be object at the root"))
    return errors


def _extension_errors(schema: Schema, path: str) -> list[FieldError]:
    errors = []
    if schema.get("x-kubernetes-int-or-string"):
        for key in ("x-kubernetes-preserve-unknown-fields", "x-kubernetes-embedded-resource"):
            if schema.get(key):
                errors.append(invalid(f"{path}.{key}", True, "must be false if x-kubernetes-int-or-string is true"))
    return errors


def _meta_errors(schema: Schema, path: str, level: str) -> list[FieldError]:
    properties = schema.get("properties") or {}
    errors: list[FieldError] = []
    resource = level == "root" or bool(schema.get("x-kubernetes-embedded-resource"))
    for name in ("kind", "apiVersion"):
        if resource and name in properties and properties[name].get("type") != "string":
            place = f"{path}.properties[{name}].type"
            errors.append(invalid(place, properties[name].get("type") or "", "must be string"))
    meta = properties.get("metadata")
    if meta is not None:
        place = f"{path}.properties[metadata]"
        if resource and meta.get("type") != "object":
            errors.append(invalid(f"{place}.type", meta.get("type") or "", "must be object"))
        if level == "root" and not _restricts_names_only(meta):
            text = "must not specify anything other than name and generateName, but metadata is implicitly specified"
            errors.append(forbidden(place, text))
    return errors


def _restricts_names_only(meta: Schema) -> bool:
    if not set(meta.get("properties") or ()) <= {"name", "generateName"}:
        return False
    return not any(value for key, value in meta.items() if key not in ("properties", "type", "default"))


def _value_errors(schema: Schema, path: str, skip_any_of: bool, skip_first: bool) -> list[FieldError]:
    """Violations inside allOf, anyOf, oneOf and not."""
    errors: list[FieldError] = []
    for place, each in junctors(schema):
        if place.startswith(".anyOf") and skip_any_of:
            continue
        errors += _nested_errors(each, path + place, skip_first and place == ".allOf[0]")
    pattern = schema.get("pattern")
    if pattern:
        try:
            compile_regex(pattern)
        except ValueError as error:
            text = f"must be a valid regular expression, but isn't: {error}"
            errors.append(invalid(f"{path}.pattern", pattern, text))
    return errors


_FORBIDDEN_NESTED = (
    ("type", "must be empty to be structural"),
    ("default", "must be undefined to be structural"),
    ("title", "must be empty to be structural"),
    ("description", "must be empty to be structural"),
    ("nullable", "must be false to be structural"),
    ("x-kubernetes-preserve-unknown-fields", "must be false to be structural"),
    ("x-kubernetes-embedded-resource", "must be false to be structural"),
    ("x-kubernetes-int-or-string", "must be false to be structural"),
    ("x-kubernetes-list-map-keys", "must be empty to be structural"),
    ("x-kubernetes-list-type", "must be undefined to be structural"),
    ("x-kubernetes-map-type", "must be undefined to be structural"),
    ("x-kubernetes-validations", "must be empty to be structural"),
)


def _nested_errors(schema: Schema, path: str, skip_any_of: bool) -> list[FieldError]:
    errors = _value_errors(schema, path, skip_any_of, False)
    for place, each in children(schema):
        if place != ".additionalProperties":
            errors += _nested_errors(each, path + place, False)
    for key, text in _FORBIDDEN_NESTED:
        if schema.get(key) or (key == "default" and schema.get(key) is not None):
            errors.append(forbidden(f"{path}.{key}", text))
    if schema.get("additionalProperties"):
        errors.append(forbidden(f"{path}.additionalProperties", "must be undefined to be structural"))
    if "metadata" in (schema.get("properties") or {}):
        errors.append(forbidden(f"{path}.properties[metadata]", "must not be specified in a nested context"))
    return errors


def _completeness_errors(value: Schema, schema: Schema | None, path: str, where: str) -> list[FieldError]:
    """Every field inside a junctor must be in the structure."""
    if schema is None:
        return [required(path, f"because it is defined in {where}")]
    errors: list[FieldError] = []
    for place, each in junctors(value):
        errors += _completeness_errors(each, schema, path, where + place)
    items = value.get("items")
    if isinstance(items, Mapping):
        below = schema.get("items")
        found = below if isinstance(below, Mapping) else None
        errors += _completeness_errors(items, found, f"{path}.items", f"{where}.items")
    for name, each in (value.get("properties") or {}).items():
        known = (schema.get("properties") or {}).get(name)
        place = f".properties[{name}]"
        errors += _completeness_errors(each, known, path + place, where + place)
    return errors


_UNSUPPORTED_KEYWORDS = ("id", "additionalItems", "patternProperties", "definitions", "dependencies", "$ref")


def keyword_errors(schema: Schema, path: str, *, meta: bool, no_default: str | None) -> list[FieldError]:
    """The errors of one node's keywords. ``meta``: inside a resource's metadata; ``no_default``: why it may not have a
    default, None if it may."""
    kind = schema.get("type") or ""
    errors: list[FieldError] = []
    if kind and kind not in TYPES:
        errors.append(not_supported(f"{path}.type", kind, TYPES))
    if schema.get("default") is not None and no_default is not None:
        errors.append(forbidden(f"{path}.default", f"must not be set {no_default}".rstrip()))
    for key in _UNSUPPORTED_KEYWORDS:
        if schema.get(key):
            errors.append(forbidden(f"{path}.{key}", f"{key} is not supported"))
    if kind == "null":
        errors.append(forbidden(f"{path}.type", "type cannot be set to null, use nullable as an alternative"))
    if isinstance(schema.get("items"), list):
        errors.append(forbidden(f"{path}.items", "items must be a schema object and not an array"))
    if meta and schema.get("x-kubernetes-embedded-resource"):
        errors.append(forbidden(f"{path}.x-kubernetes-embedded-resource", "must not be used inside of resource meta"))
    if schema.get("uniqueItems"):
        text = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic"
        errors.append(forbidden(f"{path}.uniqueItems", text))
    additional = schema.get("additionalProperties")
    if schema.get("properties") and additional is not None and additional is not True:
        text = "additionalProperties and properties are mutual exclusive"
        errors.append(forbidden(f"{path}.additionalProperties", text))
    return errors


def extension_errors(schema: Schema, path: str) -> list[FieldError]:
    """The errors of one node's list and map extensions."""
    errors: list[FieldError] = []
    if schema.get("x-kubernetes-preserve-unknown-fields") is False:
        errors.append(invalid(f"{path}.x-kubernetes-preserve-unknown-fields", False, "must be true or undefined"))
    errors += _container_errors(schema, path, "x-kubernetes-map-type", "object", ("atomic", "granular"))
    errors += _container_errors(schema, path, "x-kubernetes-list-type", "array", ("atomic", "set", "map"))
    list_type = schema.get("x-kubernetes-list-type")
    keys = schema.get("x-kubernetes-list-map-keys") or []
    if list_type == "set" and schema.get("type") == "array":
        errors += _set_errors(schema, path)
    if keys and list_type != "map":
        place, text = f"{path}.x-kubernetes-list-type", "must be map if x-kubernetes-list-map-keys is non-empty"
        errors.append(required(place, text) if list_type is None else invalid(place, list_type, text))
    if list_type == "map":
        errors += _map_errors(schema, path, keys)
    if list_type in ("set", "map") and isinstance(schema.get("items"), Mapping):
        errors += _key_errors(schema["items"], path, list_type, keys)
    return errors


def _container_errors(schema: Schema, path: str, key: str, kind: str, choices: tuple[str, ...]) -> list[FieldError]:
    value, errors = schema.get(key), []
    if value is None:
        return []
    if schema.get("type") != kind:
        place, text = f"{path}.type", f"must be {kind} if {key} is specified"
        given = schema.get("type")
        errors.append(invalid(place, given, text) if given else required(place, text))
    if value not in choices:
        errors.append(not_supported(f"{path}.{key}", value, choices))
    return errors


def _set_errors(schema: Schema, path: str) -> list[FieldError]:
    items = schema.get("items")
    if not isinstance(items, Mapping):
        return []
    text = "must be atomic as item of a list with x-kubernetes-list-type=set"
    kind, list_type = items.get("type"), items.get("x-kubernetes-list-type")
    if kind == "array" and list_type not in (None, "atomic"):
        return [invalid(f"{path}.items.x-kubernetes-list-type", list_type, text)]
    if kind == "object" and items.get("x-kubernetes-map-type") != "atomic":
        return [invalid(f"{path}.items.x-kubernetes-map-type", list_type, text)]
    return []


def _map_errors(schema: Schema, path: str, keys: list[str]) -> list[FieldError]:
    errors: list[FieldError] = []
    if not keys:
        text = "must not be empty if x-kubernetes-list-type is map"
        errors.append(required(f"{path}.x-kubernetes-list-map-keys", text))
    items = schema.get("items")
    if items is None:
        errors.append(required(f"{path}.items", "must have a schema if x-kubernetes-list-type is map"))
    elif not isinstance(items, Mapping):
        text = "must only have a single schema if x-kubernetes-list-type is map"
        errors.append(invalid(f"{path}.items", items, text))
    elif items.get("type") != "object":
        text = "must be object if parent array's x-kubernetes-list-type is map"
        errors.append(invalid(f"{path}.items.type", items.get("type") or "", text))
    else:
        properties = items.get("properties") or {}
        place = f"{path}.x-kubernetes-list-map-keys"
        for index, key in enumerate(keys):
            if key not in properties:
                errors.append(invalid(place, keys, "entries must all be names of item properties"))
            elif properties[key].get("type") in ("array", "object"):
                text = "must be a scalar type if parent array's x-kubernetes-list-type is map"
                errors.append(invalid(f"{path}.items.properties[{key}].type", items.get("type"), text))
            if key in keys[:index]:
                errors.append(invalid(place, keys, "must not contain duplicate entries"))
    return errors


def _key_errors(items: Schema, path: str, list_type: str, keys: list[str]) -> list[FieldError]:
    errors: list[FieldError] = []
    if items.get("nullable"):
        text = f"cannot be nullable when x-kubernetes-list-type is {list_type}"
        errors.append(forbidden(f"{path}.items.nullable", text))
    if list_type != "map":
        return errors
    needed, properties = items.get("required") or (), items.get("properties") or {}
    why = "this property is in x-kubernetes-list-map-keys, so it"
    for key in keys:
        if key not in properties:
            continue
        place = f"{path}.items.properties[{key}]"
        if key not in needed and properties[key].get("default") is None:
            errors.append(required(f"{place}.default", f"{why} must have a default or be a required property"))
        if properties[key].get("nullable"):
            errors.append(forbidden(f"{place}.nullable", f"{why} cannot be nullable"))
    return errors
