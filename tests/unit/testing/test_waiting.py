"""Waiting for a condition: values, errors that mean "not yet", and what a failure shows."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any

import pytest

from shoal.errors import NotFound, ServiceUnavailable
from shoal.testing.waiting import eventually, eventually_blocking


def failing(times: int, error: Exception) -> Callable[[], str]:
    """Raises ``error`` so many times, then returns."""
    turns = count()

    def check() -> str:
        if next(turns) < times:
            raise error
        return "done"

    return check


async def either(way: str, check: Callable[[], Any], **options: Any) -> Any:
    if way == "blocking":
        return eventually_blocking(check, every_s=0.0, **options)
    return await eventually(check, every_s=0.0, **options)


both = pytest.mark.parametrize("way", ["async", "blocking"])


@both
async def test_the_first_value_that_is_accepted_is_returned(way: str) -> None:
    numbers = count()
    assert await either(way, lambda: next(numbers)) == 1, "any true value by default"
    assert await either(way, lambda: next(numbers), until=lambda number: number > 5) == 6


async def test_a_check_may_be_a_coroutine() -> None:
    numbers = count()

    async def check() -> int:
        return next(numbers)

    assert await eventually(check, every_s=0.0, until=lambda number: number == 3) == 3


@both
@pytest.mark.parametrize("error", [AssertionError("no"), NotFound("no")])
async def test_a_failed_assertion_and_a_missing_object_mean_not_yet(way: str, error: Exception) -> None:
    assert await either(way, failing(3, error)) == "done"


@both
async def test_other_errors_end_the_wait_unless_they_are_named(way: str) -> None:
    with pytest.raises(ServiceUnavailable):
        await either(way, failing(1, ServiceUnavailable("away")))
    assert await either(way, failing(1, ServiceUnavailable("away")), retry_on=(ServiceUnavailable,)) == "done"


@both
async def test_the_failure_shows_the_last_value_and_the_explanation(way: str) -> None:
    with pytest.raises(AssertionError, match="three pods not met within 0.01 s, last seen: 2") as caught:
        await either(way, lambda: 2, until=lambda pods: pods == 3, timeout_s=0.01, what="three pods", explain=str)
    assert caught.value.__notes__ == [""]


@both
async def test_the_last_error_is_raised_when_the_time_is_over(way: str) -> None:
    with pytest.raises(NotFound, match="gone") as caught:
        await either(way, failing(10**9, NotFound("gone")), timeout_s=0.01, explain=lambda: "the log")
    assert caught.value.__notes__ == ["the log"]
