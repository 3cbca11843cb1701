"""The timer that wakes a waiting stream."""

from __future__ import annotations

from collections.abc import Callable

from shoal.base.clock import Clock, Timer


class Alarm:
    """A timer in place of a time-out, which would cost a task per stream; left alone while its moment is the same."""

    __slots__ = ("_at", "_clock", "_callback", "_timer")

    def __init__(self, clock: Clock, callback: Callable[[], None]) -> None:
        self._clock = clock
        self._callback = callback
        self._at = float("inf")
        self._timer: Timer | None = None

    def set(self, at: float, now: float) -> None:
        if at == self._at:
            return
        self.cancel()
        if at != float("inf"):
            self._at, self._timer = at, self._clock.call_later(at - now, self._fire)

    def _fire(self) -> None:
        self._at, self._timer = float("inf"), None
        self._callback()

    def cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._at, self._timer = float("inf"), None
