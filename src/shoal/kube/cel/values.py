"""Runtime values that have no Python type, and the comparison of values.

Other values are plain Python: ``int`` (64 bits, checked), ``float``, ``str``, ``bytes``, ``bool``, ``None``, ``list``
and ``dict`` (maps and objects).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from shoal.kube.cel.errors import EvalError
from shoal.kube.cel.types import Type

MIN_INT: Final = -(2**63)
MAX_INT: Final = 2**63 - 1
MAX_UINT: Final = 2**64 - 1
SECOND: Final = 1_000_000_000
_MIN_SECONDS: Final = -62135596800  # 0001-01-01T00:00:00Z
_MAX_SECONDS: Final = 253402300799  # 9999-12-31T23:59:59Z
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class UInt(int):
    """An unsigned integer; never equal in type to a signed one."""

    __slots__ = ()


class Timestamp:
    """A point in time, in nanoseconds since 1970; printed in its original zone."""

    __slots__ = ("ns", "offset_s")

    def __init__(self, ns: int, offset_s: int = 0) -> None:
        if not _MIN_SECONDS <= ns // SECOND <= _MAX_SECONDS:
            raise EvalError("timestamp overflow")
        self.ns = ns
        self.offset_s = offset_s

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Timestamp) and self.ns == other.ns

    def __lt__(self, other: Timestamp) -> bool:
        return self.ns < other.ns

    def __le__(self, other: Timestamp) -> bool:
        return self.ns <= other.ns

    def __hash__(self) -> int:
        return hash(("timestamp", self.ns))

    def moment(self) -> datetime:
        return _EPOCH + timedelta(seconds=self.ns // SECOND, microseconds=self.ns % SECOND // 1000)

    def is_zero(self) -> bool:
        return self.ns == _MIN_SECONDS * SECOND

    def __str__(self) -> str:
        moment = Timestamp(self.ns + self.offset_s * SECOND).moment()
        text = f"{moment.year:04}-{moment.month:02}-{moment.day:02}T{moment:%H:%M:%S}"
        part = self.ns % SECOND
        text = f"{text}.{part:09}".rstrip("0") if part else text
        if not self.offset_s:
            return text + "Z"
        hours, minutes = divmod(abs(self.offset_s) // 60, 60)
        return f"{text}{'-' if self.offset_s < 0 else '+'}{hours:02}:{minutes:02}"


class Duration:
    """A length of time, in nanoseconds."""

    __slots__ = ("ns",)

    def __init__(self, ns: int) -> None:
        if not MIN_INT <= ns <= MAX_INT:
            raise EvalError("duration overflow")
        self.ns = ns

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Duration) and self.ns == other.ns

    def __lt__(self, other: Duration) -> bool:
        return self.ns < other.ns

    def __le__(self, other: Duration) -> bool:
        return self.ns <= other.ns

    def __hash__(self) -> int:
        return hash(("duration", self.ns))

    def __str__(self) -> str:
        sign = "-" if self.ns < 0 else ""
        whole, part = divmod(abs(self.ns), SECOND)
        return f"{sign}{whole}" + (f".{part:09}".rstrip("0") if part else "") + "s"


class Optional:
    """A value, or none."""

    __slots__ = ("some", "value")

    def __init__(self, some: bool, value: Any = None) -> None:
        self.some = some
        self.value = value

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Optional) or self.some != other.some:
            return False
        return not self.some or equal(self.value, other.value)

    __hash__ = None  # type: ignore[assignment]


NONE: Final = Optional(False)


class Built(dict[str, Any]):
    """An object built by the expression, with the name of its type."""

    __slots__ = ("cel_name",)

    def __init__(self, cel_name: str) -> None:
        super().__init__()
        self.cel_name = cel_name

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Built) and self.cel_name == other.cel_name and _equal_maps(self, other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = None


class Lazy:
    """Named values, each computed on first use."""

    __slots__ = ("_compute", "_names")
    cel_name: Final = "kubernetes.variables"

    def __init__(self, names: Container[str], compute: Callable[[str], Any]) -> None:
        self._names = names
        self._compute = compute

    def __contains__(self, name: str) -> bool:
        return name in self._names

    def __getitem__(self, name: str) -> Any:
        if name not in self._names:
            raise EvalError(f"no such key: {name}")
        return self._compute(name)


class SetList(list[Any]):
    """A list of type set: equality ignores order, and + is the union."""

    __slots__ = ()


class MapList(list[Any]):
    """A list of type map: equality ignores order, and + merges by key."""

    __slots__ = ("keys",)

    def __init__(self, items: list[Any], keys: tuple[str, ...]) -> None:
        super().__init__(items)
        self.keys = keys

    def key_of(self, item: Any) -> tuple[Any, ...]:
        return tuple(item.get(key) if isinstance(item, dict) else None for key in self.keys)


def go_float(value: float) -> str:
    """A float in the shortest form that parses to the same value, as Go writes it."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    if abs(value) < 1e21 and value == int(value):
        return str(int(value)) if value or math.copysign(1, value) > 0 else "-0"
    mantissa, mark, exponent = repr(value).partition("e")
    if not mark:
        return mantissa
    sign = "-" if exponent.startswith("-") else "+"
    return f"{mantissa.removesuffix('.0')}e{sign}{exponent.lstrip('+-').zfill(2)}"


