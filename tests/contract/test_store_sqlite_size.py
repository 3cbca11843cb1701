"""The size of the file follows its content, and the work for this does not delay writers."""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from shoal.base.clock import FakeClock
from shoal.store import NO_ATTRS, Attrs, Compacted, Delete, Event, Key, LogStore, Put, RingLimits
from shoal.store import sqlite as module
from shoal.store.sqlite import SqliteJournal, SqliteLimits, connect
from shoal.testing.waiting import eventually

MB = 1 << 20


def no_attrs(key: Key, value: bytes) -> Attrs:
    return NO_ATTRS


def put(name: str, size: int) -> Put:
    return Put(Key("pods", "default", name), b"x" * size, 0)


def gone(name: str) -> Delete:
    return Delete(Key("pods", "default", name))


def size_of(path: Path | str) -> int:
    return os.stat(path).st_size


async def test_log_and_file_stay_bounded_under_steady_writes_with_busy_readers(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    largest = {"-wal": 0, "": 0}
    got_in: list[str] = []
    stop = threading.Event()

    def pry() -> None:
        """Another connection that would, if it got in, keep the log from being written over."""
        while not stop.is_set():
            connection = sqlite3.connect(path, timeout=0)
            try:
                connection.execute("SELECT count(*) FROM log").fetchone()
                got_in.append("read")
            except sqlite3.OperationalError as error:
                assert "locked" in str(error)
            finally:
                connection.close()

    journal = SqliteJournal(path, no_attrs, limits=SqliteLimits(wal_bytes=MB))
    store = LogStore(journal, limits=RingLimits(max_events=500, max_bytes=4 * MB))
    await store.start()
    slow = store.watch("pods", 0)  # never reads
    reader = threading.Thread(target=pry)
    reader.start()
    try:
        for i in range(300):
            await store.commit([put(f"p{(i * 20 + j) % 1000}", 2000) for j in range(20)])
            assert len(store.range("pods", revision=max(1, store.revision - 50)).entries) <= 1000
            for suffix in largest:
                largest[suffix] = max(largest[suffix], size_of(f"{path}{suffix}"))
    finally:
        stop.set()
        reader.join()
    with pytest.raises(Compacted):
        slow.take()
    await store.stop()
    assert not got_in
    # 1000 objects of 2 kB and a history of as much again; 12 MB were written
    assert largest["-wal"] < 3 * MB and largest[""] < 8 * MB


async def test_the_file_shrinks_by_itself_after_a_burst_of_large_objects_is_deleted_and_forgotten(
    tmp_path: Path,
) -> None:
    path = tmp_path / "store.db"
    clock, limits = FakeClock(), SqliteLimits(tidy_after_s=0.01)

    journal = SqliteJournal(path, no_attrs, limits=limits)
    store = LogStore(journal, limits=RingLimits(max_bytes=200 * MB), clock=clock.monotonic)
    await store.start()
    for i in range(40):
        await store.commit([put(f"large-{i}", MB)])
    await store.commit([put(f"small-{i}", 100) for i in range(100)])
    for i in range(40):
        await store.commit([gone(f"large-{i}")])
    await eventually(lambda: size_of(path) > 39 * MB)  # history still has them all
    for _ in range(2):  # the first notes how far history went at that time
        await clock.advance(1000.0)
        store.forget_old()
    # too few rows to be deleted together with a batch, and there are no batches
    await eventually(lambda: size_of(path) < 9 * MB)
    assert size_of(f"{path}-wal") <= 2 * limits.wal_bytes
    assert store.count("pods") == 100
    await store.stop()
    connection = sqlite3.connect(path)
    assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    connection.close()


async def test_forgetting_goes_in_steps_that_are_small_in_rows_and_in_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    statements: list[str] = []

    def traced(path: Path) -> sqlite3.Connection:
        connection = connect(path)
        connection.set_trace_callback(statements.append)
        return connection

    monkeypatch.setattr(module, "connect", traced)

    async def main(sizes: list[int]) -> list[int]:
        """How many rows each step has deleted."""
        statements.clear()
        journal = SqliteJournal(tmp_path / f"{len(sizes)}.db", no_attrs, limits=SqliteLimits(forget_most=50))
        store = LogStore(journal)
        await store.start()
        for size in sizes:
            await store.commit([put("a", size)])
        await store.compact(store.revision)
        await store.stop()
        deletes = [text for text in statements if text.startswith("DELETE FROM log")]
        return [len(json.loads(text.split("'")[1])) for text in deletes]

    assert await main([10] * 121) == [50, 50, 20]
    assert await main([MB] * 10) == [3, 3, 3]
    assert await main([6 * MB] * 3) == [1, 1], "one at a time when a single one is over the bound"


async def test_tidying_leaves_writers_most_of_the_time(tmp_path: Path) -> None:
    spans: list[tuple[float, float, bool]] = []

    class Timed(SqliteJournal):
        batches = 0

        async def append(self, events: Sequence[Event]) -> None:
            self.batches += 1
            await super().append(events)

        async def tidy_step(self, *, checkpoint: bool) -> bool:
            begun_s, batches = asyncio.get_running_loop().time(), self.batches
            more = await super().tidy_step(checkpoint=checkpoint)
            if more:
                spans.append((begun_s, asyncio.get_running_loop().time(), batches != self.batches))
            return more

    journal = Timed(tmp_path / "store.db", no_attrs, limits=SqliteLimits(tidy_after_s=0.0, slack_pages=16))
    store = LogStore(journal, limits=RingLimits(max_events=10))
    await store.start()
    for i in range(200):
        await store.commit([put("a", MB // 4), put("b", i)])
        await asyncio.sleep(0)
    await store.stop()
    met = [(begun, ended, after) for (begun, ended, met), (after, _, _) in zip(spans, spans[1:], strict=False) if met]
    assert met
    for begun, ended, after in met:
        assert after - ended >= 8 * (ended - begun)
