"""The work queue: keys that need work, each handed to one worker at a time, with waiting and backing off.

A key that is added while it is being worked on runs again afterwards; added twice before that, it runs once. Delays
are timers of the injected clock. Adding never waits: the queue is bounded by the number of objects.
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
from shoal.errors import ConfigError

K = TypeVar("K", bound=Hashable)


@dataclass(frozen=True, slots=True, kw_only=True)
class RateLimit:
    """How fast failures come back: per key exponentially, and all together at most ``rate`` a second after a burst."""

    base_s: float = 0.005
    cap_s: float = 1000.0
    rate: float = 10.0  # 0: no common limit
    burst: int = 100

    def __post_init__(self) -> None:
        if self.rate < 0 or self.burst < 1:
            raise ConfigError("queue.rate must be 0 or more and queue.burst 1 or more")

    @property
    def backoff(self) -> Backoff:
        return Backoff(base_s=self.base_s, cap_s=self.cap_s)


class TokenBucket:
    """Hands out moments, at most ``rate`` a second after a first ``burst``; holds no timer."""

    __slots__ = ("_clock", "_rate", "_tokens", "_updated_s", "burst")

    def __init__(self, rate: float, burst: int, *, clock: Clock) -> None:
        self._rate = rate
        self.burst = burst
        self._tokens = float(burst)  # below 0: moments in the future that are already given away
        self._clock = clock
        self._updated_s = clock.monotonic()

    def _refill(self) -> None:
        now = self._clock.monotonic()
        self._tokens = min(float(self.burst), self._tokens + (now - self._updated_s) * self._rate)
        self._updated_s = now

    def reserve_s(self) -> float:
        """Take the next moment; returns how long until then."""
        self._refill()
        self._tokens -= 1.0
        return max(0.0, -self._tokens / self._rate)

    def take(self) -> bool:
        """Take a moment only if it is now."""
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

    Invariants, true whenever control is with someone else:
      - ``_queue`` and ``_processing`` have no key in common;
      - every key of ``_queue`` is in ``_dirty``, exactly once in ``_queue``;
      - a key of ``_dirty`` is in ``_queue`` or in ``_processing``.
    """

    def __init__(self, *, clock: Clock, limit: RateLimit | None = None) -> None:
        limit = limit or RateLimit()
        self._clock = clock
        self._backoff = limit.backoff
        self._bucket = TokenBucket(limit.rate, limit.burst, clock=clock) if limit.rate else None
        self._queue: deque[K] = deque()  # ready to be handed out, in order
        self._dirty: set[K] = set()  # needs work; a key here and in _processing runs again after done()
        self._processing: set[K] = set()  # handed out and not done
        self._waiting: dict[K, tuple[float, Timer]] = {}  # delayed keys: when, and what will add them
        self._failures: dict[K, int] = {}  # since the last forget()
        self._changed = asyncio.Event()  # the queue is not empty, or closed: consumers look again
        self._idle = asyncio.Event()  # nothing is queued or being worked on
        self._idle.set()
        self._closed = False
        self._draining = False
        # facts for metrics
        self.adds = 0
        self.retries = 0

    def __len__(self) -> int:
        """Keys that are ready."""
        return len(self._queue)

    @property
    def waiting(self) -> int:
        """Keys that were added with a delay that is not over."""
        return len(self._waiting)

    def failures(self, key: K) -> int:
        return self._failures.get(key, 0)

    # producers

    def add(self, key: K) -> None:
        """The key needs work."""
        if self._closed or key in self._dirty:
            return
        self.adds += 1
        self._dirty.add(key)
        self._idle.clear()
        if key not in self._processing:
            self._queue.append(key)
            self._changed.set()

    def add_after(self, key: K, delay_s: float) -> None:
        """The key needs work in ``delay_s``. Of several delays the one that ends first counts."""
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
        """The key failed: again, later each time. Returns the delay."""
        failures = self._failures[key] = self._failures.get(key, 0) + 1
        self.retries += 1
        delay_s = self._backoff.bound_s(failures)
        if self._bucket is not None:
            delay_s = max(delay_s, self._bucket.reserve_s())
        self.add_after(key, delay_s)
        return delay_s

    def forget(self, key: K) -> None:
        """The key succeeded: its next failure is a first one."""
        self._failures.pop(key, None)

    # consumers

    async def get(self) -> K:
        """The next key; call ``done`` with it. ``Closed`` when the queue is shut down and has none left."""
        while not self._queue:
            if self._closed:
                raise Closed("the queue is shut down")
            self._changed.clear()
            await self._changed.wait()
        # no await from here to the end: a consumer that is cancelled has taken nothing
        key = self._queue.popleft()
        self._dirty.discard(key)
        self._processing.add(key)
        return key

    def take(self, wanted: Callable[[K], bool]) -> K | None:
        """The next key if there is one and it is ``wanted``; call ``done`` with it. For those who work on several."""
        if not self._queue or not wanted(self._queue[0]):
            return None
        key = self._queue.popleft()
        self._dirty.discard(key)
        self._processing.add(key)
        return key

    def done(self, key: K) -> None:
        """The key has been worked on; it is queued again if it was added meanwhile."""
        self._processing.discard(key)
        if key in self._dirty:
            if self._closed and not self._draining:
                self._dirty.discard(key)
            else:
                self._queue.append(key)
                self._changed.set()
        if not self._queue and not self._processing:
            self._idle.set()

    # the end

    def shut_down(self, *, drain: bool = False) -> None:
        """Take nothing more. With ``drain`` what is queued is still handed out; without, only what is being worked on
        is finished. Delayed keys are dropped either way."""
        self._closed, self._draining = True, drain
        for _, timer in self._waiting.values():
            timer.cancel()
        self._waiting.clear()
        if not drain:
            self._dirty.difference_update(self._queue)
            self._queue.clear()
        if not self._queue and not self._processing:
            self._idle.set()
        self._changed.set()

    async def idle(self) -> None:
        """Return when nothing is queued and nothing is being worked on."""
        await self._idle.wait()
