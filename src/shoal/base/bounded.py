"""A bounded queue whose name says what happens when it is full.

A closed queue still returns its items; then ``get`` raises ``Closed``, and so does ``put`` at once. One event loop
only; cancelling a waiting ``get`` loses no item.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Generic, TypeVar

from shoal.errors import ShoalError

T = TypeVar("T")


class Closed(ShoalError):
    """The queue was closed."""


class _Gate:
    """Wakes all waiters when the queue changes; each then checks again. Built on Event, which loses no wake-up
    when a waiter is cancelled."""

    __slots__ = ("_event",)

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def changed(self) -> None:
        self._event.set()
        self._event = asyncio.Event()

    async def wait(self) -> None:
        await self._event.wait()


def _checked(limit: int) -> int:
    if limit < 1:
        raise ValueError("the limit of a queue must be 1 or more")
    return limit


class DroppingQueue(Generic[T]):
    """First in, first out; ``put`` never waits: when it is full the oldest item is dropped and counted."""

    def __init__(self, limit: int) -> None:
        self._items: deque[T] = deque(maxlen=_checked(limit))
        self._gate = _Gate()
        self._closed = False
        self.dropped = 0

    def __len__(self) -> int:
        return len(self._items)

    def put(self, item: T) -> None:
        if self._closed:
            raise Closed("the queue is closed")
        if len(self._items) == self._items.maxlen:
            self.dropped += 1
        self._items.append(item)
        self._gate.changed()

    async def get(self) -> T:
        while not self._items:
            if self._closed:
                raise Closed("the queue is closed")
            await self._gate.wait()
        return self._items.popleft()

    def close(self) -> None:
        self._closed = True
        self._gate.changed()
