"""Properties of every schema: pruning and defaulting are idempotent, and only field errors are reported."""

from __future__ import annotations

import copy
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.errors import FieldError
from shoal.kube.crd.definition import default_crd, prepare_create
from shoal.kube.crd.schema_rules import structural_errors
from shoal.kube.crd.structural import Structural
from shoal.kube.crd.validation import validate_crd
from shoal.kube.objects import Obj

_SCALARS: list[tuple[Obj, Any]] = [
    ({"type": "string"}, st.text(max_size=5)),
    ({"type": "string", "maxLength": 3}, st.text(max_size=3)),
    ({"type": "string", "enum": ["a", "b"]}, st.sampled_from(["a", "b"])),
    ({"type": "string", "pattern": "^[a-c]*$"}, st.text("abc", max_size=4)),
    ({"type": "string", "nullable": True}, st.none() | st.just("x")),
    ({"type": "integer"}, st.integers(-(2**63), 2**63 - 1)),
    ({"type": "integer", "minimum": 0, "maximum": 9}, st.integers(0, 9)),
    ({"type": "integer", "default": 4}, st.integers(0, 9)),
    ({"type": "number"}, st.integers(-9, 9) | st.floats(-9, 9)),
    ({"type": "boolean"}, st.booleans()),
    ({"x-kubernetes-int-or-string": True}, st.integers(0, 9) | st.text(max_size=3)),
    ({"type": "string", "format": "date", "default": "2024-01-01"}, st.dates().map(str)),
]
_NAMES = st.sampled_from(["a", "b", "c-d", "kind", "metadata"])


@st.composite
def a_schema_and_value(draw: Any, depth: int = 3) -> tuple[Obj, Any]:
    """A structural schema and a value that it accepts."""
    kind = draw(st.sampled_from(["scalar", "object", "map", "list", "set", "free"] if depth else ["scalar"]))
    if kind == "scalar":
        schema, values = draw(st.sampled_from(_SCALARS))
        return schema, draw(values)
    if kind == "free":
        return {"type": "object", "x-kubernetes-preserve-unknown-fields": True}, draw(
            st.dictionaries(_NAMES, st.integers(0, 3) | st.just({"x": [1]}), max_size=2)
        )
    if kind == "set":
        schema = {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}}
        return schema, draw(st.lists(st.text("ab", max_size=2), unique=True, max_size=3))
    if kind == "object":
        fields = draw(st.dictionaries(_NAMES, a_schema_and_value(depth - 1), max_size=3))
        given_names = draw(st.sets(st.sampled_from(sorted(fields)))) if fields else set()
        properties = {name: field for name, (field, _) in fields.items()}
        return {"type": "object", "properties": properties}, {name: fields[name][1] for name in given_names}
    inner, value = draw(a_schema_and_value(depth - 1))
    if kind == "map":
        return {"type": "object", "additionalProperties": inner}, {"k": value}
    return {"type": "array", "items": inner, "maxItems": 4}, [
        copy.deepcopy(value) for _ in range(draw(st.integers(0, 3)))
    ]


@st.composite
def a_resource(draw: Any) -> tuple[Structural, Obj]:
    schema, value = draw(a_schema_and_value())
    root = {"type": "object", "properties": {"spec": schema}}
    assert structural_errors(root, "") == []
    return Structural(root), {"apiVersion": "g.io/v1", "kind": "K", "metadata": {"name": "n"}, "spec": value}


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_NAMES | st.text(max_size=3), inner, max_size=3),
    max_leaves=10,
)


@settings(max_examples=150, deadline=None)
@given(a_resource())
def test_values_made_for_a_schema_are_accepted(made: tuple[Structural, Obj]) -> None:
    structural, obj = made
    assert structural.prune(obj) == []
    structural.default(obj)
    assert structural.validate(obj) == []
    assert structural.validate(obj, copy.deepcopy(obj)) == []


