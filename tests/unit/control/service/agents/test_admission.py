"""The limit on how fast streams may begin."""

from __future__ import annotations

import pytest

from shoal.control.service.agents.admission import HelloLimiter


def test_streams_begin_at_the_rate_and_one_that_would_wait_too_long_is_refused() -> None:
    bucket = HelloLimiter(rate=10.0, burst=2)
    assert [bucket.take(100.0, 1.0) for _ in range(3)] == [0.0, 0.0, pytest.approx(0.1)]
    waits = [bucket.take(100.0, 1.0) for _ in range(20)]
    assert waits[8] == pytest.approx(1.0) and waits[9:] == [None] * 11
    assert bucket.take(101.0, 1.0) == pytest.approx(0.1)
    assert bucket.take(200.0, 0.0) == 0.0
