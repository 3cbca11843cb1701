"""Operators: arithmetic with overflow errors, comparison across number types, indexing, membership, optionals."""

from __future__ import annotations

import math
import operator
from typing import Any

from shoal.kube.cel.errors import EvalError
from shoal.kube.cel.functions import Library
from shoal.kube.cel.values import (
    MAX_INT,
    MAX_UINT,
    MIN_INT,
    NONE,
    Duration,
    Optional,
    Timestamp,
    UInt,
    contains,
    equal,
    joined,
)

_ORDERED = ("bool", "int", "uint", "double", "string", "bytes", "timestamp", "duration")
_CROSS = [(a, b) for a in ("int", "uint", "double") for b in ("int", "uint", "double") if a != b]
_COMPARE = {
    "_<_": ("less", operator.lt),
    "_<=_": ("less_equals", operator.le),
    "_>_": ("greater", operator.gt),
    "_>=_": ("greater_equals", operator.ge),
}


def as_int(value: int) -> int:
    if MIN_INT <= value <= MAX_INT:
        return value
    raise EvalError("integer overflow")


def as_uint(value: int) -> UInt:
    if 0 <= value <= MAX_UINT:
        return UInt(value)
    raise EvalError("unsigned integer overflow")


def add_int(left: int, right: int) -> int:
    return as_int(left + right)


def subtract_int(left: int, right: int) -> int:
    return as_int(left - right)


def multiply_int(left: int, right: int) -> int:
    return as_int(left * right)


def divide_int(left: int, right: int) -> int:
    if right == 0:
        raise EvalError("division by zero")
    quotient = abs(left) // abs(right)
    return as_int(quotient if (left < 0) == (right < 0) else -quotient)


def modulo_int(left: int, right: int) -> int:
    if right == 0:
        raise EvalError("modulus by zero")
    if left == MIN_INT and right == -1:
        raise EvalError("integer overflow")
    return int(math.fmod(left, right)) if abs(left) < 2**53 and abs(right) < 2**53 else _truncated(left, right)


def _truncated(left: int, right: int) -> int:
    rest = abs(left) % abs(right)
    return rest if left >= 0 else -rest


