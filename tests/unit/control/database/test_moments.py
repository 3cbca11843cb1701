"""Short reads: of one moment, over connections that are used again, with errors that mean what they mean elsewhere."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from shoal.control.database.failures import DatabaseAway
from shoal.control.database.moments import SqliteReaders

NAMES = text("SELECT name FROM things WHERE name >= :least ORDER BY name")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    found = tmp_path / "a.db"
    with sqlite3.connect(found) as writer:
        writer.execute("PRAGMA journal_mode = WAL")
        writer.execute("CREATE TABLE things (name TEXT PRIMARY KEY)")
        writer.execute("INSERT INTO things VALUES ('a')")
    writer.close()
    return found


@pytest.fixture
def moments(path: Path) -> Iterator[SqliteReaders]:
    made = SqliteReaders("main", path)
    yield made
    made.close()


def write(path: Path, name: str) -> None:
    with sqlite3.connect(path) as writer:
        writer.execute("INSERT INTO things VALUES (?)", (name,))
    writer.close()


async def test_everything_in_a_block_is_of_one_moment_and_the_next_block_sees_what_came(
    moments: SqliteReaders, path: Path
) -> None:
    with moments.open() as rows:
        assert await rows(NAMES, {"least": ""}) == [("a",)]
        write(path, "b")
        assert await rows(NAMES, {"least": ""}) == [("a",)], "written after the block began"
    with moments.open() as rows:
        assert await rows(NAMES, {"least": "b"}) == [("b",)]


async def test_a_reader_cannot_write(moments: SqliteReaders, path: Path) -> None:
    with pytest.raises((sqlite3.Error, DatabaseAway)), moments.open() as rows:
        await rows(text("INSERT INTO things VALUES ('x')"), {})
    with moments.open() as rows:
        assert await rows(NAMES, {"least": ""}) == [("a",)]


async def test_connections_are_used_again_a_few_are_kept_and_one_that_failed_is_not(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, connect = 0, sqlite3.connect

    def counted(*arguments: Any, **options: Any) -> sqlite3.Connection:
        nonlocal made
        made += 1
        return connect(*arguments, **options)

    def open_together(count: int) -> int:
        before = made
        with ExitStack() as stack:
            for _ in range(count):
                stack.enter_context(moments.open())
        return made - before

    monkeypatch.setattr(sqlite3, "connect", counted)
    moments = SqliteReaders("main", path, keep=3)
    assert [open_together(1), open_together(1)] == [1, 0]
    with pytest.raises(RuntimeError), moments.open():
        raise RuntimeError("the reader has failed")
    assert open_together(1) == 1, "the state of the connection is not known"
    assert open_together(5) == 4
    assert open_together(5) == 2, "three are kept"
    moments.close()


async def test_a_database_that_cannot_be_read_is_away_and_a_wrong_statement_is_not(tmp_path: Path, path: Path) -> None:
    broken = tmp_path / "broken.db"
    broken.write_bytes(b"this is no database " * 100)
    moments = SqliteReaders("main", broken)
    with pytest.raises(DatabaseAway, match="'main' is unavailable"), moments.open() as rows:
        await rows(NAMES, {"least": ""})
    moments.close()
    missing = SqliteReaders("main", tmp_path / "no" / "such.db")
    with pytest.raises(DatabaseAway), missing.open():
        pass
    good = SqliteReaders("main", path)
    with pytest.raises(sqlite3.OperationalError, match="no such table"), good.open() as rows:
        await rows(text("SELECT * FROM nowhere"), {})
    good.close()
