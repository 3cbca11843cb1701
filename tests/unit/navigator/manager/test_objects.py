"""Rows from the data that edges send."""

from __future__ import annotations

import pytest

from shoal.navigator.manager.objects import InvalidRow, make_row


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"1", b"\xff"])
def test_data_that_is_not_an_object_is_refused(data: bytes) -> None:
    with pytest.raises(InvalidRow):
        make_row("east", "pods", "a/b", 1, 1, data)
