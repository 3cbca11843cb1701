"""The protocol: what clients ask is read or refused, never more; what is answered reads back."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.node.dns import codec
from shoal.node.dns.codec import Answer, BadMessage, Record

labels = st.text(alphabet="abcdefghijklmnopqrstuvwxyz0123456789-_", min_size=1, max_size=63)
names = st.lists(labels, max_size=4).map(tuple)
addresses = st.ip_addresses(v=4).map(str)


def query(name: codec.Name, kind: int = codec.A, *, edns: int = 0, flags: int = 0x100) -> bytes:
    head = struct.pack(">HHHHHH", 7, flags, 1, 0, 0, 1 if edns else 0)
    options = b"\0\0\x29" + struct.pack(">HIH", edns, 0, 0) if edns else b""
    return head + codec.packed_name(name) + struct.pack(">HH", kind, 1) + options


def read(message: bytes) -> tuple[int, bool, list[tuple[int, bytes]]]:
    """The code, whether it was cut, and types and data of all records; written apart from the codec."""
    _, flags, questions, *counts = struct.unpack_from(">HHHHHH", message)
    at = 12
    for _ in range(questions):
        while message[at]:
            at += 1 + message[at]
        at += 5
    found = []
    for _ in range(sum(counts)):
        while message[at] and message[at] < 0xC0:
            at += 1 + message[at]
        at += 2 if message[at] else 1
        kind, _, _, length = struct.unpack_from(">HHIH", message, at)
        found.append((kind, message[at + 10 : at + 10 + length]))
        at += 10 + length
    assert at == len(message)
    return flags & 15, bool(flags & 0x200), found


@given(name=names, kind=st.integers(1, 65535), size=st.integers(0, 65535))
def test_a_question_reads_as_it_was_asked(name: codec.Name, kind: int, size: int) -> None:
    found = codec.parse(query(name, kind, edns=size))
    assert (found.name, found.type, found.id) == (name, kind, 7)
    assert 512 <= found.udp_bytes <= 4096


@given(st.binary(max_size=200))
def test_no_message_makes_it_fail_in_another_way(message: bytes) -> None:
    try:
        codec.parse(message)
    except BadMessage as bad:
        codec.refusal(message, bad.rcode)


@given(cut=st.integers(0, 100), name=names)
def test_a_question_that_is_cut_off_is_refused(cut: int, name: codec.Name) -> None:
    message = query(name)
    if cut < len(message):
        with pytest.raises(BadMessage):
            codec.parse(message[:cut])


def test_a_name_that_points_into_the_message_is_refused() -> None:
    message = struct.pack(">HHHHHH", 7, 0, 1, 0, 0, 0) + b"\xc0\x0c\0\1\0\1"
    with pytest.raises(BadMessage):
        codec.parse(message)


def test_an_answer_is_never_answered() -> None:
    assert codec.refusal(query(("a",), flags=0x8000), codec.FORMERR) is None


@given(name=names, found=st.lists(addresses, max_size=40), other=names)
def test_records_read_back_and_datagrams_keep_their_limit(
    name: codec.Name, found: list[str], other: codec.Name
) -> None:
    question = codec.parse(query(name))
    records = tuple(Record(name, codec.A, 5, each) for each in found)
    records += (Record(other, codec.SRV, 5, (0, 1, 80, other)),)
    whole = codec.encode(question, Answer(codec.NOERROR, records))
    code, cut, back = read(whole)
    assert (code, cut, len(back)) == (0, False, len(records))
    assert [".".join(map(str, data)) for kind, data in back if kind == codec.A] == found
    short = codec.encode(question, Answer(codec.NOERROR, records), limit=512)
    assert len(short) <= 512
    assert short == whole if len(whole) <= 512 else read(short) == (0, True, [])
