"""SPDY/3.1: what one side packs the other reads, whatever the pieces; and nonsense is refused, never a crash."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.base.spdy import (
    DICTIONARY,
    REFUSED_STREAM,
    Data,
    Event,
    Finished,
    Frame,
    Framer,
    GoneAway,
    HeaderPacker,
    HeaderUnpacker,
    Opened,
    Reset,
    SpdyConnection,
    SpdyError,
    control_frame,
    data_frame,
)

SYN_STREAM, SYN_REPLY, RST_STREAM, SETTINGS, PING, GOAWAY, HEADERS, WINDOW_UPDATE = 1, 2, 3, 4, 6, 7, 8, 9
FIN = 1


class Client:
    """The other side, as Go's library speaks it."""

    def __init__(self) -> None:
        self._packer = HeaderPacker()
        self._unpacker = HeaderUnpacker()
        self._framer = Framer()

    def open(self, stream: int, headers: dict[str, str], *, fin: bool = False) -> bytes:
        payload = stream.to_bytes(4, "big") + bytes(6) + self._packer.pack(headers)
        return control_frame(SYN_STREAM, FIN if fin else 0, payload)

    def frames(self, data: bytes) -> list[Frame]:
        return self._framer.feed(data)


def test_the_dictionary_is_that_of_the_protocol() -> None:
    assert len(DICTIONARY) == 1423
    assert DICTIONARY.startswith(b"\x00\x00\x00\x07options") and DICTIONARY.endswith(b",enq=0.")


def test_a_stream_is_opened_answered_used_and_finished() -> None:
    client, session = Client(), SpdyConnection()
    events = session.receive(client.open(1, {"streamType": "data", "port": "8080"}))
    assert events == [Opened(1, {"streamtype": "data", "port": "8080"})]
    session.send(1, b"too early")  # not accepted yet: dropped
    session.accept(1)
    session.send(1, b"x" * 40_000)
    session.finish(1)
    session.send(1, b"too late")
    reply, *data, last = client.frames(session.outgoing())
    assert reply.kind == SYN_REPLY and reply.payload[:4] == b"\x00\x00\x00\x01"
    assert [(frame.stream, len(frame.payload)) for frame in data] == [(1, 32_768), (1, 7_232)]
    assert (last.stream, last.flags, last.payload) == (1, FIN, b"")
    assert session.receive(data_frame(1, b"hello")) == [Data(1, b"hello")]
    assert session.receive(data_frame(1, b"", fin=True)) == [Finished(1)]
    assert session.receive(data_frame(1, b"late")) == []  # known, but over
    assert session.outgoing() == b""


def test_a_stream_may_be_half_closed_from_its_beginning() -> None:
    client, session = Client(), SpdyConnection()
    assert session.receive(client.open(1, {"streamtype": "error"}, fin=True)) == [
        Opened(1, {"streamtype": "error"}),
        Finished(1),
    ]
    session.accept(1)
    session.send(1, b"message")
    assert [frame.payload for frame in client.frames(session.outgoing())[1:]] == [b"message"]


def test_pings_of_the_client_come_back_and_our_own_do_not() -> None:
    session = SpdyConnection()
    ping = control_frame(PING, 0, (7).to_bytes(4, "big"))
    session.receive(ping)
    assert session.outgoing() == ping
    session.receive(control_frame(PING, 0, (8).to_bytes(4, "big")))
    assert session.outgoing() == b""


def test_a_reset_ends_a_stream_for_both() -> None:
    client, session = Client(), SpdyConnection()
    session.receive(client.open(1, {}))
    session.receive(client.open(3, {}))
    session.accept(1)
    assert session.receive(control_frame(RST_STREAM, 0, bytes((0, 0, 0, 1)) + bytes((0, 0, 0, 5)))) == [Reset(1)]
    session.reset(3, REFUSED_STREAM)
    session.outgoing()
    session.send(1, b"gone")
    session.send(3, b"gone")
    assert session.outgoing() == b""


def test_what_needs_no_answer_gets_none() -> None:
    session = SpdyConnection()
    assert session.receive(control_frame(SETTINGS, 0, bytes(4))) == []
    assert session.receive(control_frame(WINDOW_UPDATE, 0, bytes(8))) == []
    assert session.receive(control_frame(GOAWAY, 0, bytes(8))) == [GoneAway()]
    assert session.outgoing() == b""


def test_too_many_streams_are_refused_one_by_one() -> None:
    client, session = Client(), SpdyConnection()
    for number in range(4096):
        assert session.receive(client.open(2 * number + 1, {}))
    assert session.receive(client.open(8193, {})) == []
    assert client.frames(session.outgoing())[-1].kind == RST_STREAM


@pytest.mark.parametrize(
    "wrong",
    [
        data_frame(5, b"never opened"),
        data_frame(0, b"no stream"),
        control_frame(PING, 0, b"abc"),
        control_frame(RST_STREAM, 0, b""),
        control_frame(SYN_STREAM, 0, bytes(9)),
        control_frame(SYN_STREAM, 0, bytes((0, 0, 0, 1)) + bytes(6) + b"not compressed"),
        control_frame(SYN_REPLY, 0, bytes(4)),
        Client().open(2, {}),  # even numbers are the server's
        b"\x80\x02" + control_frame(PING, 0, bytes(4))[2:],  # another version
    ],
)
def test_what_breaks_the_protocol_is_an_error(wrong: bytes) -> None:
    with pytest.raises(SpdyError):
        SpdyConnection().receive(wrong)


def test_streams_are_opened_in_order() -> None:
    client, session = Client(), SpdyConnection()
    session.receive(client.open(5, {}))
    with pytest.raises(SpdyError):
        session.receive(client.open(3, {}))


def test_headers_that_unpack_to_too_much_are_an_error() -> None:
    client, session = Client(), SpdyConnection()
    with pytest.raises(SpdyError):
        session.receive(client.open(1, {"bomb": "0" * 1_000_000}))


names = st.text("abcdefghijklmnop-", min_size=1, max_size=20)
values = st.text(st.characters(blacklist_characters="\x00", blacklist_categories=("Cs",)), max_size=40)


@given(st.lists(st.dictionaries(names, values, max_size=6), max_size=8))
@settings(max_examples=100, deadline=None)
def test_headers_come_out_as_they_went_in(blocks: list[dict[str, str]]) -> None:
    packer, unpacker = HeaderPacker(), HeaderUnpacker()
    for block in blocks:
        assert unpacker.unpack(packer.pack(block)) == block


@given(st.data())
@settings(max_examples=100, deadline=None)
def test_how_bytes_are_cut_into_pieces_changes_nothing(data: st.DataObject) -> None:
    client = Client()
    wire = b"".join(
        [client.open(1, {"a": "b"}), data_frame(1, b"one"), client.open(3, {}), data_frame(1, b"two", fin=True)]
    )
    whole = SpdyConnection().receive(wire)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(wire)), max_size=10)))
    pieces = [wire[start:end] for start, end in zip([0, *cuts], [*cuts, len(wire)], strict=True)]
    session = SpdyConnection()
    found: list[Event] = [event for piece in pieces for event in session.receive(piece)]
    assert found == whole


@given(st.binary(max_size=300))
@settings(max_examples=300, deadline=None)
def test_any_bytes_are_understood_or_refused(junk: bytes) -> None:
    client, session = Client(), SpdyConnection()
    session.receive(client.open(1, {}))
    try:
        session.receive(junk)
    except SpdyError:
        return
    session.outgoing()