_NUMBERS: Final = (int, float, UInt)
_SIMPLE: Final = frozenset({int, str, float, bool, bytes, UInt, type(None)})


def equal(left: Any, right: Any) -> bool:
    """Equality over all types: numbers by value, never across kinds."""
    kind = type(left)
    if kind is type(right):
        if kind in _SIMPLE:
            return bool(left == right)
        if kind is list:
            return len(left) == len(right) and all(map(equal, left, right))
        if kind is dict:
            return _equal_maps(left, right)
    elif kind in _NUMBERS and type(right) in _NUMBERS:
        return bool(left == right)
    if isinstance(left, list) and isinstance(right, list):
        return _equal_lists(left, right)
    return type(left) is type(right) and bool(left == right)


def _equal_maps(left: dict[Any, Any], right: dict[Any, Any]) -> bool:
    if len(left) != len(right):
        return False
    for key, value in left.items():
        if key not in right or not equal(value, right[key]):
            return False
    return True


def _equal_lists(left: list[Any], right: list[Any]) -> bool:
    if len(left) != len(right):
        return False
    if isinstance(left, MapList):
        index = {str(left.key_of(item)): item for item in right}
        return all(equal(item, index.get(str(left.key_of(item)))) for item in left)
    if isinstance(left, SetList):
        return all(contains(right, item) for item in left)
    return all(map(equal, left, right))


def contains(items: list[Any], wanted: Any) -> bool:
    if type(wanted) is str:
        return wanted in items
    return any(equal(item, wanted) for item in items)


def joined(left: list[Any], right: list[Any]) -> list[Any]:
    """``left + right``; sets take only new items, maps replace items of the same keys in place."""
    if isinstance(left, SetList):
        return SetList([*left, *(item for item in right if not contains(left, item))])
    if isinstance(left, MapList):
        later = {str(left.key_of(item)): item for item in right}
        merged = [later.pop(str(left.key_of(item)), item) for item in left]
        return MapList([*merged, *later.values()], left.keys)
    return [*left, *right]


_NAMES: Final[dict[type, str]] = {
    bool: "bool", int: "int", UInt: "uint", float: "double", str: "string", bytes: "bytes", type(None): "null_type",
    list: "list", SetList: "list", MapList: "list", dict: "map", Timestamp: "google.protobuf.Timestamp",
    Duration: "google.protobuf.Duration", Optional: "optional_type", Type: "type",
}  # fmt: skip


def type_name(value: Any) -> str:
    """The name of a value's type, for messages and ``type()``."""
    name = _NAMES.get(type(value))
    return name if name is not None else str(getattr(value, "cel_name", type(value).__name__))
