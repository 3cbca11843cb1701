"""What errors of the drivers mean: away, undone, or none of ours to hide."""

from __future__ import annotations

import sqlite3

import asyncpg
import pytest

from shoal.control.database.failures import DatabaseAway, Undone, translate
from shoal.errors import ServiceUnavailable


def sqlite_error(code: int) -> sqlite3.OperationalError:
    error = sqlite3.OperationalError("it is so")
    error.sqlite_errorcode = code
    return error


@pytest.mark.parametrize(
    "error",
    [
        ConnectionRefusedError(111, "refused"),
        TimeoutError(),
        asyncpg.CannotConnectNowError("starting up"),
        asyncpg.AdminShutdownError("bye"),
        asyncpg.TooManyConnectionsError("full"),
        asyncpg.DiskFullError("full"),
        asyncpg.QueryCanceledError("statement timeout"),
        asyncpg.LockNotAvailableError("lock timeout"),
        asyncpg.IdleInTransactionSessionTimeoutError("idle"),
        asyncpg.ReadOnlySQLTransactionError("a standby now"),
        sqlite_error(sqlite3.SQLITE_BUSY),
        sqlite_error(sqlite3.SQLITE_FULL),
        sqlite_error(sqlite3.SQLITE_IOERR_FSYNC),
    ],
)
def test_a_database_that_cannot_work_now_is_away(error: Exception) -> None:
    found = translate("main", error)
    assert isinstance(found, DatabaseAway) and not isinstance(found, Undone)
    assert isinstance(found, ServiceUnavailable) and found.code == 503
    assert found.message.startswith("database 'main' is unavailable: ") and not found.message.endswith(": ")


@pytest.mark.parametrize("error", [asyncpg.DeadlockDetectedError("x"), asyncpg.SerializationError("x")])
def test_a_transaction_that_was_in_the_way_is_undone(error: Exception) -> None:
    assert isinstance(translate("main", error), Undone)


@pytest.mark.parametrize(
    "error",
    [
        asyncpg.UniqueViolationError("x"),
        asyncpg.UndefinedColumnError("x"),
        asyncpg.StringDataRightTruncationError("x"),
        sqlite_error(sqlite3.SQLITE_CONSTRAINT_UNIQUE),
        sqlite_error(sqlite3.SQLITE_ERROR),
        ValueError("x"),
        ZeroDivisionError(),
    ],
)
def test_a_fault_of_ours_is_not_called_an_outage(error: Exception) -> None:
    assert translate("main", error) is None
