"""Compression of messages."""

from __future__ import annotations

import gzip
import os

import pytest

from shoal.control.service.stream.compression import Gzip


@pytest.mark.parametrize("size", [0, 1, 300, 4096, 4097, 70_000])
def test_whatever_its_size_a_message_is_gzip_that_anybody_can_read(size: int) -> None:
    data = os.urandom(size)
    assert gzip.decompress(Gzip().compress(data)) == data
    assert Gzip().decompress(Gzip().compress(data), 1 << 20) == data


def test_a_large_message_gets_smaller() -> None:
    assert len(Gzip().compress(b"a" * 50_000)) < 1000
