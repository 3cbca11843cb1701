"""What is written in one turn of the loop leaves in one piece, in order, and nothing is left behind."""

from __future__ import annotations

import asyncio
from typing import cast

from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.base import coalescing
from shoal.base.coalescing import CoalescingTransport


class Wire:
    def __init__(self) -> None:
        self.pieces: list[bytes] = []
        self.ended = ""

    def write(self, data: bytes) -> None:
        assert not self.ended
        self.pieces.append(data)

    def close(self) -> None:
        self.ended = "closed"

    def abort(self) -> None:
        self.ended = "aborted"

    def is_closing(self) -> bool:
        return bool(self.ended)


def connection() -> tuple[Wire, CoalescingTransport]:
    wire = Wire()
    return wire, CoalescingTransport(cast(asyncio.Transport, wire), asyncio.get_running_loop())


async def test_the_parts_of_an_answer_leave_together_and_those_of_the_next_turn_after_them() -> None:
    (one, first), (other, second) = connection(), connection()
    for part in (b"head", b"", b"body"):
        first.write(part)
    second.write(b"else")
    assert one.pieces == other.pieces == []
    await asyncio.sleep(0)
    assert (one.pieces, other.pieces) == ([b"headbody"], [b"else"])
    first.write(b"more")
    await asyncio.sleep(0)
    assert one.pieces == [b"headbody", b"more"]


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(0, 3 * coalescing.MOST_BYTES), max_size=12))
async def test_much_leaves_at_once_and_little_is_held_whatever_the_sizes(sizes: list[int]) -> None:
    wire, written = connection()
    for number, size in enumerate(sizes):
        written.write(bytes([number]) * size)
        left = sum(sizes[: number + 1]) - sum(map(len, wire.pieces))
        assert left <= max(coalescing.MOST_BYTES, size)
    await asyncio.sleep(0)
    assert b"".join(wire.pieces) == b"".join(bytes([number]) * size for number, size in enumerate(sizes))


async def test_closing_writes_what_is_held_and_aborting_does_not() -> None:
    (one, first), (other, second) = connection(), connection()
    first.write(b"last words")
    second.write(b"last words")
    first.close()
    second.abort()
    assert (one.pieces, one.ended, other.pieces, other.ended) == ([b"last words"], "closed", [], "aborted")
    assert first.is_closing()
    await asyncio.sleep(0)
    assert len(one.pieces) == 1 and not other.pieces
