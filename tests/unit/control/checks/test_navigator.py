"""Queries to the navigator that must find nothing."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.base.http1.messages import HttpReply
from shoal.control.checks.navigator import found_nothing


def reply(total: int = 0, items: Any = (), stale: tuple[str, ...] = (), forbidden: tuple[str, ...] = ()) -> HttpReply:
    found = {
        "total": total, "items": list(items), "notFresh": [{"cluster": each} for each in stale],
        "forbidden": [{"cluster": each, "kind": "pods", "error": "no"} for each in forbidden],
    }  # fmt: skip
    return HttpReply(200, {}, orjson.dumps(found))


def test_what_is_found_fails_the_check_and_is_named() -> None:
    pod = {"cluster": "eu1", "namespace": "shop", "name": "web-1"}
    found = found_nothing(reply(7, [pod]), ("eu1",))
    assert (found.passed, found.reason, found.numbers) == (False, "the query found 7: eu1/shop/web-1", {"found": 7})


def test_nothing_is_a_verdict_only_with_a_fresh_state_of_these_clusters() -> None:
    assert found_nothing(reply(), ("eu1",)).passed is True
    assert found_nothing(reply(stale=("ap1",)), ("eu1",)).passed is True
    away = found_nothing(reply(stale=("ap1", "eu1")), ("eu1",))
    assert away.passed is None and away.reason.endswith("no fresh state of eu1")
    assert found_nothing(reply(1, [{}], stale=("eu1",)), ("eu1",)).passed is False


def test_nothing_is_no_verdict_on_what_may_not_be_read() -> None:
    unread = found_nothing(reply(forbidden=("ap1", "eu1")), ("eu1",))
    assert unread.passed is None and unread.reason.endswith("may not read pods of eu1")
    assert found_nothing(reply(forbidden=("ap1",)), ("eu1",)).passed is True
    assert found_nothing(reply(1, [{}], forbidden=("eu1",)), ("eu1",)).passed is False


@pytest.mark.parametrize("status", [400, 401, 403, 503])
def test_refusals_say_neither_and_are_quoted(status: int) -> None:
    found = found_nothing(HttpReply(status, {}, b"unknown field"), ())
    assert found.passed is None and found.reason == f"the navigator answered {status}: unknown field"


@given(st.binary(max_size=60))
def test_no_answer_is_too_strange(body: bytes) -> None:
    assert found_nothing(HttpReply(200, {}, body), ()).passed is None
