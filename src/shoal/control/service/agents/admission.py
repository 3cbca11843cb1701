"""Limits the rate at which streams begin, with a token bucket, so that a whole fleet that reconnects at once does not
overload the control plane. Pure: ``now`` is given.
"""

from __future__ import annotations


class HelloLimiter:
    """``rate`` per second, ``burst`` at once; later streams get the time to wait."""

    def __init__(self, rate: float, burst: int) -> None:
        self._rate = rate
        self._burst = burst
        self._free_at = float("-inf")  # when the bucket is full again, less one burst

    def take(self, now: float, limit_s: float) -> float | None:
        """Seconds to wait before the stream may begin; None when that is more than ``limit_s``."""
        begins = max(self._free_at, now - self._burst / self._rate)
        wait_s = max(0.0, begins + 1 / self._rate - now)
        if wait_s > limit_s:
            return None
        self._free_at = begins + 1 / self._rate
        return wait_s
