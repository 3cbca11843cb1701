"""Lists of completion indexes in their short form: ``0-2,5``."""

from __future__ import annotations

import re
from collections.abc import Iterator

_NUMBER = re.compile(r"[+-]?[0-9]{1,18}", re.ASCII)


def _index(text: str, completions: int) -> int:
    if not _NUMBER.fullmatch(text):
        raise ValueError(f'cannot convert string to integer for index: "{text}"')
    index = int(text)
    if index >= completions:
        raise ValueError(f'too large index: "{text}"')
    return index


def _interval(text: str, completions: int) -> tuple[int, int]:
    ends = text.split("-")
    if len(ends) > 2:
        raise ValueError(
            f'the fragment "{text}" violates the requirement that an index interval can have at most two parts '
            "separated by '-'"
        )
    low = _index(ends[0], completions)
    if len(ends) == 1:
        return low, low
    high = _index(ends[1], completions)
    if low >= high:
        raise ValueError(f"non-increasing order, previous: {low}, current: {high}")
    return low, high


def count_indexes(text: str, completions: int) -> int:
    """The number of indexes in the text; raises ``ValueError`` if it is malformed, unordered or beyond
    ``completions``."""
    total, last = 0, None
    for part in text.split(",") if text else ():
        low, high = _interval(part, completions)
        if last is not None and last >= low:
            raise ValueError(f"non-increasing order, previous: {last}, current: {low}")
        total += high - low + 1
        last = high
    return total


def _readable(text: str, completions: int) -> Iterator[tuple[int, int]]:
    for part in text.split(",") if text else ():
        try:
            yield _interval(part, completions)
        except ValueError:
            continue  # reported where the format is checked


def first_overlap(completed: str, failed: str, completions: int) -> int | None:
    """The first index in both lists."""
    done = list(_readable(completed, completions))
    both = (
        max(low, start)
        for start, end in _readable(failed, completions)
        for low, high in done
        if low <= end and start <= high
    )
    return next(both, None)
