"""The awaitable of a queued request: like a future, but calling it runs the waiter at once, so that it can be timed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from contextvars import Context
from typing import Any

CALLED, EXPIRED, GIVEN_UP = "called", "expired", "given up"


class Ticket:
    """Awaitable once, by a task or by an HTTP exchange. The result is True when it was called in time."""

    __slots__ = (
        "_asyncio_future_blocking", "_callback", "_context", "_loop", "_state", "flow", "schema", "since", "width",
    )  # fmt: skip

    def __init__(self, loop: asyncio.AbstractEventLoop, flow: str, schema: str, width: int, since: float) -> None:
        self.flow = flow
        self.schema = schema
        self.width = width
        self.since = since
        self._loop = loop
        self._state = ""
        self._callback: Callable[[Any], object] | None = None
        self._context: Context | None = None
        self._asyncio_future_blocking = False

    @property
    def over(self) -> bool:
        return self._state != ""

    def call(self) -> None:
        """Run the waiter now. Only for callbacks of the loop: a task cannot run inside another."""
        self._state = CALLED
        self._wake()

    def expire(self) -> None:
        """Wake the waiter with False: it has waited too long."""
        self._state = EXPIRED
        self._loop.call_soon(self._wake)

    def give_up(self) -> bool:
        """Cancel the wait; False when it had been called or had expired before."""
        if self._state in (CALLED, EXPIRED):
            return False
        self._state = GIVEN_UP
        return True

    def _wake(self) -> None:
        callback, self._callback = self._callback, None
        if callback is None:
            return
        if self._context is None:
            callback(self)
        else:
            self._context.run(callback, self)

    # -- what tasks and exchanges expect of a future ---------------------------------------------------------------

    def __await__(self) -> Generator[Ticket, None, bool]:
        if not self._state:
            self._asyncio_future_blocking = True
            yield self
        return self._state == CALLED

    def get_loop(self) -> asyncio.AbstractEventLoop:
        return self._loop

    def add_done_callback(self, callback: Callable[[Any], object], *, context: Context | None = None) -> None:
        self._callback, self._context = callback, context

    def remove_done_callback(self, callback: Callable[[Any], object]) -> int:
        found, self._callback = self._callback is not None, None
        return int(found)

    def result(self) -> None:
        if self._state == GIVEN_UP:
            raise asyncio.CancelledError

    def cancel(self, msg: object = None) -> bool:
        """Cancel the waiting task through the loop, as with any future."""
        if self._state:
            return False
        self._state = GIVEN_UP
        self._loop.call_soon(self._wake)
        return True
