"""The protobuf wire format: varints, tags and lengths over one ``bytes`` object.

Readers take the data and a position and return the value and the next position. They raise ``IndexError`` at the end
of the data and ``ValueError`` for malformed data; the decoder turns both into a bad request.
"""

from __future__ import annotations

import struct

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5

_double = struct.Struct("<d")


def read_varint(data: bytes, position: int) -> tuple[int, int]:
    """An unsigned number of up to 64 bits."""
    byte = data[position]
    position += 1
    if byte < 0x80:
        return byte, position
    value, shift = byte & 0x7F, 7
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFFFFFFFFFFFFFF, position
        shift += 7
        if shift > 63:
            raise ValueError("a number is longer than 64 bits")


def read_double(data: bytes, position: int) -> tuple[float, int]:
    if position + 8 > len(data):
        raise IndexError
    (value,) = _double.unpack_from(data, position)
    return value, position + 8


def skip(data: bytes, position: int, wire: int) -> int:
    """The position after an unknown field."""
    if wire == VARINT:
        return read_varint(data, position)[1]
    if wire == BYTES:
        length, position = read_varint(data, position)
        return position + length
    if wire == FIXED64:
        return position + 8
    if wire == FIXED32:
        return position + 4
    raise ValueError(f"wire type {wire} is not known")


def signed32(value: int) -> int:
    value &= 0xFFFFFFFF
    return value - 0x100000000 if value & 0x80000000 else value


def signed64(value: int) -> int:
    return value - 0x10000000000000000 if value & 0x8000000000000000 else value


def varint(value: int) -> bytes:
    """A number of up to 64 bits; negative ones take ten bytes."""
    if 0 <= value < 0x80:
        return bytes((value,))
    value &= 0xFFFFFFFFFFFFFFFF
    out = bytearray()
    while value >= 0x80:
        out.append((value & 0x7F) | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def tag(number: int, wire: int) -> bytes:
    return varint(number << 3 | wire)


def delimited(number: int, payload: bytes) -> bytes:
    """A field that carries bytes: a text, a message, a map entry."""
    return tag(number, BYTES) + varint(len(payload)) + payload


def double(value: float) -> bytes:
    return _double.pack(value)
