"""Sums and quantiles of samples."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.control.rollout.samples import BOUNDS_MS, TrafficSample, added, quantile


def a_sample(
    at: int = 0, *, deployment: str = "d", region: str = "eu", times: dict[float, int] | None = None
) -> TrafficSample:
    latency = [0] * (len(BOUNDS_MS) + 1)
    for bound, count in (times or {}).items():
        latency[BOUNDS_MS.index(bound) if bound in BOUNDS_MS else -1] = count
    total = sum(latency)
    return TrafficSample(
        deployment=deployment, region=region, from_ms=at, until_ms=at + 5000, codes=(0, total, 0, 0, 0),
        latency=tuple(latency), latency_ms=total * 3.0,
    )  # fmt: skip


def test_samples_are_added_up_over_their_whole_time() -> None:
    total = added([a_sample(5000, times={10.0: 2}), a_sample(0, times={10.0: 1, 20.0: 4}, region="us")])
    assert (total.from_ms, total.until_ms, total.deployment, total.region) == (0, 10_000, "d", "")
    assert total.codes == (0, 7, 0, 0, 0) and total.latency_ms == 21.0
    assert total.latency[BOUNDS_MS.index(10.0)] == 3 and sum(total.latency) == 7
    assert added([]).codes == (0, 0, 0, 0, 0)


def test_a_quantile_is_interpolated_within_its_bucket() -> None:
    latency = a_sample(times={10.0: 50, 250.0: 50}).latency
    assert quantile(latency, 0.25) == pytest.approx(9.5)
    assert quantile(latency, 0.5) == 10.0
    assert quantile(latency, 0.75) == pytest.approx(235.0)
    assert quantile(latency, 1.0) == 250.0
    assert quantile([0] * len(latency), 0.5) == 0.0
    assert quantile(a_sample(times={1e9: 1}).latency, 0.5) == BOUNDS_MS[-1], "more is not known"


@given(st.lists(st.sampled_from(BOUNDS_MS), min_size=1, max_size=50), st.floats(0, 1), st.floats(0, 1))
def test_a_larger_share_takes_no_less_time(times: list[float], one: float, other: float) -> None:
    latency = a_sample(times={bound: times.count(bound) for bound in times}).latency
    assert quantile(latency, min(one, other)) <= quantile(latency, max(one, other))


def test_a_shift_of_a_fifth_is_seen() -> None:
    for before in (5.0, 12.0, 80.0, 310.0, 4200.0):
        after = before * 1.2

        def bucket(ms: float) -> int:
            return sum(bound <= ms for bound in BOUNDS_MS)

        assert bucket(after) > bucket(before)
