"""Tells readers of the current state that it may have changed, so that they need not look again and again."""

from __future__ import annotations

import asyncio

from shoal.base.clock import Clock


class ChangeSignal:
    """``number`` rises with every change."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._waiting: set[asyncio.Future[None]] = set()
        self.number = 0

    def notify(self) -> None:
        self.number += 1
        waiting, self._waiting = self._waiting, set()
        for one in waiting:
            _finish(one)

    async def wait(self, after: int, timeout_s: float) -> None:
        """Return at once when there was a change after the one numbered ``after``, else at the next one or after
        ``timeout_s``."""
        if self.number > after:
            return
        one: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.add(one)
        timer = self._clock.call_later(timeout_s, lambda: _finish(one))
        try:
            await one
        finally:
            timer.cancel()
            self._waiting.discard(one)


def _finish(one: asyncio.Future[None]) -> None:
    if not one.done():
        one.set_result(None)
