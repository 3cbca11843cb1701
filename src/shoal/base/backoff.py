"""Retry delays: exponential with full jitter. Pure; randomness is a parameter.

Full jitter (a uniform pick between 0 and the exponential bound) keeps many clients that failed together from retrying
together.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from shoal.errors import ConfigError

_MAX_DOUBLINGS = 60  # 2**60 exceeds every sensible cap and does not overflow a float


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """The shape of a series of retries."""

    base_s: float = 0.1
    cap_s: float = 30.0
    floor_s: float = 0.0  # never less than this, for callers that must not spin

    def __post_init__(self) -> None:
        if self.base_s <= 0:
            raise ConfigError(f"backoff.base_s is {self.base_s}: use more than 0")
        if not 0 <= self.floor_s <= self.cap_s:
            raise ConfigError(f"backoff.floor_s is {self.floor_s}: use 0 to cap_s ({self.cap_s})")

    def bound_s(self, failures: int) -> float:
        """The longest wait after this many failures in a row; 0 before the first."""
        if failures <= 0:
            return 0.0
        return min(self.cap_s, self.base_s * 2.0 ** min(failures - 1, _MAX_DOUBLINGS))

    def delay_s(self, failures: int, random: Callable[[], float]) -> float:
        """The delay before the next try. ``random`` returns a number from 0 up to 1, like ``random.Random.random``."""
        bound_s = self.bound_s(failures)
        return max(self.floor_s, bound_s * random()) if bound_s else 0.0
