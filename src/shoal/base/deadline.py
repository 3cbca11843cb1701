"""Time limits that follow the injected clock, so that tests control when they expire.

``within`` limits a block of the running task. ``run_within`` is for code that no task runs, such as the API server's
request handlers: it gives the work a task of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from shoal.base.clock import Clock

T = TypeVar("T")


class Limit:
    """A running time limit."""

    __slots__ = ("_clock", "_scope", "_timer")

    def __init__(self, clock: Clock, scope: asyncio.Timeout, seconds: float) -> None:
        self._clock = clock
        self._scope = scope
        self._timer = clock.call_later(seconds, self._expire)

    def _expire(self) -> None:
        self._scope.reschedule(asyncio.get_running_loop().time())

    def restart(self, seconds: float) -> None:
        """Count ``seconds`` from now instead."""
        self._timer.cancel()
        self._timer = self._clock.call_later(seconds, self._expire)

    def stop(self) -> None:
        self._timer.cancel()


@asynccontextmanager
async def within(clock: Clock, seconds: float) -> AsyncIterator[Limit]:
    """Cancel the body after ``seconds`` of the clock's time and raise ``TimeoutError``."""
    async with asyncio.timeout(None) as scope:
        limit = Limit(clock, scope, seconds)
        try:
            yield limit
        finally:
            limit.stop()


async def run_within(clock: Clock, seconds: float, work: Coroutine[Any, Any, T], *, name: str) -> T:
    """The result of ``work``, run as a task of this name that is cancelled after ``seconds``: then ``TimeoutError``.

    Cancelling the caller cancels the task.
    """
    task = asyncio.get_running_loop().create_task(work, name=name)
    late = False

    def expire() -> None:
        nonlocal late
        late = True
        task.cancel()

    timer = clock.call_later(seconds, expire)
    try:
        return await task
    except asyncio.CancelledError:
        if late:
            raise TimeoutError from None
        raise
    finally:
        timer.cancel()
        task.cancel()


@asynccontextmanager
async def while_left(clock: Clock, left_s: Callable[[], float]) -> AsyncIterator[None]:
    """Cancel the body and raise ``TimeoutError`` when no time is left. The limit may move while the body runs: it is
    read again whenever it seems to be reached."""
    async with asyncio.timeout(None) as scope:
        timer = clock.call_later(left_s(), lambda: look())

        def look() -> None:
            nonlocal timer
            remaining_s = left_s()
            if remaining_s > 0:
                timer = clock.call_later(remaining_s, look)
            else:
                scope.reschedule(asyncio.get_running_loop().time())

        try:
            yield
        finally:
            timer.cancel()
