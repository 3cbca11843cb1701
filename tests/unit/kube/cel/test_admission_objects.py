"""Objects and patches that expressions build, variables with dotted names, and lazy values."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from shoal.kube.cel import CompileError, Env, EvalError, compile
from shoal.kube.cel.admission import Variables, VariableScope, namespace_value
from shoal.kube.cel.types import DYN, INT, opaque
from shoal.kube.cel.values import Built, Lazy

PATCHES = Env({"object": DYN}, patches=True)
OBJECT = {"n": 1, "names": ["a", "b"], "none": None}


def plain(made: Any) -> Any:
    return orjson.loads(orjson.dumps(made))


def value(text: str, env: Env = PATCHES, **more: Any) -> Any:
    return compile(text, env).evaluate({"object": OBJECT, **more})[0]


def test_an_object_is_built_with_the_name_of_its_type() -> None:
    made = value(
        "Object{spec: Object.spec{replicas: object.n + 1, names: object.names.map(x, Object.spec.names{id: x})}}"
    )
    assert plain(made) == {"spec": {"replicas": 2, "names": [{"id": "a"}, {"id": "b"}]}}
    assert (made.cel_name, made["spec"].cel_name) == ("Object", "Object.spec")
    assert str(compile("Object{}", PATCHES).type) == "Object"


def test_optional_fields_are_left_out_when_there_is_no_value() -> None:
    assert plain(value("Object{?a: object[?'x'], ?b: object[?'n']}")) == {"b": 1}


def test_fields_of_a_built_object_can_be_read_and_tested() -> None:
    assert value("Object{a: Object.a{b: 1}}.a.b == 1")
    assert value("has(Object{a: 1}.a) && !has(Object{a: 1}.b)")
    assert value("Object.a{b: 1} == Object.a{b: 1} && Object.a{b: 1} != Object.a{b: 2}")
    assert value("dyn(Object.a{b: 1}) != dyn(Object.b{b: 1})")
    with pytest.raises(EvalError, match="no such key: b"):
        value("Object{a: 1}.b")


def test_a_patch_has_four_fields_of_their_types() -> None:
    made = value("[JSONPatch{op: 'add', path: '/' + jsonpatch.escapeKey('k8s.io/a~b'), value: {'x': 'y'}}]")
    assert plain(made[0]) == {"op": "add", "path": "/k8s.io~1a~0b", "value": {"x": "y"}}
    assert str(compile("[JSONPatch{op: 'add', path: '/a'}]", PATCHES).type) == "list(JSONPatch)"
    with pytest.raises(CompileError, match="expected type of field 'op' is 'string' but provided type is 'int'"):
        compile("JSONPatch{op: 1}", PATCHES)
    with pytest.raises(CompileError, match="undefined field 'foo'"):
        compile("JSONPatch{foo: 1}", PATCHES)


@pytest.mark.parametrize("text", ["Object{}", "Object.spec{}", "JSONPatch{}", "jsonpatch.escapeKey('a')"])
def test_only_mutations_build_objects(text: str) -> None:
    with pytest.raises(CompileError, match="undeclared reference"):
        compile(text, Env({"object": DYN}))


def test_other_types_cannot_be_built() -> None:
    with pytest.raises(CompileError, match="undeclared reference to 'Pod'"):
        compile("Pod{}", PATCHES)
    with pytest.raises(CompileError, match="undeclared reference to 'Objective'"):
        compile("Objective{}", PATCHES)


def test_building_costs_what_it_costs_in_kubernetes() -> None:
    program = compile("Object{a: 1, b: Object.b{}}", PATCHES)
    assert program.cost == (80, 80)
    assert program.evaluate({})[1] == 80


def test_a_variable_may_have_a_dotted_name() -> None:
    env = Env({"a": opaque("thing"), "a.b": INT, "c": DYN})
    program = compile("a.b + 1 == c.a.b", env)
    assert program.variables == {"a.b", "c"}
    assert program.evaluate({"a.b": 1, "c": {"a": {"b": 2}}})[0] is True
    with pytest.raises(CompileError, match="does not support field selection"):
        compile("a.c", env)


def test_lazy_values_are_computed_on_first_use() -> None:
    asked: list[str] = []

    def compute(name: str) -> int:
        asked.append(name)
        return len(name)

    late = Lazy({"x", "long"}, compute)
    env = Env.dynamic("v")
    assert compile("has(v.x) && !has(v.y)", env).evaluate({"v": late})[0] and asked == []
    assert compile("false && v.x == 1", env).evaluate({"v": late})[0] is False and asked == []
    assert compile("v.long + v.?x.orValue(0)", env).evaluate({"v": late})[0] == 5
    assert asked == ["long", "x"]
    with pytest.raises(EvalError, match="no such key: y"):
        compile("v.y", env).evaluate({"v": late})


def test_variables_of_a_policy_can_use_earlier_ones_with_their_types() -> None:
    known = Variables(
        [
            {"name": "n", "expression": "size(request.name)"},
            {"name": "odd", "expression": "variables.n % 2 == 1"},
            {"name": "early", "expression": "variables.late"},
            {"name": "late", "expression": "1"},
        ],
        VariableScope(),
    )
    assert str(known.programs["odd"].type) == "bool"  # type: ignore[union-attr]
    assert "undefined field 'late'" in str(known.programs["early"])
    scope = VariableScope(variables=known.type)
    with pytest.raises(CompileError, match=r"found no matching overload for '_\+_' applied to '\(int, string\)'"):
        compile("variables.n + 'x'", scope.env())


def test_request_and_namespace_have_the_fields_of_kubernetes() -> None:
    env = VariableScope().env()
    namespace = namespace_value(
        {"metadata": {"name": "n", "uid": "u", "creationTimestamp": "2024-01-02T00:00:00Z", "managedFields": []}}
    )
    values = {"namespaceObject": namespace, "request": {"operation": "CREATE", "userInfo": {"groups": ["g"]}}}
    for text in (
        "namespaceObject.metadata.creationTimestamp < timestamp('2024-01-03T00:00:00Z')",
        "namespaceObject.metadata.UID == 'u'",
        "request.operation == 'CREATE' && 'g' in request.userInfo.groups && !has(request.userInfo.extra)",
    ):
        assert compile(text, env).evaluate(values)[0] is True
    for text in ("namespaceObject.metadata.managedFields", "request.object", "params", "variables"):
        with pytest.raises(CompileError, match="undefined field|undeclared reference"):
            compile(text, env)


def test_built_objects_never_equal_maps() -> None:
    assert Built("Object") != {}
    assert value("dyn(Object{a: 1}) != dyn({'a': 1})")
