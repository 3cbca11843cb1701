"""Encodes objects in JSON form as protobuf bodies.

Only fields that are present are written; readers treat absent fields as zero. Unknown keys are omitted. A value that
does not fit its field raises ``ValueError``, which cannot happen to a validated object.
"""

from __future__ import annotations

from binascii import a2b_base64
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import orjson

from shoal.kube.protobuf import messages, wire
from shoal.kube.protobuf.decoding import MAGIC
from shoal.kube.protobuf.messages import Field
from shoal.kube.times import parse_duration, parse_time

Writer = Callable[[Any], bytes]

# Go writes both empty fields, and some clients compare bytes.
_NO_CONTENT_TYPE = wire.delimited(3, b"") + wire.delimited(4, b"")


def encode(obj: Mapping[str, Any]) -> bytes:
    """The body for an object with apiVersion and kind; ``ValueError`` if its kind has no protobuf form."""
    api_version, kind = obj.get("apiVersion", ""), obj.get("kind", "")
    name = messages.message_name(api_version, kind)
    if name is None:
        raise ValueError(f'no kind "{kind}" is registered for version "{api_version}" in protobuf encoding')
    type_meta = wire.delimited(1, api_version.encode()) + wire.delimited(2, kind.encode())
    return MAGIC + wire.delimited(1, type_meta) + wire.delimited(2, encode_message(name, obj)) + _NO_CONTENT_TYPE


def encode_message(name: str, obj: Any) -> bytes:
    """One message without envelope."""
    try:
        return _writer_of(name)(obj)
    except (TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise ValueError(f"an object does not fit its protobuf message {name}: {error}") from error


@cache
def _field_writers(name: str) -> tuple[tuple[Field, Callable[[Any], bytes]], ...]:
    return tuple((each, _field_writer(each)) for each in messages.message(name).fields)


def _write_message(name: str, obj: Mapping[str, Any]) -> bytes:
    parts: list[bytes] = []
    for each, write in _field_writers(name):
        if each.inline:
            parts.append(write(obj))
        else:
            value = obj.get(each.name)
            if value is not None:
                parts.append(write(value))
    return b"".join(parts)


def _field_writer(each: Field) -> Writer:
    if each.map:
        return _map_writer(each)
    number = each.number
    scalar = _SCALARS.get(each.type)
    if scalar is not None:
        prefix = wire.tag(number, wire.FIXED64 if each.type == "double" else wire.VARINT)
        one: Writer = lambda value: prefix + scalar(value)  # noqa: E731
    else:
        write = _writer_of(each.type)
        one = lambda value: wire.delimited(number, write(value))  # noqa: E731
    if each.repeated:
        return lambda values: b"".join(map(one, values))
    return one


def _map_writer(each: Field) -> Writer:
    number, write_value = each.number, _writer_of(each.type)

    def write(value: Any) -> bytes:
        return b"" if value is None else write_value(value)

    def write_entries(values: Mapping[str, Any]) -> bytes:
        # Sorted, as Go writes them: equal objects then have equal bytes.
        return b"".join(
            wire.delimited(number, wire.delimited(1, key.encode()) + wire.delimited(2, write(values[key])))
            for key in sorted(values)
        )

    return write_entries


@cache
def _writer_of(type_name: str) -> Writer:
    known = _SPECIAL.get(type_name)
    if known is not None:
        return known
    if messages.message(type_name).is_list:
        return lambda values: _write_message(type_name, {"items": values})
    short = type_name.rpartition(".")[2]
    shape = _OR_SHAPES.get(short)
    if shape is not None:
        return lambda value: _write_message(type_name, shape(value))
    if short == "JSON" and ".apiextensions." in type_name:
        return _write_raw
    return lambda obj: _write_message(type_name, obj)


def _write_integer(value: int) -> bytes:
    if value.__class__ is not int or not -(2**63) <= value < 2**63:
        raise ValueError(f"{value!r} is not a 64-bit integer")
    return wire.varint(value)


_SCALARS: dict[str, Writer] = {
    "int32": _write_integer,
    "int64": _write_integer,
    "bool": lambda value: b"\x01" if value else b"\x00",
    "double": lambda value: wire.double(float(value)),
}


def _write_time(text: str) -> bytes:
    moment = parse_time(text)
    seconds = _whole_seconds(moment.timestamp(), moment.microsecond)
    return wire.tag(1, wire.VARINT) + wire.varint(seconds) + wire.tag(2, wire.VARINT) + wire.varint(0)


def _write_micro_time(text: str) -> bytes:
    moment = parse_time(text)
    seconds = _whole_seconds(moment.timestamp(), moment.microsecond)
    nanos = moment.microsecond * 1000
    return wire.tag(1, wire.VARINT) + wire.varint(seconds) + wire.tag(2, wire.VARINT) + wire.varint(nanos)


def _whole_seconds(timestamp: float, microsecond: int) -> int:
    return round(timestamp - microsecond / 1_000_000)


def _write_int_or_string(value: int | str) -> bytes:
    is_text = isinstance(value, str)
    number = 0 if isinstance(value, str) else value
    text = value.encode() if isinstance(value, str) else b""
    return (
        wire.tag(1, wire.VARINT) + wire.varint(int(is_text))
        + wire.tag(2, wire.VARINT) + wire.varint(number)
        + wire.delimited(3, text)
    )  # fmt: skip


def _write_raw(value: Any) -> bytes:
    return wire.delimited(1, orjson.dumps(value))


def _schema_or_bool(value: Any) -> dict[str, Any]:
    return {"allows": value} if isinstance(value, bool) else {"allows": True, "schema": value}


def _schema_or_array(value: Any) -> dict[str, Any]:
    return {"jSONSchemas": value} if isinstance(value, list) else {"schema": value}


def _schema_or_texts(value: Any) -> dict[str, Any]:
    return {"property": value} if isinstance(value, list) else {"schema": value}


_OR_SHAPES: dict[str, Callable[[Any], dict[str, Any]]] = {
    "JSONSchemaPropsOrBool": _schema_or_bool,
    "JSONSchemaPropsOrArray": _schema_or_array,
    "JSONSchemaPropsOrStringArray": _schema_or_texts,
}
_SPECIAL: dict[str, Writer] = {
    "string": lambda text: text.encode(),
    "bytes": lambda text: a2b_base64(text, strict_mode=True),
    messages.QUANTITY: lambda text: wire.delimited(1, str(text).encode()),
    messages.TIME: _write_time,
    messages.MICRO_TIME: _write_micro_time,
    messages.DURATION: lambda text: wire.tag(1, wire.VARINT) + wire.varint(parse_duration(text)),
    messages.INT_OR_STRING: _write_int_or_string,
    messages.RAW_EXTENSION: _write_raw,
    messages.FIELDS_V1: _write_raw,
}
