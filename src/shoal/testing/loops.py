"""Loops that fail, for tests of what depends on supervised loops."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from shoal.base.clock import FakeClock
from shoal.base.supervision import SupervisedLoops, stalled_loops


@asynccontextmanager
async def stalled_loop(name: str) -> AsyncIterator[None]:
    """A loop of this process that has been down for more than a minute, until the end of the block."""

    async def failing() -> None:
        raise RuntimeError("a loop of a test")

    clock = FakeClock()
    loops = SupervisedLoops(clock)
    loops.start(name, failing)
    try:
        await clock.advance(90)
        assert name in stalled_loops()
        yield
    finally:
        await loops.stop()
