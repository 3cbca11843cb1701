"""A transport that collects all writes of one event loop iteration and sends them in one piece.

Few bytes are held, and only until the end of the current iteration, so no write is delayed by other work.
Closing a connection first writes its held bytes.
"""

from __future__ import annotations

import asyncio
from typing import Any
from weakref import WeakKeyDictionary

MOST_BYTES = 8 << 10  # bytes held: a connection keeps buffers of the largest piece for ever

_held_writes: WeakKeyDictionary[asyncio.AbstractEventLoop, _HeldWrites] = WeakKeyDictionary()


class _HeldWrites:
    """The connections of a loop with unsent data: one callback writes all of them."""

    __slots__ = ("holding",)

    def __init__(self) -> None:
        self.holding: list[CoalescingTransport] = []

    def write(self) -> None:
        holding, self.holding = self.holding, []
        for one in holding:
            try:
                one.flush()
            except Exception:  # it is closed; the others are still written
                one.abort()


class CoalescingTransport:
    """Wraps a transport."""

    __slots__ = ("_held", "_loop", "_size", "_transport", "_writes")

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        writes = _held_writes.get(loop)
        if writes is None:
            writes = _held_writes[loop] = _HeldWrites()
        self._writes = writes
        self._held: list[bytes] = []
        self._size = 0

    def write(self, data: bytes) -> None:
        if not data:
            return
        if not self._held:
            if not self._writes.holding:
                self._loop.call_soon(self._writes.write)
            self._writes.holding.append(self)
        elif self._size + len(data) > MOST_BYTES:
            self._transport.write(b"".join(self._held))
            self._held, self._size = [], 0
        self._held.append(data)
        self._size += len(data)

    def flush(self) -> None:
        """Write the held bytes."""
        if self._held:
            held, self._held, self._size = self._held, [], 0
            self._transport.write(held[0] if len(held) == 1 else b"".join(held))

    def close(self) -> None:
        self.flush()
        self._transport.close()

    def abort(self) -> None:
        self._held, self._size = [], 0
        self._transport.abort()

    def is_closing(self) -> bool:
        return self._transport.is_closing()

    def pause_reading(self) -> None:
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        self._transport.resume_reading()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._transport.get_extra_info(name, default)
