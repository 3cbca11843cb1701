"""A query as data: fields and their types, expressions, and the error for an invalid text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar

from shoal.errors import BadRequest


class FieldType(StrEnum):
    """The type of a field, which decides its comparisons."""

    TEXT = "text"
    TEXTS = "texts"  # several: a comparison is true when it is for any of them
    NUMBER = "number"
    NUMBERS = "numbers"
    BOOL = "bool"
    AGE = "age"  # how long ago; written as a duration
    TIME = "time"  # a moment; written as RFC 3339
    VERSION = "version"  # text that is ordered by its numbers
    MAP = "map"  # read by a key: labels.app


_EQUAL = ("=", "!=", "in")
_MATCH = ("~", "!~")
_ORDER = ("<", "<=", ">", ">=")

OPERATORS: Mapping[FieldType, tuple[str, ...]] = {
    FieldType.TEXT: (*_EQUAL, *_MATCH),
    FieldType.TEXTS: (*_EQUAL, *_MATCH),
    FieldType.NUMBER: (*_EQUAL, *_ORDER),
    FieldType.NUMBERS: (*_EQUAL, *_ORDER),
    FieldType.BOOL: ("=", "!="),
    FieldType.AGE: _ORDER,
    FieldType.TIME: _ORDER,
    FieldType.VERSION: (*_EQUAL, *_MATCH, *_ORDER),
    FieldType.MAP: (),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryField:
    """A name that can be asked for. ``code`` is a Python expression over ``row``, its summary ``s`` and the joins that
    ``needs`` names; for several values it is what is gone through, with ``item`` for each of them as ``k``. A map with
    ``alone`` is that text where no key is given."""

    name: str
    type: FieldType
    code: str
    help: str = ""
    item: str = "k"
    alone: str = ""
    needs: tuple[str, ...] = ()
    nullable: bool = False  # None where it is unknown: then only != and !~ hold
    repeats: bool = False  # few values over many rows: results of matches are cached
    stamp: bool = False  # an age or a moment that is kept as text, as objects have it; else as seconds
    of_cluster: bool = False  # the same for all rows of a cluster


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryKind:
    """A kind that can be queried, with its fields and its default columns. ``reported`` are the kinds whose rows it
    has; none for one that is made of others."""

    name: str
    reported: tuple[str, ...]
    fields: Mapping[str, QueryField]
    columns: tuple[str, ...]
    words: tuple[str, ...] = ()  # other names


@dataclass(frozen=True, slots=True)
class FieldRef:
    """A field as a query names it; ``key`` is that of a map."""

    field: QueryField
    key: str = ""
    start: int = 0
    end: int = 0

    @property
    def type(self) -> FieldType:
        field = self.field
        return FieldType.TEXT if field.type is FieldType.MAP and (self.key or field.alone) else field.type

    @property
    def nullable(self) -> bool:
        return self.field.nullable or bool(self.key)

    @property
    def many(self) -> bool:
        return self.field.type in (FieldType.TEXTS, FieldType.NUMBERS)

    @property
    def name(self) -> str:
        """As it can be written in a query."""
        if not self.key:
            return self.field.name
        plain = self.key.replace("-", "").replace("_", "").isalnum()
        return f"{self.field.name}.{self.key}" if plain else f"{self.field.name}['{self.key}']"


Value = str | float | bool | FieldRef


@dataclass(frozen=True, slots=True)
class Compare:
    """``op`` is one of the type's; several values only for ``in``. Ages are seconds, moments seconds since 1970; a
    number may be compared with that of another field."""

    ref: FieldRef
    op: str
    values: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class Truth:
    """A flag that is set, or a key that a map has."""

    ref: FieldRef


@dataclass(frozen=True, slots=True)
class Not:
    inner: Expr


@dataclass(frozen=True, slots=True)
class And:
    parts: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class Or:
    parts: tuple[Expr, ...]


Expr = Compare | Truth | Not | And | Or


@dataclass(frozen=True, slots=True)
class Order:
    column: str
    descending: bool = False
    ref: FieldRef | None = None  # None: the count


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    text: str
    kind: QueryKind
    where: Expr | None = None
    select: tuple[FieldRef, ...] = ()
    counted: bool = False
    count_by: tuple[FieldRef, ...] = ()
    order: tuple[Order, ...] = ()
    limit: int | None = None

    @property
    def refs(self) -> tuple[FieldRef, ...]:
        """Every field that is read, in whatever place."""
        ordered = tuple(each.ref for each in self.order if each.ref is not None)
        return (*refs_of(self.where), *self.select, *self.count_by, *ordered)


def refs_of(expr: Expr | None) -> tuple[FieldRef, ...]:
    match expr:
        case None:
            return ()
        case Compare(ref, _, values):
            return (ref, *(value for value in values if isinstance(value, FieldRef)))
        case Truth(ref):
            return (ref,)
        case Not(inner):
            return refs_of(inner)
        case And(parts) | Or(parts):
            return tuple(ref for part in parts for ref in refs_of(part))


class QueryError(BadRequest):
    """An invalid query: the place, the problem, and what would be accepted there."""

    reason: ClassVar[str] = "BadRequest"

    def __init__(self, text: str, start: int, end: int, problem: str, accepted: Sequence[str] = ()) -> None:
        self.text = text
        self.start = start
        self.end = max(end, start + 1)
        self.problem = problem
        self.accepted = tuple(accepted)
        super().__init__(_in_lines(self))


def _in_lines(error: QueryError) -> str:
    line_start = error.text.rfind("\n", 0, error.start) + 1
    line = error.text[line_start:].partition("\n")[0]
    at = error.start - line_start
    width = max(1, min(error.end - error.start, len(line) - at))
    lines = [error.problem, f"  {line}", f"  {' ' * at}{'^' * width}"]
    if error.accepted:
        lines.append(f"  expected: {', '.join(error.accepted)}")
    return "\n".join(lines)
