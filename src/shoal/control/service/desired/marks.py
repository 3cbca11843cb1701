"""Marks: digests of changes that tell two histories of a database apart when their numbers are the same. Pure.

A database that was restored from a backup continues to count from there. It may have passed an agent's cursor before
the agent returns, and then the number of the cursor proves nothing. So a cursor also carries a mark: a digest of its
last change and the time of that change. Another history has another change at that number, or none.
"""

from __future__ import annotations

from bisect import bisect_right
from hashlib import blake2b
from typing import NamedTuple

_KEPT = 4096  # sessions are seldom further behind; those that are get a cursor without a mark


class MarkedChange(NamedTuple):
    """What of a change its mark is made of."""

    number: int
    created_at: int
    cluster_id: str
    shard: str
    key: str

    @property
    def mark(self) -> str:
        said = f"{self.number} {self.created_at} {self.cluster_id} {self.shard} {self.key}".encode()
        return blake2b(said, digest_size=5, person=b"change").hexdigest()


class Marks:
    """The marks of the last changes of one database. Few of them are ever asked for, so they are made then."""

    __slots__ = ("_changes", "_keep", "_numbers")

    def __init__(self, *, keep: int = _KEPT) -> None:
        self._keep = keep
        self._numbers: list[int] = []  # rising
        self._changes: list[MarkedChange] = []

    def put(self, change: MarkedChange) -> None:
        if self._numbers and change.number <= self._numbers[-1]:
            return
        self._numbers.append(change.number)
        self._changes.append(change)
        if len(self._numbers) > 2 * self._keep:
            del self._numbers[: self._keep], self._changes[: self._keep]

    def at(self, number: int) -> str:
        """Of the last change up to this number; empty when it is not known (any more)."""
        place = bisect_right(self._numbers, number)
        return self._changes[place - 1].mark if place else ""
