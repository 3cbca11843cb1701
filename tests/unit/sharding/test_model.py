"""Slots as arcs of the ring."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.sharding.model import SLOTS, arcs


@settings(max_examples=30, deadline=None)
@given(owned=st.sets(st.integers(0, SLOTS - 1)))
def test_arcs_tile_the_ring_exactly(owned):
    mine, theirs = arcs(owned), arcs(set(range(SLOTS)) - owned)
    ends = sorted((each.start, each.end) for each in (*mine, *theirs))
    assert ends[0][0] == 0
    assert ends[-1][1] == 2**32 - 1
    assert all(second[0] == first[1] + 1 for first, second in zip(ends, ends[1:], strict=False))
    assert len(mine) == sum(slot - 1 not in owned for slot in owned)
