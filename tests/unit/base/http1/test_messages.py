"""Requests as bytes."""

from __future__ import annotations

import pytest

from shoal.base.http1.messages import chunk, request_bytes


def test_a_request_declares_its_body_when_it_has_one() -> None:
    assert request_bytes("GET", "/a?b=c", [("host", "x")]) == b"GET /a?b=c HTTP/1.1\r\nhost: x\r\n\r\n"
    assert request_bytes("POST", "/", [], b"") == b"POST / HTTP/1.1\r\ncontent-length: 0\r\n\r\n"
    assert request_bytes("PUT", "/", [], b"abc") == b"PUT / HTTP/1.1\r\ncontent-length: 3\r\n\r\nabc"


@pytest.mark.parametrize("bad", ["a\r\nb: c", "a\nb", "a\rb", "a\0b"])
@pytest.mark.parametrize("part", ["method", "target", "name", "value"])
def test_no_part_of_a_request_can_hold_a_line_break(part: str, bad: str) -> None:
    parts = {"method": "GET", "target": "/", "name": "x", "value": "y", part: bad}
    with pytest.raises(ValueError, match="line break"):
        request_bytes(parts["method"], parts["target"], [(parts["name"], parts["value"])])


def test_an_empty_piece_does_not_end_a_body_in_chunks() -> None:
    assert chunk(b"") == b""
    assert chunk(b"x" * 17) == b"11\r\n" + b"x" * 17 + b"\r\n"
