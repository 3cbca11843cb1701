"""A database that was restored and has gone on: noticed by the marks in cursors, whoever has seen more of the other."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import update

from shoal.control.database.failures import DatabaseAway
from shoal.control.database.tables import Change
from shoal.control.service.desired.marks import MarkedChange
from shoal.sync.versions import Cursor, decode_cursor, encode_cursor, read_cursor
from shoal.testing.fleet import control_plane
from shoal.testing.waiting import eventually
from shoal.testing.watching import full_sync, watching


async def a_lost_history(folder: Path) -> tuple[str, str, int]:
    """A control plane whose database is then restored from a backup. Returns an agent's token and cursor of the history
    that is lost, and how far that was."""
    async with control_plane(folder) as control:
        await control.add_cluster("c1", region="eu")
        await control.deploy("c1", "kept")
        token = await control.agent_token("c1", "eu")
        backup(folder / "control.db", folder / "backup.db")
        async with control.agent("c1", "eu", token=token) as agent, watching(agent) as watch:
            await full_sync(watch)
            for number in range(3):
                await control.deploy("c1", f"lost{number}")
                await watch.until("item")
            cursor = (await watch.until("progress")).cursor
        number = (await control.database.position()).number
    restore(folder)
    return token, cursor, number


def restore(folder: Path) -> None:
    for leftover in folder.glob("control.db*"):
        leftover.unlink()
    shutil.copy(folder / "backup.db", folder / "control.db")


def backup(source: Path, target: Path) -> None:
    one, other = sqlite3.connect(source), sqlite3.connect(target)
    one.backup(other)
    one.close()
    other.close()


async def test_a_restored_database_that_has_passed_every_cursor_is_noticed_all_the_same(tmp_path: Path) -> None:
    async with asyncio.timeout(60):
        token, cursor, number = await a_lost_history(tmp_path)
        async with control_plane(tmp_path) as control:
            made = [await control.deploy("c1", f"made{n}") for n in range(5)]
            before = await control.database.position()
            assert before.number > number, "the number of the cursor says nothing any more"
            async with control.agent("c1", "eu", token=token) as agent:
                async with watching(agent, cursor) as watch:
                    welcome = await watch.until("welcome")
                    assert welcome.observe_only and not welcome.resumed
                    begin, items, keys, end = await full_sync(watch)
                    assert keys == {"deployment/dep_kept", *made}
                    assert begin.versions[0].incarnation == before.incarnation + 1
                    assert all(item.version.incarnation == before.incarnation + 1 for item in items.values())
                async with watching(agent, end.cursor) as watch:
                    assert (await watch.until("welcome")).resumed, "of one history: nothing is suspected"
                assert (await control.database.position()).incarnation == before.incarnation + 1


async def test_a_cursor_of_the_same_history_resumes_also_after_a_restart_and_without_a_mark(tmp_path: Path) -> None:
    async with asyncio.timeout(60):
        async with control_plane(tmp_path) as control:
            await control.add_cluster("c1", region="eu")
            async with control.agent("c1", "eu") as agent:
                cursors = []
                async with watching(agent) as watch:
                    await full_sync(watch)
                    for number in range(4):
                        await control.deploy("c1", f"web{number}")
                        cursors.append((await watch.until("progress")).cursor)
                await control.restart()
                before = await control.database.position()
                keys = {"main": control.database.signing_key}
                plain = [encode_cursor(Cursor({"main": (before.incarnation, n)}), keys) for n in (1, before.number)]
                for cursor in (*cursors, *plain):
                    async with watching(agent, cursor) as watch:
                        assert (await watch.until("welcome")).resumed, cursor
                assert await control.database.position() == before


@pytest.mark.parametrize("same", [True, False])
async def test_a_control_plane_whose_database_was_away_looks_whether_it_is_still_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, same: bool
) -> None:
    async with asyncio.timeout(60):
        async with control_plane(tmp_path) as control:
            await control.add_cluster("c1", region="eu")
            await control.deploy("c1", "web")
            before, hub = await control.database.position(), control.server.hub
            await hub.catch_up()
            if not same:
                async with control.database.transaction() as tx:  # as if it had been another change
                    await tx.session.execute(update(Change).where(Change.number == before.number).values(key="other"))
            moment, reads = control.database.moment, 0

            def fails_once() -> Any:
                nonlocal reads
                if not (task := asyncio.current_task()) or not task.get_name().startswith("control-tail/"):
                    return moment()
                reads += 1
                if reads == 1:
                    raise DatabaseAway("main", "the connection was refused")
                return moment()

            monkeypatch.setattr(control.database, "moment", fails_once)
            await eventually(lambda: reads > 3)  # it looked back, and has read changes twice
            expected = before.incarnation + (not same)
            key = await control.deploy("c1", "more")
            async with control.agent("c1", "eu") as agent, watching(agent) as watch:
                _, items, _, _ = await full_sync(watch)
                assert items[key].version.incarnation == expected
            assert (await control.database.position()).incarnation == expected


def test_a_mark_is_signed_with_its_position() -> None:
    keys = {"main": b"k", "other": b"o"}
    cursor = Cursor({"main": (1, 5), "other": (2, 7)})
    text = encode_cursor(cursor, keys, {"main": "abcde"})
    found = decode_cursor(text, keys)
    assert found == cursor and found.marks == {"main": "abcde", "other": ""} and read_cursor(text) == cursor
    for wrong in (text.replace("abcde", "abcdf"), text.replace(".abcde", "")):
        assert refused(wrong, keys), "a mark cannot be changed or left out"
    change = MarkedChange(5, 10, "c", "s", "k")
    assert change.mark != change._replace(created_at=11).mark, "the same change at another time"


def refused(text: str, keys: dict[str, bytes]) -> Any:
    from shoal.sync.versions import BadCursor

    try:
        decode_cursor(text, keys)
    except BadCursor as error:
        return error
    return None