@settings(max_examples=150, deadline=None)
@given(a_resource(), _JSON)
def test_pruning_and_defaulting_settle_at_once_for_any_data(made: tuple[Structural, Obj], data: Any) -> None:
    structural, obj = made
    obj["spec"] = data
    structural.prune(obj)
    pruned = copy.deepcopy(obj)
    assert structural.prune(obj) == []
    assert obj == pruned
    structural.default(obj)
    filled = copy.deepcopy(obj)
    structural.default(obj)
    assert obj == filled
    assert structural.prune(obj) == [], "defaults add nothing unknown"


@settings(max_examples=150, deadline=None)
@given(a_resource(), _JSON, _JSON)
def test_any_data_gives_field_errors_at_most(made: tuple[Structural, Obj], data: Any, before: Any) -> None:
    structural, obj = made
    for errors in (
        structural.validate({**obj, "spec": data}),
        structural.validate({**obj, "spec": data}, {**obj, "spec": before}),
        structural.validate_status({**obj, "status": data}, {**obj, "status": before}),
    ):
        assert all(isinstance(error, FieldError) and str(error) for error in errors)


@settings(max_examples=100, deadline=None)
@given(a_resource(), _JSON)
def test_what_did_not_change_is_always_tolerated(made: tuple[Structural, Obj], data: Any) -> None:
    structural, obj = made
    wrong = {**obj, "spec": data}
    assert structural.validate(wrong, copy.deepcopy(wrong)) == []


_KEYWORDS = st.sampled_from([
    "type", "format", "items", "properties", "additionalProperties", "required", "enum", "default", "nullable", "pattern",
    "maxLength", "minimum", "maximum", "multipleOf", "maxItems", "allOf", "anyOf", "oneOf", "not", "x-kubernetes-list-type",
    "x-kubernetes-list-map-keys", "x-kubernetes-map-type", "x-kubernetes-preserve-unknown-fields", "$ref", "uniqueItems",
    "x-kubernetes-embedded-resource", "x-kubernetes-int-or-string", "x-kubernetes-validations", "definitions", "id",
])  # fmt: skip
_LEAVES = st.sampled_from([
    "string", "object", "array", "integer", "null", True, False, 0, 1, -1, 2.5, None, [], {}, "(", "map", "set", "atomic", ["a"],
    [{"type": "integer"}, {"type": "string"}], {"type": "string"}, [{"rule": "self == self"}], [{"rule": "self.a > 1"}], [{}], [1],
    {"a": {"type": "string"}}, {"metadata": {"type": "object"}}, {"a": {"type": "integer", "default": 1}},
])  # fmt: skip
_SCHEMAS = st.recursive(
    st.dictionaries(_KEYWORDS, _LEAVES, max_size=5),
    lambda inner: st.dictionaries(_KEYWORDS, inner | _LEAVES | st.lists(inner, max_size=2) | st.dictionaries(_NAMES, inner, max_size=2), max_size=4),
    max_leaves=6,
)  # fmt: skip


@settings(max_examples=400, deadline=None)
@given(_SCHEMAS, st.booleans())
def test_any_schema_is_accepted_or_refused_with_field_errors(schema: Any, typed: bool) -> None:
    root = {"type": "object", "properties": {"spec": schema}} if typed else schema
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": root}}
    crd: Obj = {
        "metadata": {"name": "ks.g.io"},
        "spec": {"group": "g.io", "scope": "Cluster", "names": {"plural": "ks", "kind": "Ka"}, "versions": [version]},
    }
    default_crd(crd)
    prepare_create(crd)
    errors = validate_crd(crd)
    assert all(isinstance(error, FieldError) and str(error) for error in errors)
    if not errors:
        structural = Structural(root)
        obj: Obj = {"apiVersion": "g.io/v1", "kind": "Ka", "metadata": {"name": "n"}, "spec": {"a": 1, "metadata": {}}}
        structural.prune(obj)
        structural.default(obj)
        structural.validate(obj, {**obj, "spec": {}})
