"""Expressions have the values and errors that the language defines."""

from __future__ import annotations

from typing import Any

import pytest

from shoal.kube.cel import CostExceeded, Env, EvalError, Interrupted, compile
from shoal.kube.cel.declare import adapter, declare, escape
from shoal.kube.cel.library.authorization import Authorizer
from shoal.kube.cel.types import opaque

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "count": {"type": "integer"},
        "ratio": {"type": "number"},
        "name": {"type": "string"},
        "on": {"type": "boolean"},
        "raw": {"type": "string", "format": "byte"},
        "since": {"type": "string", "format": "date-time"},
        "day": {"type": "string", "format": "date"},
        "wait": {"type": "string", "format": "duration"},
        "either": {"x-kubernetes-int-or-string": True},
        "tags": {"type": "array", "items": {"type": "string"}},
        "numbers": {"type": "array", "items": {"type": "integer"}},
        "set": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
        "parts": {
            "type": "array",
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["key"],
            "items": {
                "type": "object",
                "properties": {"key": {"type": "string"}, "size": {"type": "integer"}, "note": {"type": "string"}},
            },
        },
        "labels": {"type": "object", "additionalProperties": {"type": "string"}},
        "deep": {"type": "object", "properties": {"er": {"type": "object", "properties": {"x": {"type": "integer"}}}}},
        "gone": {"type": "string", "nullable": True},
        "a-b": {"type": "string"},
        "namespace": {"type": "string"},
        "x.y/z": {"type": "integer"},
        "two__lines": {"type": "integer"},
        "self": {"type": "integer"},
    },
}
SELF: dict[str, Any] = {
    "count": 7,
    "ratio": 2,
    "name": "héllo",
    "on": True,
    "raw": "aGk=",
    "since": "2024-02-29T12:30:45.5+01:00",
    "day": "2024-03-01",
    "wait": "1h30m",
    "either": "25%",
    "tags": ["b", "a", "b"],
    "numbers": [3, 1, 2],
    "set": ["x", "y"],
    "parts": [{"key": "one", "size": 1}, {"key": "two", "size": 2, "note": "n"}],
    "labels": {"app": "web", "tier": "front"},
    "deep": {"er": {"x": 5}},
    "gone": None,
    "a-b": "dash",
    "namespace": "ns",
    "x.y/z": 9,
    "two__lines": 2,
    "self": 1,
}
OLD: dict[str, Any] = {**SELF, "count": 6, "set": ["y", "x"], "parts": list(reversed(SELF["parts"]))}


def evaluate(expression: str, **kwargs: Any) -> Any:
    program = compile(expression, Env.of_schema(SCHEMA))
    adapt = adapter(SCHEMA, lists=program.compares_lists)
    assert adapt is not None
    return program.evaluate({"self": adapt(SELF), "oldSelf": adapt(OLD)}, **kwargs)[0]


