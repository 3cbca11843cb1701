"""Decodes a protobuf body to the dict that the object is in JSON.

Go writes every field that is not a pointer, even if it is zero; zeros that JSON omits are dropped. Unknown fields are
skipped. Malformed bytes raise ``BadRequest``.
"""

from __future__ import annotations

import math
from binascii import b2a_base64
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

from shoal.errors import BadRequest
from shoal.kube import jsonutil
from shoal.kube.protobuf import messages, wire
from shoal.kube.protobuf.messages import Field, Message
from shoal.kube.quantity import canonical
from shoal.kube.times import format_duration, format_micro_time, format_time

MAGIC = b"k8s\x00"
MAX_DEPTH = jsonutil.MAX_DEPTH

# (data, start, end, depth) -> value
Reader = Callable[[bytes, int, int, int], Any]
Fix = Callable[[int], Any]


class _Entry(NamedTuple):
    """How to read a field. ``fix`` converts a varint, ``read`` a run of bytes; if both are None, it is a double."""

    name: str
    fix: Fix | None
    read: Reader | None
    text: bool
    repeated: bool
    packed: bool
    map: bool
    inline: bool
    keeps_zero: bool


class _Table(NamedTuple):
    entries: dict[int, _Entry]
    numbers: frozenset[int]


def decode(body: bytes) -> dict[str, Any]:
    """The object in a protobuf body, with apiVersion and kind."""
    try:
        return _decode_envelope(bytes(body), 0)
    except IndexError:
        raise BadRequest("the body of the request is not valid protobuf: unexpected end of data") from None
    except UnicodeDecodeError:
        raise BadRequest("the body of the request is not valid protobuf: a text is not UTF-8") from None
    except (ValueError, OverflowError) as error:
        raise BadRequest(f"the body of the request is not valid protobuf: {error}") from None


def _decode_envelope(data: bytes, depth: int) -> dict[str, Any]:
    if depth > MAX_DEPTH:
        raise ValueError(f"nested deeper than {MAX_DEPTH} levels")
    if not data.startswith(MAGIC):
        raise ValueError("it does not begin with the prefix of Kubernetes' protobuf encoding")
    type_meta, raw, encoding, content_type = (_bytes_fields(data, 4, len(data)).get(n, b"") for n in (1, 2, 3, 4))
    if encoding:
        raise ValueError(f"content encoding {encoding.decode()!r} is not supported")
    named = _bytes_fields(type_meta, 0, len(type_meta))
    api_version, kind = named.get(1, b"").decode(), named.get(2, b"").decode()
    decoded: Any
    if content_type == b"application/json":
        decoded = jsonutil.loads_object(raw)
    else:
        message_name = messages.message_name(api_version, kind)
        decoded = None if message_name is None else _reader_of(message_name)(raw, 0, len(raw), depth + 1)
        if not isinstance(decoded, dict):  # a message such as Time is a text in JSON, not an object
            raise BadRequest(f'no kind "{kind}" is registered for version "{api_version}" in protobuf encoding')
    return {"apiVersion": api_version, "kind": kind, **decoded}


def _bytes_fields(data: bytes, position: int, end: int) -> dict[int, bytes]:
    """The last value of each field that carries bytes."""
    found: dict[int, bytes] = {}
    while position < end:
        tag, position = wire.read_varint(data, position)
        if tag & 7 != wire.BYTES:
            position = wire.skip(data, position, tag & 7)
            continue
        length, position = wire.read_varint(data, position)
        if position + length > end:
            raise IndexError
        found[tag >> 3] = data[position : position + length]
        position += length
    return found


def _read_message(data: bytes, position: int, end: int, depth: int, table: _Table) -> dict[str, Any]:
    if depth > MAX_DEPTH:
        raise ValueError(f"nested deeper than {MAX_DEPTH} levels")
    out: dict[str, Any] = {}
    entries = table.entries
    while position < end:
        tag = data[position]
        position += 1
        if tag >= 0x80:
            tag, position = wire.read_varint(data, position - 1)
        entry = entries.get(tag)
        if entry is None:
            position = _skip_unknown(data, position, tag, table)
            continue
        if tag & 7 == 2:
            length = data[position]
            position += 1
            if length >= 0x80:
                length, position = wire.read_varint(data, position - 1)
            start, position = position, position + length
            if position > end:
                raise IndexError
            if entry.text and not entry.repeated:
                if length or entry.keeps_zero:
                    out[entry.name] = data[start:position].decode()
                continue
            _take_bytes(out, entry, data, start, position, depth)
        else:
            position = _take_number(out, entry, data, position)
    if position > end:
        raise IndexError
    return out


