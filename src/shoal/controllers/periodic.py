"""Periodic work that is not per object. Each round returns the delay before the next."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from shoal.base.clock import Clock
from shoal.base.logs import get_logger
from shoal.client import LostLease, TransportError
from shoal.errors import ApiError

_AFTER_FAILURE_S = 5.0

log = get_logger("controllers.rounds")


class PeriodicLoop:
    """Run by a manager. A failed round is logged and retried later."""

    def __init__(self, name: str, work: Callable[[], Awaitable[float]], *, clock: Clock) -> None:
        self.name = name
        self._work = work
        self._clock = clock
        self._stopping = False
        self._wake = asyncio.Event()

    def wake(self) -> None:
        """Start the next round now."""
        self._wake.set()

    def stop(self) -> None:
        self._stopping = True
        self._wake.set()

    async def run(self) -> None:
        while not self._stopping:
            self._wake.clear()
            await self._pause(await self._round())

    async def _round(self) -> float:
        try:
            return await self._work()
        except LostLease:
            raise
        except (ApiError, TransportError) as error:
            log.warning("periodic round failed", rounds=self.name, reason=str(error))
            return _AFTER_FAILURE_S

    async def _pause(self, at_most_s: float) -> None:
        if self._stopping:
            return
        timer = self._clock.call_later(at_most_s, self._wake.set)
        try:
            await self._wake.wait()
        finally:
            timer.cancel()
