"""Token buckets: never more than burst plus rate times time, and a bounded number of names."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.apiserver.flow.buckets import Buckets, TokenBucket


def test_a_bucket_gives_its_burst_at_once_and_then_its_rate() -> None:
    bucket = TokenBucket(rate=10, burst=5, now=0.0)
    assert [bucket.take(1, 0.0) for _ in range(6)] == [True] * 5 + [False]
    assert bucket.take(1, 0.1)
    assert not bucket.take(1, 0.1)


def test_what_was_refused_costs_nothing() -> None:
    bucket = TokenBucket(rate=1, burst=2, now=0.0)
    assert bucket.take(2, 0.0)
    assert not any(bucket.take(1, 0.5) for _ in range(100))
    assert bucket.take(1, 1.0)


def test_more_than_the_burst_takes_a_full_bucket_instead_of_waiting_for_ever() -> None:
    bucket = TokenBucket(rate=1, burst=3, now=0.0)
    assert bucket.take(10, 0.0)
    assert not bucket.take(10, 2.9)
    assert bucket.take(10, 3.0)


@settings(max_examples=200, deadline=None)
@given(
    st.floats(0.5, 50), st.floats(1, 50),
    st.lists(st.tuples(st.floats(0, 2), st.integers(1, 10)), max_size=60),
)  # fmt: skip
def test_over_any_span_no_more_than_burst_and_rate_is_taken(
    rate: float, burst: float, steps: list[tuple[float, int]]
) -> None:
    bucket = TokenBucket(rate, burst, 0.0)
    now, taken = 0.0, 0.0
    for pause, count in steps:
        now += pause
        if bucket.take(count, now):
            taken += min(count, burst)
        assert taken <= burst + rate * now + 1e-6


def test_one_name_does_not_use_up_anothers_tokens() -> None:
    buckets = Buckets(rate=1, burst=1)
    assert buckets.take("a", 1, 0.0) and not buckets.take("a", 1, 0.0)
    assert buckets.take("b", 1, 0.0)


def test_invented_names_neither_grow_memory_nor_free_users_over_their_rate() -> None:
    buckets = Buckets(rate=0.001, burst=1, limit=100)
    assert buckets.take("offender", 1, 0.0)
    for number in range(10_000):
        buckets.take(f"made-up-{number}", 1, 0.0)
    assert len(buckets) <= 100
    assert not buckets.take("offender", 1, 0.0)
