"""What the answers of a webhook mean."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.base.http1.messages import HttpReply
from shoal.control.checks.webhook import verdict_of


@pytest.mark.parametrize(
    ("status", "body", "passed", "reason"),
    [
        (200, b"", True, "answered 200"), (204, b"", True, "answered 204"),
        (200, b'{"passed": true, "reason": "12 of 12"}', True, "12 of 12"),
        (200, b'{"passed": false, "reason": "3 of 12 fail"}', False, "3 of 12 fail"),
        (200, b'{"passed": "false"}', True, 'answered 200: {"passed": "false"}'),
        (409, b"", False, "answered 409"), (409, b'{"reason": "broken"}', False, "broken"),
        (409, b'{"passed": true}', False, 'answered 409: {"passed": true}'),
        (400, b"bad", None, "answered 400: bad"), (500, b'{"passed": false, "reason": "oops"}', None, "oops"),
        (302, b"", None, "answered 302: redirects are not followed; name the final url"),
        (200, b'{"passed": false, "reason": "a\\u0000b\\nc"}', False, "a b c"),
    ],
)  # fmt: skip
def test_a_verdict_follows_from_status_and_body(status: int, body: bytes, passed: bool | None, reason: str) -> None:
    found = verdict_of(HttpReply(status, {}, body))
    assert (found.passed, found.reason, found.numbers) == (passed, reason, {"status": status})


@given(st.integers(100, 599), st.binary(max_size=2000))
def test_any_answer_can_be_stored_and_shown_in_one_line(status: int, body: bytes) -> None:
    found = verdict_of(HttpReply(status, {}, body))
    assert found.reason.isprintable() and len(found.reason) < 300
    assert found.passed is not True or 200 <= status < 300
