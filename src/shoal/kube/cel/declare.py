"""Schemas as types of expressions, and data as values of those types.

Field names that are not identifiers are escaped (``x-y`` is ``x__dash__y``). A field whose schema has no type is not
visible to expressions.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from shoal.kube.cel import types
from shoal.kube.cel.errors import EvalError
from shoal.kube.cel.library.conversions import duration_from_text, timestamp_from_text
from shoal.kube.cel.types import Decl, Type
from shoal.kube.cel.values import MapList, SetList

Schema = Mapping[str, Any]
Adapter = Callable[[Any], Any]

MAX_REQUEST_BYTES: Final = 3 * 1024 * 1024
_RESERVED: Final = frozenset({
    "true", "false", "null", "in", "as", "break", "const", "continue", "else", "for", "function", "if", "import", "let",
    "loop", "package", "namespace", "return", "var", "void", "while",
})  # fmt: skip
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_ESCAPABLE = re.compile(r"[A-Za-z_.\-/][A-Za-z0-9_.\-/]*", re.ASCII)
_ESCAPES: Final = {"__": "__underscores__", ".": "__dot__", "-": "__dash__", "/": "__slash__"}
_ESCAPE = re.compile(r"__|[.\-/]")
_NAME_LENGTHS: Final = {"name": 253, "generateName": 252}
_TIME_SIZES: Final = {"date": (12, 12), "date-time": (21, 32), "duration": (3, 32)}


def escape(name: str) -> str | None:
    """A field's name as an identifier; None if it cannot be escaped."""
    if name in _RESERVED:
        return f"__{name}__"
    if _PLAIN.fullmatch(name) and "__" not in name:
        return name
    if not _ESCAPABLE.fullmatch(name):
        return None
    return _ESCAPE.sub(lambda found: _ESCAPES[found[0]], name)


def with_meta(schema: Schema) -> Schema:
    """A resource's schema with the fields that every object has."""
    given: Schema = schema.get("properties") or {}
    meta = given.get("metadata") or {}
    names: Schema = meta.get("properties") or {}
    texts = [given.get("kind"), given.get("apiVersion"), *(names.get(name) for name in _NAME_LENGTHS)]
    if meta.get("type") == "object" and all(each is not None and each.get("type") == "string" for each in texts):
        return schema
    text = {"type": "string"}
    made = {name: _capped(names.get(name) or {}, most) for name, most in _NAME_LENGTHS.items()}
    known = {"kind": text, "apiVersion": text, "metadata": {"type": "object", "properties": made}}
    return {**schema, "properties": {**given, **known}}


def _capped(schema: Schema, most: int) -> Schema:
    limit = schema.get("maxLength")
    return {"type": "string", "maxLength": most if limit is None else min(limit, most)}


def declare(schema: Schema, name: str = "selfType", *, resource: bool = False) -> Decl | None:
    """The type of a schema's values; None if expressions cannot see them."""
    if schema.get("x-kubernetes-int-or-string"):
        limit = schema.get("maxLength")
        return Decl(types.DYN, 1, max(0, limit) * 4 if limit is not None else MAX_REQUEST_BYTES - 2)
    if resource:
        schema = with_meta(schema)
    kind = schema.get("type")
    if kind == "array":
        return _list(schema, name)
    if kind == "object":
        return _map(schema, name) if isinstance(schema.get("additionalProperties"), Mapping) else _object(schema, name)
    if kind == "string":
        return _string(schema)
    simple = {"boolean": (types.BOOL, 4), "number": (types.DOUBLE, 1), "integer": (types.INT, 1)}.get(kind or "")
    return Decl(*simple) if simple else None


def _list(schema: Schema, name: str) -> Decl | None:
    items = schema.get("items")
    if not isinstance(items, Mapping):
        return None
    elem = declare(items, f"{name}.@idx", resource=bool(items.get("x-kubernetes-embedded-resource")))
    if elem is None:
        return None
    limit = schema.get("maxItems")
    count = max(0, limit) if limit is not None else (MAX_REQUEST_BYTES - 2) // (elem.min_size + 1)
    made = Decl(types.list_of(elem.type), 2, count)
    made.elem = elem
    return made


def _map(schema: Schema, name: str) -> Decl | None:
    values: Schema = schema["additionalProperties"]
    elem = declare(values, f"{name}.@elem", resource=bool(values.get("x-kubernetes-embedded-resource")))
    if elem is None:
        return None
    limit = schema.get("maxProperties")
    count = max(0, limit) if limit is not None else (MAX_REQUEST_BYTES - 2) // (elem.min_size + 6)
    made = Decl(types.map_of(types.STRING, elem.type), 2, count)
    made.key, made.elem = Decl(types.STRING, 2), elem
    return made


