"""Translates database errors for callers: unavailable, rolled back, or a bug.

A listener on every engine translates the errors of both drivers where they arise, so that the body of a transaction
gets them too. Errors that are not listed here (a violated constraint, a wrong statement) stay SQLAlchemy's.
"""

from __future__ import annotations

import sqlite3
from typing import Any

from sqlalchemy.engine import ExceptionContext

from shoal.errors import ServiceUnavailable

_RETRY_AFTER_S = 1

# SQLite's codes for temporary failures; the low byte of the extended code.
_SQLITE_AWAY = {
    sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_NOMEM,
    sqlite3.SQLITE_INTERRUPT, sqlite3.SQLITE_PROTOCOL,
}  # fmt: skip
# Two transactions were in each other's way, and this one was undone.
_POSTGRES_UNDONE = {"40001", "40P01"}
# Connections, resources, shutdown and recovery, timeouts, a server that became a standby.
_POSTGRES_AWAY = ("08", "53", "57", "58", "55P03", "25P03", "25P04", "25006", "XX")


class DatabaseAway(ServiceUnavailable):
    """The database does not answer. Nothing of the transaction was done."""

    def __init__(self, database: str, why: str) -> None:
        super().__init__(f"database {database!r} is unavailable: {why}", retry_after_s=_RETRY_AFTER_S)


class Undone(DatabaseAway):
    """Another transaction was in the way, so the database undid this one; running it again is the cure."""

    def __init__(self, database: str) -> None:
        super().__init__(database, "the change conflicted with another one and was rolled back; try again")


class Unsure(ServiceUnavailable):
    """The connection broke while the transaction was being committed."""

    def __init__(self, database: str, why: str) -> None:
        super().__init__(
            f"database {database!r} was lost during a commit, so the change may or may not have been made: {why}",
            retry_after_s=_RETRY_AFTER_S,
        )


def translate(database: str, error: BaseException) -> DatabaseAway | None:
    """Return our error for a driver's; None if the database is not the cause."""
    if isinstance(error, sqlite3.Error):
        code = getattr(error, "sqlite_errorcode", None)
        away = code & 0xFF in _SQLITE_AWAY if code is not None else "closed" in str(error).lower()
        return DatabaseAway(database, _reason(error)) if away else None
    state: Any = getattr(error, "sqlstate", None) or getattr(error, "pgcode", None)
    if state in _POSTGRES_UNDONE:
        return Undone(database)
    if isinstance(state, str):
        return DatabaseAway(database, _reason(error)) if state.startswith(_POSTGRES_AWAY) else None
    return DatabaseAway(database, _reason(error)) if isinstance(error, OSError | TimeoutError) else None


def listener(database: str) -> Any:
    """For the event ``handle_error`` of an engine."""

    def handle(context: ExceptionContext) -> BaseException | None:
        error = context.original_exception
        found = translate(database, error)
        if found is None and context.is_disconnect and isinstance(error, Exception):
            found = DatabaseAway(database, _reason(error))
        if found is not None and not isinstance(found, Undone) and not isinstance(error, sqlite3.Error):
            context.is_disconnect = True  # after a time-out the state of the connection is unknown
        return found

    return handle


def _reason(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__
