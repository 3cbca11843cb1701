"""How many streams may be open."""

from __future__ import annotations

import pytest

from shoal.base.clock import FakeClock
from shoal.base.metrics import Metrics
from shoal.errors import ServiceUnavailable, TooManyRequests
from shoal.rest.streams import RestStreams


async def _authenticate(_token: str) -> object:
    return object()


def streams(**limits: int) -> RestStreams:
    gauge = Metrics().gauge("open", "open streams", ("kind",))
    return RestStreams(_authenticate, FakeClock(), gauge, owner="the test", **limits)


def test_one_token_does_not_take_all_streams() -> None:
    open_ones = streams(most=5, most_per_token=2)
    for _ in range(2):
        open_ones.enter("greedy")
    with pytest.raises(TooManyRequests, match="2 of 2 streams of this token are open; end one"):
        open_ones.enter("greedy")
    open_ones.enter("other")
    open_ones.leave("greedy")
    open_ones.enter("greedy")


def test_all_streams_together_have_a_limit_and_leave_nothing_behind() -> None:
    open_ones = streams(most=2, most_per_token=2)
    for token in ("a", "b"):
        open_ones.enter(token)
    with pytest.raises(TooManyRequests, match="limit reached: 2 streams are open"):
        open_ones.enter("c")
    for token in ("a", "b"):
        open_ones.leave(token)
    for token in ("c", "c"):
        open_ones.enter(token)
    open_ones.end()
    with pytest.raises(ServiceUnavailable):
        open_ones.enter("d")
