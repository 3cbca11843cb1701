"""YAML bodies decode as in Kubernetes, or are bad requests."""

from __future__ import annotations

import time
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.errors import BadRequest, TooLarge
from shoal.kube.yamlcodec import MAX_EVENTS, decode, dumps, loads, loads_object, resolve


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("yes", True), ("On", True), ("y", True), ("TRUE", True), ("no", False), ("off", False), ("N", False),
        ("~", None), ("", None), ("null", None), ("yEs", "yEs"), ("truth", "truth"),
        ("0", 0), ("-1", -1), ("+1", 1), ("0777", 511), ("0o17", 15), ("0x1F", 31), ("0b11", 3), ("-0b11", -3), ("1_000", 1000),
        ("08", 8), ("9223372036854775807", 2**63 - 1), ("18446744073709551615", 2**64 - 1),
        ("1.5", 1.5), (".5", 0.5), ("1e3", 1000), ("3.0", 3), ("1e-2", 0.01), ("1.", 1), ("99999999999999999999", 1e20),
        ("1:20", "1:20"), ("2026-01-02", "2026-01-02"), ("2026-01-02T03:04:05Z", "2026-01-02T03:04:05Z"),
        ("1.2.3", "1.2.3"), ("-", "-"), ("1x", "1x"), ("100m", "100m"), ("0x", "0x"), ("1e999", "1e999"),
    ],
)  # fmt: skip
def test_plain_scalars(text: str, value: Any) -> None:
    resolved = resolve(text)
    assert resolved == value and type(resolved) is type(value)


def test_documents() -> None:
    body = b"""
# a comment
kind: Pod
metadata:
  labels: {app: web, "quoted": 'yes', 8080: port, true: t}
  annotations:
    text: |
      two
      lines
spec:
  containers:
  - name: a
    args: ["1", 2, !!str 3, !!int "4", !odd x]
  base: &base {a: 1, b: 2}
  more:
    b: 3
    <<: *base
  most: {<<: [*base, {c: 9, a: 8}]}
  again: *base
---
kind: Ignored
"""
    decoded = decode(body)
    assert decoded.duplicates == []
    assert decoded.value == {
        "kind": "Pod",
        "metadata": {
            "labels": {"app": "web", "quoted": "yes", "8080": "port", "true": "t"},
            "annotations": {"text": "two\nlines\n"},
        },
        "spec": {
            "containers": [{"name": "a", "args": ["1", 2, "3", 4, "x"]}],
            "base": {"a": 1, "b": 2},
            "more": {"b": 3, "a": 1},
            "most": {"a": 1, "b": 2, "c": 9},
            "again": {"a": 1, "b": 2},
        },
    }
    assert decoded.value["spec"]["again"] is not decoded.value["spec"]["base"]


def test_json_is_yaml_and_duplicate_keys_are_reported_with_their_line() -> None:
    assert decode(b'{"a":1}') == ({"a": 1}, [])
    assert decode(b"{a: 1, b: [x]}") == ({"a": 1, "b": ["x"]}, [])
    assert decode(b'{"a":1,"a":2}') == ({"a": 2}, ['line 1: key "a" already set in map'])
    assert decode(b"a:\n  b: 1\n  b: 2\nc: 1\n").duplicates == ['line 3: key "b" already set in map']
    assert loads(b"") is None
    faults = ["before"]
    assert loads_object(b"a: 1\na: 2", faults) == {"a": 2}
    assert faults == ["before", 'line 2: key "a" already set in map']
    for body, named in ((b"", "null"), (b"- a", "an array"), (b"1", "a number")):
        with pytest.raises(BadRequest, match=f"must be an object, not {named}$"):
            loads_object(body)


@pytest.mark.parametrize(
    "body",
    [b"a: [", b"\xff\xfe\xff", b"\xc3\x28", b"a: *x", b"? [1]\n: 2", b"a: .nan", b"a: -.inf", b"\t- x", b"[" * 500, b"~: 1", b"a: &a [*a]",
     b"\x00", b"<<: 1", b"<<: [1]", b"a: b: c", b"'open", b'"\\ud800"', b"%YAML 9.9\n---\na"],
)  # fmt: skip
def test_what_cannot_be_read_is_a_bad_request(body: bytes) -> None:
    with pytest.raises(BadRequest):
        decode(body)


def test_alias_bombs_are_refused_at_once() -> None:
    lines = ["a: &a [x,x,x,x,x,x,x,x,x,x]"]
    for before, name in zip("abcdefgh", "bcdefghi", strict=True):
        lines.append(f"{name}: &{name} [{','.join([f'*{before}'] * 10)}]")
    started = time.perf_counter()
    with pytest.raises(BadRequest, match="excessive aliasing"):
        decode("\n".join(lines).encode())
    assert time.perf_counter() - started < 2.0


def test_aliases_cannot_nest_past_the_limit() -> None:
    body = b"a: &a " + b"[" * 150 + b"]" * 150 + b"\nb: " + b"[" * 150 + b"*a" + b"]" * 150
    with pytest.raises(BadRequest, match="nested deeper"):
        decode(body)


def test_written_yaml_quotes_what_would_be_misread() -> None:
    value = {"b": "yes", "a": ["x", {"c": None, "d": "1"}], "t": "2026-01-02T03:04:05Z", "m": "l1\nl2\n", "y": "n"}
    text = dumps(value)
    assert (
        text
        == b"""a:
- x
- c: null
  d: "1"
b: "yes"
m: |
  l1
  l2
t: '2026-01-02T03:04:05Z'
"y": "n"
"""
    )
    assert loads(text) == value
    shared = {"x": 1}
    assert b"&" not in dumps({"a": shared, "b": shared})
    assert dumps("plain") == b"plain\n"


texts = st.text(
    st.characters(
        exclude_categories=["Cs"], exclude_characters="\x7f\x85\u2028\u2029\ufeff\ufffe\uffff", min_codepoint=32
    ),
    max_size=8,
)
trees = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(-1e6, 1e6).map(lambda n: n + 0.5)
    | texts | st.sampled_from(["yes", "1", "1e3", "~", "0x1", "a\nb", "- x", "{", "a: b", "#", "1:20", "<<", "=", "null", " x ", "x\n"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts | st.sampled_from(["on", "1", "<<", "x: y"]), inner, max_size=4),
    max_leaves=12,
)  # fmt: skip


@settings(max_examples=200, deadline=None)
@given(trees)
def test_any_json_value_survives_being_written_as_yaml(tree: Any) -> None:
    assert loads(dumps(tree)) == tree


@settings(max_examples=400, deadline=None)
@given(st.text(alphabet="ab1:-[]{}&*<!|>'\"#,? \n\t%@~\\é", max_size=40))
def test_any_text_becomes_a_json_value_or_is_a_bad_request(text: str) -> None:
    try:
        value = loads(text.encode())
    except BadRequest:
        return
    orjson.dumps(value)


def test_a_document_of_too_many_values_is_refused_before_it_is_all_read() -> None:
    with pytest.raises(TooLarge, match="too many values"):
        loads(b"a: [" + b"1," * MAX_EVENTS + b"]")
    assert len(loads(b"a: [" + b"1," * 50_000 + b"]")["a"]) == 50_000
