"""Transactions of short statements with SQLite: the same results, in the event loop only while that is safe."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest
from sqlalchemy import text

from shoal.base.clock import RealClock
from shoal.base.ids import Ids
from shoal.control.database.engine import Database
from shoal.control.database.failures import DatabaseAway
from shoal.control.database.moments import rows_of_sqlite
from shoal.control.database.sqlite import SqliteConnection
from shoal.control.database.transaction import DesiredObject, Tx
from shoal.sync.keys import Place

ONE = text("SELECT 1")


async def opened(path: Path) -> Database:
    return await Database.open(f"sqlite:///{path}/a.db", clock=RealClock(), ids=Ids())


def wanted(count: int) -> list[DesiredObject]:
    return [DesiredObject(place=Place("clu_a", "s"), key=f"deployment/d{n}", workspace_id="w") for n in range(count)]


async def driver_of(tx: Tx) -> SqliteConnection:
    connection = await tx.session.connection()
    driver = connection.sync_connection.connection.driver_connection  # type: ignore[union-attr]
    assert isinstance(driver, SqliteConnection)
    return driver


async def test_short_statements_run_in_the_loop_and_those_about_many_rows_in_the_thread(tmp_path: Path) -> None:
    ran: list[tuple[str, int]] = []

    def note(sql: str) -> None:
        name = sql.split()[0]
        if name not in ("BEGIN", "COMMIT", "ROLLBACK"):  # these always run in the thread: they may wait
            ran.append((name, threading.get_ident()))

    database = await opened(tmp_path)
    here = threading.get_ident()
    async with database.transaction(short=True) as tx:
        (await driver_of(tx)).raw.set_trace_callback(note)
        await tx.want_many(wanted(3))
    assert ran and all(thread == here for _, thread in ran)
    ran.clear()
    async with database.transaction(short=True) as tx:
        await tx.want_many(wanted(2000))
    assert {thread == here for name, thread in ran if name == "INSERT"} == {False}
    ran.clear()
    async with database.transaction() as tx:  # the same connection, and nothing was promised
        await tx.want_many(wanted(3))
    assert ran and all(thread != here for _, thread in ran)
    await database.close()


async def test_what_a_short_transaction_did_is_undone_when_it_fails_or_is_cancelled(tmp_path: Path) -> None:
    database = await opened(tmp_path)
    with pytest.raises(KeyError):
        async with database.transaction(short=True) as tx:
            await tx.want_many(wanted(3))
            raise KeyError
    begun = asyncio.Event()

    async def hang() -> None:
        async with database.transaction(short=True) as tx:
            await tx.want_many(wanted(3))
            begun.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(hang(), name="hang")
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    async with database.transaction(short=True) as tx:
        assert await tx.ask(text("SELECT count(*) FROM desired"), {}) == [(0,)]
        assert await tx.number() == 1
    await database.close()


async def test_while_the_thread_still_works_for_a_cancelled_caller_no_statement_runs_beside_it(tmp_path: Path) -> None:
    database = await opened(tmp_path)
    async with database.transaction(short=True) as tx:
        driver = await driver_of(tx)
        assert driver.takes("SELECT 1", {})
        go = threading.Event()
        waiting = asyncio.create_task(driver.in_thread(go.wait, 20), name="waiting")
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert not driver.takes("SELECT 1", {})
        asking = asyncio.create_task(rows_of_sqlite("main", driver)(text("SELECT 1"), {}), name="asking")
        await asyncio.sleep(0)
        go.set()
        assert await asking == [(1,)] and driver.takes("SELECT 1", {})
    await database.close()


async def test_a_database_that_cannot_be_written_is_away_for_plain_statements_too(tmp_path: Path) -> None:
    database = await opened(tmp_path)
    with pytest.raises(DatabaseAway):
        async with database.transaction(short=True) as tx:
            await tx.ask(text("PRAGMA query_only = ON"), {})
            try:
                await tx.want_many(wanted(1))
            finally:
                await tx.ask(text("PRAGMA query_only = OFF"), {})
    async with database.transaction(short=True) as tx:
        assert await tx.ask(ONE, {}) == [(1,)]
    await database.close()
