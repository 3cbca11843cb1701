"""Guarantees of the circuit breaker."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from shoal.base.breaker import Breaker, BreakerState
from shoal.base.clock import FakeClock
from shoal.errors import ServiceUnavailable


def fail(breaker: Breaker, error: type[BaseException] = OSError) -> None:
    with suppress(error), breaker:
        raise error


def succeed(breaker: Breaker) -> None:
    with breaker:
        pass


def opened(clock: FakeClock) -> Breaker:
    breaker = Breaker("db", clock=clock, threshold=3, open_s=10)
    for _ in range(3):
        fail(breaker)
    return breaker


def test_it_opens_after_the_threshold_of_failures_in_a_row_and_then_refuses_calls(clock: FakeClock) -> None:
    breaker = Breaker("db", clock=clock, threshold=3, open_s=10)
    fail(breaker)
    fail(breaker)
    succeed(breaker)  # the row starts anew
    fail(breaker)
    fail(breaker)
    assert breaker.state is BreakerState.CLOSED
    fail(breaker)
    assert breaker.state is BreakerState.OPEN
    with pytest.raises(ServiceUnavailable, match="db is failing") as refused:
        succeed(breaker)
    assert refused.value.retry_after_s == 10


async def test_after_the_pause_one_good_call_closes_it(clock: FakeClock) -> None:
    breaker = opened(clock)
    await clock.advance(10)
    assert breaker.state is BreakerState.HALF_OPEN
    succeed(breaker)
    assert breaker.state is BreakerState.CLOSED
    fail(breaker)
    assert breaker.state is BreakerState.CLOSED


async def test_after_the_pause_one_bad_call_opens_it_for_another_pause(clock: FakeClock) -> None:
    breaker = opened(clock)
    await clock.advance(10)
    fail(breaker)
    assert breaker.state is BreakerState.OPEN
    assert breaker.retry_after_s == 10


async def test_only_one_call_at_a_time_probes(clock: FakeClock) -> None:
    breaker = opened(clock)
    await clock.advance(10)
    with breaker, pytest.raises(ServiceUnavailable):
        succeed(breaker)
    assert breaker.state is BreakerState.CLOSED


async def test_cancellation_neither_opens_nor_closes_it(clock: FakeClock) -> None:
    breaker = Breaker("db", clock=clock, threshold=1, open_s=10)
    fail(breaker, asyncio.CancelledError)
    assert breaker.state is BreakerState.CLOSED
    fail(breaker)
    await clock.advance(10)
    fail(breaker, asyncio.CancelledError)
    assert breaker.state is BreakerState.HALF_OPEN
    succeed(breaker)


def test_what_was_found_out_in_another_way_closes_it_too(clock: FakeClock) -> None:
    breaker = opened(clock)
    assert breaker.state is BreakerState.OPEN
    breaker.succeeded()
    assert breaker.state is BreakerState.CLOSED
