"""Parameters and results of plain statements: many rows are one parameter; documents are decoded per driver."""

from __future__ import annotations

from typing import Any

import orjson

_TEXT = 255


def listed(values: Any) -> str:
    """A parameter: a JSON array."""
    return orjson.dumps(values).decode()


def document(value: Any) -> Any:
    """A JSON column as a driver gives it back to a textual statement."""
    return orjson.loads(value) if isinstance(value, str | bytes) else value


def clean(value: str, limit: int = _TEXT) -> str:
    """As the databases take it: PostgreSQL stores no NUL, and columns end somewhere."""
    return value.replace("\0", "")[:limit]
