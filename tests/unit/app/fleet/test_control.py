"""The periodic work of a control plane: it waits for its database, and any other failure is seen."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from shoal.app.fleet.control import sweep_forever
from shoal.base.clock import FakeClock
from shoal.base.metrics import PROCESS
from shoal.base.supervision import define_loop_metrics, supervise
from shoal.base.tasks import cancel_all
from shoal.errors import ServiceUnavailable


class Work:
    """Fails once in each of the given ways, one after the other."""

    def __init__(self, *failures: Exception) -> None:
        self.failures = list(failures)
        self.done = 0

    async def save_used(self) -> None:
        pass

    async def forget_old(self) -> None:
        pass

    async def sweep(self) -> None:
        if self.failures:
            raise self.failures.pop(0)
        self.done += 1


def restarts(name: str) -> float:
    return dict(define_loop_metrics(PROCESS).values()).get((name,), 0.0)


async def test_a_sweep_waits_for_its_database_and_a_fault_is_counted(clock: FakeClock) -> None:
    work: Any = Work(ServiceUnavailable("the database is away"), ServiceUnavailable("still"), RuntimeError("a fault"))
    before = restarts("test-sweep")
    loop = supervise(
        "test-sweep", lambda: sweep_forever(cast(Any, work), cast(Any, work), cast(Any, work), clock), clock=clock
    )
    running = asyncio.create_task(loop, name="sweeping")
    try:
        await clock.advance(8)
        assert (len(work.failures), restarts("test-sweep"), work.done) == (1, before, 0)
        await clock.advance(20)
        assert restarts("test-sweep") == before + 1 and work.done
    finally:
        await cancel_all(running)
