"""Invalid expressions are refused when they are written, with the position of the error."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.kube.cel import CelError, CompileError, Env, ProgramError, compile
from shoal.kube.cel.cost import MAX

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "n": {"type": "integer"},
        "s": {"type": "string"},
        "b": {"type": "boolean"},
        "l": {"type": "array", "items": {"type": "string"}},
        "m": {"type": "object", "additionalProperties": {"type": "integer"}},
        "o": {"type": "object", "properties": {"x": {"type": "integer"}}},
        "any": {"x-kubernetes-preserve-unknown-fields": True},
    },
}
ENV = Env.of_schema(SCHEMA)

REFUSED: list[tuple[str, str]] = [
    ("self.foo", "1:5: undefined field 'foo'"),
    ("foo", "1:1: undeclared reference to 'foo' (in container '')"),
    ("foo(1)", "1:4: undeclared reference to 'foo' (in container '')"),
    ("self.s.foo()", "1:11: undeclared reference to 'foo' (in container '')"),
    ("self.any.x", "1:5: undefined field 'any'"),
    ("self.n.x", "1:7: type 'int' does not support field selection"),
    ("1 + 'a'", "1:3: found no matching overload for '_+_' applied to '(int, string)'"),
    ("self.n + 1u", "1:8: found no matching overload for '_+_' applied to '(int, uint)'"),
    ("self.n + 1.0", "1:8: found no matching overload for '_+_' applied to '(int, double)'"),
    ("self.n == 'a'", "1:8: found no matching overload for '_==_' applied to '(int, string)'"),
    ("self.s == null", "1:8: found no matching overload for '_==_' applied to '(string, null)'"),
    ("self.s.startsWith(1)", "1:18: found no matching overload for 'startsWith' applied to 'string.(int)'"),
    ("size(1)", "1:5: found no matching overload for 'size' applied to '(int)'"),
    ("self.s && true", "1:5: expected type 'bool' but found 'string'"),
    ("true || self.n", "1:13: expected type 'bool' but found 'int'"),
    ("!self.n", "1:1: found no matching overload for '!_' applied to '(int)'"),
    ("self.b ? 1 : 'a'", "1:8: found no matching overload for '_?_:_' applied to '(bool, int, string)'"),
    ("self.l.all(x, x)", "1:15: expected type 'bool' but found 'string'"),
    ("self.n.all(x, true)", "1:5: expression of type 'int' cannot be range of a comprehension (must be list, map, or dynamic)"),
    ("self.o.all(x, true)", "1:5: expression of type 'selfType.o' cannot be range of a comprehension (must be list, map, or dynamic)"),
    ("self.l.all(self.n, true)", "1:16: argument must be a simple name"),
    ("self.l.map(1, true)", "1:12: argument is not an identifier"),
    ("self.l.all(x, x, true)", "1:15: duplicate variable name: x"),
    ("has(self)", "1:5: invalid argument to has() macro"),
    ("[1, 'a']", "1:5: expected type 'int' but found 'string'"),
    ("{'a': 1, 'b': 'c'}", "1:15: expected type 'int' but found 'string'"),
    ("[?self.n]", "1:7: expected type 'optional_type(int)' but found 'int'"),
    ("duration('1')", "1:10: invalid duration argument"),
    ("timestamp('now')", "1:11: invalid timestamp argument"),
    ("self.s.matches('(')", "1:16: invalid matches argument"),
    ("namespace", "1:1: reserved identifier: namespace"),
    ("self.true", "1:6: Syntax error: mismatched input 'true' expecting IDENTIFIER"),
    ("self.`s`", "1:6: unsupported syntax: '`'"),
    ("9223372036854775808", "1:1: invalid int literal"),
    ("18446744073709551616u", "1:1: invalid uint literal"),
    ("Foo{a: 1}", "1:4: undeclared reference to 'Foo' (in container '')"),
    ("self.l[0].foo", "1:10: type 'string' does not support field selection"),
    ("self.m['a'] + self.s", "1:13: found no matching overload for '_+_' applied to '(int, string)'"),
    ("quantity('1') + 1", "1:15: found no matching overload for '_+_' applied to '(kubernetes.Quantity, int)'"),
]  # fmt: skip


@pytest.mark.parametrize(("expression", "issue"), REFUSED, ids=[each[0] for each in REFUSED])
def test_errors_have_the_words_of_the_reference_implementation(expression: str, issue: str) -> None:
    with pytest.raises(CompileError) as raised:
        compile(expression, ENV)
    assert str(raised.value).splitlines()[0] == f"ERROR: <input>:{issue}"


def test_the_fault_is_marked_in_the_text() -> None:
    with pytest.raises(CompileError) as raised:
        compile("self.s == 'é' &&\n\tself.foo", ENV)
    assert str(raised.value) == "ERROR: <input>:2:6: undefined field 'foo'\n |  self.foo\n | .....^"


def test_wide_characters_get_wide_marks() -> None:
    with pytest.raises(CompileError) as raised:
        compile("'é' + 1", ENV)
    assert str(raised.value).endswith("\n | 'é' + 1\n | .\uff0e..^")


def test_every_fault_is_reported_in_order() -> None:
    with pytest.raises(CompileError) as raised:
        compile("self.bar || self.foo", ENV)
    assert [issue.message for issue in raised.value.issues] == ["undefined field 'bar'", "undefined field 'foo'"]


@pytest.mark.parametrize(
    "expression", ["", "self.", "1 +", "(1", "[1", "{'a'}", "'open", "a b", "@", "self.l.all(x)", "1 ? 2"]
)
def test_text_that_is_no_expression_is_a_syntax_error(expression: str) -> None:
    with pytest.raises(CompileError) as raised:
        compile(expression, ENV)
    assert "ERROR: <input>:1:" in str(raised.value)


@pytest.mark.parametrize("expression", ["int('a') == 1", "self.s.find('(') == ''", "double('x') > 1.0"])
def test_constants_without_a_value_are_refused(expression: str) -> None:
    with pytest.raises(ProgramError):
        compile(expression, ENV)


def test_the_type_of_the_result_is_known() -> None:
    types = {
        "self.n": "int",
        "self.l": "list(string)",
        "self.m": "map(string, int)",
        "self.l.map(x, x.size())": "list(int)",
        "self.?s": "optional_type(string)",
        "[]": "list(dyn)",
        "self.b ? self.n : 1": "int",
        "{'a': [1]}": "map(string, list(int))",
        "type(self.n)": "type(int)",
        "quantity('1')": "kubernetes.Quantity",
    }
    assert {text: str(compile(text, ENV).type) for text in types} == types


def test_deep_nesting_is_refused_and_does_not_crash() -> None:
    for text in ("(" * 5000 + "1" + ")" * 5000, "[" * 3000 + "]" * 3000, "!" * 9000 + "true", "-" * 9000 + "self.n"):
        try:
            compile(text, ENV)
        except CompileError:
            pass
    with pytest.raises(CompileError, match="recursion limit"):
        compile("(" * 5000 + "1" + ")" * 5000, ENV)
    with pytest.raises(CompileError):
        compile("1" + " + 1" * 20000, ENV)
    assert compile(" && ".join(["self.n > 0"] * 2000), ENV).evaluate({"self": {"n": 1}})[0] is True


@pytest.mark.parametrize(
    ("expression", "schema", "most"),
    [
        ("self.startsWith('a')", {"type": "string"}, 2),
        ("self == 'abcdefghijk'", {"type": "string"}, 3),
        ("self.contains('a')", {"type": "string", "maxLength": 10}, 5),
        ("self.matches('[a-z]+')", {"type": "string", "maxLength": 10}, 11),
        ("self.all(x, x == 'a')", {"type": "array", "maxItems": 10, "items": {"type": "string"}}, 52),
        ("self.all(x, self.all(y, x == y))", {"type": "array", "items": {"type": "integer"}}, None),
        ("self.all(k, self[k] > 1)", {"type": "object", "maxProperties": 5, "additionalProperties": {"type": "integer"}}, 37),
        ("self.map(x, x + 'a').size() > 1", {"type": "array", "maxItems": 2, "items": {"type": "string", "maxLength": 3}}, 44),
    ],
)  # fmt: skip
def test_the_most_an_expression_can_cost_follows_the_limits_of_the_schema(
    expression: str, schema: dict[str, Any], most: int | None
) -> None:
    cost = compile(expression, Env.of_schema(schema)).cost
    assert cost.low <= cost.high <= MAX
    assert cost.high == most if most is not None else cost.high > 10**10


def test_actual_cost_stays_below_the_estimate() -> None:
    schema = {"type": "array", "maxItems": 4, "items": {"type": "string", "maxLength": 5}}
    for text in (
        "self.all(x, x.size() < 9)",
        "self.exists(x, x.matches('b'))",
        "self.map(x, x + x).filter(x, x > 'a').size() >= 0",
        "self.join(',').split(',').size() < 9 && 'a' in self",
        "self == self && self.isSorted()",
    ):
        program = compile(text, Env.of_schema(schema))
        _, cost = program.evaluate({"self": ["aaaaa", "bbbbb", "ccccc", "ddddd"]})
        assert cost <= program.cost.high, text


_WORDS = st.sampled_from([
    "self", "self.n", "self.s", "self.l", "self.m", "self.o.x", "oldSelf", "x", "y", "1", "2u", "1.5", "'a'", "b'a'", "null",
    "true", "[", "]", "{", "}", "(", ")", ".", ",", ":", "?", "+", "-", "*", "/", "%", "!", "&&", "||", "==", "!=", "<", ">=",
    "in", "has(", ".all(x, ", ".map(x, ", ".exists(", "size(", ".?", "[?", "int(", "string(", "duration('1s')", "type(", "dyn(",
    "optional.of(", ".orValue(", "quantity('1')", ".matches('a')", "//", "\n", "`a-b`", "namespace", "0x", "'", '"""', "\\",
])  # fmt: skip


