"""A stream never begins on an index that is half loaded, whatever happens while it waits to begin."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

from shoal.base.clock import FakeClock
from shoal.base.metrics import Metrics
from shoal.control.database.engine import Databases
from shoal.control.database.position import Position
from shoal.control.service.config import ServiceConfig
from shoal.control.service.desired.reported import Reported
from shoal.control.service.metrics import ServiceMetrics
from shoal.control.service.stream.hub import Hub
from shoal.control.service.stream.protocol import FullSync
from shoal.sync.versions import Cursor, encode_cursor

KEYS = {"main": b"key"}


class GoesBack:
    """A database that turns out to have gone back while somebody asks for its position."""

    name, signing_key = "main", KEYS["main"]

    def __init__(self) -> None:
        self.hub: Hub | None = None

    async def position(self) -> Position:
        assert self.hub is not None
        if self.hub.index.positions["main"].incarnation == 1:  # loading anew begins
            self.hub._ready["main"].clear()
            self.hub.index.restart("main", Position(2, 0, 0))
        return Position(2, 7, 7)


def a_hub() -> Hub:
    database: Any = GoesBack()
    databases = cast(Databases, SimpleNamespace(all=(database,), fleet=database))
    hub = Hub(databases, ServiceConfig(), ServiceMetrics(Metrics()), Reported(), clock=FakeClock(), random=lambda: 0.5)
    database.hub = hub
    hub.index.moved("main", Position(1, 5, 4))
    hub._ready["main"].set()
    return hub


async def begun(cursor: Cursor) -> FullSync:
    hub = a_hub()
    beginning = asyncio.create_task(hub.begin(encode_cursor(cursor, KEYS)))
    for _ in range(20):
        await asyncio.sleep(0)
    assert not beginning.done(), "the index is being loaded: what it lacks would count as absent"
    await hub._set_position("main", Position(2, 7, 7))
    hub._ready["main"].set()
    how = await asyncio.wait_for(beginning, 5)
    assert isinstance(how, FullSync)
    return how


async def test_a_full_sync_waits_until_a_database_that_went_back_is_loaded_whole() -> None:
    assert not (await begun(Cursor({}))).observe_only


async def test_a_cursor_that_became_one_of_another_history_meanwhile_only_observes() -> None:
    assert (await begun(Cursor({"main": (1, 3)}))).observe_only, "it was only too old before"
