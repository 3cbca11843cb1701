"""The time of a database, as a process knows it: what several processes compare is stamped with one clock.

A process asks the database for its time along with other questions, and counts on by its own monotonic clock. The
answer was made between the question and its arrival, so an estimate that fits into that interval stays, and another one
moves to the nearer end of it.
"""

from __future__ import annotations

from shoal.base.clock import Clock

JUMP_S = 5.0  # a correction by more than this is a jump: other processes stamped rows with another time


class DatabaseTime:
    """SQLite has no clock of its own: without an answer of the database, it is that of the machine."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._ahead_s: float | None = None  # of the monotonic clock
        self.jumped_at = float("-inf")  # monotonic

    def now_ms(self) -> int:
        """Milliseconds since 1970."""
        if self._ahead_s is None:
            return round(self._clock.wall_s() * 1000)
        return round((self._clock.monotonic() + self._ahead_s) * 1000)

    def heard(self, answer_ms: int, asked_at: float) -> None:
        """The database was asked at a monotonic moment and has answered now."""
        arrived_at = self._clock.monotonic()
        least, most = answer_ms / 1000 - arrived_at, answer_ms / 1000 - asked_at
        before = self._ahead_s
        if before is None:
            self._ahead_s = (least + most) / 2
            return
        self._ahead_s = min(max(before, least), most)
        if abs(self._ahead_s - before) > JUMP_S:
            self.jumped_at = arrived_at
