"""Lists: order, sums, slices, sets, and the greatest and least of numbers."""

from __future__ import annotations

from collections.abc import Callable
from functools import cmp_to_key
from typing import Any

from shoal.kube.cel.errors import EvalError
from shoal.kube.cel.functions import Library
from shoal.kube.cel.library.operators import add_int, as_uint
from shoal.kube.cel.values import NONE, Duration, Optional, UInt, contains, equal

_COMPARABLE = ("int", "uint", "double", "bool", "duration", "timestamp", "string", "bytes")
_SUMMABLE = ("int", "uint", "double", "duration")
_MAX_RANGE = 1_000_000


def is_sorted(items: list[Any]) -> bool:
    return all(not later < earlier for earlier, later in zip(items, items[1:], strict=False))


def _sum(start: Any, add: Callable[[Any, Any], Any]) -> Callable[[list[Any]], Any]:
    def total(items: list[Any]) -> Any:
        result = start
        for item in items:
            result = add(result, item)
        return result

    return total


_SUMS = {
    "int": _sum(0, add_int),
    "uint": _sum(UInt(0), lambda left, right: as_uint(int(left) + int(right))),
    "double": _sum(0.0, lambda left, right: left + right),
    "duration": _sum(Duration(0), lambda left, right: Duration(left.ns + right.ns)),
}


def _extreme(name: str, pick: Callable[[list[Any]], Any]) -> Callable[[list[Any]], Any]:
    def find(items: list[Any]) -> Any:
        if not items:
            raise EvalError(f"{name} called on empty list")
        return pick(items)

    return find


def index_of(items: list[Any], wanted: Any) -> int:
    return next((place for place, item in enumerate(items) if equal(item, wanted)), -1)


def last_index_of(items: list[Any], wanted: Any) -> int:
    return next((place for place in range(len(items) - 1, -1, -1) if equal(items[place], wanted)), -1)


def cut(items: list[Any], start: int, end: int) -> list[Any]:
    lead = f"cannot slice({start}, {end}),"
    if start < 0 or end < 0:
        raise EvalError(f"{lead} negative indexes not supported")
    if start > end:
        raise EvalError(f"{lead} start index must be less than or equal to end index")
    if len(items) < end:
        raise EvalError(f"{lead} list is length {len(items)}")
    return list(items[start:end])


def flatten(items: list[Any], depth: int = 1) -> list[Any]:
    if depth < 0:
        raise EvalError("level must be non-negative")
    result: list[Any] = []
    for item in items:
        if isinstance(item, list) and depth > 0:
            result += flatten(item, depth - 1) if depth > 1 else item
        else:
            result.append(item)
    return result


def distinct(items: list[Any]) -> list[Any]:
    result: list[Any] = []
    for item in items:
        if not contains(result, item):
            result.append(item)
    return result


def _comparable(items: list[Any]) -> None:
    if items and any(type(item) is not type(items[0]) for item in items):
        raise EvalError("list elements must have the same type")
    if items and not hasattr(items[0], "__lt__") or items and isinstance(items[0], list | dict):
        raise EvalError("list elements must be comparable")


def sort(items: list[Any]) -> list[Any]:
    _comparable(items)
    return sorted(items)


def sort_by_keys(items: list[Any], keys: list[Any]) -> list[Any]:
    _comparable(keys)

    def compare(left: int, right: int) -> int:
        return bool(keys[right] < keys[left]) - bool(keys[left] < keys[right])

    return [items[place] for place in sorted(range(len(items)), key=cmp_to_key(compare))]


def number_range(count: int) -> list[int]:
    if count > _MAX_RANGE:
        raise EvalError(f"lists.range() size exceeds limit: {count}")
    return list(range(count))


def _all_in(items: list[Any], wanted: list[Any]) -> bool:
    return all(contains(items, item) for item in wanted)


def declare(library: Library) -> None:
    add = library.add
    for kind in _COMPARABLE:
        add(f"list_{kind}_is_sorted_bool", f"list({kind}).isSorted(): bool", is_sorted)
        add(f"list_{kind}_min_{kind}", f"list({kind}).min(): {kind}", _extreme("min", min))
        add(f"list_{kind}_max_{kind}", f"list({kind}).max(): {kind}", _extreme("max", max))
        add(f"list_{kind}_sort", f"list({kind}).sort(): list({kind})", sort)
        by_keys = f"list(T).@sortByAssociatedKeys(list({kind})): list(T)"
        add(f"list_{kind}_sortByAssociatedKeys", by_keys, sort_by_keys)
    for kind in _SUMMABLE:
        add(f"list_{kind}_sum_{kind}", f"list({kind}).sum(): {kind}", _SUMS[kind])
    add("list_a_index_of_int", "list(T).indexOf(T): int", index_of)
    add("list_a_last_index_of_int", "list(T).lastIndexOf(T): int", last_index_of)
    add("list_includes", "list(T).includes(T): bool", contains)
    add("list_slice", "list(T).slice(int, int): list(T)", cut)
    add("list_flatten", "list(list(T)).flatten(): list(T)", flatten)
    add("list_flatten_int", "list(dyn).flatten(int): list(dyn)", flatten)
    add("list_distinct", "list(T).distinct(): list(T)", distinct)
    add("list_reverse", "list(T).reverse(): list(T)", lambda items: items[::-1])
    add("lists_range", "|lists.range(int): list(int)", number_range)
    _declare_ends(library)
    add("list_sets_contains_list", "|sets.contains(list(T), list(T)): bool", _all_in)
    both = "|sets.equivalent(list(T), list(T)): bool"
    add("list_sets_equivalent_list", both, lambda left, right: _all_in(left, right) and _all_in(right, left))
    any_in = "|sets.intersects(list(T), list(T)): bool"
    add("list_sets_intersects_list", any_in, lambda left, right: any(contains(right, item) for item in left))
    _declare_math(library)


def _declare_ends(library: Library) -> None:
    first = "list(V).first(): optional(V)"
    library.add("list_first", first, lambda items: Optional(True, items[0]) if items else NONE)
    last = "list(V).last(): optional(V)"
    library.add("list_last", last, lambda items: Optional(True, items[-1]) if items else NONE)


def _declare_math(library: Library) -> None:
    for name, pick in (("greatest", max), ("least", min)):
        for kind in ("int", "uint", "double"):
            for count in range(1, 5):
                args = ", ".join([kind] * count)
                many = (lambda *args, pick=pick: pick(args)) if count > 1 else (lambda value: value)
                library.add(f"math_@{name}_{kind}_{count}", f"|math.{name}({args}): {kind}", many)
            chosen = _extreme(f"math.{name}", pick)
            library.add(f"math_@{name}_list_{kind}", f"|math.{name}(list({kind})): {kind}", chosen)
