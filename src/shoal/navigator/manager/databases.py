"""Rows for the database of a URL."""

from __future__ import annotations

from pathlib import Path

from shoal.errors import ConfigError
from shoal.navigator.manager.rows import Rows


def rows_for(url: str) -> Rows:
    """``sqlite:///PATH`` or ``postgresql://…``; nothing is opened."""
    scheme, _, rest = url.partition("://")
    if scheme == "sqlite" and rest.startswith("/") and len(rest) > 1:
        from shoal.navigator.manager.sqlite import SqliteRows  # only the one that is used

        return SqliteRows(Path(rest[1:]))
    if scheme in ("postgresql", "postgres"):
        from shoal.navigator.manager.postgres import PostgresRows

        return PostgresRows(url)
    raise ConfigError(f"database has the URL {scheme}:…: use sqlite:///PATH or postgresql://USER@HOST/DATABASE")
