"""The history: within the retention, after a restart, and the writes that the row writer refuses."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from shoal.base.clock import FakeClock
from shoal.base.metrics import Metrics
from shoal.base.tasks import cancel_all
from shoal.errors import BadRequest, Expired
from shoal.navigator.digest import fingerprint
from shoal.navigator.manager.config import ManagerConfig
from shoal.navigator.manager.objects import make_rows
from shoal.navigator.manager.protocol import Put
from shoal.navigator.manager.row_writer import StaleEpoch
from shoal.navigator.manager.rows import ClusterClaimed, RowsChanged, SessionEnded, StoredCluster
from shoal.navigator.manager.sqlite import SqliteRows
from shoal.navigator.manager.wiring import Manager
from shoal.navigator.model import Freshness

CONFIG = ManagerConfig(retention_s=100.0, forget_after_s=0.0)


@pytest.fixture
def rows(tmp_path: Path) -> SqliteRows:
    return SqliteRows(tmp_path / "n.db")


@asynccontextmanager
async def opened(rows: SqliteRows, clock: FakeClock, config: ManagerConfig = CONFIG) -> AsyncIterator[Manager]:
    """A manager of whose tasks only the row writer runs: nothing here waits for the clock."""
    manager = Manager(rows, clock=clock, new_id=lambda: "id", config=config, metrics=Metrics())
    await manager.open()
    writing = asyncio.create_task(manager.row_writer.run(), name="row-writer")
    try:
        yield manager
    finally:
        await cancel_all(writing)
        await manager.close()


async def put(manager: Manager, version: int, *, epoch: int = 0, key: str = "a/p") -> None:
    data = b'{"metadata":{"name":"p","labels":{"v":"%d"}}}' % version
    at_ms = manager.row_writer.stamp_ms()
    one = Put("pods", key, data, fingerprint("pods", key, data))
    made = await make_rows("east", [(one.kind, one.key, one.fingerprint, one.data)], at_ms)
    await manager.row_writer.write(RowsChanged("east", at_ms, [one], []), epoch=epoch, rows=made)


async def version(manager: Manager, at_s: float) -> str | None:
    past = await manager.history.at(at_s)
    row = past.row("east", "pods", "a/p")
    return row.summary.labels["v"] if row is not None else None  # type: ignore[attr-defined]


async def test_the_history_reaches_back_to_the_retention(rows: SqliteRows, clock: FakeClock) -> None:
    async with asyncio.timeout(30):
        async with opened(rows, clock) as manager:
            begun_s = clock.wall_s()
            for number in range(3):  # at 0, 10 and 20 seconds
                await put(manager, number)
                await clock.advance(10.0)
            for ago_s, expected in ((30.5, None), (30.0, "0"), (20.5, "0"), (20.0, "1"), (10.0, "2"), (0.0, "2")):
                assert await version(manager, clock.wall_s() - ago_s) == expected, ago_s
            await clock.advance(75.0)
            with pytest.raises(Expired):
                await manager.history.at(begun_s)
            with pytest.raises(Expired):
                await manager.history.between(begun_s, clock.wall_s())
            with pytest.raises(BadRequest):
                await manager.history.between(clock.wall_s(), clock.wall_s() - 1)
            assert await version(manager, begun_s + 7.0) == "0"
            await clock.advance(10.0)
            while await rows.expire(round((clock.wall_s() - CONFIG.retention_s) * 1000)):
                pass
            left = [row.data async for piece in rows.past(round(begun_s * 1000) + 5000) for row in piece]
            assert left == [], "what ended before is deleted"
            assert await version(manager, begun_s + 17.0) == "1"


async def test_the_first_change_of_a_window_has_what_it_replaced(rows: SqliteRows, clock: FakeClock) -> None:
    async with asyncio.timeout(30):
        async with opened(rows, clock) as manager:
            for number in range(3):  # at 0, 10 and 20 seconds
                await put(manager, number)
                await clock.advance(10.0)
            found = await manager.history.between(clock.wall_s() - 25.0, clock.wall_s(), kind="pods", key="a/p")
            assert [b'"v":"0"' in (each.before or b"") for each in found] == [True, False]
            assert [b'"v":"%d"' % (number + 1) in (each.data or b"") for number, each in enumerate(found)] == [
                True,
                True,
            ]
            found = await manager.history.between(clock.wall_s() - 35.0, clock.wall_s(), kind="pods", key="a/p")
            assert [each.before for each in found] == [None, None, None], "nothing was there before the first"


async def test_a_longer_retention_keeps_more(rows: SqliteRows, clock: FakeClock) -> None:
    async with asyncio.timeout(30):
        async with opened(rows, clock, replace(CONFIG, retention_s=1000.0)) as manager:
            begun_s = clock.wall_s()
            await put(manager, 0)
            await clock.advance(10.0)
            await put(manager, 1)
            await clock.advance(500.0)
            assert await version(manager, begun_s) == "0"


async def test_the_state_at_a_moment_shows_whether_an_edge_held_the_cluster(rows: SqliteRows, clock: FakeClock) -> None:
    async with asyncio.timeout(30):
        async with opened(rows, clock) as manager:
            assert await manager.history.first_s() is None
            begun_ms = round(clock.wall_s() * 1000)
            await manager.row_writer.write(
                ClusterClaimed(StoredCluster(name="east", edge="e1", epoch=1, heard_ms=begun_ms, first_ms=begun_ms))
            )
            await put(manager, 0)
            await clock.advance(10.0)
            await manager.row_writer.write(SessionEnded("east", 1, manager.row_writer.stamp_ms()))
            await clock.advance(10.0)
            for ago_s, expected in ((15.0, Freshness.HEALTHY), (5.0, Freshness.DISCONNECTED)):
                past = await manager.history.at(clock.wall_s() - ago_s)
                (east,) = past.clusters()
                assert east.freshness is expected and past.cluster("east") == east
                assert east.kinds[0].rows == 1
            assert (await manager.history.at(clock.wall_s() - 25.0)).clusters() == []
            assert await manager.history.first_s() == begun_ms / 1000


async def test_a_late_write_of_an_older_epoch_is_refused(rows: SqliteRows, clock: FakeClock) -> None:
    async with asyncio.timeout(30):
        async with opened(rows, clock) as manager:
            manager.registry.claim("east", "e1", 0.0)
            await put(manager, 1, epoch=1)
            manager.registry.claim("east", "e1", 0.0)
            with pytest.raises(StaleEpoch):
                await put(manager, 2, epoch=1)
            await put(manager, 3, epoch=2)
            assert await version(manager, clock.wall_s()) == "3"


async def test_a_stream_that_ends_while_it_waits_leaves_memory_and_disk_equal(
    rows: SqliteRows, tmp_path: Path, clock: FakeClock
) -> None:
    async with asyncio.timeout(30):
        async with opened(rows, clock) as manager:
            waiting = [
                asyncio.create_task(put(manager, number, key=f"a/{number}"), name=f"put/{number}")
                for number in range(20)
            ]
            await asyncio.sleep(0)
            for task in waiting[::2]:
                task.cancel()
            await asyncio.wait(waiting)
            await put(manager, 99, key="a/last")
            stored = {row.key async for piece in rows.load() for row in piece}
            assert stored == {row.key for row in manager.view.rows("pods")}
            assert {f"a/{number}" for number in range(1, 20, 2)} | {"a/last"} <= stored
        async with opened(SqliteRows(tmp_path / "n.db"), clock) as manager:
            assert {row.key for row in manager.view.rows("pods")} == stored
