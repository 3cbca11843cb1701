"""The runtime cost of a call, by its actual arguments. The static counterpart is ``cost.py``."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Final

from shoal.kube.cel.cost import CHECK_COST, LIST_COST, REGEX, SELECTOR_COST, TRAVERSAL
from shoal.kube.cel.library.quantities import Format
from shoal.kube.cel.values import Optional

Charge = Callable[[list[Any], Any], int]

_SIZED: Final = (str, bytes, list, dict)


def size(value: Any) -> int:
    """The number of characters, items or keys; 1 for other values."""
    if isinstance(value, _SIZED):
        return len(value)
    if isinstance(value, Optional) and value.some:
        return size(value.value)
    return len(value) if hasattr(value, "__len__") else 1


def scaled(amount: float, factor: float = TRAVERSAL) -> int:
    return math.ceil(amount * factor)


def traversal(value: Any) -> int:
    """The cost of visiting every leaf of a value."""
    if isinstance(value, str | bytes):
        return int(len(value) * TRAVERSAL)
    if isinstance(value, list):
        return sum(map(traversal, value))
    if isinstance(value, dict):
        return sum(traversal(key) + traversal(item) for key, item in value.items())
    return 1


def compared(left: Any, right: Any) -> int:
    return scaled(min(size(left), size(right)))


def _scan(args: list[Any], _: Any) -> int:
    return scaled(size(args[0]))


def _twice(args: list[Any], _: Any) -> int:
    return scaled(size(args[0]), 2 * TRAVERSAL)


def matched(text: str, pattern: str) -> int:
    return scaled(1.0 + len(text)) * scaled(len(pattern), REGEX)


def _contains_ip(string: bool, other_cost: bool) -> Charge:
    def charge(args: list[Any], _: Any) -> int:
        own = size(args[0])
        total = scaled(2 * own) + (scaled(own) + 1 if other_cost else 0)
        return total + (scaled(size(args[1])) if string else 0)

    return charge


def _validate(args: list[Any], _: Any) -> int:
    regex = args[0].regex_size if isinstance(args[0], Format) else 1
    return scaled(1.0 + size(args[1])) * scaled(regex, REGEX)


def _selector(args: list[Any], _: Any) -> int:
    length = size(args[1])
    return LIST_COST + scaled(length) + scaled(scaled(length, 0.5), SELECTOR_COST)


def _listed(factor: float, amount: int) -> int:
    return int(amount * factor) + 1 + LIST_COST


def _self_compared(items: list[Any]) -> int:
    strings = bool(items) and isinstance(items[0], str | bytes)
    return _listed(2.1 if strings else 2.0, len(items) ** 2)


_BY_FUNCTION: Final[Mapping[str, Charge]] = {
    "check": lambda args, _: CHECK_COST,
    **{
        name: lambda args, _: traversal(args[0])
        for name in ("isSorted", "sum", "max", "min", "indexOf", "lastIndexOf", "includes")
    },
    **dict.fromkeys(
        (
            "url", "lowerAscii", "upperAscii", "substring", "trim", "jsonpatch.escapeKey", "cidr", "isIP", "isCIDR",
            "ip", "quantity", "isQuantity", "semver", "isSemver", "format", "strings.quote",
        ),
        _scan,
    ),
    "replace": _twice,
    "split": _twice,
    "ip.isCanonical": _twice,
    "join": lambda args, result: scaled(size(result), 2 * TRAVERSAL),
    "find": lambda args, _: matched(args[0], args[1]),
    "findAll": lambda args, _: matched(args[0], args[1]),
    "matches": lambda args, _: matched(args[0], args[1]),
    "validate": _validate,
    "fieldSelector": _selector,
    "labelSelector": _selector,
    "startsWith": lambda args, _: scaled(size(args[1])),
    "endsWith": lambda args, _: scaled(size(args[1])),
    "contains": lambda args, _: scaled(size(args[0])) * scaled(size(args[1])),
    "sets.contains": lambda args, _: 1 + size(args[0]) * size(args[1]),
    "sets.intersects": lambda args, _: 1 + size(args[0]) * size(args[1]),
    "sets.equivalent": lambda args, _: 1 + 2 * size(args[0]) * size(args[1]),
    "sort": lambda args, _: _self_compared(args[0]),
    "@sortByAssociatedKeys": lambda args, _: _self_compared(args[1]),
    "lists.range": lambda args, result: _listed(1, size(result)),
}  # fmt: skip
_BY_OVERLOAD: Final[Mapping[str, Charge]] = {
    "cidr_ip": lambda args, _: 1,
    "cidr_contains_ip_string": _contains_ip(True, False),
    "cidr_contains_ip_ip": _contains_ip(False, False),
    "cidr_contains_cidr_string": _contains_ip(True, True),
    "cidr_contains_cidr": _contains_ip(False, True),
    "in_list": lambda args, _: size(args[1]),
    **{name: lambda args, _: compared(args[0], args[1]) for name in ("equals", "not_equals")},
    **{
        f"{word}_{kind}": lambda args, _: compared(args[0], args[1])
        for word in ("less", "less_equals", "greater", "greater_equals")
        for kind in ("string", "bytes")
    },
    "add_string": lambda args, _: scaled(size(args[0]) + size(args[1])),
    "add_bytes": lambda args, _: scaled(size(args[0]) + size(args[1])),
    "string_to_bytes": _scan,
    "bytes_to_string": _scan,
    "list_slice": lambda args, result: _listed(1, size(result)),
    "list_flatten": lambda args, _: _listed(1, size(args[0])),
    "list_flatten_int": lambda args, _: _listed(max(1, args[1]), size(args[0])),
    "list_reverse": lambda args, result: _listed(1, size(result)),
    "list_distinct": lambda args, _: _self_compared(args[0]),
}


def charge_of(function: str, overload: str) -> Charge | None:
    """How a call is charged; None for one unit."""
    return _BY_OVERLOAD.get(overload) or _BY_FUNCTION.get(function)
