"""A cache for functions of texts that clients send.

``functools.lru_cache`` bounds the number of its entries, not their size: a few thousand texts of a megabyte each would
stay in memory for good. Long texts rarely repeat, so their results are not cached.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, wraps
from typing import TypeVar

LONGEST = 1024

T = TypeVar("T")


def bounded_cache(maxsize: int) -> Callable[[Callable[[str], T]], Callable[[str], T]]:
    """``lru_cache`` for functions of one text, of which only short ones are kept."""

    def wrap(function: Callable[[str], T]) -> Callable[[str], T]:
        kept = lru_cache(maxsize)(function)

        @wraps(function)
        def call(text: str) -> T:
            return kept(text) if len(text) <= LONGEST else function(text)

        return call

    return wrap
