"""What the answers of Prometheus mean."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.base.http1.messages import HttpReply
from shoal.control.checks.prometheus import judged


def vector(*values: str) -> HttpReply:
    result = [{"metric": {}, "value": [1700000000.0, value]} for value in values]
    return reply({"resultType": "vector", "result": result})


def reply(data: Any, status: int = 200) -> HttpReply:
    return HttpReply(status, {}, orjson.dumps({"status": "success", "data": data}))


def test_every_value_must_meet_the_condition() -> None:
    good = judged(vector("0.001", "0"), "< 0.01")
    assert (good.passed, good.reason, good.numbers) == (True, "0.001 is < 0.01", {"value": 0.001, "values": 2})
    bad = judged(vector("0.001", "0.2"), "< 0.01")
    assert (bad.passed, bad.reason) == (False, "0.2 is not < 0.01 (1 of 2 values)")
    assert judged(reply({"resultType": "scalar", "result": [1.0, "3"]}), ">= 3").passed is True


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (vector(), "no result"), (vector("NaN"), "not a number"), (vector("0", "NaN"), "not a number"),
        (HttpReply(200, {}, b"<html>"), "in front of /api/v1/query"), (HttpReply(200, {}, b"[]"), "in front of"),
        (reply({"resultType": "matrix", "result": []}), "is a matrix: use a query"),
        (HttpReply(400, {}, b"parse error"), "answered 400: parse error"), (HttpReply(302, {}, b""), "answered 302"),
    ],
)  # fmt: skip
def test_an_answer_without_numbers_says_neither(answer: HttpReply, why: str) -> None:
    found = judged(answer, "< 1")
    assert found.passed is None and why in found.reason


def test_infinite_values_are_judged_and_can_be_stored_as_json() -> None:
    found = judged(vector("+Inf"), "< 1")
    assert found.passed is False and found.numbers["value"] == "inf"


@given(st.binary(max_size=80), st.integers(100, 599))
def test_no_answer_is_too_strange_to_be_judged(body: bytes, status: int) -> None:
    assert judged(HttpReply(status, {}, body), "< 1").passed is None


@given(st.recursive(st.none() | st.integers(-(2**53), 2**53) | st.text(alphabet=st.characters(codec="utf-8")), lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(["data", "resultType", "result", "value"]), inner)))  # fmt: skip
def test_no_json_is_too_strange_to_be_judged(found: Any) -> None:
    judged(HttpReply(200, {}, orjson.dumps(found, option=orjson.OPT_NON_STR_KEYS)), "< 1")
