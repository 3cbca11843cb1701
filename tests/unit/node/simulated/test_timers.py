"""Timers of simulated pods."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.node.simulated.timers import Timers


@given(st.lists(st.tuples(st.sampled_from("abcdef"), st.none() | st.integers(0, 50)), max_size=200), st.integers(0, 60))
@settings(max_examples=100)
def test_timers_hand_out_each_key_once_at_its_last_instant(steps: list[tuple[str, int | None]], now: int) -> None:
    timers: Timers[str] = Timers()
    expected: dict[str, int] = {}
    for key, at in steps:
        if at is None:
            timers.cancel(key)
            expected.pop(key, None)
        else:
            timers.set(key, at)
            expected[key] = at
    assert len(timers) == len(expected)
    assert timers.next_at == min(expected.values(), default=None)
    found = timers.pop_due(now)
    assert sorted(found) == sorted(key for key, at in expected.items() if at <= now)
    assert [expected[key] for key in found] == sorted(expected[key] for key in found)
