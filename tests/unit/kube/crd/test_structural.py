"""A compiled schema prunes, defaults and validates objects as Kubernetes does, in its words."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from shoal.errors import Cause
from shoal.kube.crd.structural import Structural
from shoal.kube.objects import Obj
from shoal.kube.schema.model import Form


def a_schema(**spec: Any) -> Obj:
    return {"type": "object", "properties": {"spec": {"type": "object", "properties": spec}}}


def an_object(**spec: Any) -> Obj:
    return {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}, "spec": spec}


def faults(field: Obj, value: Any, old: Any = ...) -> list[str]:
    """The errors of one field ``spec.x``."""
    structural = Structural(a_schema(x=field))
    before = None if old is ... else an_object(x=old)
    return [str(error) for error in structural.validate(an_object(x=value), before)]


TEXT, WHOLE = {"type": "string"}, {"type": "integer"}

VALID: list[tuple[Obj, Any]] = [
    (TEXT, ""),
    (WHOLE, -5),
    (WHOLE, 3.0),
    ({"type": "number"}, 1),
    ({"type": "number"}, 1.5),
    ({"type": "boolean"}, False),
    ({"type": "string", "nullable": True}, None),
    ({"type": "array", "items": TEXT}, ["a"]),
    ({"type": "object", "additionalProperties": WHOLE}, {"a": 1}),
    ({"x-kubernetes-int-or-string": True}, 1),
    ({"x-kubernetes-int-or-string": True}, "50%"),
    ({"x-kubernetes-preserve-unknown-fields": True}, {"a": [1, None]}),
    ({"type": "string", "enum": ["a", "b"]}, "b"),
    ({"type": "integer", "enum": [1, 2]}, 2),
    ({"type": "string", "pattern": "b"}, "abc"),
    ({"type": "string", "pattern": "^a$"}, "a"),
    ({"type": "string", "maxLength": 2}, "éé"),
    ({"type": "integer", "minimum": 1, "maximum": 3}, 3),
    ({"type": "number", "multipleOf": 0.1}, 0.3),
    ({"type": "integer", "multipleOf": 5}, 10),
    ({"type": "string", "format": "date-time"}, "2024-01-01T00:00:00Z"),
    ({"type": "string", "format": "unheard-of"}, "anything"),
    ({"type": "integer", "format": "int32"}, 2**31 - 1),
    ({"type": "string", "format": "k8s-short-name"}, "a-b"),
    ({"type": "object", "properties": {"a": TEXT, "b": TEXT}, "oneOf": [{"required": ["a"]}, {"required": ["b"]}]}, {"a": ""}),
    ({"type": "string", "anyOf": [{"pattern": "^a"}, {"pattern": "z$"}]}, "xz"),
    ({"type": "string", "not": {"pattern": "^a"}}, "b"),
]  # fmt: skip

INVALID: list[tuple[Obj, Any, list[str]]] = [
    (WHOLE, "a", ['spec.x: Invalid value: "string": spec.x in body must be of type integer: "string"']),
    (WHOLE, 1.5, ['spec.x: Invalid value: "number": spec.x in body must be of type integer: "number"']),
    (WHOLE, 2**63, ['spec.x: Invalid value: "number": spec.x in body must be of type integer: "number"']),
    (WHOLE, True, ['spec.x: Invalid value: "boolean": spec.x in body must be of type integer: "boolean"']),
    (WHOLE, None, ['spec.x: Invalid value: "null": spec.x in body must be of type integer: "null"']),
    (TEXT, {}, ['spec.x: Invalid value: "object": spec.x in body must be of type string: "object"']),
    ({"type": "object"}, [], ['spec.x: Invalid value: "array": spec.x in body must be of type object: "array"']),
    ({"type": "boolean"}, 0, ['spec.x: Invalid value: "integer": spec.x in body must be of type boolean: "integer"']),
    (
        {"x-kubernetes-int-or-string": True},
        True,
        ['spec.x: Invalid value: "boolean": spec.x in body must be of type integer,string: "boolean"'],
    ),
    ({"type": "array", "items": WHOLE}, [1, "a"], ['spec.x[1]: Invalid value: "string": spec.x[1] in body must be of type integer: "string"']),
    ({"type": "object", "additionalProperties": WHOLE}, {"k": "a"}, ['spec.x.k: Invalid value: "string": spec.x.k in body must be of type integer: "string"']),
    ({"type": "object", "properties": {"y": TEXT}, "required": ["y"]}, {}, ["spec.x.y: Required value"]),
    ({"type": "string", "enum": ["b", "a"]}, "c", ['spec.x: Unsupported value: "c": supported values: "a", "b"']),
    ({"type": "integer", "enum": [1, 2]}, 3, ['spec.x: Unsupported value: 3: supported values: "1", "2"']),
    ({"type": "string", "pattern": "^a$"}, "a\n", ["spec.x: Invalid value: \"a\\n\": spec.x in body should match '^a$'"]),
    ({"type": "string", "maxLength": 2}, "abc", ["spec.x: Too long: may not be more than 2 bytes"]),
    ({"type": "string", "minLength": 2}, "é", ['spec.x: Invalid value: "é": spec.x in body should be at least 2 chars long']),
    ({"type": "integer", "minimum": 0}, -1, ["spec.x: Invalid value: -1: spec.x in body should be greater than or equal to 0"]),
    ({"type": "integer", "minimum": 3, "exclusiveMinimum": True}, 3, ["spec.x: Invalid value: 3: spec.x in body should be greater than 3"]),
    ({"type": "number", "maximum": 1.5}, 2.5, ["spec.x: Invalid value: 2.5: spec.x in body should be less than or equal to 1.5"]),
    ({"type": "number", "maximum": 2, "exclusiveMaximum": True}, 2.0, ["spec.x: Invalid value: 2.0: spec.x in body should be less than 2"]),
    ({"type": "integer", "multipleOf": 5}, 7, ["spec.x: Invalid value: 7: spec.x in body should be a multiple of 5"]),
    ({"type": "array", "items": WHOLE, "minItems": 2}, [1], ["spec.x: Invalid value: 1: spec.x in body should have at least 2 items"]),
    ({"type": "array", "items": WHOLE, "maxItems": 1}, [1, 2], ["spec.x: Too many: 2: must have at most 1 items"]),
    ({"type": "object", "additionalProperties": TEXT, "minProperties": 1}, {}, ["spec.x: Invalid value: 0: spec.x in body should have at least 1 properties"]),
    ({"type": "object", "additionalProperties": TEXT, "maxProperties": 1}, {"a": "", "b": ""}, ["spec.x: Too many: 2: must have at most 1 items"]),
    ({"type": "string", "format": "date"}, "2024-02-30", ['spec.x: Invalid value: "2024-02-30": spec.x in body must be of type date: "2024-02-30"']),
    ({"type": "string", "format": "ipv4"}, "::1", ['spec.x: Invalid value: "::1": spec.x in body must be of type ipv4: "::1"']),
    ({"type": "string", "format": "date-time"}, 5, ['spec.x: Invalid value: "int64": spec.x in body must be of type date-time: "int64"']),
    ({"type": "integer", "format": "int32"}, 2**31, ['<nil>: Invalid value: "": Checked value must be of type integer with format int32 in spec.x']),
    (
        {"type": "object", "properties": {"a": TEXT, "b": TEXT}, "oneOf": [{"required": ["a"]}, {"required": ["b"]}]},
        {},
        ['<nil>: Invalid value: "": "spec.x" must validate one and only one schema (oneOf). Found none valid', "spec.x.a: Required value"],
    ),
    (
        {"type": "object", "properties": {"a": TEXT, "b": TEXT}, "oneOf": [{"required": ["a"]}, {"required": ["b"]}]},
        {"a": "", "b": ""},
        ['<nil>: Invalid value: "": "spec.x" must validate one and only one schema (oneOf). Found 2 valid alternatives'],
    ),
    (
        {"type": "string", "anyOf": [{"pattern": "^a"}, {"pattern": "^b"}]},
        "c",
        ['<nil>: Invalid value: "": "spec.x" must validate at least one schema (anyOf)', "spec.x: Invalid value: \"c\": spec.x in body should match '^a'"],
    ),
    (
        {"type": "string", "allOf": [{"minLength": 2}, {"pattern": "^a"}]},
        "ac"[1:],
        [
            'spec.x: Invalid value: "c": spec.x in body should be at least 2 chars long',
            "spec.x: Invalid value: \"c\": spec.x in body should match '^a'",
            '<nil>: Invalid value: "": "spec.x" must validate all the schemas (allOf). None validated',
        ],
    ),
    ({"type": "string", "not": {"pattern": "^a"}}, "ab", ['<nil>: Invalid value: "": "spec.x" must not validate the schema (not)']),
    ({"type": "array", "x-kubernetes-list-type": "set", "items": TEXT}, ["a", "b", "a", "a"], ['spec.x[2]: Duplicate value: "a"']),
]  # fmt: skip


@pytest.mark.parametrize(("field", "value"), VALID)
def test_values_within_the_schema_are_accepted(field: Obj, value: Any) -> None:
    assert faults(field, value) == []


@pytest.mark.parametrize(("field", "value", "errors"), INVALID)
def test_values_outside_the_schema_are_refused_with_the_known_texts(field: Obj, value: Any, errors: list[str]) -> None:
    assert faults(field, value) == errors


def test_causes_tell_types_of_faults_apart() -> None:
    structural = Structural(a_schema(n=WHOLE, e={"type": "string", "enum": ["a"]}))
    causes = [error.cause for error in structural.validate(an_object(n="x", e="b"))]
    assert causes == [Cause.TYPE_INVALID, Cause.NOT_SUPPORTED]


MAP_LIST = {
    "type": "array",
    "x-kubernetes-list-type": "map",
    "x-kubernetes-list-map-keys": ["name", "port"],
    "items": {
        "type": "object",
        "properties": {"name": TEXT, "port": {**WHOLE, "default": 80}, "v": {**WHOLE, "minimum": 0}},
    },
}


def test_items_of_a_map_list_must_have_different_keys() -> None:
    items = [{"name": "a", "port": 1}, {"name": "a", "port": 2}, {"name": "a", "port": 1}]
    assert faults(MAP_LIST, items) == ['spec.x[2]: Duplicate value: {"name":"a","port":1}']


def test_unknown_fields_are_pruned_and_named() -> None:
    schema = a_schema(
        a=TEXT,
        list={"type": "array", "items": {"type": "object", "properties": {"k": TEXT}}},
        free={"type": "object", "x-kubernetes-preserve-unknown-fields": True, "properties": {"o": {"type": "object"}}},
        map={"type": "object", "additionalProperties": {"type": "object", "properties": {"k": TEXT}}},
        raw={"type": "object", "properties": {}},
    )
    obj = an_object(
        a="", b=1, list=[{"k": "", "z": 1}], free={"any": {"x": 1}, "o": {"p": 1}}, map={"m": {"k": "", "z": 1}}, raw={"r": 1}
    )  # fmt: skip
    obj["extra"] = 1
    obj["metadata"] |= {"labels": {"any": "thing"}, "nope": 1, "ownerReferences": [{"uid": "u", "odd": 1}]}
    assert Structural(schema).prune(obj) == [
        "extra",
        "metadata.nope",
        "metadata.ownerReferences[0].odd",
        "spec.b",
        "spec.free.o.p",
        "spec.list[0].z",
        "spec.map.m.z",
        "spec.raw.r",
    ]
    assert obj["spec"] == {
        "a": "",
        "list": [{"k": ""}],
        "free": {"any": {"x": 1}, "o": {}},
        "map": {"m": {"k": ""}},
        "raw": {},
    }
    assert obj["metadata"]["labels"] == {"any": "thing"}


def test_embedded_resources_keep_their_type_and_typed_metadata() -> None:
    schema = a_schema(
        pod={"type": "object", "x-kubernetes-embedded-resource": True, "properties": {"spec": {"type": "object"}}}
    )
    structural = Structural(schema)
    obj = an_object(
        pod={"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "odd": 1}, "spec": {"x": 1}, "odd": 1}
    )
    assert structural.prune(obj) == ["spec.pod.metadata.odd", "spec.pod.odd", "spec.pod.spec.x"]
    assert structural.validate(obj) == []
    bad = an_object(pod={"kind": "9", "metadata": {"name": "a/b", "labels": {"-": ""}}})
    texts = [str(error) for error in structural.validate(bad)]
    assert texts[0] == "spec.pod.apiVersion: Required value"
    assert texts[1].startswith(
        'spec.pod.kind: Invalid value: "9": may have mixed case, but should otherwise match: a DNS-1035'
    )
    assert texts[2] == "spec.pod.metadata.name: Invalid value: \"a/b\": may not contain '/'"
    assert texts[3].startswith("spec.pod.metadata.labels: Invalid value")
    wrong = an_object(pod={"apiVersion": "v1", "kind": "Pod", "metadata": {"name": 5}})
    assert "cannot unmarshal number into Go struct field ObjectMeta.name of type string" in str(
        structural.validate(wrong)[0]
    )


def test_defaults_fill_what_is_absent_or_null() -> None:
    schema = a_schema(
        n={"type": "integer", "default": 3},
        s={"type": "string"},
        keep={"type": "string", "nullable": True, "default": "d"},
        o={"type": "object", "default": {}, "properties": {"p": {"type": "object", "default": {"q": [1]}}}},
        list={"type": "array", "items": {"type": "object", "properties": {"k": {"type": "string", "default": "v"}}}},
        map={
            "type": "object",
            "additionalProperties": {"type": "object", "properties": {"k": {"type": "integer", "default": 1}}},
        },
    )
    structural = Structural(schema)
    first, second = an_object(n=None, s=None, keep=None, list=[{}], map={"a": {}, "b": None}), an_object()
    structural.default(first)
    structural.default(second)
    assert first["spec"] == {
        "n": 3, "keep": None, "o": {"p": {"q": [1]}}, "list": [{"k": "v"}], "map": {"a": {"k": 1}},
    }  # fmt: skip
    first["spec"]["o"]["p"]["q"].append(2)
    assert second["spec"] == {"n": 3, "keep": "d", "o": {"p": {"q": [1]}}}, "defaults are copied, not shared"


def test_unchanged_faults_are_tolerated_on_update() -> None:
    field = {"type": "object", "properties": {"a": {"type": "string", "maxLength": 1}, "b": TEXT}}
    assert faults(field, {"a": "long", "b": "new"}, {"a": "long", "b": "old"}) == []
    assert faults(field, {"a": "other"}, {"a": "long"}) == ["spec.x.a: Too long: may not be more than 1 bytes"]
    assert (
        faults(
            MAP_LIST, [{"name": "b", "v": 1}, {"name": "a", "port": 1, "v": -1}], [{"name": "a", "port": 1, "v": -1}]
        )
        == []
    )
    assert len(faults({"type": "array", "items": {**WHOLE, "minimum": 0}}, [-1, 2], [-1])) == 1, (
        "plain lists have no keys"
    )
    assert len(faults(WHOLE, True, 1)) == 1, "true is not 1"


def test_lists_that_had_duplicates_may_keep_having_them() -> None:
    field = {"type": "array", "x-kubernetes-list-type": "set", "items": TEXT}
    assert faults(field, ["a", "a", "b"], ["a", "a"]) == []
    assert len(faults(field, ["a", "a"], ["a"])) == 1


def test_only_the_status_is_checked_on_its_own_path() -> None:
    schema = a_schema(n=WHOLE)
    schema["properties"]["status"] = {"type": "object", "properties": {"n": WHOLE}, "required": ["m"]}
    new = {**an_object(n="wrong"), "status": {"n": "x"}}
    texts = [str(error) for error in Structural(schema).validate_status(new, an_object())]
    assert texts == [
        'status.n: Invalid value: "string": n in body must be of type integer: "string"',
        "status.m: Required value",
    ]


def test_the_type_has_the_merge_strategies_of_lists_and_maps() -> None:
    root = Structural(
        a_schema(x=MAP_LIST, m={"type": "object", "x-kubernetes-map-type": "atomic", "additionalProperties": TEXT})
    ).type
    spec = root.fields["spec"].type
    items = spec.fields["x"].type
    assert (items.form, items.list_type, items.keys, dict(items.key_defaults)) == (
        Form.LIST,
        "map",
        ("name", "port"),
        {"port": 80},
    )
    assert (spec.fields["m"].type.form, spec.fields["m"].type.atomic) == (Form.MAP, True)
    assert root.fields["metadata"].type.name.endswith("ObjectMeta")
    assert root.fields["apiVersion"].type.form is Form.STRING


def test_validation_changes_nothing() -> None:
    structural = Structural(a_schema(x=MAP_LIST, r={"type": "number"}))
    obj = an_object(x=[{"name": "a", "v": -1}], r=1)
    before = copy.deepcopy(obj)
    structural.validate(obj, copy.deepcopy(obj))
    assert obj == before and type(obj["spec"]["r"]) is int
