"""Compiles a query to Python functions: one that selects the matching rows, and one that reads the columns of a row.

Interpreting an expression for each of 200 000 rows costs ten times as much as a compiled function. Only the expressions
of ``fields`` become source; the values of the query are variables of the function, so that no text of a user is ever
compiled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import total_ordering
from operator import neg
from typing import Any

from shoal.navigator.answers.query.model import (
    And,
    Compare,
    Expr,
    FieldRef,
    FieldType,
    Not,
    Or,
    Order,
    Truth,
)
from shoal.navigator.answers.query.patterns import Search, searcher
from shoal.navigator.answers.query.values import seconds_of, stamp_bound, version_key
from shoal.navigator.model import Row

Matching = Callable[[Iterable[Row]], list[Row]]
Columns = Callable[[Row], tuple[Any, ...]]

_FLIPPED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
_MEMORY_MOST = 100_000
BY_NAME = ("cluster", "namespace", "name", "kind")


def matching(where: Expr | None, joins: Mapping[str, Any], *, now_s: float) -> Matching:
    """The function that selects rows. ``joins`` has the joins of the fields by name."""
    if where is None:
        return list
    source = _Source(joins, now_s)
    test = source.test(where)
    lines = [
        "def chosen(rows):",
        "    found = []",
        "    append = found.append",
        "    for row in rows:",
        "        s = row.summary",
        f"        if {test}:",
        "            append(row)",
        "    return found",
    ]
    made: Matching = _function("\n".join(lines), "chosen", source.names)
    return made


def columns(refs: Sequence[FieldRef], joins: Mapping[str, Any], *, now_s: float, to_order: bool = False) -> Columns:
    """The function that reads these fields of a row. ``to_order``: as ``key_of`` takes them."""
    source = _Source(joins, now_s)
    read = source.ordered if to_order else source.value
    values = "".join(f"{read(ref)}, " for ref in refs)
    made: Columns = _function(
        f"def values(row):\n    s = row.summary\n    return ({values})", "values", source.names
    )  # fmt: skip
    return made


def order_key(order: Sequence[Order], joins: Mapping[str, Any], *, now_s: float) -> Columns:
    """The function that says where a row comes: by the order, and in the end by cluster, namespace and name, so that no
    two rows are equal. ``key_of`` makes the same of values."""
    source = _Source(joins, now_s)
    parts = []
    for each in order:
        assert each.ref is not None
        value, shape = source.ordered(each.ref), shape_of(each)
        parts.append(value if shape is None else f"{source.constant(shape)}({value})")
    keys = "".join(f"{part}, " for part in (*parts, *(f"row.{name}" for name in BY_NAME)))
    made: Columns = _function(f"def key(row):\n    s = row.summary\n    return ({keys})", "key", source.names)
    return made


def key_of(values: Sequence[Any], order: Sequence[Order]) -> tuple[Any, ...]:
    shapes = [*(shape_of(each) for each in order), *(None for _ in values[len(order) :])]
    return tuple(value if shape is None else shape(value) for value, shape in zip(values, shapes, strict=True))


def shape_of(order: Order) -> Callable[[Any], Any] | None:
    """What turns a value into what is compared; None for itself."""
    ref = order.ref
    if ref is not None and ref.type is FieldType.AGE:
        return _rising if order.descending else _falling  # what began first is the oldest
    if ref is None or (ref.type in (FieldType.NUMBER, FieldType.BOOL) and not ref.nullable):
        return neg if order.descending else None
    if ref.type is FieldType.TEXT and not ref.nullable and not order.descending:
        return None
    return _falling if order.descending else _rising


@total_ordering
class _Reversed:
    """A value that comes later the smaller it is."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __lt__(self, other: _Reversed) -> bool:
        return bool(other.value < self.value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Reversed) and bool(other.value == self.value)


def _rising(value: Any) -> tuple[Any, ...]:
    """Unknown values come last, in both directions."""
    return (1,) if value is None else (0, value)


def _falling(value: Any) -> tuple[Any, ...]:
    return (1,) if value is None else (0, _Reversed(value))


def _function(source: str, name: str, names: Mapping[str, Any]) -> Any:
    scope: dict[str, Any] = dict(names)
    exec(compile(source, "<query>", "exec"), scope)  # noqa: S102 - written by _Source: users' values are names' values
    return scope[name]


