"""Delivers the events of a runtime to all listeners. A slow listener loses the oldest events and relists later."""

from __future__ import annotations

from collections.abc import AsyncIterator

from shoal.base.bounded import Closed, DroppingQueue
from shoal.node.runtime.model import RuntimeEvent

_EVENTS = 1024


class EventStreams:
    """One queue per listener."""

    def __init__(self) -> None:
        self._streams: list[DroppingQueue[RuntimeEvent]] = []

    def listen(self) -> AsyncIterator[RuntimeEvent]:
        """Every event from now on, until ``close``."""
        stream: DroppingQueue[RuntimeEvent] = DroppingQueue(_EVENTS)
        self._streams.append(stream)
        return self._follow(stream)

    def publish(self, event: RuntimeEvent) -> None:
        for stream in self._streams:
            stream.put(event)

    def close(self) -> None:
        for stream in self._streams:
            stream.close()
        self._streams.clear()

    async def _follow(self, stream: DroppingQueue[RuntimeEvent]) -> AsyncIterator[RuntimeEvent]:
        try:
            while True:
                yield await stream.get()
        except Closed:
            return
        finally:
            if stream in self._streams:
                self._streams.remove(stream)
