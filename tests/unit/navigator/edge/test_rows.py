"""Rows that are too large for a message."""

from __future__ import annotations

import orjson

from shoal.navigator.edge.reporting import row_of
from shoal.navigator.edge.rows import TOO_LARGE, fitting
from shoal.navigator.model import KINDS


def test_a_row_that_does_not_fit_becomes_a_stub() -> None:
    data = row_of(KINDS["pods"], "v1", {"metadata": {"name": "p", "namespace": "n"}, "spec": {"text": "x" * 1000}})
    assert fitting(data, 2000) is data
    stub = orjson.loads(fitting(data, 500))
    assert stub["metadata"]["name"] == "p" and stub["metadata"]["annotations"] == {TOO_LARGE: str(len(data))}