def _skip_unknown(data: bytes, position: int, tag: int, table: _Table) -> int:
    number = tag >> 3
    if number == 0:
        raise ValueError("field number 0")
    if number in table.numbers:
        raise ValueError(f"wrong wire type {tag & 7} for field {number}")
    return wire.skip(data, position, tag & 7)


def _take_bytes(out: dict[str, Any], entry: _Entry, data: bytes, start: int, end: int, depth: int) -> None:
    if entry.packed:
        out.setdefault(entry.name, []).extend(_packed(entry, data, start, end))
        return
    read = entry.read
    value: Any = data[start:end].decode() if read is None else read(data, start, end, depth + 1)
    if entry.repeated:
        out.setdefault(entry.name, []).append(value)
    elif entry.map:
        out.setdefault(entry.name, {}).__setitem__(*value)
    elif entry.inline:
        out.update(value)
    elif value is not None and (value or entry.keeps_zero):
        out[entry.name] = value


def _take_number(out: dict[str, Any], entry: _Entry, data: bytes, position: int) -> int:
    value: Any
    if entry.fix is not None:
        value, position = wire.read_varint(data, position)
        value = entry.fix(value)
    else:
        value, position = _finite_double(data, position)
    if entry.repeated:
        out.setdefault(entry.name, []).append(value)
    elif value or entry.keeps_zero:
        out[entry.name] = value
    return position


def _packed(entry: _Entry, data: bytes, position: int, end: int) -> list[Any]:
    values: list[Any] = []
    while position < end:
        if entry.fix is not None:
            value, position = wire.read_varint(data, position)
            values.append(entry.fix(value))
        else:
            number, position = _finite_double(data, position)
            values.append(number)
    if position > end:
        raise IndexError
    return values


def _finite_double(data: bytes, position: int) -> tuple[float, int]:
    value, position = wire.read_double(data, position)
    if not math.isfinite(value):
        raise ValueError("a number is not finite")
    # JSON has one type of number: whole numbers are written without a fraction.
    return (int(value) if value.is_integer() and abs(value) < 2**53 else value), position


@cache
def _table(name: str) -> _Table:
    entries: dict[int, _Entry] = {}
    message = messages.message(name)
    for each in message.fields:
        if each.type in _FIXES and not each.map:
            number_wire = wire.FIXED64 if each.type == "double" else wire.VARINT
            entry = _entry(each, _FIXES[each.type], None)
            entries[each.number << 3 | number_wire] = entry
            if each.repeated:
                entries[each.number << 3 | wire.BYTES] = entry._replace(packed=True)
        else:
            read = _map_reader(each.type) if each.map else _field_reader(each)
            entries[each.number << 3 | wire.BYTES] = _entry(each, None, read)
    return _Table(entries, frozenset(each.number for each in message.fields))


def _entry(each: Field, fix: Fix | None, read: Reader | None) -> _Entry:
    text = each.type == "string" and not each.map
    return _Entry(each.name, fix, read, text, each.repeated, False, each.map, each.inline, each.keeps_zero)


_FIXES: dict[str, Fix | None] = {"int32": wire.signed32, "int64": wire.signed64, "bool": bool, "double": None}


def _field_reader(each: Field) -> Reader | None:
    return None if each.type == "string" else _reader_of(each.type)


@cache
def _reader_of(type_name: str) -> Reader:
    """The reader of a type with a length prefix. Tables of messages are built when first used, since types are
    recursive."""
    known = _SPECIAL.get(type_name)
    if known is not None:
        return known
    message = messages.message(type_name)
    if message.is_list:
        return lambda data, start, end, depth: _read_message(data, start, end, depth, _table(type_name)).get(
            "items", []
        )
    shape = _OR_SHAPES.get(type_name.rpartition(".")[2])
    if shape is not None:
        return lambda data, start, end, depth: shape(_read_message(data, start, end, depth, _table(type_name)))
    if _is_json(message):
        return _read_json
    return lambda data, start, end, depth: _read_message(data, start, end, depth, _table(type_name))


def _is_json(message: Message) -> bool:
    return message.name.endswith(".apiextensions.v1.JSON") or message.name.endswith(".apiextensions.v1beta1.JSON")


