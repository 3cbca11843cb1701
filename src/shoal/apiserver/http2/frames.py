"""Frames of HTTP/2 (RFC 9113) as data: their header, kinds, reasons of errors, padding and settings."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
HEADER_BYTES = 9
FRAME_BYTES = 16 * 1024  # the largest payload that every peer must take, and that we take
LARGEST_WINDOW = 2**31 - 1
FIRST_WINDOW = 65_535  # of a connection and its streams, until either side says otherwise

DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(10)

END_STREAM = ACK = 0x1
END_HEADERS = 0x4
PADDED = 0x8
HAS_PRIORITY = 0x20

TABLE_SIZE, ENABLE_PUSH, CONCURRENT_STREAMS, INITIAL_WINDOW, LARGEST_FRAME, HEADER_LIST_SIZE = range(1, 7)

NO_ERROR, PROTOCOL_ERROR, INTERNAL_ERROR, FLOW_CONTROL_ERROR, SETTINGS_TIMEOUT, STREAM_CLOSED = range(6)
FRAME_SIZE_ERROR, REFUSED_STREAM, CANCEL, COMPRESSION_ERROR, CONNECT_ERROR, ENHANCE_YOUR_CALM = range(6, 12)
INADEQUATE_SECURITY, HTTP_1_1_REQUIRED = range(12, 14)

_HEADER = struct.Struct(">IBI")  # length in 24 bits and kind, flags, stream
read_header = _HEADER.unpack_from
_SETTING = struct.Struct(">HI")
_WORD = struct.Struct(">I")


class Fault(Exception):
    """The client broke the protocol: the connection ends."""

    def __init__(self, reason: int, text: str) -> None:
        super().__init__(text)
        self.reason = reason


def head(kind: int, flags: int, stream: int, length: int) -> bytes:
    """The header of a frame."""
    return _HEADER.pack(length << 8 | kind, flags, stream)


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return _HEADER.pack(len(payload) << 8 | kind, flags, stream) + payload


def word_frame(kind: int, stream: int, word: int) -> bytes:
    """A frame with one number: of RST_STREAM the reason, of WINDOW_UPDATE the increment."""
    return _HEADER.pack(4 << 8 | kind, 0, stream) + _WORD.pack(word)


def goaway(last: int, reason: int, text: str = "") -> bytes:
    return frame(GOAWAY, 0, 0, _WORD.pack(last) + _WORD.pack(reason) + text.encode())


def settings(values: Iterable[tuple[int, int]]) -> bytes:
    return frame(SETTINGS, 0, 0, b"".join(_SETTING.pack(*value) for value in values))


def read_settings(payload: bytes) -> Iterator[tuple[int, int]]:
    """The peer's settings, checked; unknown ones are left out."""
    if len(payload) % _SETTING.size:
        raise Fault(FRAME_SIZE_ERROR, "SETTINGS is cut off")
    for name, value in _SETTING.iter_unpack(payload):
        if name == ENABLE_PUSH and value > 1:
            raise Fault(PROTOCOL_ERROR, "ENABLE_PUSH is neither 0 nor 1")
        if name == INITIAL_WINDOW and value > LARGEST_WINDOW:
            raise Fault(FLOW_CONTROL_ERROR, "INITIAL_WINDOW_SIZE is too large")
        if name == LARGEST_FRAME and not FRAME_BYTES <= value < 1 << 24:
            raise Fault(PROTOCOL_ERROR, "MAX_FRAME_SIZE is out of range")
        yield name, value


def word(payload: bytes) -> int:
    """The number in a frame of four octets."""
    if len(payload) != _WORD.size:
        raise Fault(FRAME_SIZE_ERROR, "a frame of four octets has another length")
    found: int = _WORD.unpack(payload)[0]
    return found


def unpadded(flags: int, payload: bytes) -> bytes:
    """The payload of DATA or HEADERS without its padding."""
    if not flags & PADDED:
        return payload
    if not payload or payload[0] >= len(payload):
        raise Fault(PROTOCOL_ERROR, "the padding is longer than the frame")
    return payload[1 : len(payload) - payload[0]]
