from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from shoal.errors import ConfigError
from shoal.store import NO_ATTRS, Attrs, Delete, Key, LogStore, Put, RingLimits
from shoal.store.sqlite import SqliteJournal, SqliteLimits, connect


def no_attrs(key: Key, value: bytes) -> Attrs:
    return NO_ATTRS


def put(name: str, size: int = 10) -> Put:
    return Put(Key("pods", "default", name), b"x" * size, 0)


def test_writes_are_synced_in_full_and_the_file_can_shrink(tmp_path: Path) -> None:
    connection = connect(tmp_path / "store.db")
    asked = {
        name: connection.execute(f"PRAGMA {name}").fetchone()[0]
        for name in ("journal_mode", "synchronous", "auto_vacuum")
    }
    connection.close()
    assert asked == {"journal_mode": "wal", "synchronous": 2, "auto_vacuum": 2}


async def test_only_the_owner_can_read_the_store_and_an_older_open_one_is_closed(tmp_path: Path) -> None:
    def modes() -> dict[str, int]:
        return {found.name: found.stat().st_mode & 0o777 for found in tmp_path.glob("store.db*")}

    path = tmp_path / "store.db"
    store = LogStore(SqliteJournal(path, no_attrs))
    await store.start()
    await store.commit([put("a")])
    made = modes()
    await store.stop()
    assert {"store.db", "store.db-wal"} <= set(made)
    assert set(made.values()) == {0o600}
    path.chmod(0o644)  # as earlier versions left it
    store = LogStore(SqliteJournal(path, no_attrs))
    await store.start()
    await store.commit([put("a")])
    assert set(modes().values()) == {0o600}
    await store.stop()


async def test_rows_left_by_a_crash_between_dropping_and_deleting_go_at_the_next_start(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    store = LogStore(SqliteJournal(path, no_attrs))
    await store.start()
    await store.commit([put("a"), put("a"), put("b"), Delete(Key("pods", "default", "b")), put("a"), put("c")])
    await store.stop()
    connection = sqlite3.connect(path)
    rows = connection.execute("SELECT * FROM log WHERE revision IN (2, 3, 4)").fetchall()
    connection.close()
    assert len(rows) == 3
    store = LogStore(SqliteJournal(path, no_attrs))
    await store.start()
    await store.compact(5)
    await store.stop()
    connection = sqlite3.connect(path)  # as if only the floors and the first deletion had been written
    assert connection.execute("SELECT revision FROM log").fetchall() == [(5,), (6,)]
    connection.executemany("INSERT INTO log VALUES (?, ?, ?, ?, ?, ?, ?)", rows)
    connection.commit()
    connection.close()
    store = LogStore(SqliteJournal(path, no_attrs))
    await store.start()
    assert [entry.key.name for entry in store.range("pods").entries] == ["a", "c"]
    assert store.watch("pods", 5).take()[0].entry.key.name == "c"
    await store.stop()
    connection = sqlite3.connect(path)
    assert connection.execute("SELECT revision FROM log").fetchall() == [(5,), (6,)]
    connection.close()


async def test_the_write_ahead_log_stays_bounded_under_steady_writes(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    sizes: list[int] = []

    journal = SqliteJournal(path, no_attrs, limits=SqliteLimits(wal_bytes=1 << 20))
    store = LogStore(journal, limits=RingLimits(max_events=500))
    await store.start()
    for i in range(300):
        await store.commit([put(f"p{(i * 20 + j) % 1000}", 2000) for j in range(20)])
    sizes.extend(file.stat().st_size for file in (Path(f"{path}-wal"), path))
    await store.stop()
    assert sizes[0] < 3 << 20 and sizes[1] < 12 << 20


async def test_a_file_of_another_format_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "store.db"

    async def start() -> None:
        store = LogStore(SqliteJournal(path, no_attrs))
        await store.start()
        await store.stop()

    await start()
    connection = sqlite3.connect(path)
    connection.execute("UPDATE meta SET value = 99 WHERE name = 'format'")
    connection.commit()
    connection.close()
    with pytest.raises(ConfigError, match="format 99"):
        await start()
