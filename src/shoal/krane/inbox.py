"""Keys that a controller has received and not applied yet: a keyed buffer that tasks can wait on.

``put`` waits while there is no room for another key, which stops the reading of the stream; ``take`` waits for a key
that is not in work. Nothing is dropped and nothing polls: a failed key wakes ``take`` when it is due.
"""

from __future__ import annotations

import asyncio

from shoal.base.clock import Clock
from shoal.krane.protocol import version_of
from shoal.sync.buffer import LIMIT, BufferEntry, KeyedBuffer
from shoal.wire.fleet.v1 import cluster_pb as pb

_LEAST_WAIT_S = 0.001  # a rounding error must not make the taker spin until a moment that never quite comes


class Inbox:
    def __init__(self, *, clock: Clock, limit: int = LIMIT) -> None:
        self._clock = clock
        self._buffer: KeyedBuffer[pb.Item] = KeyedBuffer(limit)
        self._changed = asyncio.Event()

    async def put(self, item: pb.Item) -> None:
        """Returns when the item is in the buffer; an older one than is there is left out."""
        while not self.offer(item):
            await self._changed.wait()

    def offer(self, item: pb.Item) -> bool:
        """Like ``put`` without waiting; False when there is no room."""
        taken = self._buffer.offer(item.key, version_of(item), item, self._clock.monotonic(), urgent=item.by_user)
        if taken:
            self._wake()
        return taken

    async def take(self) -> BufferEntry[pb.Item]:
        while (entry := self._buffer.take(self._clock.monotonic())) is None:
            await self._wait_for_more()
        return entry

    def done(self, key: str) -> None:
        self._buffer.done(key)
        self._wake()

    def failed(self, key: str, delay_s: float) -> None:
        self._buffer.failed(key, self._clock.monotonic() + delay_s)
        self._wake()

    def pending(self, key: str) -> BufferEntry[pb.Item] | None:
        """The newest state of the key that is not applied."""
        return self._buffer.pending(key)

    def retrying(self) -> list[tuple[float, BufferEntry[pb.Item]]]:
        """Failing entries and in how many seconds each is tried again."""
        now = self._clock.monotonic()
        return [(max(0.0, due - now), entry) for due, entry in self._buffer.retrying()]

    @property
    def depth(self) -> int:
        return self._buffer.depth

    @property
    def lag_s(self) -> float:
        """How long the oldest key that is not applied has waited; 0 when all is applied."""
        oldest = self._buffer.oldest()
        return 0.0 if oldest is None else max(0.0, self._clock.monotonic() - oldest)

    def __len__(self) -> int:
        return len(self._buffer)

    async def _wait_for_more(self) -> None:
        due = self._buffer.next_due()
        changed = self._changed
        left_s = None if due is None else max(_LEAST_WAIT_S, due - self._clock.monotonic())
        timer = None if left_s is None else self._clock.call_later(left_s, changed.set)
        try:
            await changed.wait()
        finally:
            if timer is not None:
                timer.cancel()
            if changed is self._changed and changed.is_set():
                self._changed = asyncio.Event()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()