def divide_uint(left: int, right: int) -> UInt:
    if right == 0:
        raise EvalError("division by zero")
    return UInt(int(left) // int(right))


def modulo_uint(left: int, right: int) -> UInt:
    if right == 0:
        raise EvalError("modulus by zero")
    return UInt(int(left) % int(right))


def divide_double(left: float, right: float) -> float:
    if right == 0:
        if left == 0 or math.isnan(left):
            return math.nan
        return math.copysign(math.inf, left) * math.copysign(1, right)
    return left / right


def list_index(items: list[Any], index: Any) -> Any:
    if type(index) is float:
        if index != int(index):
            raise EvalError(f"unsupported index value: {index}")
        index = int(index)
    if not 0 <= index < len(items):
        raise EvalError(f"index out of bounds: {index}")
    return items[index]


_ABSENT = object()


def lookup(entries: dict[Any, Any], key: Any) -> Any:
    """The value of a key, or a marker; numbers match keys of other number types, but true does not match 1."""
    found = entries.get(key, _ABSENT) if type(key) is not list and type(key) is not dict else _ABSENT
    if found is not _ABSENT and (type(key) is str or any(each == key and equal(each, key) for each in entries)):
        return found
    return _ABSENT


def map_index(entries: dict[Any, Any], key: Any) -> Any:
    found = lookup(entries, key)
    if found is _ABSENT:
        raise EvalError(f"no such key: {shown(key)}")
    return found


def shown(value: Any) -> str:
    if type(value) is bool:
        return "true" if value else "false"
    return str(value)


def optional_index(container: Any, key: Any) -> Optional:
    if isinstance(container, Optional):
        return optional_index(container.value, key) if container.some else NONE
    if isinstance(container, dict):
        found = lookup(container, key)
        return NONE if found is _ABSENT else Optional(True, found)
    if isinstance(container, list) and type(key) in (int, UInt):
        return Optional(True, container[key]) if 0 <= key < len(container) else NONE
    raise EvalError("no such overload")


def in_map(key: Any, entries: dict[Any, Any]) -> bool:
    return lookup(entries, key) is not _ABSENT


def in_list(value: Any, items: list[Any]) -> bool:
    return contains(items, value)


def _inserted(entries: dict[Any, Any], key: Any, value: Any) -> dict[Any, Any]:
    if lookup(entries, key) is not _ABSENT:
        raise EvalError(f"insert failed: key {shown(key)} already exists")
    return {**entries, key: value}


def _merged(entries: dict[Any, Any], more: dict[Any, Any]) -> dict[Any, Any]:
    for key, value in more.items():
        entries = _inserted(entries, key, value)
    return entries


def _not(value: bool) -> bool:
    return not value


def _optional_value(optional: Optional) -> Any:
    if not optional.some:
        raise EvalError("optional.none() dereference")
    return optional.value


def _is_zero(value: Any) -> bool:
    if isinstance(value, Timestamp):
        return value.is_zero()
    if isinstance(value, Duration):
        return value.ns == 0
    return value is None or value is False or (isinstance(value, int | float | str | bytes | list | dict) and not value)


def declare(library: Library) -> None:
    add = library.add
    add("logical_and", "_&&_(bool, bool): bool", lambda left, right: left and right)
    add("logical_or", "_||_(bool, bool): bool", lambda left, right: left or right)
    add("logical_not", "!_(bool): bool", _not)
    add("not_strictly_false", "@not_strictly_false(bool): bool", bool)
    add("conditional", "_?_:_(bool, A, A): A", lambda test, left, right: left if test else right)
    add("equals", "_==_(A, A): bool", equal)
    add("not_equals", "_!=_(A, A): bool", lambda left, right: not equal(left, right))
    for name, (word, compare) in _COMPARE.items():
        for kind in _ORDERED:
            add(f"{word}_{kind}", f"{name}({kind}, {kind}): bool", compare)
        for left, right in _CROSS:
            add(f"{word}_{left}_{right}", f"{name}({left}, {right}): bool", compare)
    _declare_arithmetic(library)
    add("in_list", "@in(A, list(A)): bool", in_list)
    add("in_map", "@in(A, map(A, B)): bool", in_map)
    add("index_list", "_[_](list(A), int): A", list_index)
    add("index_map", "_[_](map(A, B), A): B", map_index)
    add("optional_list_index_int", "_[_](optional(list(V)), int): optional(V)", optional_index)
    add("optional_map_index_value", "_[_](optional(map(K, V)), K): optional(V)", optional_index)
    add("list_optindex_optional_int", "_[?_](list(V), int): optional(V)", optional_index)
    add("optional_list_optindex_optional_int", "_[?_](optional(list(V)), int): optional(V)", optional_index)
    add("map_optindex_optional_value", "_[?_](map(K, V), K): optional(V)", optional_index)
    add("optional_map_optindex_optional_value", "_[?_](optional(map(K, V)), K): optional(V)", optional_index)
    add("map_insert_key_value", "|cel.@mapInsert(map(K, V), K, V): map(K, V)", _inserted)
    add("map_insert_map", "|cel.@mapInsert(map(K, V), map(K, V)): map(K, V)", _merged)
    _declare_optionals(library)


def _declare_arithmetic(library: Library) -> None:
    add = library.add
    add("add_int64", "_+_(int, int): int", add_int)
    add("add_uint64", "_+_(uint, uint): uint", lambda left, right: as_uint(int(left) + int(right)))
    add("add_double", "_+_(double, double): double", operator.add)
    add("add_string", "_+_(string, string): string", operator.add)
    add("add_bytes", "_+_(bytes, bytes): bytes", operator.add)
    add("add_list", "_+_(list(A), list(A)): list(A)", joined)
    add("add_duration_duration", "_+_(duration, duration): duration", lambda a, b: Duration(a.ns + b.ns))
    add("add_timestamp_duration", "_+_(timestamp, duration): timestamp", lambda a, b: Timestamp(a.ns + b.ns))
    add("add_duration_timestamp", "_+_(duration, timestamp): timestamp", lambda a, b: Timestamp(a.ns + b.ns))
    add("subtract_int64", "_-_(int, int): int", subtract_int)
    add("subtract_uint64", "_-_(uint, uint): uint", lambda left, right: as_uint(int(left) - int(right)))
    add("subtract_double", "_-_(double, double): double", operator.sub)
    add("subtract_duration_duration", "_-_(duration, duration): duration", lambda a, b: Duration(a.ns - b.ns))
    add("subtract_timestamp_timestamp", "_-_(timestamp, timestamp): duration", lambda a, b: Duration(a.ns - b.ns))
    add("subtract_timestamp_duration", "_-_(timestamp, duration): timestamp", lambda a, b: Timestamp(a.ns - b.ns))
    add("multiply_int64", "_*_(int, int): int", multiply_int)
    add("multiply_uint64", "_*_(uint, uint): uint", lambda left, right: as_uint(int(left) * int(right)))
    add("multiply_double", "_*_(double, double): double", operator.mul)
    add("divide_int64", "_/_(int, int): int", divide_int)
    add("divide_uint64", "_/_(uint, uint): uint", divide_uint)
    add("divide_double", "_/_(double, double): double", divide_double)
    add("modulo_int64", "_%_(int, int): int", modulo_int)
    add("modulo_uint64", "_%_(uint, uint): uint", modulo_uint)
    add("negate_int64", "-_(int): int", lambda value: as_int(-value))
    add("negate_double", "-_(double): double", operator.neg)


def _declare_optionals(library: Library) -> None:
    add = library.add
    add("optional_of", "|optional.of(V): optional(V)", lambda value: Optional(True, value))
    add("optional_none", "|optional.none(): optional(V)", lambda: NONE)
    non_zero = "|optional.ofNonZeroValue(V): optional(V)"
    add("optional_ofNonZeroValue", non_zero, lambda value: NONE if _is_zero(value) else Optional(True, value))
    add("optional_hasValue", "optional(V).hasValue(): bool", lambda optional: optional.some)
    add("optional_value", "optional(V).value(): V", _optional_value)
    add("optional_or_optional", "optional(V).or(optional(V)): optional(V)", lambda a, b: a if a.some else b)
    add("optional_orValue_value", "optional(V).orValue(V): V", lambda a, b: a.value if a.some else b)
    present = [lambda items: [each.value for each in items if each.some]]
    add("optional_unwrap", "|optional.unwrap(list(optional(V))): list(V)", present[0])
    add("optional_unwrapOpt", "list(optional(V)).unwrapOpt(): list(V)", present[0])
