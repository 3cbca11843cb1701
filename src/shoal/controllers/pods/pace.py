"""Pace: many small changes of pods lead to one reconcile, while a single change is handled at once."""

from __future__ import annotations

from typing import Final

from shoal.base.clock import Clock
from shoal.reconcile.keys import ObjectKey
from shoal.reconcile.queue import WorkQueue

WINDOW_S: Final = 0.2
_REMEMBERED: Final = 10_000


class Pace:
    """Adds keys to a queue; for changes that can wait, at most once per window."""

    def __init__(self, queue: WorkQueue[ObjectKey], clock: Clock, window_s: float = WINDOW_S) -> None:
        self._queue = queue
        self._clock = clock
        self._window_s = window_s
        self._last_s: dict[ObjectKey, float] = {}  # a time in the future: due then

    def soon(self, key: ObjectKey) -> None:
        """Queue the key: now if it was not queued within the window, else at the window's end."""
        now = self._clock.monotonic()
        last_s = self._last_s.get(key)
        if last_s is None or now >= last_s + self._window_s:
            if len(self._last_s) >= _REMEMBERED:
                self._last_s.clear()
            self._last_s[key] = now
            self._queue.add(key)
            return
        due_s = last_s
        if now >= last_s:
            due_s = self._last_s[key] = last_s + self._window_s
        # even if already due: an earlier delay may have replaced it in the queue
        self._queue.add_after(key, due_s - now)

    def now(self, key: ObjectKey) -> None:
        """Queue the key at once."""
        self._queue.add(key)
