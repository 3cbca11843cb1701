"""Checks the defaults in a schema: they must pass its own rules, and pruning must not remove anything from them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from shoal.errors import FieldError, invalid
from shoal.kube.crd.checks import MISSING, compile_check, same
from shoal.kube.crd.extras import resource_errors
from shoal.kube.crd.model import META_FIELDS, SchemaNode, copy_json, prune
from shoal.kube.crd.rules import COST_BUDGET, compile_rules

Schema = Mapping[str, Any]


def default_errors(schema: Schema, path: str) -> list[FieldError]:
    """The errors in the defaults of a structural schema."""
    errors: list[FieldError] = []
    _visit(schema, path, errors, root=True, meta=False)
    return errors


def _visit(schema: Schema, path: str, errors: list[FieldError], *, root: bool, meta: bool) -> None:
    resource = root or bool(schema.get("x-kubernetes-embedded-resource"))
    if schema.get("default") is not None:
        errors += _errors(schema, f"{path}.default", pruned=not meta)
    items = schema.get("items")
    if isinstance(items, Mapping):
        _visit(items, f"{path}.items", errors, root=False, meta=meta)
    for name, each in (schema.get("properties") or {}).items():
        inside = meta or (resource and name in META_FIELDS)
        _visit(each, f"{path}.properties[{name}]", errors, root=False, meta=inside)


def _errors(schema: Schema, path: str, *, pruned: bool) -> list[FieldError]:
    value = schema["default"]
    node = SchemaNode(schema)
    if pruned:
        copy = copy_json(value)
        prune(copy, node, "", [])
        if not same(copy, value):
            return [invalid(path, value, "must not have unknown fields")]
    errors: list[FieldError] = resource_errors(value, node, path, inside=True)
    if errors:
        return errors
    found: list[FieldError] = []
    compile_check(schema)(value, "", found, MISSING)
    if found:
        return [_placed(error, path) for error in found]
    rules = compile_rules(schema, resource=bool(schema.get("x-kubernetes-embedded-resource")))
    if rules is not None:
        found = rules.validate(value, value, COST_BUDGET, None) or rules.validate(value, None, COST_BUDGET, None)
    return [_placed(error, path) for error in found]


def _placed(error: FieldError, path: str) -> FieldError:
    inner = error.field.removeprefix(".").replace("<nil>", "")
    place = f"{path}.{inner}" if inner and not inner.startswith("[") else path + inner
    return type(error)(error.cause, place, error.detail, error.value)
