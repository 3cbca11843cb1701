"""Ordered sets of keys, small and large.

A resource has one ordered set of all its keys and one for every index string. Most of the latter hold a handful of
keys, where a plain list with bisection is smallest and fastest; a large one becomes a ``SortedList``, so that the cost
of a write does not grow with its size.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Sequence
from typing import ClassVar

from sortedcontainers import SortedList

from shoal.store.model import Key


class OrderedKeys:
    __slots__ = ("_keys",)

    list_limit: ClassVar[int] = 1024  # shifting this many pointers costs less than a SortedList's bookkeeping

    def __init__(self, ascending: Iterable[Key] = ()) -> None:
        """``ascending`` must be sorted and without duplicates."""
        keys = list(ascending)
        self._keys: list[Key] | SortedList[Key] = keys if len(keys) <= self.list_limit else SortedList(keys)

    def __len__(self) -> int:
        return len(self._keys)

    def add(self, key: Key) -> None:
        """Add a key, which must be absent."""
        keys = self._keys
        if not isinstance(keys, list):
            keys.add(key)
            return
        insort(keys, key)
        if len(keys) > self.list_limit:
            self._keys = SortedList(keys)

    def remove(self, key: Key) -> None:
        """Remove a key, which must be present."""
        keys = self._keys
        if isinstance(keys, list):
            del keys[bisect_left(keys, key)]
        else:
            keys.remove(key)

    def slice(self, start: int, stop: int) -> Sequence[Key]:
        return self._keys[start:stop]

    def bounds(self, resource: str, namespace: str | None, after: tuple[str, str] | None) -> tuple[int, int]:
        """Start and end positions of the keys of a namespace, or of all, after the key ``after``."""
        keys = self._keys
        if namespace is None:
            start, stop = 0, len(keys)
        else:
            start = self._left((resource, namespace))
            stop = self._left((resource, namespace + "\0"))
        if after is not None:
            probe = (resource, *after)
            beyond = bisect_right(keys, probe) if isinstance(keys, list) else keys.bisect_right(probe)
            start = min(max(start, beyond), stop)
        return start, stop

    def _left(self, probe: tuple[str, ...]) -> int:
        keys = self._keys
        return bisect_left(keys, probe) if isinstance(keys, list) else keys.bisect_left(probe)