VALUES: list[tuple[str, Any]] = [
    # literals
    ("1", 1),
    ("-9223372036854775808", -(2**63)),
    ("0x1F", 31),
    ("3u == 3u", True),
    ("1.5e2", 150.0),
    (".5", 0.5),
    ("'a\\n\\x41\\u00e9\\101'", "a\nAéA"),
    ('r"\\d"', "\\d"),
    ('"""two\nlines"""', "two\nlines"),
    ("b'\\xff\\x00'", b"\xff\x00"),
    ("null", None),
    ("[1, 2, 3,]", [1, 2, 3]),
    ("{'a': 1, 'b': 2}", {"a": 1, "b": 2}),
    ("// a comment\n true", True),
    # arithmetic
    ("7 / 2", 3),
    ("-7 / 2", -3),
    ("-7 % 3", -1),
    ("7 % -3", 1),
    ("2 + 3 * 4 - 1", 13),
    ("(2 + 3) * 4", 20),
    ("1.5 + 2.0", 3.5),
    ("1.0 / 0.0 > 1e308", True),
    ("-self.count", -7),
    ("5u - 3u", 2),
    ("'a' + 'b'", "ab"),
    ("b'a' + b'b'", b"ab"),
    ("[1] + [2, 3]", [1, 2, 3]),
    ("!true || !false", True),
    ("!!true", True),
    # comparison
    ("1 < 2 && 2 <= 2 && 3 > 2 && 3 >= 3", True),
    ("1 < 1.5 && 2u > 1.5 && 1 == 1", True),
    ("dyn(1) == 1.0", True),
    ("dyn(1) == 1u", True),
    ("dyn(1) == true", False),
    ("dyn('1') == 1", False),
    ("'a' < 'b'", True),
    ("b'a' < b'b'", True),
    ("false < true", True),
    ("[1, 2] == [1, 2]", True),
    ("[1, 2] == [2, 1]", False),
    ("{'a': 1} == {'a': 1}", True),
    ("{'a': 1} != {'a': 2}", True),
    ("type(1) == int && type('') == string && type([]) == list", True),
    ("type(null) == null_type", True),
    ("type(duration('1s')) == google.protobuf.Duration", True),
    # logic absorbs errors
    ("true || 1 / 0 == 1", True),
    ("1 / 0 == 1 || true", True),
    ("false && 1 / 0 == 1", False),
    ("1 / 0 == 1 && false", False),
    ("self.count > 5 ? 'big' : 'small'", "big"),
    ("false ? 1 : true ? 2 : 3", 2),
    # fields
    ("self.count", 7),
    ("self.deep.er.x", 5),
    ("self.labels.app", "web"),
    ("self.labels['tier']", "front"),
    ("self.a__dash__b", "dash"),
    ("self.__namespace__ == self.namespace", True),
    ("self.x__dot__y__slash__z", 9),
    ("self.two__underscores__lines", 2),
    ("self.self", 1),
    ("has(self.name) && !has(self.gone)", True),
    ("has(self.labels.none)", False),
    ("has(self.deep.er.x)", True),
    ("self.numbers[1]", 1),
    ("self.parts[1].note", "n"),
    ("oldSelf.count < self.count", True),
    ("size(self.name)", 5),
    ("self.tags.size() + size(self.labels)", 5),
    ("'a' in self.tags && !('z' in self.tags)", True),
    ("'app' in self.labels", True),
    ("self.count in [1, 7]", True),
    ("self.ratio", 2.0),
    ("type(self.ratio) == double", True),
    ("self.raw == b'hi'", True),
    ("type(self.either) == string ? self.either == '25%' : self.either == 25", True),
    # lists of type set and map do not care for order
    ("self.set == oldSelf.set", True),
    ("self.set == ['y', 'x']", True),
    ("self.parts == oldSelf.parts", True),
    ("(self.set + ['x', 'z']).size()", 3),
    ("(self.parts + [self.parts[0]]).size()", 2),
    # macros
    ("self.numbers.all(n, n > 0)", True),
    ("self.numbers.all(n, n > 1)", False),
    ("self.numbers.exists(n, n == 2)", True),
    ("self.tags.exists_one(t, t == 'a')", True),
    ("self.tags.existsOne(t, t == 'b')", False),
    ("self.numbers.map(n, n * 2)", [6, 2, 4]),
    ("self.numbers.map(n, n > 1, n * 10)", [30, 20]),
    ("self.numbers.filter(n, n != 1)", [3, 2]),
    ("self.labels.map(k, k).sort()", ["app", "tier"]),
    ("self.labels.all(k, self.labels[k].size() > 1)", True),
    ("[[1, 2], [3]].map(l, l.map(n, n + 1))", [[2, 3], [4]]),
    ("[].all(x, x)", True),
    ("[].exists(x, x)", False),
    ("self.parts.exists(p, p.note == 'n')", True),
    ("[1, 0].exists(n, 1 / n == 1)", True),
    ("[0, 1].all(n, 1 / n == 2)", False),
    ("self.numbers.all(i, n, i < 3 && n > 0)", True),
    ("self.labels.exists(k, v, v == 'web')", True),
    ("self.numbers.existsOne(i, n, n == i + 3)", True),
    ("self.numbers.transformList(i, n, i * n)", [0, 1, 4]),
    ("self.labels.transformMap(k, v, v + '!')", {"app": "web!", "tier": "front!"}),
    ("self.labels.transformMap(k, v, k == 'app', v)", {"app": "web"}),
    ("self.labels.transformMapEntry(k, v, {v: k})", {"web": "app", "front": "tier"}),
    ("self.parts.sortBy(p, -p.size).map(p, p.key)", ["two", "one"]),
    # optionals
    ("self.?name.orValue('none')", "héllo"),
    ("self.?gone.hasValue()", False),
    ("self.labels.?none.orValue('d')", "d"),
    ("self.labels[?'app'].value()", "web"),
    ("self.numbers[?9].orValue(0)", 0),
    ("self.?deep.er.x.orValue(1)", 5),
    ("optional.of(1).or(optional.of(2)).value()", 1),
    ("optional.none().or(optional.of(2)).value()", 2),
    ("optional.ofNonZeroValue('').hasValue()", False),
    ("optional.of(3).optMap(x, x * x).value()", 9),
    ("optional.none().optMap(x, x + 1).hasValue()", False),
    ("optional.of(3).optFlatMap(x, optional.of(x + 1)).value()", 4),
    ("[?self.?name, ?self.?gone].size()", 1),
    ("{?'a': self.?name, ?'b': self.?gone}.size()", 1),
    ("[1, 2].first().value() + [1, 2].last().value()", 3),
    ("optional.unwrap([optional.of(1), optional.none()])", [1]),
    # conversions
    ("int('42') + int(3.9) + int(2u)", 47),
    ("uint(3) == 3u", True),
    ("double('1.5') + double(1)", 2.5),
    ("string(1.0) + string(1.5) + string(true) + string(1e21)", "11.5true1e+21"),
    ("string(b'hi')", "hi"),
    ("bytes('hi') == b'hi'", True),
    ("bool('true') && !bool('0')", True),
    ("string(duration('90s'))", "90s"),
    ("string(duration('-1.5s'))", "-1.5s"),
    ("string(timestamp('2024-01-01T00:00:00.120Z'))", "2024-01-01T00:00:00.12Z"),
    ("string(self.since)", "2024-02-29T12:30:45.5+01:00"),
    ("int(timestamp('1970-01-01T00:01:00Z'))", 60),
    # strings
    ("self.name.startsWith('hé') && self.name.endsWith('lo') && self.name.contains('ll')", True),
    ("self.name.matches('^h.*o$')", True),
    ("matches('abc', 'b')", True),
    ("'a\\n'.matches('a$')", False),
    ("'abc'.charAt(1) + 'abc'.charAt(3)", "b"),
    ("'banana'.indexOf('an') + 10 * 'banana'.lastIndexOf('an')", 31),
    ("'banana'.indexOf('an', 2)", 3),
    ("'banana'.lastIndexOf('an', 2)", 1),
    ("'ÀBc'.lowerAscii() + 'àbC'.upperAscii()", "ÀbcàBC"),
    ("'aaa'.replace('a', 'b') + 'aaa'.replace('a', 'b', 1)", "bbbbaa"),
    ("'a,b,c'.split(',')", ["a", "b", "c"]),
    ("'a,b,c'.split(',', 2)", ["a", "b,c"]),
    ("'abc'.split('')", ["a", "b", "c"]),
    ("'abcd'.substring(1, 3) + 'abcd'.substring(2)", "bccd"),
    ("'\\t a \\n'.trim()", "a"),
    ("'abc'.reverse()", "cba"),
    ("['a', 'b'].join('-') + ['a', 'b'].join()", "a-bab"),
    ("strings.quote('a\"b\\n')", '"a\\"b\\n"'),
    ("'%s is %d of %.1f, %x %b %o %e'.format(['a', 2, 1.25, 255, 5, 8, 1200.0])", "a is 2 of 1.2, ff 101 10 1.200000×10⁰³"),
    ("'%s'.format([[1, 'a', {'k': true}]])", "[1, a, {k: true}]"),
    ("'x1y22'.find('[0-9]+')", "1"),
    ("'x1y22'.findAll('[0-9]+')", ["1", "22"]),
    ("'x1y22'.findAll('[0-9]+', 1)", ["1"]),
    ("base64.encode(b'hi') + string(base64.decode('aGk'))", "aGk=hi"),
    # lists
    ("[1, 2, 2].isSorted() && !self.numbers.isSorted()", True),
    ("self.numbers.sum() + self.numbers.min() + self.numbers.max()", 10),
    ("[1.5, 2.5].sum()", 4.0),
    ("[duration('1s'), duration('2s')].sum() == duration('3s')", True),
    ("self.tags.indexOf('b') + 10 * self.tags.lastIndexOf('b')", 20),
    ("self.numbers.slice(1, 3)", [1, 2]),
    ("[[1], [2, 3]].flatten()", [1, 2, 3]),
    ("[dyn([dyn(1), dyn([2])]), dyn(3)].flatten(2)", [1, 2, 3]),
    ("self.tags.distinct()", ["b", "a"]),
    ("self.numbers.sort() + self.numbers.reverse()", [1, 2, 3, 2, 1, 3]),
    ("lists.range(3)", [0, 1, 2]),
    ("self.tags.includes('a')", True),
    ("sets.contains([1, 2, 3], [1, 3]) && !sets.contains([1], [2])", True),
    ("sets.equivalent([1, 2], [2, 1, 1]) && sets.intersects([1], [1, 2])", True),
    ("math.greatest(1, 5, 3) - math.least([4, 2])", 3),
    # times
    ("self.since.getHours() * 100 + self.since.getMinutes()", 1130),
    ("self.since.getHours('+01:00')", 12),
    ("self.since.getHours('America/New_York')", 6),
    ("[self.since.getFullYear(), self.since.getMonth(), self.since.getDate(), self.since.getDayOfMonth()]", [2024, 1, 29, 28]),
    ("[self.since.getDayOfWeek(), self.since.getDayOfYear(), self.since.getMilliseconds()]", [4, 59, 500]),
    ("self.wait.getHours() * 1000 + self.wait.getMinutes()", 1090),
    ("self.wait == duration('90m') && self.wait > duration('1h')", True),
    ("timestamp('2024-01-02T00:00:00Z') - timestamp('2024-01-01T00:00:00Z') == duration('24h')", True),
    ("self.day + duration('24h') == timestamp('2024-03-02T00:00:00Z')", True),
    ("duration('1s') + timestamp(0) < timestamp(2)", True),
    # urls and addresses
    ("url('https://u@h.io:81/p q?k=a&k=b#f').getHost()", "h.io:81"),
    ("url('https://[::1]:8/').getHostname() + url('https://h/').getPort()", "::1"),
    ("url('https://h/p q').getEscapedPath()", "/p%20q"),
    ("url('https://h/?k=a&k=b').getQuery()", {"k": ["a", "b"]}),
    ("isURL('https://h') && isURL('/p') && !isURL('h') && !isURL('://')", True),
    ("ip('10.0.0.1').family() + ip('::1').family()", 10),
    ("isIP('1.2.3.4') && !isIP('1.2.3') && !isIP('::ffff:1.2.3.4') && !isIP('fe80::1%eth0')", True),
    ("ip('127.0.0.1').isLoopback() && ip('0.0.0.0').isUnspecified() && ip('8.8.8.8').isGlobalUnicast()", True),
    ("ip.isCanonical('2001:db8::1') && !ip.isCanonical('2001:DB8::1')", True),
    ("cidr('10.0.0.0/8').containsIP('10.9.9.9') && !cidr('10.0.0.0/8').containsIP(ip('11.0.0.1'))", True),
    ("cidr('10.0.0.0/8').containsCIDR('10.1.0.0/16') && !cidr('10.1.0.0/16').containsCIDR(cidr('10.0.0.0/8'))", True),
    ("string(cidr('10.1.2.3/8').masked()) + string(cidr('10.1.2.3/8').ip())", "10.0.0.0/810.1.2.3"),
    ("cidr('10.1.2.3/8').prefixLength()", 8),
    ("isCIDR('::/0') && !isCIDR('10.0.0.0/33')", True),
    # quantities, versions, formats
    ("quantity('1Gi').isGreaterThan(quantity('1G')) && quantity('1k').compareTo(quantity('1000')) == 0", True),
    ("quantity('1k').asInteger() + quantity('5').sign()", 1001),
    ("quantity('1.5').isInteger()", False),
    ("quantity('50k').add(20).sub(quantity('20')) == quantity('50000')", True),
    ("quantity('1500m').asApproximateFloat()", 1.5),
    ("isQuantity('1.3Mi') && !isQuantity('1.3Z')", True),
    ("semver('1.2.3-rc.1').isLessThan(semver('1.2.3')) && semver('v1.2', true).minor() == 2", True),
    ("isSemver('1.2.3') && !isSemver('1.2') && semver('1.10.0').compareTo(semver('1.9.0')) == 1", True),
    ("format.dns1123Label().validate('a-b').hasValue()", False),
    ("format.dns1123Label().validate('A').value().size()", 1),
    ("format.named('labelValue').value().validate('x').hasValue() || format.named('no').hasValue()", False),
]  # fmt: skip


