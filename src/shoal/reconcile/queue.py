"""The work queue: keys that need work, each given to one worker at a time, with delays and backoff.

A key that is added during its processing runs again afterwards; added twice before that, it runs once. Delays are
timers of the injected clock. Adding never waits: the queue is bounded by the number of objects.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

from shoal.base.backoff import Backoff
from shoal.base.bounded import Closed
from shoal.base.clock import Clock, Timer
from shoal.base.metrics import Distribution
from shoal.errors import ConfigError

K = TypeVar("K", bound=Hashable)


@dataclass(frozen=True, slots=True, kw_only=True)
class RateLimit:
    """Limits of retries: exponential backoff per key, and in total at most ``rate`` per second after a burst."""

    base_s: float = 0.005
    cap_s: float = 1000.0
    rate: float = 10.0  # 0: no total limit
    burst: int = 100

    def __post_init__(self) -> None:
        if self.rate < 0 or self.burst < 1:
            raise ConfigError("queue.rate must be 0 or more and queue.burst 1 or more")

    @property
    def backoff(self) -> Backoff:
        return Backoff(base_s=self.base_s, cap_s=self.cap_s)


class TokenBucket:
    """A token bucket of ``rate`` per second and a ``burst``, without timers."""

    __slots__ = ("_clock", "_rate", "_tokens", "_updated_s", "burst")

    def __init__(self, rate: float, burst: int, *, clock: Clock) -> None:
        self._rate = rate
        self.burst = burst
        self._tokens = float(burst)  # below 0: tokens reserved in the future
        self._clock = clock
        self._updated_s = clock.monotonic()

    def _refill(self) -> None:
        now = self._clock.monotonic()
        self._tokens = min(float(self.burst), self._tokens + (now - self._updated_s) * self._rate)
        self._updated_s = now

    def reserve_s(self) -> float:
        """Reserve the next token; return the delay until it is available."""
        self._refill()
        self._tokens -= 1.0
        return max(0.0, -self._tokens / self._rate)

    def take(self) -> bool:
        """Take a token if one is available now; return whether it was."""
        self._refill()
        if self._tokens < 1.0:
            return False
        self._tokens -= 1.0
        return True

    @property
    def full(self) -> bool:
        self._refill()
        return self._tokens >= self.burst


class WorkQueue(Generic[K]):
    """For one event loop.

    Invariants, true between calls:
      - ``_queue`` and ``_processing`` have no key in common;
      - every key of ``_queue`` is in ``_dirty``, exactly once in ``_queue``;
      - a key of ``_dirty`` is in ``_queue`` or in ``_processing``.
    """

    def __init__(self, *, clock: Clock, limit: RateLimit | None = None, waits: Distribution | None = None) -> None:
        """``waits`` observes the seconds from the adding of a key until a worker takes it."""
        limit = limit or RateLimit()
        self._waits = waits
        self._since: dict[K, float] = {}  # when a dirty key was added, if that is observed
        self._clock = clock
        self._backoff = limit.backoff
        self._bucket = TokenBucket(limit.rate, limit.burst, clock=clock) if limit.rate else None
        self._queue: deque[K] = deque()  # ready for a worker, in order
        self._dirty: set[K] = set()  # needs work; a key here and in _processing runs again after done()
        self._processing: set[K] = set()  # given to a worker and not done
        self._waiting: dict[K, tuple[float, Timer]] = {}  # delayed keys: their time and timer
        self._failures: dict[K, int] = {}  # failures since the last forget()
        self._changed = asyncio.Event()  # set when the queue is not empty or is closed, to wake consumers
        self._idle = asyncio.Event()  # set when nothing is queued or being processed
        self._idle.set()
        self._closed = False
        self._draining = False
        # facts for metrics
        self.adds = 0
        self.retries = 0

    def __len__(self) -> int:
        """The number of keys that are ready."""
        return len(self._queue)

    @property
    def waiting(self) -> int:
        """The number of keys with a running delay."""
        return len(self._waiting)

    def failures(self, key: K) -> int:
        return self._failures.get(key, 0)

    # producers

    def add(self, key: K) -> None:
        """Queue a key."""
        if self._closed or key in self._dirty:
            return
        self.adds += 1
        self._dirty.add(key)
        if self._waits is not None:
            self._since[key] = self._clock.monotonic()
        self._idle.clear()
        if key not in self._processing:
            self._queue.append(key)
            self._changed.set()

    def add_after(self, key: K, delay_s: float) -> None:
        """Queue a key in ``delay_s``. Of several delays the one that ends first counts."""
        if self._closed:
            return
        if delay_s <= 0:
            self.add(key)
            return
        due_s = self._clock.monotonic() + delay_s
        present = self._waiting.get(key)
        if present is not None:
            if present[0] <= due_s:
                return
            present[1].cancel()
        self._waiting[key] = due_s, self._clock.call_later(delay_s, lambda: self._due(key))

    def _due(self, key: K) -> None:
        self._waiting.pop(key, None)
        self.add(key)

    def add_rate_limited(self, key: K) -> float:
        """Queue a failed key after its backoff; return the delay."""
        failures = self._failures[key] = self._failures.get(key, 0) + 1
        self.retries += 1
        delay_s = self._backoff.bound_s(failures)
        if self._bucket is not None:
            delay_s = max(delay_s, self._bucket.reserve_s())
        self.add_after(key, delay_s)
        return delay_s

    def forget(self, key: K) -> None:
        """Reset the backoff of a key that succeeded."""
        self._failures.pop(key, None)

    # consumers

    async def get(self) -> K:
        """Wait for the next key; call ``done`` with it. Raises ``Closed`` when the queue is shut down and empty."""
        while not self._queue:
            if self._closed:
                raise Closed("the queue is shut down")
            self._changed.clear()
            await self._changed.wait()
        # no await from here on: a cancelled consumer has taken nothing
        return self._take_first()

    def take(self, wanted: Callable[[K], bool]) -> K | None:
        """The next key if there is one and it is ``wanted``; call ``done`` with it. For consumers that batch keys."""
        if not self._queue or not wanted(self._queue[0]):
            return None
        return self._take_first()

    def _take_first(self) -> K:
        key = self._queue.popleft()
        self._dirty.discard(key)
        self._processing.add(key)
        if self._waits is not None:
            self._waits.observe(self._clock.monotonic() - self._since.pop(key))
        return key

    def done(self, key: K) -> None:
        """Mark a key as processed; queue it again if it was added meanwhile."""
        self._processing.discard(key)
        if key in self._dirty:
            if self._closed and not self._draining:
                self._dirty.discard(key)
                self._since.pop(key, None)
            else:
                self._queue.append(key)
                self._changed.set()
        if not self._queue and not self._processing:
            self._idle.set()

    # shutdown

    def shut_down(self, *, drain: bool = False) -> None:
        """Accept no more keys. With ``drain`` queued keys are still processed; without, only the keys in work finish.
        Delayed keys are dropped either way."""
        self._closed, self._draining = True, drain
        for _, timer in self._waiting.values():
            timer.cancel()
        self._waiting.clear()
        if not drain:
            self._dirty.difference_update(self._queue)
            self._queue.clear()
            self._since.clear()
        if not self._queue and not self._processing:
            self._idle.set()
        self._changed.set()

    async def idle(self) -> None:
        """Return when nothing is queued or being processed."""
        await self._idle.wait()
