"""The OpenAPI v2 document as a protobuf message, which Go clients request from ``/openapi/v2``.

``encode_openapi_v2`` converts the JSON form to gnostic's ``openapi_v2.Document``. Each message is a table from JSON key
to field number and type. Where the JSON form is shorter (one schema instead of a list, a map instead of named items,
alternatives), the field has a writer of its own. Unknown keys are omitted, extensions are kept.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import orjson

from shoal.kube.protobuf import wire

Writer = Callable[[Any], bytes]
Spec = dict[str, tuple[int, str]]  # JSON key -> (field number, type; a star means that it is repeated)


def encode_openapi_v2(doc: Mapping[str, Any]) -> bytes:
    """The bytes of a swagger 2.0 document."""
    return _write("Document", doc)


def _spec(extensions: int, **fields: tuple[int, str]) -> tuple[int, Spec]:
    return extensions, {key.rstrip("_"): value for key, value in fields.items()}


def _numbered(first: int, *, named: tuple[str, ...]) -> dict[str, tuple[int, str]]:
    """The fields that describe a simple value, which many messages have in this order."""
    types = {
        "items": "PrimitivesItems", "default": "any", "maximum": "double", "minimum": "double", "multipleOf": "double",
        "exclusiveMaximum": "bool", "exclusiveMinimum": "bool", "uniqueItems": "bool", "enum": "any*",
        "maxLength": "int", "minLength": "int", "maxItems": "int", "minItems": "int", "allowEmptyValue": "bool",
        "required": "bool",
    }  # fmt: skip
    return {name: (first + offset, types.get(name, "text")) for offset, name in enumerate(named)}


_VALUE = (
    "type", "format", "items", "collectionFormat", "default", "maximum", "exclusiveMaximum", "minimum",
    "exclusiveMinimum", "maxLength", "minLength", "pattern", "maxItems", "minItems", "uniqueItems", "enum",
    "multipleOf",
)  # fmt: skip
_PLACE = ("required", "in", "description", "name")

# Message -> (number of its extensions, 0 if it has none; its fields).
_MESSAGES: dict[str, tuple[int, Spec]] = {
    "Document": _spec(
        16, swagger=(1, "text"), info=(2, "Info"), host=(3, "text"), basePath=(4, "text"), schemes=(5, "text*"),
        consumes=(6, "text*"), produces=(7, "text*"), paths=(8, "paths"), definitions=(9, "named:Schema"),
        parameters=(10, "named:parameter"), responses=(11, "named:Response"), security=(12, "security*"),
        securityDefinitions=(13, "named:securityDefinition"), tags=(14, "Tag*"), externalDocs=(15, "ExternalDocs"),
    ),
    "Info": _spec(
        7, title=(1, "text"), version=(2, "text"), description=(3, "text"), termsOfService=(4, "text"),
        contact=(5, "Contact"), license=(6, "License"),
    ),
    "Contact": _spec(4, name=(1, "text"), url=(2, "text"), email=(3, "text")),
    "License": _spec(3, name=(1, "text"), url=(2, "text")),
    "Tag": _spec(4, name=(1, "text"), description=(2, "text"), externalDocs=(3, "ExternalDocs")),
    "ExternalDocs": _spec(3, description=(1, "text"), url=(2, "text")),
    "PathItem": (10, {
        "$ref": (1, "text"), "get": (2, "Operation"), "put": (3, "Operation"), "post": (4, "Operation"),
        "delete": (5, "Operation"), "options": (6, "Operation"), "head": (7, "Operation"), "patch": (8, "Operation"),
        "parameters": (9, "parameterOrReference*"),
    }),
    "Operation": _spec(
        13, tags=(1, "text*"), summary=(2, "text"), description=(3, "text"), externalDocs=(4, "ExternalDocs"),
        operationId=(5, "text"), produces=(6, "text*"), consumes=(7, "text*"), parameters=(8, "parameterOrReference*"),
        responses=(9, "responses"), schemes=(10, "text*"), deprecated=(11, "bool"), security=(12, "security*"),
    ),
    "JsonReference": (0, {"$ref": (1, "text"), "description": (2, "text")}),
    "BodyParameter": _spec(
        6, description=(1, "text"), name=(2, "text"), in_=(3, "text"), required=(4, "bool"), schema=(5, "Schema"),
    ),
    "header": (22, _numbered(1, named=(*_PLACE, *_VALUE))),
    "path": (22, _numbered(1, named=(*_PLACE, *_VALUE))),
    "query": (23, _numbered(1, named=(*_PLACE, "allowEmptyValue", *_VALUE))),
    "formData": (23, _numbered(1, named=(*_PLACE, "allowEmptyValue", *_VALUE))),
    "PrimitivesItems": (18, _numbered(1, named=_VALUE)),
    "Header": (19, _numbered(1, named=(*_VALUE, "description"))),
    "Response": _spec(
        5, description=(1, "text"), schema=(2, "schemaItem"), headers=(3, "named:Header"), examples=(4, "named:any"),
    ),
    "Schema": (31, {
        "$ref": (1, "text"), "format": (2, "text"), "title": (3, "text"), "description": (4, "text"),
        "default": (5, "any"), "multipleOf": (6, "double"), "maximum": (7, "double"), "exclusiveMaximum": (8, "bool"),
        "minimum": (9, "double"), "exclusiveMinimum": (10, "bool"),
        "maxLength": (11, "int"), "minLength": (12, "int"), "pattern": (13, "text"),
        "maxItems": (14, "int"), "minItems": (15, "int"), "uniqueItems": (16, "bool"), "maxProperties": (17, "int"),
        "minProperties": (18, "int"), "required": (19, "text*"), "enum": (20, "any*"),
        "additionalProperties": (21, "schemaOrBool"), "type": (22, "typeItem"), "items": (23, "itemsItem"),
        "allOf": (24, "Schema*"), "properties": (25, "named:Schema"), "discriminator": (26, "text"),
        "readOnly": (27, "bool"), "xml": (28, "Xml"), "externalDocs": (29, "ExternalDocs"), "example": (30, "any"),
    }),
    "FileSchema": _spec(
        10, format=(1, "text"), title=(2, "text"), description=(3, "text"), default=(4, "any"), required=(5, "text*"),
        type=(6, "text"), readOnly=(7, "bool"), externalDocs=(8, "ExternalDocs"), example=(9, "any"),
    ),
    "Xml": _spec(
        6, name=(1, "text"), namespace=(2, "text"), prefix=(3, "text"), attribute=(4, "bool"), wrapped=(5, "bool"),
    ),
    "basic": _spec(3, type=(1, "text"), description=(2, "text")),
    "apiKey": _spec(5, type=(1, "text"), name=(2, "text"), in_=(3, "text"), description=(4, "text")),
    "implicit": _spec(
        6, type=(1, "text"), flow=(2, "text"), scopes=(3, "named:text"), authorizationUrl=(4, "text"),
        description=(5, "text"),
    ),
    "password": _spec(
        6, type=(1, "text"), flow=(2, "text"), scopes=(3, "named:text"), tokenUrl=(4, "text"), description=(5, "text"),
    ),
    "application": _spec(
        6, type=(1, "text"), flow=(2, "text"), scopes=(3, "named:text"), tokenUrl=(4, "text"), description=(5, "text"),
    ),
    "accessCode": _spec(
        7, type=(1, "text"), flow=(2, "text"), scopes=(3, "named:text"), authorizationUrl=(4, "text"),
        tokenUrl=(5, "text"), description=(6, "text"),
    ),
}  # fmt: skip


def _write(message: str, value: Mapping[str, Any]) -> bytes:
    extensions, spec = _MESSAGES[message]
    parts: list[tuple[int, bytes]] = []
    for key, item in value.items():
        if key in spec:
            number, kind = spec[key]
            parts.append((number, _field(number, kind, item)))
        elif extensions and key.startswith("x-"):
            parts.append((extensions, wire.delimited(extensions, _named(key, _any(item)))))
    parts.sort(key=lambda part: part[0])
    return b"".join(part for _, part in parts)


def _field(number: int, kind: str, value: Any) -> bytes:
    if value is None:
        return b""
    if kind.endswith("*"):
        write = _writer(kind[:-1])
        return b"".join(wire.delimited(number, write(item)) for item in value)
    if kind == "bool":
        return wire.tag(number, wire.VARINT) + b"\x01" if value else b""
    if kind == "int":
        return wire.tag(number, wire.VARINT) + wire.varint(int(value)) if value else b""
    if kind == "double":
        return wire.tag(number, wire.FIXED64) + wire.double(float(value)) if value else b""
    return wire.delimited(number, _writer(kind)(value))


def _writer(kind: str) -> Writer:
    if kind.startswith("named:"):
        write = _writer(kind[6:])
        return lambda items: b"".join(wire.delimited(1, _named(name, write(item))) for name, item in items.items())
    special = _WRITERS.get(kind)
    return special if special is not None else lambda value: _write(kind, value)


def _named(name: str, payload: bytes) -> bytes:
    return wire.delimited(1, name.encode()) + wire.delimited(2, payload)


def _text(value: Any) -> bytes:
    return str(value).encode()


def _any(value: Any) -> bytes:
    """Any value as YAML text; JSON is YAML."""
    return wire.delimited(2, orjson.dumps(value) + b"\n")


def _texts(value: Any) -> bytes:
    return b"".join(wire.delimited(1, _text(item)) for item in (value if isinstance(value, list) else [value]))


def _items(value: Any) -> bytes:
    schemas = value if isinstance(value, list) else [value]
    return b"".join(wire.delimited(1, _write("Schema", schema)) for schema in schemas)


def _schema_or_bool(value: Any) -> bytes:
    if isinstance(value, bool):
        return wire.tag(2, wire.VARINT) + (b"\x01" if value else b"\x00")
    return wire.delimited(1, _write("Schema", value))


def _schema_item(value: Any) -> bytes:
    if value.get("type") == "file":
        return wire.delimited(2, _write("FileSchema", value))
    return wire.delimited(1, _write("Schema", value))


_NON_BODY = {"header": 1, "formData": 2, "query": 3, "path": 4}


def _parameter(value: Mapping[str, Any]) -> bytes:
    place = value.get("in", "")
    if place == "body":
        return wire.delimited(1, _write("BodyParameter", value))
    if place not in _NON_BODY:
        raise ValueError(f"a parameter cannot be in {place!r}")
    return wire.delimited(2, wire.delimited(_NON_BODY[place], _write(place, value)))


def _parameter_or_reference(value: Mapping[str, Any]) -> bytes:
    if "$ref" in value:
        return wire.delimited(2, _write("JsonReference", value))
    return wire.delimited(1, _parameter(value))


def _responses(value: Mapping[str, Any]) -> bytes:
    parts = [b"", b""]
    for code, response in value.items():
        if code.startswith("x-"):
            parts[1] += wire.delimited(2, _named(code, _any(response)))
            continue
        is_reference = "$ref" in response
        payload = _write("JsonReference" if is_reference else "Response", response)
        parts[0] += wire.delimited(1, _named(code, wire.delimited(2 if is_reference else 1, payload)))
    return b"".join(parts)


def _paths(value: Mapping[str, Any]) -> bytes:
    extensions, items = [], []
    for key, item in value.items():
        if key.startswith("x-"):
            extensions.append(wire.delimited(1, _named(key, _any(item))))
        else:
            items.append(wire.delimited(2, _named(key, _write("PathItem", item))))
    return b"".join(extensions + items)


_SECURITY = {"basic": 1, "apiKey": 2, "implicit": 3, "password": 4, "application": 5, "accessCode": 6}


def _security_definition(value: Mapping[str, Any]) -> bytes:
    kind = value.get("flow") if value.get("type") == "oauth2" else value.get("type")
    if kind not in _SECURITY:
        raise ValueError(f"a security definition cannot be of type {kind!r}")
    return wire.delimited(_SECURITY[kind], _write(kind, value))


def _security(value: Mapping[str, Any]) -> bytes:
    return b"".join(wire.delimited(1, _named(name, _texts(scopes))) for name, scopes in value.items())


_WRITERS: dict[str, Writer] = {
    "text": _text,
    "any": _any,
    "typeItem": _texts,
    "itemsItem": _items,
    "schemaOrBool": _schema_or_bool,
    "schemaItem": _schema_item,
    "parameter": _parameter,
    "parameterOrReference": _parameter_or_reference,
    "responses": _responses,
    "paths": _paths,
    "securityDefinition": _security_definition,
    "security": _security,
}
