"""Sets of completion indexes as sorted intervals, and their short form ``0-2,5``. Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

_Interval = tuple[int, int]  # first and last


@dataclass(frozen=True, slots=True)
class Indexes:
    """Sorted intervals with gaps between them: a job of 100 000 indexes needs few numbers while most succeed in
    order."""

    intervals: tuple[_Interval, ...] = ()

    def __contains__(self, index: int) -> bool:
        place = bisect_right(self.intervals, (index, float("inf")))
        return place > 0 and self.intervals[place - 1][1] >= index

    def __len__(self) -> int:
        return sum(last - first + 1 for first, last in self.intervals)

    def __iter__(self) -> Iterator[int]:
        for first, last in self.intervals:
            yield from range(first, last + 1)

    def __str__(self) -> str:
        return ",".join(_text(first, last) for first, last in self.intervals)

    def union(self, other: Indexes) -> Indexes:
        if not other.intervals:
            return self
        return Indexes(tuple(_merged(sorted((*self.intervals, *other.intervals)))))

    def with_indexes(self, indexes: Iterable[int]) -> Indexes:
        return self.union(Indexes(tuple(_merged(sorted({(index, index) for index in indexes})))))

    def overlap(self, other: Indexes) -> int:
        """How many indexes are in both."""
        total = mine = theirs = 0
        while mine < len(self.intervals) and theirs < len(other.intervals):
            (first, last), (start, end) = self.intervals[mine], other.intervals[theirs]
            total += max(0, min(last, end) - max(first, start) + 1)
            if last <= end:
                mine += 1
            if end <= last:
                theirs += 1
        return total

    def first_missing(self, count: int, below: int) -> list[int]:
        """The first ``count`` indexes below ``below`` that are not in the set."""
        found: list[int] = []
        candidate = 0
        for first, last in (*self.intervals, (below, below)):
            while candidate < min(first, below) and len(found) < count:
                found.append(candidate)
                candidate += 1
            candidate = max(candidate, last + 1)
        return found


EMPTY = Indexes()


def _merged(intervals: Iterable[_Interval]) -> Iterator[_Interval]:
    current: _Interval | None = None
    for first, last in intervals:
        if current is None:
            current = first, last
        elif first <= current[1] + 1:
            current = current[0], max(current[1], last)
        else:
            yield current
            current = first, last
    if current is not None:
        yield current


def _text(first: int, last: int) -> str:
    if first == last:
        return str(first)
    return f"{first},{last}" if last == first + 1 else f"{first}-{last}"


def parse_indexes(text: str | None, completions: int) -> Indexes:
    """The indexes below ``completions`` in a text; invalid parts are skipped."""
    intervals: list[_Interval] = []
    for part in text.split(",") if text else ():
        low, dash, high = part.partition("-")
        if not low.isdigit() or (dash and not high.isdigit()):
            continue
        first = int(low)
        last = min(int(high) if dash else first, completions - 1)
        if first <= last:
            intervals.append((first, last))
    return Indexes(tuple(_merged(sorted(intervals))))