def _object(schema: Schema, name: str) -> Decl:
    needed = set(schema.get("required") or ())
    size = 2
    fields: dict[str, tuple[str, Decl]] = {}
    for field, each in (schema.get("properties") or {}).items():
        escaped = escape(field)
        below = f"{name}.{escaped}"
        made = declare(each, below, resource=bool(each.get("x-kubernetes-embedded-resource")))
        if made is None:
            continue
        if escaped is not None:
            fields[escaped] = (field, made)
        if field in needed and each.get("default") is None:
            size += len(field) + made.min_size + 4
    declared = Decl(types.DYN, size)
    declared.fields = fields
    declared.type = Type("struct", name, (), declared)
    return declared


def _string(schema: Schema) -> Decl:
    shape, limit = schema.get("format"), schema.get("maxLength")
    if shape in _TIME_SIZES:
        smallest, largest = _TIME_SIZES[shape]
        return Decl(types.DURATION if shape == "duration" else types.TIMESTAMP, smallest, largest)
    if shape == "byte":
        return Decl(types.BYTES, 2, max(0, limit) if limit is not None else MAX_REQUEST_BYTES - 2)
    if limit is not None:
        return Decl(types.STRING, 2, max(0, limit) * 4)
    choices = schema.get("enum")
    if choices:
        return Decl(types.STRING, 2, max((len(each.encode()) for each in choices if isinstance(each, str)), default=0))
    return Decl(types.STRING, 2, MAX_REQUEST_BYTES - 2)


def adapter(schema: Schema, *, lists: bool) -> Adapter | None:
    """A function that converts data into values of the schema's types; None if none is needed. Data is copied, not
    changed.

    ``lists``: whether lists of type set and map must compare and add as such; few expressions need it.
    """
    kind = schema.get("type")
    if schema.get("x-kubernetes-int-or-string"):
        return None
    if kind == "number":
        return lambda value: float(value) if type(value) is int else value
    if kind == "string":
        return _STRING_ADAPTERS.get(schema.get("format") or "")
    if kind == "array" and isinstance(schema.get("items"), Mapping):
        return _list_adapter(schema, lists=lists)
    if kind == "object":
        return _object_adapter(schema, lists=lists)
    return None


def _list_adapter(schema: Schema, *, lists: bool) -> Adapter | None:
    item = adapter(schema["items"], lists=lists)
    list_type = schema.get("x-kubernetes-list-type") if lists else None
    keys = tuple(schema.get("x-kubernetes-list-map-keys") or ())
    if item is None and list_type not in ("set", "map"):
        return None

    def adapt(value: Any) -> Any:
        if type(value) is not list:
            return value
        items = value if item is None else [each if each is None else item(each) for each in value]
        if list_type == "map":
            return MapList(items, keys)
        return SetList(items) if list_type == "set" else items

    return adapt


def _object_adapter(schema: Schema, *, lists: bool) -> Adapter | None:
    additional = schema.get("additionalProperties")
    if isinstance(additional, Mapping):
        each = adapter(additional, lists=lists)
        if each is None:
            return None
        return lambda value: (
            {name: item if item is None else each(item) for name, item in value.items()}
            if type(value) is dict
            else value
        )
    made = {name: adapter(below, lists=lists) for name, below in (schema.get("properties") or {}).items()}
    needed = [(name, each) for name, each in made.items() if each is not None]
    if not needed:
        return None

    def adapt(value: Any) -> Any:
        if type(value) is not dict:
            return value
        result = value
        for name, change in needed:
            item = value.get(name)
            if item is not None:
                if result is value:
                    result = dict(value)
                result[name] = change(item)
        return result

    return adapt


def _bytes(value: Any) -> Any:
    try:
        return base64.b64decode(value) if type(value) is str else value
    except (binascii.Error, ValueError):
        raise EvalError("bytes value is not valid base64") from None


def _date(value: Any) -> Any:
    return timestamp_from_text(f"{value}T00:00:00Z") if type(value) is str else value


_STRING_ADAPTERS: Final[dict[str, Adapter]] = {
    "byte": _bytes,
    "date": _date,
    "date-time": lambda value: timestamp_from_text(value.upper()) if type(value) is str else value,
    "duration": lambda value: duration_from_text(value) if type(value) is str else value,
}
