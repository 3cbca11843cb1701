"""Conversions between types, and ``size``, ``type`` and ``dyn``."""

from __future__ import annotations

import math
import re
from typing import Any

from shoal.kube import times as kube_times
from shoal.kube.cel import types
from shoal.kube.cel.errors import EvalError
from shoal.kube.cel.functions import Library
from shoal.kube.cel.library.operators import as_int, as_uint
from shoal.kube.cel.types import Type
from shoal.kube.cel.values import SECOND, Duration, Timestamp, UInt, go_float, type_name

_INT = re.compile(r"[+-]?[0-9]{1,40}", re.ASCII)
_UINT = re.compile(r"\+?[0-9]{1,40}", re.ASCII)
_DOUBLE = re.compile(
    r"[+-]?(?:[0-9]+\.?[0-9]*(?:[eE][+-]?[0-9]+)?|\.[0-9]+(?:[eE][+-]?[0-9]+)?|inf|infinity|nan)", re.I
)
_ZONE = re.compile(r"([+-])([0-9]{2}):([0-9]{2})$")
_FRACTION = re.compile(r"\.([0-9]{1,9})[0-9]*")


def _cannot(given: str, wanted: str) -> EvalError:
    return EvalError(f"type conversion error from '{given}' to '{wanted}'")


def int_from_text(text: str) -> int:
    if not _INT.fullmatch(text) or not -(2**63) <= int(text) < 2**63:
        raise _cannot("string", "int")
    return int(text)


def int_from_double(value: float) -> int:
    if math.isnan(value) or not -(2.0**63) < value < 2.0**63:
        raise EvalError("integer overflow")
    return int(value)


def uint_from_double(value: float) -> UInt:
    if math.isnan(value) or not 0 <= value < 2.0**64:
        raise EvalError("unsigned integer overflow")
    return UInt(int(value))


def uint_from_text(text: str) -> UInt:
    if not _UINT.fullmatch(text) or int(text) >= 2**64:
        raise _cannot("string", "uint")
    return UInt(int(text))


def double_from_text(text: str) -> float:
    if not _DOUBLE.fullmatch(text) or len(text) > 400:
        raise _cannot("string", "double")
    return float(text)


def bool_from_text(text: str) -> bool:
    if text in ("1", "t", "T", "TRUE", "true", "True"):
        return True
    if text in ("0", "f", "F", "FALSE", "false", "False"):
        return False
    raise _cannot("string", "bool")


def text_from_bytes(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise EvalError("invalid UTF-8 in bytes, cannot convert to string") from None


def timestamp_from_text(text: str) -> Timestamp:
    try:
        moment = kube_times.parse_time(text)
    except ValueError:
        raise _cannot("string", "google.protobuf.Timestamp") from None
    seconds = round((moment.replace(microsecond=0)).timestamp())
    fraction, zone = _FRACTION.search(text), _ZONE.search(text)
    offset_s = (int(zone[2]) * 60 + int(zone[3])) * 60 * (-1 if zone[1] == "-" else 1) if zone else 0
    return Timestamp(seconds * SECOND + (int(fraction[1].ljust(9, "0")) if fraction else 0), offset_s)


def duration_from_text(text: str) -> Duration:
    try:
        return Duration(kube_times.parse_duration(text))
    except ValueError:
        raise _cannot("string", "google.protobuf.Duration") from None


_TYPES = {
    "bool": types.BOOL, "int": types.INT, "uint": types.UINT, "double": types.DOUBLE, "string": types.STRING,
    "bytes": types.BYTES, "null_type": Type("null", "null_type"), "list": types.list_of(types.DYN),
    "map": types.map_of(types.DYN, types.DYN), "google.protobuf.Timestamp": types.TIMESTAMP,
    "google.protobuf.Duration": types.DURATION, "type": types.TYPE,
    "optional_type": types.optional_of(types.DYN),
}  # fmt: skip


def type_of(value: Any) -> Type:
    name = type_name(value)
    return _TYPES.get(name) or types.opaque(name)


def declare(library: Library) -> None:
    add = library.add
    for kind in ("string", "bytes", "list(A)", "map(A, B)"):
        name = kind.partition("(")[0]
        add(f"size_{name}", f"size({kind}): int", len)
        add(f"{name}_size", f"{kind}.size(): int", len)
    add("to_dyn", "dyn(A): dyn", lambda value: value)
    add("type", "type(A): type(A)", type_of)
    for kind in ("bool", "int", "uint", "double", "string", "bytes", "timestamp", "duration"):
        add(f"{kind}_to_{kind}", f"{kind}({kind}): {kind}", lambda value: value)
    add("uint64_to_int64", "int(uint): int", lambda value: as_int(int(value)))
    add("double_to_int64", "int(double): int", int_from_double)
    add("string_to_int64", "int(string): int", int_from_text)
    add("timestamp_to_int64", "int(timestamp): int", lambda value: value.ns // SECOND)
    add("duration_to_int64", "int(duration): int", lambda value: value.ns)
    add("int64_to_uint64", "uint(int): uint", as_uint)
    add("double_to_uint64", "uint(double): uint", uint_from_double)
    add("string_to_uint64", "uint(string): uint", uint_from_text)
    add("int64_to_double", "double(int): double", float)
    add("uint64_to_double", "double(uint): double", float)
    add("string_to_double", "double(string): double", double_from_text)
    add("string_to_bool", "bool(string): bool", bool_from_text)
    add("bool_to_string", "string(bool): string", lambda value: "true" if value else "false")
    add("int64_to_string", "string(int): string", str)
    add("uint64_to_string", "string(uint): string", str)
    add("double_to_string", "string(double): string", go_float)
    add("bytes_to_string", "string(bytes): string", text_from_bytes)
    add("timestamp_to_string", "string(timestamp): string", str)
    add("duration_to_string", "string(duration): string", str)
    add("string_to_bytes", "bytes(string): bytes", lambda text: text.encode("utf-8", "surrogatepass"))
    add("string_to_timestamp", "timestamp(string): timestamp", timestamp_from_text)
    add("int64_to_timestamp", "timestamp(int): timestamp", lambda seconds: Timestamp(seconds * SECOND))
    add("string_to_duration", "duration(string): duration", duration_from_text)
    add("int64_to_duration", "duration(int): duration", Duration)
