"""Token buckets: a rate that may be exceeded for a moment. Pure: the time is an argument."""

from __future__ import annotations

MAX_BUCKETS = 10_000


class TokenBucket:
    """Starts with ``burst`` tokens; gains ``rate`` per second."""

    __slots__ = ("_at", "_tokens", "burst", "rate")

    def __init__(self, rate: float, burst: float, now: float) -> None:
        self.rate = rate
        self.burst = burst
        self._tokens = burst
        self._at = now

    def take(self, count: float, now: float) -> bool:
        """Take ``count`` tokens if available; return whether they were. A count over the burst takes a full bucket."""
        tokens = min(self.burst, self._tokens + (now - self._at) * self.rate)
        self._at = now
        wanted = min(count, self.burst)
        if tokens < wanted:
            self._tokens = tokens
            return False
        self._tokens = tokens - wanted
        return True

    def full(self, now: float) -> bool:
        return self._tokens + (now - self._at) * self.rate >= self.burst


class Buckets:
    """One bucket per name. Full buckets carry no information, so they are dropped first."""

    __slots__ = ("_buckets", "_burst", "_limit", "_rate")

    def __init__(self, rate: float, burst: float, limit: int = MAX_BUCKETS) -> None:
        self._rate = rate
        self._burst = burst
        self._limit = limit
        self._buckets: dict[str, TokenBucket] = {}

    def __len__(self) -> int:
        return len(self._buckets)

    def take(self, name: str, count: float, now: float) -> bool:
        bucket = self._buckets.get(name)
        if bucket is None:
            if len(self._buckets) >= self._limit:
                self._shrink(now)
            bucket = self._buckets[name] = TokenBucket(self._rate, self._burst, now)
        return bucket.take(count, now)

    def _shrink(self, now: float) -> None:
        kept = [(name, bucket) for name, bucket in self._buckets.items() if not bucket.full(now)]
        # all in use: drop the newest, since a client that invents names by the thousand created those
        self._buckets = dict(kept[: self._limit // 2] if len(kept) >= self._limit else kept)