@pytest.mark.parametrize(("expression", "value"), VALUES, ids=[each[0] for each in VALUES])
def test_expressions_have_the_value_the_language_gives_them(expression: str, value: Any) -> None:
    found = evaluate(expression)
    assert found == value
    assert isinstance(found, bool) == isinstance(value, bool)


def test_the_table_is_as_long_as_promised() -> None:
    assert len(VALUES) >= 150


FAILURES: list[tuple[str, str]] = [
    ("9223372036854775807 + self.count", "integer overflow"),
    ("-(self.count - 9223372036854775807 - 8)", "integer overflow"),
    ("self.count * 9223372036854775807", "integer overflow"),
    ("0u - 1u", "unsigned integer overflow"),
    ("self.count / 0", "division by zero"),
    ("self.count % 0", "modulus by zero"),
    ("self.numbers[3]", "index out of bounds: 3"),
    ("self.numbers[-1]", "index out of bounds: -1"),
    ("self.labels.none", "no such key: none"),
    ("self.labels['none']", "no such key: none"),
    ("self.gone", "no such key: gone"),
    ("self.either > 4", "no such overload"),
    ("dyn(self.count).size() > 1", "no such overload: size(int)"),
    ("int(self.name)", "type conversion error from 'string' to 'int'"),
    ("double(self.name)", "type conversion error from 'string' to 'double'"),
    ("timestamp(self.name)", "type conversion error from 'string' to 'google.protobuf.Timestamp'"),
    ("string(self.raw + b'\\xff')", "invalid UTF-8 in bytes, cannot convert to string"),
    ("int(1e300 * self.ratio)", "integer overflow"),
    ("optional.none().value()", "optional.none() dereference"),
    ("self.name.charAt(9)", "index out of range: 9"),
    ("self.name.substring(3, 1)", "invalid substring range. start: 3, end: 1"),
    ("self.numbers.filter(n, n > 5).min()", "min called on empty list"),
    ("self.numbers.slice(2, 9)", "cannot slice(2, 9), list is length 3"),
    ("self.name.matches(self.name + '(')", "error parsing regexp: missing closing ): `héllo(`"),
    ("quantity(self.name)", "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"),
    ("url(self.name)", 'URL parse error during conversion from string: parse "héllo": invalid URI for request'),
    ("self.labels.transformMapEntry(k, v, {'same': v})", "insert failed: key same already exists"),
]  # fmt: skip


