"""JSON bodies decode or are bad requests, and duplicate keys are found."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.errors import BadRequest
from shoal.kube.jsonutil import MAX_DEPTH, deep_copy, dumps, find_duplicate_fields, is_deeper_than, loads, loads_object


@pytest.mark.parametrize("body", [b"", b"{", b'{"a":}', b"\xff", b'{"a":NaN}', b"[" * 100_000, b'{"a":' * 5000, b"{}x"])
def test_what_is_not_json_is_a_bad_request(body: bytes) -> None:
    with pytest.raises(BadRequest, match="not valid JSON|nested deeper than 200 levels"):
        loads(body)


def test_nesting_is_limited() -> None:
    assert loads(b"[" * MAX_DEPTH + b"]" * MAX_DEPTH)
    deep = b'{"a":' * (MAX_DEPTH + 1) + b"1" + b"}" * (MAX_DEPTH + 1)
    with pytest.raises(BadRequest, match="nested deeper"):
        loads(deep)
    wide = b"[" + b",".join([b"{}"] * 1000) + b"]"
    assert len(loads(wide)) == 1000
    assert is_deeper_than([[[]]], 2) and not is_deeper_than([[[]]], 3) and not is_deeper_than(1, 0)


def test_the_error_names_the_json_type_that_is_not_an_object() -> None:
    assert loads_object(b'{"a":9007199254740993}') == {"a": 9007199254740993}
    for body, named in (
        (b"[]", "an array"),
        (b"1", "a number"),
        (b"null", "null"),
        (b'""', "a string"),
        (b"true", "a boolean"),
    ):
        with pytest.raises(BadRequest, match=f"not {named}$"):
            loads_object(body)


@pytest.mark.parametrize(
    ("body", "paths"),
    [
        (b'{"spec":{"replicas":1,"replicas":2}}', ["spec.replicas"]),
        (b'{"spec":{"containers":[{"name":"a"},{"name":"b","name":"c"}]}}', ["spec.containers[1].name"]),
        (b'{"a" :1,"a":1}', ["a"]),
        (b'{"a":1,"a":2,"a":3}', ["a"]),
        (b'{"a":{"x":1,"x":1},"a":{"x":1,"x":2}}', ["a.x", "a"]),
        (b'{"a":1,"a":1,"b":"\\u003a"}', ["a"]),
        (b'{"a":1,"\\u0061":2}', ["a"]),
        (b'[[{"a":1,"a":1}]]', ["[0][0].a"]),
        (b'{"a":1,"b":{"a":2},"c":[{"a":1},{"a":1}],"d":"x:y","e":"\\":"}', []),
        (b'{"a":"\\u003a"}', []),
        (b'":"', []),
        (b'"\\u003a"', []),
        (b'{"a":1,"a":' + b"1" * 300 + b"}", ["a"]),
    ],
)  # fmt: skip
def test_duplicate_keys_are_found_by_path(body: bytes, paths: list[str]) -> None:
    assert find_duplicate_fields(body, loads(body)) == paths


def test_duplicates_are_reported_up_to_a_limit() -> None:
    body = b"{" + b",".join(b'"k%d":1,"k%d":2' % (n, n) for n in range(300)) + b"}"
    assert len(find_duplicate_fields(body, loads(body))) == 100


trees = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text(st.characters(exclude_categories=["Cs"]), max_size=6),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(alphabet='ab:"\\', max_size=4), inner, max_size=4),
    max_leaves=20,
)  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(trees)
def test_trees_without_repeats_have_no_duplicates_and_copies_are_equal(tree: Any) -> None:
    for body in (dumps(tree), json.dumps(tree, indent=1).encode()):
        assert find_duplicate_fields(body, loads(body)) == []
    assert deep_copy(tree) == tree


def test_copies_share_nothing_that_can_change() -> None:
    tree = {"a": [{"b": 1}], "c": {}}
    copied = deep_copy(tree)
    copied["a"][0]["b"] = 2
    copied["c"]["x"] = 1
    assert tree == {"a": [{"b": 1}], "c": {}}


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=60))
def test_any_bytes_decode_or_are_a_bad_request(body: bytes) -> None:
    with contextlib.suppress(BadRequest):
        find_duplicate_fields(body, loads(body))
