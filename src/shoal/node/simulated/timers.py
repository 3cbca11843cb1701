"""Many timers on one heap. Each key has one instant; setting it again moves it."""

from __future__ import annotations

import heapq
from collections.abc import Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)

_SLACK = 64  # a heap of few entries is not worth rebuilding


class Timers(Generic[K]):
    """Keys with the instant at which each is due. Moved and cancelled entries stay in the heap until they are at its
    top or outnumber the others."""

    def __init__(self) -> None:
        self._due: dict[K, float] = {}
        self._heap: list[tuple[float, int, K]] = []
        self._count = 0  # keeps entries of one instant in order, and keys from being compared

    def __len__(self) -> int:
        return len(self._due)

    def set(self, key: K, at: float) -> None:
        if self._due.get(key) == at:
            return
        self._due[key] = at
        self._count += 1
        heapq.heappush(self._heap, (at, self._count, key))
        if len(self._heap) > 2 * len(self._due) + _SLACK:
            self._rebuild()

    def cancel(self, key: K) -> None:
        self._due.pop(key, None)

    @property
    def next_at(self) -> float | None:
        """The earliest instant that is set."""
        heap, due = self._heap, self._due
        while heap and due.get(heap[0][2]) != heap[0][0]:
            heapq.heappop(heap)
        return heap[0][0] if heap else None

    def pop_due(self, now: float) -> list[K]:
        """Remove and return the keys that are due, earliest first."""
        found: list[K] = []
        heap, due = self._heap, self._due
        while heap and heap[0][0] <= now:
            at, _, key = heapq.heappop(heap)
            if due.get(key) == at:
                del due[key]
                found.append(key)
        return found

    def _rebuild(self) -> None:
        self._heap = [entry for entry in self._heap if self._due.get(entry[2]) == entry[0]]
        heapq.heapify(self._heap)
