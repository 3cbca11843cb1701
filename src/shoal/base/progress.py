"""Notices clients that do not read what was written for them."""

from __future__ import annotations


class Progress:
    """Whether a client reads from its answer, judged by what waits to be sent."""

    __slots__ = ("_since", "_waiting")

    def __init__(self) -> None:
        self._since = 0.0  # when the client last read
        self._waiting = 0  # bytes

    def restart(self) -> None:
        self._waiting = 0

    def stalled_s(self, waiting: int, now: float) -> float:
        """For how long the client has read nothing. Called every now and then."""
        if waiting == 0 or waiting != self._waiting:
            self._since = now
        self._waiting = waiting
        return now - self._since