@pytest.mark.parametrize(("expression", "message"), FAILURES, ids=[each[0] for each in FAILURES])
def test_failures_have_the_words_of_the_reference_implementation(expression: str, message: str) -> None:
    with pytest.raises(EvalError) as raised:
        evaluate(expression)
    assert str(raised.value) == message


def test_time_past_the_calendar_is_an_overflow() -> None:
    with pytest.raises(EvalError, match="timestamp overflow"):
        evaluate("timestamp(self.count * 1000000000000)")


def test_an_error_carries_what_the_evaluation_had_cost() -> None:
    program = compile("self.count / (self.count - 7)", Env.of_schema(SCHEMA))
    with pytest.raises(EvalError) as raised:
        program.evaluate({"self": SELF})
    assert raised.value.cost >= 4


def test_evaluation_stops_when_it_costs_too_much() -> None:
    big = "self.numbers.all(a, self.numbers.all(b, self.numbers.all(c, a + b + c > 0)))"
    assert evaluate(big) is True
    with pytest.raises(CostExceeded, match="operation cancelled: actual cost limit exceeded"):
        evaluate(big, limit=100)


def test_running_out_of_budget_is_not_absorbed_by_logic() -> None:
    with pytest.raises(CostExceeded):
        evaluate("self.numbers.all(a, self.numbers.all(b, self.numbers.all(c, a > 0))) || true", limit=50)


