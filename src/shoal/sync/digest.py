"""A digest: 256 numbers that summarise a set of entries, so that two ends can find differences cheaply.

Every key belongs to a bucket; a bucket is the exclusive or of a hash of each of its entries. Adding, changing or
removing an entry costs two hashes at any size, and two digests are equal when the entries are (or once in 2^64).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import blake2b

BUCKETS = 256


def bucket_of(key: str) -> int:
    return blake2b(key.encode(), digest_size=1, person=b"bucket").digest()[0]


def _hash(key: str, stamp: str) -> int:
    return int.from_bytes(blake2b(f"{key}\0{stamp}".encode(), digest_size=8).digest(), "big")


class Digest:
    """Entries are key and **stamp*: a value that changes with the entry, such as a version."""

    __slots__ = ("_buckets", "_stamps")

    def __init__(self) -> None:
        self._stamps: dict[str, str] = {}
        self._buckets = [0] * BUCKETS

    def put(self, key: str, stamp: str) -> None:
        """Add the entry or change its stamp."""
        old = self._stamps.get(key)
        if old == stamp:
            return
        flipped = _hash(key, stamp) if old is None else _hash(key, stamp) ^ _hash(key, old)
        self._buckets[bucket_of(key)] ^= flipped
        self._stamps[key] = stamp

    def drop(self, key: str) -> None:
        """Remove the entry if it is there."""
        old = self._stamps.pop(key, None)
        if old is not None:
            self._buckets[bucket_of(key)] ^= _hash(key, old)

    def clear(self) -> None:
        self._stamps.clear()
        self._buckets = [0] * BUCKETS

    def stamp(self, key: str) -> str | None:
        return self._stamps.get(key)

    def keys_in(self, buckets: Iterable[int]) -> list[str]:
        """The keys of some buckets. Looks at every key: for when something differs, not for every check."""
        wanted = frozenset(buckets)
        return [key for key in self._stamps if bucket_of(key) in wanted]

    @property
    def buckets(self) -> list[int]:
        """The 256 numbers, as they are now."""
        return self._buckets.copy()

    def __len__(self) -> int:
        return len(self._stamps)

    def __contains__(self, key: str) -> bool:
        return key in self._stamps


def differing(ours: Sequence[int], theirs: Sequence[int]) -> list[int]:
    """The buckets that differ; all of them when the other side speaks of another number of buckets."""
    if len(theirs) != len(ours):
        return list(range(len(ours)))
    if list(theirs) == ours:  # as nearly always
        return []
    return [number for number, (one, other) in enumerate(zip(ours, theirs, strict=True)) if one != other]
