"""Remembering short texts."""

from __future__ import annotations

from shoal.base.bounded_cache import LONGEST, bounded_cache


def test_short_texts_are_worked_out_once_and_long_ones_every_time() -> None:
    seen: list[str] = []

    @bounded_cache(10)
    def size(text: str) -> int:
        seen.append(text)
        return len(text)

    short, long = "a" * LONGEST, "a" * (LONGEST + 1)
    for _ in range(3):
        assert (size(short), size(long)) == (LONGEST, LONGEST + 1)
    assert seen == [short, long, long, long]