def _map_reader(value_type: str) -> Reader:
    read_value = _read_text if value_type == "string" else _reader_of(value_type)

    def read_entry(data: bytes, start: int, end: int, depth: int) -> tuple[str, Any]:
        parts = _bytes_fields(data, start, end)
        raw = parts.get(2, b"")
        return parts.get(1, b"").decode(), read_value(raw, 0, len(raw), depth)

    return read_entry


def _read_text(data: bytes, start: int, end: int, depth: int) -> str:
    return data[start:end].decode()


def _read_base64(data: bytes, start: int, end: int, depth: int) -> str:
    return b2a_base64(data[start:end], newline=False).decode()


def _read_quantity(data: bytes, start: int, end: int, depth: int) -> str:
    text = _bytes_fields(data, start, end).get(1, b"").decode()
    return canonical(text) if text else "0"


def _numbers(data: bytes, position: int, end: int) -> dict[int, int]:
    """The fields of a message that has only numbers."""
    found: dict[int, int] = {}
    while position < end:
        tag, position = wire.read_varint(data, position)
        if tag & 7 == wire.VARINT:
            found[tag >> 3], position = wire.read_varint(data, position)
        else:
            position = wire.skip(data, position, tag & 7)
    if position > end:
        raise IndexError
    return found


def _read_time(data: bytes, start: int, end: int, depth: int) -> str | None:
    if start == end:
        return None  # the zero time, which JSON writes as null
    return format_time(wire.signed64(_numbers(data, start, end).get(1, 0)))


def _read_micro_time(data: bytes, start: int, end: int, depth: int) -> str | None:
    if start == end:
        return None
    parts = _numbers(data, start, end)
    seconds, micros = wire.signed64(parts.get(1, 0)), wire.signed32(parts.get(2, 0)) // 1000
    if not 0 <= micros < 1_000_000:
        raise ValueError("nanoseconds out of range")
    return f"{format_time(seconds)[:-1]}.{micros:06}Z" if seconds or micros else format_micro_time(0)


def _read_duration(data: bytes, start: int, end: int, depth: int) -> str:
    return format_duration(wire.signed64(_numbers(data, start, end).get(1, 0)))


def _read_int_or_string(data: bytes, start: int, end: int, depth: int) -> int | str:
    kind, number, text = 0, 0, b""
    position = start
    while position < end:
        tag, position = wire.read_varint(data, position)
        value, position = wire.read_varint(data, position)
        if tag & 7 == wire.BYTES:
            text, position = data[position : position + value], position + value
        elif tag & 7 != wire.VARINT:
            raise ValueError("wrong wire type in an integer or text")
        elif tag >> 3 == 1:
            kind = value
        elif tag >> 3 == 2:
            number = value
    if position > end:
        raise IndexError
    return text.decode() if kind == 1 else wire.signed32(number)


def _read_raw(data: bytes, start: int, end: int, depth: int) -> Any:
    """JSON inside a message; some clients put a whole protobuf object there."""
    raw = _bytes_fields(data, start, end).get(1, b"")
    if raw.startswith(MAGIC):
        return _decode_envelope(raw, depth)
    return jsonutil.loads(raw) if raw else None


_read_json = _read_raw


def _schema_or_bool(parts: dict[str, Any]) -> Any:
    return parts["schema"] if "schema" in parts else parts.get("allows", False)


def _schema_or_array(parts: dict[str, Any]) -> Any:
    return parts.get("jSONSchemas") or parts.get("schema")


def _schema_or_texts(parts: dict[str, Any]) -> Any:
    return parts.get("property") or parts.get("schema")


_OR_SHAPES: dict[str, Callable[[dict[str, Any]], Any]] = {
    "JSONSchemaPropsOrBool": _schema_or_bool,
    "JSONSchemaPropsOrArray": _schema_or_array,
    "JSONSchemaPropsOrStringArray": _schema_or_texts,
}
_SPECIAL: dict[str, Reader] = {
    "bytes": _read_base64,
    messages.QUANTITY: _read_quantity,
    messages.TIME: _read_time,
    messages.MICRO_TIME: _read_micro_time,
    messages.DURATION: _read_duration,
    messages.INT_OR_STRING: _read_int_or_string,
    messages.RAW_EXTENSION: _read_raw,
    messages.FIELDS_V1: _read_raw,
}
