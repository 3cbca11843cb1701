"""Bounded queues whose name says what happens when they are full. There is no unbounded one.

    WaitingQueue      ``put`` waits: the producer is slowed to the consumer's pace
    DroppingQueue     drops and counts the oldest item: for data of which only the newest matter
    LatestByKey       one item per key, the newest; ``put`` of a new key waits: only superseded items are lost

All of them can be closed: queued items are still returned, then ``get`` raises ``Closed``, and so does ``put`` at
once. One event loop only; cancelling a waiting ``get`` or ``put`` loses no item.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Hashable
from typing import Generic, TypeVar

from shoal.errors import ShoalError

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)


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


class WaitingQueue(Generic[T]):
    """First in, first out; ``put`` waits while it is full."""

    def __init__(self, limit: int) -> None:
        self._limit = _checked(limit)
        self._items: deque[T] = deque()
        self._gate = _Gate()
        self._closed = False

    def __len__(self) -> int:
        return len(self._items)

    async def put(self, item: T) -> None:
        while len(self._items) >= self._limit and not self._closed:
            await self._gate.wait()
        if self._closed:
            raise Closed("the queue is closed")
        self._items.append(item)
        self._gate.changed()

    async def get(self) -> T:
        while not self._items:
            if self._closed:
                raise Closed("the queue is closed")
            await self._gate.wait()
        item = self._items.popleft()
        self._gate.changed()
        return item

    def close(self) -> None:
        self._closed = True
        self._gate.changed()


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


class LatestByKey(Generic[K, T]):
    """The newest item of each key, handed out in the order in which the keys first came. A key that is already queued
    is replaced in its place at once; a new key waits while the queue is full."""

    def __init__(self, limit: int) -> None:
        self._limit = _checked(limit)
        self._items: dict[K, T] = {}
        self._gate = _Gate()
        self._closed = False

    def __len__(self) -> int:
        return len(self._items)

    async def put(self, key: K, item: T) -> None:
        while key not in self._items and len(self._items) >= self._limit and not self._closed:
            await self._gate.wait()
        if self._closed:
            raise Closed("the queue is closed")
        self._items[key] = item
        self._gate.changed()

    async def get(self) -> tuple[K, T]:
        while not self._items:
            if self._closed:
                raise Closed("the queue is closed")
            await self._gate.wait()
        key = next(iter(self._items))
        item = self._items.pop(key)
        self._gate.changed()
        return key, item

    def close(self) -> None:
        self._closed = True
        self._gate.changed()
