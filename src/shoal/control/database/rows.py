"""Plain statements with typed rows: each owns a NamedTuple with a field for every column, in their order.

A column is read by its name; a test compares the columns of every statement with the fields of its NamedTuple.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Generic, Protocol, TypeVar, overload

from sqlalchemy import TextClause, text

R = TypeVar("R", bound=tuple[Any, ...])


class RowQuery(Generic[R]):
    """``row`` is a NamedTuple; its fields are the columns that ``sql`` selects or returns."""

    __slots__ = ("clause", "make", "row", "sql")

    def __init__(self, sql: str, row: type[R]) -> None:
        self.sql = sql
        self.clause = text(sql)
        self.row = row
        self.make: Callable[[Iterable[Any]], R] = getattr(row, "_make")  # noqa: B009 - of every NamedTuple


class Ask(Protocol):
    """Runs a statement: gives its rows, or nothing for one that only writes."""

    @overload
    async def __call__(self, statement: RowQuery[R], parameters: Mapping[str, Any]) -> list[R]: ...

    @overload
    async def __call__(self, statement: TextClause, parameters: Mapping[str, Any]) -> list[Any]: ...
