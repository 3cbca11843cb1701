"""Inserts of rows that another process may insert at the same time."""

from __future__ import annotations

from typing import Any

from sqlalchemy.dialects import postgresql, sqlite


def insert_or_leave(dialect: str, table: Any, row: dict[str, Any]) -> Any:
    """A statement that inserts the row, or does nothing where there is one with its key: then ``rowcount`` is 0."""
    inserted: Any = (sqlite if dialect == "sqlite" else postgresql).insert(table)
    return inserted.values(row).on_conflict_do_nothing()
