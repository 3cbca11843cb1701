"""A stream never begins on an index that is half loaded, whatever happens while it waits to begin."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any, cast

from shoal.base.clock import FakeClock
from shoal.base.metrics import Metrics
from shoal.base.tasks import cancel_all
from shoal.control.database.engine import Databases
from shoal.control.database.position import Position
from shoal.control.service.config import ServiceConfig
from shoal.control.service.desired.reported import Reported
from shoal.control.service.metrics import ServiceMetrics
from shoal.control.service.stream.hub import Hub
from shoal.control.service.stream.protocol import FullSync
from shoal.sync.versions import Cursor, encode_cursor

KEYS = {"main": b"key"}


class RestoredDatabase:
    """An empty database. Once ``is_restored_next`` is set, the next request for its position finds another history, and
    is answered while the hub loads it. The hub can read rows while ``readable`` is set."""

    name, signing_key, dialect = "main", KEYS["main"], "sqlite"

    def __init__(self) -> None:
        self.is_restored_next = False
        self.breaks: Exception | None = None  # what the next change brings
        self.readable, self._changed, self._loading = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._position = Position(1, 5, 4)

    async def position(self) -> Position:
        if self.is_restored_next:
            self.is_restored_next = False
            self._position = Position(2, 7, 7)
            self._loading.clear()
            self._changed.set()
            await self._loading.wait()
        return self._position

    def change(self) -> None:
        self._changed.set()

    async def wait_for_change(self, _number: int, _poll_s: float) -> None:
        await self._changed.wait()
        self._changed.clear()
        if self.breaks is not None:
            error, self.breaks = self.breaks, None
            raise error

    @asynccontextmanager
    async def moment(self) -> AsyncIterator[Any]:
        async def ask(statement: Any, _parameters: Any) -> list[Any]:
            return [self._position] if statement.row is Position else []

        yield ask

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[Any]:
        async def stream(_statement: Any) -> Any:
            return SimpleNamespace(partitions=lambda _size: _no_rows())

        self._loading.set()
        await self.readable.wait()
        yield SimpleNamespace(stream=stream)


async def _no_rows() -> AsyncIterator[list[Any]]:
    for page in ():
        yield page


async def begun(cursor: Cursor) -> FullSync:
    database = RestoredDatabase()
    databases = cast(Databases, SimpleNamespace(all=(database,), fleet=database))
    hub = Hub(databases, ServiceConfig(), ServiceMetrics(Metrics()), Reported(), clock=FakeClock(), random=lambda: 0.5)
    running = asyncio.create_task(hub.run(), name="hub")
    try:
        database.readable.set()
        await asyncio.wait_for(hub.ready(), 5)
        database.readable.clear()
        database.is_restored_next = True
        beginning = asyncio.create_task(hub.begin(encode_cursor(cursor, KEYS)), name="begin")
        for _ in range(20):
            await asyncio.sleep(0)
        assert hub.index.positions["main"].incarnation == 2, "the other history is being loaded"
        assert not beginning.done(), "the index is being loaded: what it lacks would count as absent"
        database.readable.set()
        how = await asyncio.wait_for(beginning, 5)
    finally:
        await cancel_all(running)
    assert isinstance(how, FullSync)
    return how


async def test_a_full_sync_waits_until_a_database_that_went_back_is_loaded_whole() -> None:
    assert not (await begun(Cursor({}))).observe_only


async def test_a_cursor_that_became_one_of_another_history_meanwhile_only_observes() -> None:
    assert (await begun(Cursor({"main": (1, 3)}))).observe_only, "it was only too old before"


async def test_a_database_whose_changes_cannot_be_taken_in_is_read_anew() -> None:
    """After an unexpected error it is not known what the index has taken in: nothing is served from it until then."""
    database, clock = RestoredDatabase(), FakeClock()
    databases = cast(Databases, SimpleNamespace(all=(database,), fleet=database))
    hub = Hub(databases, ServiceConfig(), ServiceMetrics(Metrics()), Reported(), clock=clock, random=lambda: 0.5)
    running = asyncio.create_task(hub.run(), name="hub")
    try:
        database.readable.set()
        await asyncio.wait_for(hub.ready(), 5)
        database.readable.clear()
        database.breaks = RuntimeError("a fault of one change")
        database.change()
        await clock.advance(1)
        ready = asyncio.create_task(hub.ready())
        await clock.settle()
        assert not ready.done() and not running.done()
        database.readable.set()
        await asyncio.wait_for(ready, 5)
    finally:
        await cancel_all(running)
