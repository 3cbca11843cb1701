"""Marks: what tells two histories of a database apart that have the same numbers. Pure.

A database that was restored from a backup counts on from there, and may have passed every cursor before the agent that
holds it returns: its number says nothing then. So a cursor also carries a mark of the change it stands behind, a digest
of what that change was and when. Another history has another change there, or none.
"""

from __future__ import annotations

from bisect import bisect_right
from hashlib import blake2b

_KEPT = 4096  # sessions are seldom further behind, and whoever is has a cursor without a mark


def mark_of(number: int, created_at: int, cluster: str, shard: str, key: str) -> str:
    """Of one change."""
    said = f"{number} {created_at} {cluster} {shard} {key}".encode()
    return blake2b(said, digest_size=5, person=b"change").hexdigest()


class Marks:
    """The marks of the last changes of one database. Few of them are ever asked for, so they are made then."""

    __slots__ = ("_changes", "_numbers")

    def __init__(self) -> None:
        self._numbers: list[int] = []  # rising
        self._changes: list[tuple[int, int, str, str, str]] = []

    def put(self, number: int, created_at: int, cluster: str, shard: str, key: str) -> None:
        if self._numbers and number <= self._numbers[-1]:
            return
        self._numbers.append(number)
        self._changes.append((number, created_at, cluster, shard, key))
        if len(self._numbers) > 2 * _KEPT:
            del self._numbers[:_KEPT], self._changes[:_KEPT]

    def at(self, number: int) -> str:
        """Of the last change up to this number; empty when it is not known (any more)."""
        place = bisect_right(self._numbers, number)
        return mark_of(*self._changes[place - 1]) if place else ""