class _Source:
    """Writes expressions, and collects the names that they use."""

    def __init__(self, joins: Mapping[str, Any], now_s: float) -> None:
        self.names: dict[str, Any] = dict(joins)
        self._now_s = now_s

    def test(self, expr: Expr) -> str:
        match expr:
            case And(parts):
                return "(" + " and ".join(self.test(part) for part in parts) + ")"
            case Or(parts):
                return "(" + " or ".join(self.test(part) for part in parts) + ")"
            case Not(inner):
                return f"(not {self.test(inner)})"
            case Truth(ref):
                if ref.key:
                    return f"({self.constant(ref.key)} in {ref.field.code})"
                return f"({ref.field.code})"
            case Compare():
                return self._compare(expr)

    def ordered(self, ref: FieldRef) -> str:
        """What rows are put in order by. An age grows while pages are turned, the moment that it is counted from does
        not."""
        return f"({self._code(ref)} or None)" if ref.type is FieldType.AGE else self.value(ref)

    def value(self, ref: FieldRef) -> str:
        code = self._code(ref)
        if ref.many:
            return f"[v for k in {code} if (v := {ref.field.item})]"
        match ref.type:
            case FieldType.AGE:
                since = self.constant(_since_stamp if ref.field.stamp else _since)
                return f"{since}({code}, {self.constant(self._now_s)})"
            case FieldType.BOOL:
                return f"bool({code})"
            case FieldType.MAP:
                return f"dict({code})"
            case _:
                return code

    def _compare(self, compare: Compare) -> str:
        ref, op = compare.ref, compare.op
        code = self._code(ref)
        match ref.type:
            case FieldType.TEXT:
                return self._text(ref, op, code, compare)
            case FieldType.TEXTS:
                return self._texts(ref, op, code, compare)
            case FieldType.NUMBER:
                return self._number(ref, op, code, compare)
            case FieldType.NUMBERS:
                item = ref.field.item
                if op in ("=", "in"):
                    known = self.constant(frozenset(compare.values))
                    return f"(not {known}.isdisjoint([{item} for k in {code}]))"
                return f"any([{item} {op} {self.constant(compare.values[0])} for k in {code}])"
            case FieldType.BOOL:
                return f"(bool({code}) is {self.constant(compare.values[0])})"
            case FieldType.AGE:
                return self._moment(ref, _FLIPPED[op], code, self._now_s - _seconds(compare))
            case FieldType.TIME:
                return self._moment(ref, op, code, _seconds(compare))
            case FieldType.VERSION:
                return self._version(ref, op, code, compare)
            case FieldType.MAP:
                raise AssertionError("the parser lets no map through without a key")

    def _text(self, ref: FieldRef, op: str, code: str, compare: Compare) -> str:
        if op == "=":
            return f"({code} == {self.constant(compare.values[0])})"
        if op == "in":
            return f"({code} in {self.constant(frozenset(compare.values))})"
        return self._search(ref, code, str(compare.values[0]))

    def _texts(self, ref: FieldRef, op: str, code: str, compare: Compare) -> str:
        item = ref.field.item
        if op == "=":
            value = self.constant(compare.values[0])
            return f"({value} in {code})" if item == "k" else f"({value} in [{item} for k in {code}])"
        if op == "in":
            known = self.constant(frozenset(compare.values))
            return f"(not {known}.isdisjoint([{item} for k in {code}]))"
        return f"any([{self._search(ref, item, str(compare.values[0]))} for k in {code}])"

    def _search(self, ref: FieldRef, code: str, pattern: str) -> str:
        search = searcher(pattern)
        if ref.field.repeats:
            return f"{self.constant(_Remembered(search))}[{code}]"
        name = self.constant(search)
        if not ref.nullable:
            return f"{name}({code})"
        return f"((v := {code}) is not None and {name}(v))"

    def _number(self, ref: FieldRef, op: str, code: str, compare: Compare) -> str:
        if op == "in":
            return f"({code} in {self.constant(frozenset(compare.values))})"
        other, sign = compare.values[0], "==" if op == "=" else op
        value = self._code(other) if isinstance(other, FieldRef) else self.constant(other)
        tests = [f"(v := {code}) is not None"] if ref.nullable else []
        if isinstance(other, FieldRef) and other.nullable:
            tests.append(f"(w := {value}) is not None")
            value = "w"
        tests.append(f"{'v' if ref.nullable else code} {sign} {value}")
        return f"({' and '.join(tests)})"

    def _moment(self, ref: FieldRef, op: str, code: str, seconds: float) -> str:
        """What never was is neither before nor after: no stamp, or zero seconds."""
        if ref.field.stamp:
            never, value = "''", self.constant(stamp_bound(op, seconds))
        else:
            never, value = "0", self.constant(seconds)
        return f"({never} < {code} {op} {value})" if op in ("<", "<=") else f"({code} {op} {value})"

    def _version(self, ref: FieldRef, op: str, code: str, compare: Compare) -> str:
        if op == "~":
            return self._search(ref, code, str(compare.values[0]))
        keys = self.constant(_Remembered(version_key))
        if op in ("=", "in"):
            known = self.constant(frozenset(version_key(str(value)) for value in compare.values))
            return f"({keys}[{code}] in {known})"
        value = self.constant(version_key(str(compare.values[0])))
        return f"(() < {keys}[{code}] {op} {value})" if op in ("<", "<=") else f"({keys}[{code}] {op} {value})"

    def _code(self, ref: FieldRef) -> str:
        field = ref.field
        if field.type is not FieldType.MAP:
            return field.code
        if ref.key:
            return f"{field.code}.get({self.constant(ref.key)})"
        return field.alone or field.code

    def constant(self, value: Any) -> str:
        name = f"_{len(self.names)}"
        self.names[name] = value
        return name


def _seconds(compare: Compare) -> float:
    value = compare.values[0]
    assert isinstance(value, float | int)
    return float(value)


class _Remembered(dict[Any, Any]):
    """What a function says of texts that come again and again; nothing of what is not there."""

    __slots__ = ("_function",)

    def __init__(self, function: Search) -> None:
        super().__init__({None: None})
        self._function = function

    def __missing__(self, text: str) -> Any:
        if len(self) > _MEMORY_MOST:
            self.clear()
            self[None] = None
        found = self[text] = self._function(text)
        return found


def _since_stamp(stamp: str, now_s: float) -> float | None:
    created_s = seconds_of(stamp)
    return None if created_s is None else max(0.0, now_s - created_s)


def _since(seconds: float, now_s: float) -> float | None:
    return max(0.0, now_s - seconds) if seconds else None
