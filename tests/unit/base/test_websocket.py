"""WebSocket frames and the channels on them."""

from __future__ import annotations

import json
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.base import websocket as ws
from shoal.base.websocket import CloseCode, Decoder, Message, Opcode, WebSocketError

MASK = b"\x01\x02\x03\x04"


def test_the_accept_key_is_that_of_the_specification() -> None:
    assert ws.accept_key("dGhlIHNhbXBsZSBub25jZQ==") == "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
    assert ws.is_key("dGhlIHNhbXBsZSBub25jZQ==")
    assert not ws.is_key("short") and not ws.is_key("")


def test_the_first_protocol_of_the_client_that_is_supported_is_chosen() -> None:
    assert ws.choose(ws.offered("v9.channel.k8s.io, v4.channel.k8s.io,v5.channel.k8s.io"), ws.REMOTE_COMMAND) == ws.V4
    assert ws.choose(ws.offered("other"), ws.REMOTE_COMMAND) is None


@given(st.lists(st.binary(max_size=300), max_size=10), st.booleans(), st.data())
@settings(max_examples=200)
def test_messages_survive_any_cut_of_the_stream(payloads: list[bytes], server: bool, data: st.DataObject) -> None:
    stream = b"".join(ws.encode(Opcode.BINARY, each, mask=MASK if server else b"") for each in payloads)
    decoder, found, at = Decoder(server=server), [], 0
    while at < len(stream):
        size = data.draw(st.integers(1, 64))
        found += decoder.feed(stream[at : at + size])
        at += size
    assert found == [Message(Opcode.BINARY, each) for each in payloads]


@pytest.mark.parametrize("size", [0, 1, 125, 126, 127, 65535, 65536, 200_000])
def test_every_length_has_its_form(size: int) -> None:
    payload = bytes(size % 256 for _ in range(size))
    assert Decoder(server=True).feed(ws.encode(Opcode.BINARY, payload, mask=MASK)) == [Message(Opcode.BINARY, payload)]
    assert Decoder(server=False).feed(ws.encode(Opcode.BINARY, payload)) == [Message(Opcode.BINARY, payload)]


def test_a_message_in_parts_is_put_together_with_control_frames_between() -> None:
    parts = bytes([0x01, 2]) + b"he" + bytes([0x89, 1]) + b"!" + bytes([0x80, 3]) + b"llo"
    assert Decoder(server=False).feed(parts) == [Message(Opcode.PING, b"!"), Message(Opcode.TEXT, b"hello")]


@pytest.mark.parametrize(
    ("frame", "server", "code"),
    [
        (bytes([0xC2, 0]), False, CloseCode.PROTOCOL_ERROR),  # a reserved bit
        (bytes([0x83, 0]), False, CloseCode.PROTOCOL_ERROR),  # unknown opcode
        (bytes([0x82, 0]), True, CloseCode.PROTOCOL_ERROR),  # not masked
        (bytes([0x82, 0x80]) + MASK, False, CloseCode.PROTOCOL_ERROR),  # masked by a server
        (bytes([0x09, 0]), False, CloseCode.PROTOCOL_ERROR),  # control frame in parts
        (bytes([0x89, 126, 0, 200]), False, CloseCode.PROTOCOL_ERROR),  # control frame too long
        (bytes([0x80, 0]), False, CloseCode.PROTOCOL_ERROR),  # continues nothing
        (bytes([0x02, 0, 0x82, 0]), False, CloseCode.PROTOCOL_ERROR),  # a new message within another
        (bytes([0x82, 127]) + (1 << 40).to_bytes(8, "big"), False, CloseCode.TOO_BIG),
    ],
)
def test_what_breaks_the_protocol_is_refused_with_its_code(frame: bytes, server: bool, code: CloseCode) -> None:
    with pytest.raises(WebSocketError) as caught:
        Decoder(server=server).feed(frame)
    assert caught.value.code is code


def test_many_empty_parts_cost_no_more_than_their_bytes() -> None:
    decoder = Decoder(server=True)
    before = time.process_time()
    decoder.feed(bytes((Opcode.BINARY, 0x80, 0, 0, 0, 0)) + bytes((Opcode.CONTINUATION, 0x80, 0, 0, 0, 0)) * 20_000)
    assert time.process_time() - before < 0.5  # 4 s when each part was added up again
    assert decoder.feed(bytes((0x80 | Opcode.CONTINUATION, 0x80, 0, 0, 0, 0))) == [Message(Opcode.BINARY, b"")]


def test_parts_count_together_towards_the_limit() -> None:
    decoder = Decoder(server=False, limit=10)
    decoder.feed(bytes([0x02, 6]) + b"123456")
    with pytest.raises(WebSocketError) as caught:
        decoder.feed(bytes([0x80, 6]) + b"123456")
    assert caught.value.code is CloseCode.TOO_BIG


@given(st.binary(max_size=400))
@settings(max_examples=300)
def test_noise_is_refused_or_understood_and_never_anything_else(noise: bytes) -> None:
    try:
        Decoder(server=True).feed(noise)
    except WebSocketError:
        pass


@pytest.mark.parametrize("subprotocol", ws.REMOTE_COMMAND)
def test_channels_go_there_and_back(subprotocol: str) -> None:
    (message,) = Decoder(server=False).feed(ws.encode_channel(2, b"data\x00\xff", subprotocol))
    assert ws.decode_channel(message, subprotocol) == (2, b"data\x00\xff")


def test_a_message_without_a_channel_is_refused() -> None:
    with pytest.raises(WebSocketError):
        ws.decode_channel(Message(Opcode.BINARY, b""), ws.V5)
    with pytest.raises(WebSocketError):
        ws.decode_channel(Message(Opcode.TEXT, b"1%%"), ws.V4_BASE64)


def test_how_a_command_ended_is_a_status() -> None:
    assert json.loads(ws.error_message(ws.exit_status(0), ws.V5)) == {"metadata": {}, "status": "Success"}
    failed = json.loads(ws.error_message(ws.exit_status(3), ws.V4))
    assert failed["reason"] == "NonZeroExitCode"
    assert failed["details"]["causes"] == [{"reason": "ExitCode", "message": "3"}]
    assert ws.error_message(ws.exit_status(0), ws.V1) == b""


def test_sizes_of_terminals() -> None:
    assert ws.decode_size(b'{"Width":80,"Height":24}') == (80, 24)
    assert ws.decode_size(b"nonsense") is None


def test_a_close_frame_carries_its_code_and_a_short_reason() -> None:
    (message,) = Decoder(server=False).feed(ws.encode_close(CloseCode.TOO_BIG, "ü" * 200))
    assert (message.opcode, message.close_code) == (Opcode.CLOSE, CloseCode.TOO_BIG)
    assert Message(Opcode.CLOSE, b"").close_code == CloseCode.NO_STATUS


@pytest.mark.parametrize("size", [0, 1, 3, 4, 5, 1023, 8191, 8192, 8193, 32767, 32768])
def test_a_mask_is_applied_byte_by_byte_whatever_the_size(size: int) -> None:
    data, mask = bytes(index * 7 % 256 for index in range(size)), b"\x01\xfe\x00\x9c"
    expected = bytes(byte ^ mask[index % 4] for index, byte in enumerate(data))
    assert ws.masked(data, mask) == expected
    assert ws.masked(expected, mask) == data
