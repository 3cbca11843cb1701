"""The Huffman code of HPACK, compared with the encoder of another implementation."""

from __future__ import annotations

import pytest
from hpack.huffman import HuffmanEncoder
from hpack.huffman_constants import REQUEST_CODES, REQUEST_CODES_LENGTH
from hypothesis import given
from hypothesis import strategies as st

from shoal.base.huffman import HuffmanError, huffman_decoded

ENCODER = HuffmanEncoder(REQUEST_CODES, REQUEST_CODES_LENGTH)


@given(st.binary(max_size=200))
def test_every_string_comes_back(text: bytes) -> None:
    assert huffman_decoded(ENCODER.encode(text)) == text


def test_every_octet_has_its_code() -> None:
    assert all(huffman_decoded(ENCODER.encode(bytes((octet,)))) == bytes((octet,)) for octet in range(256))


@pytest.mark.parametrize(
    "data",
    [
        b"\x00",  # "0" and three bits that are not padding
        b"\xff",  # a whole octet of padding
        b"\x1f\xff",  # "a", and more than an octet of padding
        b"\xff\xff\xff\xff",  # the end of the string, inside of it
        b"\x1c",  # "a" padded with zeros
    ],
)
def test_what_is_not_a_string_of_the_code_is_refused(data: bytes) -> None:
    with pytest.raises(HuffmanError):
        huffman_decoded(data)
