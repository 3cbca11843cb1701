"""HPACK, compared with another implementation: what either encodes the other reads, and both refuse the same input."""

from __future__ import annotations

import hpack
import pytest
from hpack.table import HeaderTable
from hypothesis import given
from hypothesis import strategies as st

from shoal.base.hpack import TABLE_BYTES, BlockTooLarge, Decoder, Encoder, HpackError, literal, static_fields

Fields = list[tuple[bytes, bytes]]

NAMES = st.sampled_from([b":path", b":status", b"accept", b"content-type", b"x-a", b"x-b"]) | st.binary(min_size=1)
FIELDS = st.lists(st.tuples(NAMES, st.binary(max_size=80)), max_size=12)


def decoder(limit_bytes: int = 65536) -> Decoder:
    return Decoder(limit_bytes, lambda name, value: 0)


def read(found: Decoder, block: bytes) -> Fields:
    return [field[:2] for field in found.decode(block)]


def theirs(found: hpack.Decoder, block: bytes) -> Fields:
    return [(bytes(name), bytes(value)) for name, value in found.decode(block, raw=True)]


def test_the_static_table_is_the_one_of_the_standard() -> None:
    assert static_fields() == [tuple(field) for field in HeaderTable.STATIC_TABLE]


@given(st.lists(st.tuples(FIELDS, st.booleans()), max_size=8))
def test_blocks_of_another_encoder_are_read_one_after_the_other(blocks: list[tuple[Fields, bool]]) -> None:
    encoder, found = hpack.Encoder(), decoder()
    for fields, huffman in blocks:
        assert read(found, encoder.encode(fields, huffman=huffman)) == fields


def test_a_table_that_the_peer_makes_smaller_loses_its_oldest_entries() -> None:
    encoder, found = hpack.Encoder(), decoder()
    fields = [(b"x-%d" % index, b"v" * 50) for index in range(30)]
    for size in (4096, 200, 0, 300, 4096):
        encoder.header_table_size = size
        for _ in range(2):
            assert read(found, encoder.encode(fields)) == fields


@given(FIELDS, FIELDS, st.integers(0, 5000))
def test_another_decoder_reads_what_is_encoded_also_after_it_has_set_its_tables_size(
    first: Fields, second: Fields, size: int
) -> None:
    encoder, reader = Encoder(), hpack.Decoder()
    for fields in (first, second, second):
        assert theirs(reader, encoder.begin() + encoder.repeated(fields)) == fields
    if size < TABLE_BYTES:
        reader.max_allowed_table_size = size
    encoder.resize(size)
    for fields in (second, first, first):
        assert theirs(reader, encoder.begin() + encoder.repeated(fields)) == fields
    if first:
        assert theirs(reader, literal(*first[0])) == first[:1]


def test_a_field_that_is_repeated_is_one_octet_and_stays_so_while_none_is_added() -> None:
    encoder = Encoder()
    encoder.repeated([(b"content-type", b"application/json"), (b"x-a", b"1")])
    count = encoder.count
    assert len(encoder.repeated([(b"content-type", b"application/json"), (b"x-a", b"1")])) == 2
    assert encoder.count == count


@given(st.lists(st.binary(max_size=60), max_size=6))
def test_any_input_is_read_or_refused_as_by_another_decoder(blocks: list[bytes]) -> None:
    found, other = decoder(), hpack.Decoder()
    other.max_allowed_table_size = TABLE_BYTES
    for block in blocks:
        try:
            expected = theirs(other, block)
        except Exception:  # it lets IndexErrors and others out as well
            with pytest.raises(HpackError):
                found.decode(block)
            return
        try:
            assert read(found, block) == expected
        except HpackError as error:
            assert "size" in str(error) or "integer" in str(error)
            return


@pytest.mark.parametrize(
    "block",
    [
        b"\x80",  # index 0
        b"\xbe",  # an index after the end of the table
        b"\xff\xff\xff\xff\xff\x7f",  # an index that does not end
        b"\x40\x05a",  # a string that does not end
        b"\x40\xff\xff\xff\xff\x7f",  # a length of many octets
        b"\x3f\xe2\x1f",  # a table larger than was allowed
        b"\x82\x20",  # a table's size after a field
        b"\x04\x81\x00",  # Huffman code with wrong padding
        b"\x00",  # nothing after the first octet
    ],
)
def test_a_block_that_breaks_the_format_is_refused(block: bytes) -> None:
    with pytest.raises(HpackError):
        decoder().decode(block)


def test_a_small_block_cannot_become_large_fields() -> None:
    found = decoder(limit_bytes=65536)
    fat = literal(b"x", b"y" * 3900)
    assert len(found.decode(b"\x40" + fat[1:])) == 1  # enters the table
    with pytest.raises(BlockTooLarge):
        found.decode(b"\xbe" * 20)


def test_a_field_is_judged_once_however_often_it_is_repeated() -> None:
    seen: list[bytes] = []

    def mark(name: bytes, value: bytes) -> int:
        seen.append(value)
        return 7 if value == b"odd" else 0

    found = Decoder(65536, mark)
    del seen[:]  # the static table
    encoder = hpack.Encoder()
    marks = [field[3] for _ in range(3) for field in found.decode(encoder.encode([(b"x", b"odd"), (b"y", b"even")]))]
    assert marks == [7, 0] * 3
    assert seen == [b"odd", b"even"]
