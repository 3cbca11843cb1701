"""The tree a structural schema compiles to, and the two walks over it that change objects: pruning and defaulting.

Structure (which fields exist) and values (which are allowed) are separate, as in the schema's own rules: this module
has the structure, ``checks.py`` the values. ``type_of_schema`` returns the ``Type`` for patches and server-side apply.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

from shoal.kube.schema.builtin import META, type_of
from shoal.kube.schema.model import ANY, Field, Form, Type

Schema = Mapping[str, Any]
META_FIELDS: Final = frozenset({"apiVersion", "kind", "metadata"})
_FORMS: Final = {
    "string": Form.STRING,
    "integer": Form.INTEGER,
    "number": Form.NUMBER,
    "boolean": Form.BOOLEAN,
}


class SchemaNode:
    """The structure of one node of the schema."""

    deep_lists: bool  # a list of type set or map is here or below
    deep_resources: bool  # an embedded resource is here or below

    __slots__ = (
        "additional",
        "default",
        "deep_lists",
        "deep_resources",
        "embedded",
        "has_additional",
        "has_default",
        "items",
        "keys",
        "list_type",
        "nullable",
        "own_defaults",
        "preserve",
        "properties",
        "scalar",
    )

    def __init__(self, schema: Schema, *, root: bool = False) -> None:
        self.preserve = bool(schema.get("x-kubernetes-preserve-unknown-fields"))
        self.embedded = root or bool(schema.get("x-kubernetes-embedded-resource"))
        self.nullable = bool(schema.get("nullable"))
        self.default = schema.get("default")
        self.has_default = self.default is not None
        self.list_type: str = schema.get("x-kubernetes-list-type") or ""
        self.keys = tuple(schema.get("x-kubernetes-list-map-keys") or ())
        self.properties = {name: SchemaNode(each) for name, each in (schema.get("properties") or {}).items()}
        additional = schema.get("additionalProperties")
        self.has_additional = additional is not None
        self.additional = SchemaNode(additional) if isinstance(additional, Mapping) else None
        items = schema.get("items")
        self.items = SchemaNode(items) if isinstance(items, Mapping) else None
        self._summarize(root)

    def _summarize(self, root: bool) -> None:
        below = [*self.properties.values(), *(each for each in (self.additional, self.items) if each is not None)]
        self.own_defaults = tuple((name, each.default) for name, each in self.properties.items() if each.has_default)
        self.deep_lists = self.list_type in ("set", "map") or any(each.deep_lists for each in below)
        self.deep_resources = (self.embedded and not root) or any(each.deep_resources for each in below)
        self.scalar = not below and not self.has_additional and not self.preserve and not self.embedded


def copy_json(value: Any) -> Any:
    kind = type(value)
    if kind is dict:
        return {name: copy_json(item) for name, item in value.items()}
    if kind is list:
        return [copy_json(item) for item in value]
    return value


def prune(value: Any, node: SchemaNode | None, path: str, unknown: list[str], keep: bool = False) -> None:
    """Remove unknown fields, in place, and add their paths to ``unknown``.

    ``keep``: the list around this item preserves unknown fields, which applies to its items too, but not to the fields
    that the items' schema has.
    """
    if node is not None and node.preserve:
        keep = True
    if type(value) is dict:
        if node is not None:
            _prune_object(value, node, path, unknown, keep)
        elif not keep:
            unknown += (_join(path, name) for name in value)
            value.clear()
    elif type(value) is list:
        items = node.items if node is not None else None
        if keep and items is None:
            return
        for index, item in enumerate(value):
            if type(item) is dict or type(item) is list:
                prune(item, items, f"{path}[{index}]", unknown, keep)


def _prune_object(value: dict[str, Any], node: SchemaNode, path: str, unknown: list[str], keep_all: bool) -> None:
    properties, embedded = node.properties, node.embedded
    doomed: list[str] = []
    for name, item in value.items():
        if embedded and name in META_FIELDS:
            continue
        child = properties.get(name)
        if child is None:
            if not node.has_additional:
                if not keep_all:
                    doomed.append(name)
                continue
            child = node.additional
        if type(item) is dict or type(item) is list:
            prune(item, child, _join(path, name), unknown)
    for name in doomed:
        unknown.append(_join(path, name))
        del value[name]
    if embedded:
        meta = value.get("metadata")
        if type(meta) is dict:
            prune_metadata(meta, _join(path, "metadata"), unknown)


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


@lru_cache(maxsize=1)
def object_meta() -> Type:
    return type_of(META + "ObjectMeta")


def prune_metadata(meta: dict[str, Any], path: str, unknown: list[str]) -> None:
    """Metadata is always ObjectMeta, whatever the schema says of it."""
    _prune_typed(meta, object_meta(), path, unknown)
    if "creationTimestamp" in meta and meta["creationTimestamp"] is None:
        del meta["creationTimestamp"]


def _prune_typed(value: Any, shape: Type, path: str, unknown: list[str]) -> None:
    if shape.form is Form.STRUCT and type(value) is dict:
        for name in [name for name in value if name not in shape.fields]:
            unknown.append(_join(path, name))
            del value[name]
        for name, item in value.items():
            if type(item) is list:
                _prune_typed(item, shape.fields[name].type, _join(path, name), unknown)
    elif shape.form is Form.LIST and type(value) is list:
        for index, item in enumerate(value):
            _prune_typed(item, shape.element, f"{path}[{index}]", unknown)


def fill(value: Any, node: SchemaNode) -> None:
    """Write defaults in place. A null that is not nullable counts as absent: it becomes the default or is removed."""
    if type(value) is dict:
        _fill_object(value, node)
    elif type(value) is list and node.items is not None:
        items = node.items
        for index, item in enumerate(value):
            if item is None and not items.nullable:
                item = value[index] = copy_json(items.default)
            if type(item) is dict or type(item) is list:
                fill(item, items)


def _fill_object(value: dict[str, Any], node: SchemaNode) -> None:
    properties, additional = node.properties, node.additional
    nulls: list[str] = []
    for name, item in value.items():
        if item is None:
            nulls.append(name)
    for name in nulls:
        child = properties.get(name) or additional
        if child is not None and not child.nullable:
            if child.has_default:
                value[name] = copy_json(child.default)
            else:
                del value[name]
    for name, default in node.own_defaults:
        if name not in value:
            value[name] = copy_json(default)
    for name, item in value.items():
        if type(item) is dict or type(item) is list:
            child = properties.get(name) or additional
            if child is not None and not child.scalar:
                fill(item, child)


def type_of_schema(schema: Schema, *, root: bool = False) -> Type:
    """The ``Type`` of a structural schema."""
    if schema.get("x-kubernetes-int-or-string"):
        built = Type(Form.INT_OR_STRING)
    elif schema.get("type") == "object":
        built = _object_type(schema, root=root or bool(schema.get("x-kubernetes-embedded-resource")))
    elif schema.get("type") == "array" and isinstance(schema.get("items"), Mapping):
        built = _list_type(schema)
    elif schema.get("type") in _FORMS:
        built = Type(_FORMS[schema["type"]])
    else:
        built = Type(Form.ANY)
    built.nullable = bool(schema.get("nullable"))
    return built


def _object_type(schema: Schema, *, root: bool) -> Type:
    properties = schema.get("properties") or {}
    additional = schema.get("additionalProperties")
    preserve = bool(schema.get("x-kubernetes-preserve-unknown-fields"))
    atomic = schema.get("x-kubernetes-map-type") == "atomic"
    if not properties and not root:
        if isinstance(additional, Mapping) or additional:
            built = Type(Form.MAP)
            built.element = type_of_schema(additional) if isinstance(additional, Mapping) else ANY
            built.atomic = atomic
            return built
        if preserve and not atomic:
            return Type(Form.ANY)
    built = Type(Form.STRUCT)
    built.atomic = atomic
    built.preserve_unknown = preserve
    for name, each in properties.items():
        built.fields[name] = Field(name, type_of_schema(each))
    if root:
        text = Type(Form.STRING)
        built.fields["apiVersion"] = Field("apiVersion", text)
        built.fields["kind"] = Field("kind", text)
        built.fields["metadata"] = Field("metadata", object_meta())
    return built


def _list_type(schema: Schema) -> Type:
    items: Schema = schema["items"]
    built = Type(Form.LIST)
    built.element = type_of_schema(items)
    built.list_type = schema.get("x-kubernetes-list-type") or "atomic"
    if built.list_type == "map":
        built.keys = tuple(schema.get("x-kubernetes-list-map-keys") or ())
        properties = items.get("properties") or {}
        defaults = ((key, (properties.get(key) or {}).get("default")) for key in built.keys)
        built.key_defaults = {key: default for key, default in defaults if default is not None}
    return built
