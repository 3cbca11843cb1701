"""A circuit breaker: stops calls to a failing dependency, then tests it with one call before it closes again.

    closed ──(threshold failures in a row)──▶ open ──(after open_s)──▶ half-open ──success──▶ closed
                                               ▲                          │
                                               └─────────failure──────────┘

It holds no timer and starts no task: the state is derived from the facts and the clock when asked.
"""

from __future__ import annotations

from enum import StrEnum
from types import TracebackType

from shoal.base.clock import Clock
from shoal.errors import ConfigError, ServiceUnavailable


class BreakerState(StrEnum):
    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half-open"


class Breaker:
    """Guards one dependency. Use as ``with breaker: await call()``; raises ``ServiceUnavailable`` while open."""

    def __init__(self, name: str, *, clock: Clock, threshold: int = 5, open_s: float = 10.0) -> None:
        if threshold < 1:
            raise ConfigError(f"breaker threshold of {name} is {threshold}: use 1 or more")
        self.name = name
        self._clock = clock
        self._threshold = threshold
        self._open_s = open_s
        self._failures = 0  # in a row
        self._opened_at: float | None = None  # monotonic; None while closed
        self._probing = False  # a half-open call is under way

    @property
    def state(self) -> BreakerState:
        if self._opened_at is None:
            return BreakerState.CLOSED
        waited_s = self._clock.monotonic() - self._opened_at
        return BreakerState.HALF_OPEN if waited_s >= self._open_s else BreakerState.OPEN

    @property
    def retry_after_s(self) -> float:
        """How long until a call may be let through; 0 when one may be now."""
        if self._opened_at is None:
            return 0.0
        return max(0.0, self._opened_at + self._open_s - self._clock.monotonic())

    def succeeded(self) -> None:
        """Close the breaker: the dependency is known to work from another source."""
        self._failures, self._opened_at = 0, None

    def __enter__(self) -> None:
        state = self.state
        if state is BreakerState.OPEN or (state is BreakerState.HALF_OPEN and self._probing):
            raise ServiceUnavailable(
                f"{self.name} is failing; calls to it are paused", retry_after_s=max(1, round(self.retry_after_s))
            )
        self._probing = state is BreakerState.HALF_OPEN

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self._failures, self._opened_at = 0, None
        elif issubclass(kind, Exception):
            self._failures += 1
            if self._probing or self._failures >= self._threshold:
                self._opened_at = self._clock.monotonic()
        # A cancelled call says nothing about the dependency: it neither opens nor closes.
        self._probing = False