def test_a_caller_can_interrupt_a_long_loop() -> None:
    with pytest.raises(Interrupted):
        evaluate("lists.range(1000).all(x, x >= 0)", interrupted=lambda: True)
    assert evaluate("lists.range(50).all(x, x >= 0)", interrupted=lambda: True) is True


def test_null_where_a_number_is_expected_is_no_overload_and_no_crash() -> None:
    schema = {"type": "object", "properties": {"l": {"type": "array", "items": {"type": "integer", "nullable": True}}}}
    program = compile("self.l.all(x, x + 1 > 0)", Env.of_schema(schema))
    with pytest.raises(EvalError, match="no such overload"):
        program.evaluate({"self": {"l": [1, None]}})


def test_variables_of_policies_are_dynamic_and_must_be_given() -> None:
    env = Env.dynamic("object", "oldObject", "request", "params")
    program = compile("object.spec.replicas <= params.max && request.operation != 'DELETE'", env)
    values = {"object": {"spec": {"replicas": 3}}, "params": {"max": 5}, "request": {"operation": "CREATE"}}
    assert program.evaluate(values)[0] is True
    with pytest.raises(EvalError, match=r"no such attribute\(s\): params"):
        program.evaluate({"object": {}, "request": {}})


def test_the_authorizer_is_asked_with_all_attributes() -> None:
    asked: list[dict[str, Any]] = []

    def decide(attributes: dict[str, Any]) -> tuple[bool, str, str]:
        asked.append(attributes)
        return attributes["verb"] == "get", "because", ""

    env = Env.dynamic(authorizer=opaque("kubernetes.authorization.Authorizer"))
    rule = (
        "authorizer.group('apps').resource('deployments').namespace('n').name('d').check('get').allowed() && "
        "!authorizer.serviceAccount('n', 'sa').path('/healthz').check('post').allowed()"
    )
    program = compile(rule, env)
    assert program.evaluate({"authorizer": Authorizer(decide, {"username": "u"})})[0] is True
    assert asked[0] == {
        "verb": "get", "user": {"username": "u"}, "group": "apps", "resource": "deployments", "namespace": "n", "name": "d",
    }  # fmt: skip
    assert asked[1]["path"] == "/healthz"
    assert asked[1]["user"]["username"] == "system:serviceaccount:n:sa"


@pytest.mark.parametrize(
    ("name", "escaped"),
    [
        ("plain", "plain"),
        ("x-y", "x__dash__y"),
        ("x.y/z", "x__dot__y__slash__z"),
        ("a__b", "a__underscores__b"),
        ("namespace", "__namespace__"),
        ("9x", None),
        ("sp ace", None),
        ("ü", None),
        ("", None),
    ],
)
def test_field_names_are_escaped_to_identifiers(name: str, escaped: str | None) -> None:
    assert escape(name) == escaped


def test_a_schema_without_types_cannot_be_seen() -> None:
    assert declare({"x-kubernetes-preserve-unknown-fields": True}) is None
    with pytest.raises(ValueError, match="unable to convert"):
        Env.of_schema({"type": "array", "items": {"x-kubernetes-preserve-unknown-fields": True}})


def test_resources_always_have_type_and_name() -> None:
    env = Env.of_schema({"type": "object"}, resource=True)
    program = compile("self.kind == 'K' && self.apiVersion == 'v1' && self.metadata.name.startsWith('n')", env)
    assert program.evaluate({"self": {"kind": "K", "apiVersion": "v1", "metadata": {"name": "nn"}}})[0] is True