@settings(max_examples=400, deadline=None)
@given(st.lists(_WORDS, max_size=14).map("".join))
def test_no_text_raises_anything_but_the_languages_own_errors(text: str) -> None:
    value = {"n": 1, "s": "s", "b": True, "l": ["a"], "m": {"k": 1}, "o": {"x": 1}}
    try:
        program = compile(text, ENV)
        program.evaluate({"self": value, "oldSelf": value})
    except CelError:
        pass


@settings(max_examples=150, deadline=None)
@given(st.text(max_size=40))
def test_random_text_is_refused_or_compiled(text: str) -> None:
    try:
        compile(text, ENV)
    except CompileError:
        pass


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=True) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("nslmo"), inner, max_size=3),
    max_leaves=8,
)
_RULES = [
    "self.n + 1 > 0", "self.s.size() > 1 && self.s.matches('a+')", "self.l.all(x, x.startsWith('a'))",
    "self.m.exists(k, self.m[k] % 2 == 0)", "self.?o.x.orValue(1) < 2", "self.l + ['a'] == self.l",
    "self.l.sort().join(',') == self.s", "has(self.o.x) ? self.o.x / self.n > 1 : self.s < 'b'",
    "'%d %s %f'.format([self.n, self.s, self.n]) != ''", "self.l.map(x, {x: 1}).size() in [1, 2]",
]  # fmt: skip
_PROGRAMS = [compile(rule, ENV) for rule in _RULES]


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(_PROGRAMS), _JSON)
def test_data_of_the_wrong_type_gives_errors_and_no_crash(program: Any, value: Any) -> None:
    try:
        program.evaluate({"self": value, "oldSelf": value})
    except CelError:
        pass
