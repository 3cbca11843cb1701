"""Changes that an agent has received and not yet applied: the newest entry of each key; no key is lost.

    offer ──▶ waiting ──take──▶ in work ──done──▶ forgotten
                 ▲                 │ failed
                 └──(when due)── retrying

A key that is offered again while it waits or retries keeps its place and gets the newer value; while it is in work, it
is taken again afterwards. Older versions are refused. Only keys that wait or are in work count against the limit: a
failing key does not block others. A full buffer refuses new keys (``offer`` returns False), and the caller stops
reading until there is room.

Pure: ``now`` is given, and ``next_due`` is the time of the next retry.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

from shoal.sync.versions import Version

T = TypeVar("T")

LIMIT = 1000


@dataclass(frozen=True, slots=True)
class BufferEntry(Generic[T]):
    """``since`` is when the oldest version that is still not applied came; ``attempts`` how often applying failed."""

    key: str
    version: Version
    value: T
    since: float
    attempts: int = 0


class KeyedBuffer(Generic[T]):
    def __init__(self, limit: int = LIMIT) -> None:
        if limit < 1:
            raise ValueError("the limit of a buffer must be 1 or more")
        self.limit = limit
        self._urgent: dict[str, BufferEntry[T]] = {}  # in the order they came
        self._waiting: dict[str, BufferEntry[T]] = {}
        self._working: dict[str, BufferEntry[T]] = {}
        self._after: dict[str, BufferEntry[T]] = {}  # came while the key was in work
        self._retrying: dict[str, tuple[float, BufferEntry[T]]] = {}  # when due

    def offer(self, key: str, version: Version, value: T, now: float, *, urgent: bool = False) -> bool:
        """Take the newer state of a key; False when there is no room for another key. Older versions count as taken."""
        known = self._newest(key)
        if known is not None and not version.is_after(known.version):
            return True
        fresh = BufferEntry(key, version, value, now if known is None else known.since)
        if key in self._working:
            self._after[key] = fresh
            return True
        queued = key in self._waiting or key in self._urgent
        if not queued and key not in self._retrying and self.full:
            return False
        self._retrying.pop(key, None)
        if urgent or key in self._urgent:
            self._waiting.pop(key, None)
            self._urgent[key] = fresh
        else:
            self._waiting[key] = fresh
        return True

    def take(self, now: float) -> BufferEntry[T] | None:
        """The next entry to work on: urgent ones first, then in the order they came, then retries that are due."""
        for queue in (self._urgent, self._waiting):
            if queue:
                key = next(iter(queue))
                return self._begin(queue.pop(key))
        due = next((key for key, (when, _) in self._retrying.items() if when <= now), None)
        return None if due is None else self._begin(self._retrying.pop(due)[1])

    def done(self, key: str) -> None:
        """The taken entry was applied. A newer entry of the key is queued next."""
        del self._working[key]
        after = self._after.pop(key, None)
        if after is not None:
            self._waiting[key] = after

    def failed(self, key: str, due: float) -> None:
        """The entry taken could not be applied: try again at ``due``, or at once with a newer entry."""
        entry = self._working.pop(key)
        after = self._after.pop(key, None)
        if after is not None:
            self._waiting[key] = after
        else:
            self._retrying[key] = (due, BufferEntry(key, entry.version, entry.value, entry.since, entry.attempts + 1))

    def forget(self, key: str) -> None:
        """Drop the waiting or retrying entry of a key; one in work continues."""
        for queue in (self._urgent, self._waiting, self._after):
            queue.pop(key, None)
        self._retrying.pop(key, None)

    def next_due(self) -> float | None:
        """When the next retry is due; None when nothing retries."""
        return min((when for when, _ in self._retrying.values()), default=None)

    def pending(self, key: str) -> BufferEntry[T] | None:
        """The newest entry of a key that is not applied yet."""
        return self._newest(key)

    def retrying(self) -> Iterator[tuple[float, BufferEntry[T]]]:
        """When each failing entry is tried again."""
        yield from self._retrying.values()

    @property
    def full(self) -> bool:
        return len(self._urgent) + len(self._waiting) + len(self._working) >= self.limit

    @property
    def depth(self) -> int:
        """Keys that wait or are in work."""
        return len(self._urgent) + len(self._waiting) + len(self._working)

    def oldest(self) -> float | None:
        """Since when the longest unapplied key is unapplied; None when all is applied."""
        entries = (*self._urgent.values(), *self._waiting.values(), *self._working.values(), *self._after.values())
        return min((entry.since for entry in (*entries, *(e for _, e in self._retrying.values()))), default=None)

    def __len__(self) -> int:
        """Keys that are not applied yet, failing ones included."""
        return self.depth + len(self._retrying)

    def _begin(self, entry: BufferEntry[T]) -> BufferEntry[T]:
        self._working[entry.key] = entry
        return entry

    def _newest(self, key: str) -> BufferEntry[T] | None:
        for queue in (self._after, self._working, self._urgent, self._waiting):
            if key in queue:
                return queue[key]
        return self._retrying[key][1] if key in self._retrying else None
