"""The built-in types, built on demand from the compiled table.

A server builds only the types of the kinds that it handles: building all 860 would take longer than the rest of the
start-up.
"""

from __future__ import annotations

import gzip
from functools import cache
from pathlib import Path
from typing import Any

import orjson

from shoal.errors import ConfigError
from shoal.kube.schema.model import ANY, Field, Form, Type

_GENERATED = Path(__file__).parent / "generated"
META = "io.k8s.apimachinery.pkg.apis.meta.v1."

# Definitions whose JSON type is less specific than their meaning.
_SCALARS = {
    "io.k8s.apimachinery.pkg.api.resource.Quantity": Form.QUANTITY,
    "io.k8s.apimachinery.pkg.util.intstr.IntOrString": Form.INT_OR_STRING,
    META + "Time": Form.TIME,
    META + "MicroTime": Form.MICRO_TIME,
    META + "FieldsV1": Form.ANY,
    "io.k8s.apimachinery.pkg.runtime.RawExtension": Form.ANY,
    "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSON": Form.ANY,
    "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrArray": Form.ANY,
    "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrBool": Form.ANY,
    "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrStringArray": Form.ANY,
}
_PLAIN = {"string": Form.STRING, "integer": Form.INTEGER, "number": Form.NUMBER, "boolean": Form.BOOLEAN}
# The package's schemas have no defaults; these are the ones of keys of list items.
_KEY_DEFAULTS = {"protocol": "TCP"}


@cache
def _table() -> dict[str, Any]:
    path = _GENERATED / "types.json"
    try:
        table: dict[str, Any] = orjson.loads(path.read_bytes())
    except FileNotFoundError:
        raise ConfigError(f"{path} is missing: run `make setup` (or `python -m shoal.kube.schema.compile`)") from None
    return table


def kubernetes_version() -> str:
    """The version of Kubernetes whose types these are, e.g. ``1.37.0``."""
    version: str = _table()["version"]
    return version


def definitions() -> dict[str, Any]:
    """Every definition without prose, by name; read only."""
    types: dict[str, Any] = _table()["types"]
    return types


def described_definitions() -> dict[str, Any]:
    """Every definition with its prose, for OpenAPI. Large: callers keep no reference to it."""
    described: dict[str, Any] = orjson.loads(gzip.decompress((_GENERATED / "openapi.json.gz").read_bytes()))
    return described


@cache
def _names_by_kind() -> dict[tuple[str, str, str], str]:
    names: dict[tuple[str, str, str], str] = {}
    for name, definition in definitions().items():
        gvks = definition.get("x-kubernetes-group-version-kind") or []
        if len(gvks) == 1:
            gvk = gvks[0]
            names[gvk["group"], gvk["version"], gvk["kind"]] = name
    return names


def type_of_kind(group: str, version: str, kind: str) -> Type:
    """The type of a built-in kind; KeyError when the schema package does not have it."""
    return type_of(_names_by_kind()[group, version, kind])


def definition_name(group: str, version: str, kind: str) -> str:
    return _names_by_kind()[group, version, kind]


_built: dict[str, Type] = {}


def type_of(name: str) -> Type:
    """The type of a definition, e.g. ``io.k8s.api.core.v1.PodSpec``."""
    known = _built.get(name)
    if known is not None:
        return known
    definition = definitions()[name]
    scalar = _SCALARS.get(name)
    if scalar is Form.ANY:
        built = ANY
    elif scalar is not None:
        built = Type(scalar, name)
    elif "properties" not in definition:
        built = _anonymous(definition)
    else:
        built = Type(Form.STRUCT, name)
        _built[name] = built  # before the fields: they may lead back here
        built.atomic = definition.get("x-kubernetes-map-type") == "atomic"
        built.required = frozenset(definition.get("required") or ())
        for field_name, schema in definition["properties"].items():
            built.fields[field_name] = _field(field_name, schema)
        return built
    _built[name] = built
    return built


def _field(name: str, schema: dict[str, Any]) -> Field:
    strategies = schema.get("x-kubernetes-patch-strategy") or ""
    return Field(
        name,
        _schema_type(schema),
        frozenset(strategies.split(",")) if strategies else frozenset(),
        schema.get("x-kubernetes-patch-merge-key") or "",
    )


def _schema_type(schema: dict[str, Any]) -> Type:
    reference = schema.get("$ref")
    if reference is None:
        return _anonymous(schema)
    target = type_of(reference)
    if schema.get("x-kubernetes-map-type") == "atomic" and not target.atomic:
        return _atomic_twin(target)
    return target


def _atomic_twin(target: Type) -> Type:
    """A struct that is owned field by field elsewhere but as a whole here, such as an object reference."""
    twin = Type(Form.STRUCT, target.name)
    twin.fields, twin.required, twin.atomic = target.fields, target.required, True
    return twin


def _anonymous(schema: dict[str, Any]) -> Type:
    kind = schema.get("type")
    if kind == "array":
        built = Type(Form.LIST)
        built.element = _schema_type(schema["items"])
        built.list_type = schema.get("x-kubernetes-list-type") or "atomic"
        built.keys = tuple(schema.get("x-kubernetes-list-map-keys") or ())
        built.key_defaults = {key: _KEY_DEFAULTS[key] for key in built.keys if key in _KEY_DEFAULTS}
        return built
    if kind == "object":
        if "additionalProperties" not in schema:
            return ANY
        built = Type(Form.MAP)
        built.element = _schema_type(schema["additionalProperties"])
        built.atomic = schema.get("x-kubernetes-map-type") == "atomic"
        return built
    if kind == "string" and schema.get("format") == "byte":
        return Type(Form.BYTES)
    if kind == "string" and schema.get("format") == "date-time":
        return Type(Form.TIME)
    if kind in _PLAIN:
        built = Type(_PLAIN[kind])
        if schema.get("format") == "int32":
            built.bits = 32
        return built
    return ANY
