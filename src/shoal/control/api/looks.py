"""When a stream looks again: after a hint of its database, and now and then in any case."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import TypeVar

from shoal.base.clock import Clock
from shoal.control.database.engine import Database
from shoal.errors import ServiceUnavailable

LOOK_S = 1.0  # without a hint
REST_S = 0.1  # between two looks, however many hints there are

T = TypeVar("T")


async def looks(database: Database, clock: Clock) -> AsyncGenerator[None, None]:
    """Yields when there may be something new."""
    while True:
        position = await unless_away(database.position)
        yield
        await clock.sleep(REST_S)
        if position is None:
            await clock.sleep(LOOK_S)
        else:
            await database.wait_for_change(position.number, LOOK_S)


async def unless_away(ask: Callable[[], Awaitable[T]]) -> T | None:
    """A stream outlives the database: it is quiet meanwhile."""
    try:
        return await ask()
    except ServiceUnavailable:
        return None
