"""Pace: many small changes of pods make one reconcile, while a single change is acted upon at once."""

from __future__ import annotations

from typing import Final

from shoal.base.clock import Clock
from shoal.reconcile.keys import ObjectKey
from shoal.reconcile.queue import WorkQueue

WINDOW_S: Final = 0.2
_REMEMBERED: Final = 10_000


class Pace:
    """Adds keys to a queue, at most once per window for changes that can wait."""

    def __init__(self, queue: WorkQueue[ObjectKey], clock: Clock, window_s: float = WINDOW_S) -> None:
        self._queue = queue
        self._clock = clock
        self._window_s = window_s
        self._last_s: dict[ObjectKey, float] = {}  # in the future: it is due then

    def soon(self, key: ObjectKey) -> None:
        """The key needs work: now if nothing was added within the window, else at its end."""
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
        # also when it is due already: a delay that ended earlier may have taken its place in the queue
        self._queue.add_after(key, due_s - now)

    def now(self, key: ObjectKey) -> None:
        """The key needs work at once."""
        self._queue.add(key)
