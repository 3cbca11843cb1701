"""How fast streams may begin: a token bucket that gives each hello its turn, so that a fleet that comes back at once
does not take the control plane down again. Pure: ``now`` is given."""

from __future__ import annotations


class HelloLimiter:
    """``rate`` per second, ``burst`` at once; later streams get the time to wait."""

    def __init__(self, rate: float, burst: int) -> None:
        self._rate = rate
        self._burst = burst
        self._free_at = float("-inf")  # when the bucket is full again, less one burst

    def take(self, now: float, limit_s: float) -> float | None:
        """Seconds until the caller's turn; None, and no turn taken, when they are more than ``limit_s``."""
        begins = max(self._free_at, now - self._burst / self._rate)
        wait_s = max(0.0, begins + 1 / self._rate - now)
        if wait_s > limit_s:
            return None
        self._free_at = begins + 1 / self._rate
        return wait_s
