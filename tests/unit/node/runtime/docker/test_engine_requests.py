"""Paths, errors and versions of the engine's API."""

from __future__ import annotations

import pytest

from shoal.node.runtime.docker.engine import choose_version, error_of, target
from shoal.node.runtime.model import (
    RuntimeFailure,
)


def test_paths_and_queries_are_quoted() -> None:
    path = ("images", "host:5000/a b/c@sha256:12", "json")
    assert target(path, {}) == "/images/host:5000%2Fa%20b%2Fc@sha256:12/json"
    query = {"all": True, "size": False, "tail": 3, "none": None, "filters": {"label": ["a=b&c"]}}
    assert target(("x",), query) == "/x?all=true&size=false&tail=3&filters=%7B%22label%22%3A%5B%22a%3Db%26c%22%5D%7D"


@pytest.mark.parametrize(
    ("status", "body", "text"),
    [
        (404, b'{"message":"No such container: x\\n"}', "No such container: x"),
        (500, b'{"cause":"c","message":"m","response":500}', "m"),
        (404, b"Not Found\n", "Not Found"),
        (500, b"", "the engine answered with 500"),
        (400, b"[1]", "[1]"),
    ],
)
def test_errors_have_the_message_of_the_engine(status: int, body: bytes, text: str) -> None:
    found = error_of(status, body)
    assert (found.status, str(found)) == (status, text)


def test_the_newest_common_version_is_used() -> None:
    assert choose_version("1.41", "1.24") == "1.41"
    assert choose_version("1.99", "1.24") == "1.47"
    assert choose_version("1.60", "1.50") == "1.50"
    with pytest.raises(RuntimeFailure, match="1.40"):
        choose_version("1.40", "1.12")
    with pytest.raises(RuntimeFailure, match="'x'"):
        choose_version("x", "")
