"""A lock for coroutines that are not tasks: it passes on however a waiter ends.

``asyncio.Lock`` passes its turn on only when a waiter is cancelled. Handlers of requests are closed instead
(``GeneratorExit``): with it, a handler that was closed after it was woken and before it ran took the turn along, and
all others waited for ever.
"""

from __future__ import annotations

import asyncio
from collections import deque
from types import TracebackType


class FairLock:
    """Held by one, passed on in the order of arrival."""

    __slots__ = ("__weakref__", "_held", "_waiting")

    def __init__(self) -> None:
        self._held = False
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def __aenter__(self) -> None:
        if not self._held:
            self._held = True
            return
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            await turn
        except BaseException:
            if turn.done() and not turn.cancelled():
                self._pass_on()
            elif turn in self._waiting:
                self._waiting.remove(turn)
            raise

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pass_on()

    def _pass_on(self) -> None:
        """Give the lock to the next waiter, who holds it from now on even if it runs later."""
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self._held = False
