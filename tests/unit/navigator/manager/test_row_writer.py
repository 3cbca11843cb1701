"""The writer of rows: an unexpected error fails what was being written, and the rest is written."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from shoal.base.clock import FakeClock
from shoal.base.metrics import Metrics
from shoal.base.supervision import SupervisedLoops
from shoal.errors import ServiceUnavailable
from shoal.navigator.manager.index import Index
from shoal.navigator.manager.metrics import ManagerMetrics
from shoal.navigator.manager.registry import ClaimRegistry
from shoal.navigator.manager.row_writer import RowWriter
from shoal.navigator.manager.rows import ClusterRemoved


class Rows:
    """Breaks once, in a way that nobody has thought of."""

    def __init__(self) -> None:
        self.breaks = True
        self.written: list[Any] = []

    async def commit(self, writes: list[Any]) -> None:
        if self.breaks:
            self.breaks = False
            raise RuntimeError("a fault of the driver")
        self.written += writes


async def test_an_unexpected_error_fails_what_was_being_written_and_the_writer_goes_on(clock: FakeClock) -> None:
    rows = Rows()
    writer = RowWriter(
        cast(Any, rows), Index(), ClaimRegistry(grace_s=1.0), ManagerMetrics(Metrics()), clock=clock
    )  # fmt: skip
    loops = SupervisedLoops(clock)
    loops.start("navigator-row-writer", writer.run)
    try:
        with pytest.raises(ServiceUnavailable, match="could not be written"):
            async with asyncio.timeout(5):
                await writer.write(ClusterRemoved("lost", 1))
        later = asyncio.create_task(writer.write(ClusterRemoved("later", 2)))
        await clock.advance(1)
        async with asyncio.timeout(5):
            await later
        assert rows.written == [ClusterRemoved("later", 2)]
    finally:
        await loops.stop()
