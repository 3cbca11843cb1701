"""Whether the API server can be used, and what the log says of an outage: one line at its start, one at its end."""

from __future__ import annotations

import io
from collections.abc import Iterator

import orjson
import pytest

from shoal.base import logs
from shoal.base.clock import FakeClock
from shoal.client.errors import Unreachable
from shoal.client.reach import OUTAGE_S, Reach

GONE, BACK = "the cluster's API server cannot be used", "the cluster's API server answers again"


@pytest.fixture
def stream(clock: FakeClock) -> Iterator[io.StringIO]:
    stream = io.StringIO()
    logs.configure(stream=stream, clock=clock)
    yield stream
    logs.configure()


def messages(stream: io.StringIO) -> list[str]:
    return [orjson.loads(line)["message"] for line in stream.getvalue().splitlines()]


async def test_an_outage_is_told_once_and_ends_with_the_first_answer(clock: FakeClock, stream: io.StringIO) -> None:
    reach = Reach("https://a", clock=clock)
    assert not reach.problem()
    first = Unreachable("no connection")
    reach.failed(first)
    reach.failed(Unreachable("no connection"))
    assert first.told and reach.problem() == "no connection" and not reach.problem(OUTAGE_S)
    await clock.advance(OUTAGE_S)
    assert reach.problem(OUTAGE_S) == "no connection" and reach.problem_s == OUTAGE_S
    reach.answered(403)
    assert not reach.problem() and messages(stream) == [GONE, BACK]


async def test_refused_credentials_are_a_problem_at_once_and_errors_of_the_server_if_they_last(
    clock: FakeClock, stream: io.StringIO
) -> None:
    reach = Reach("https://a", clock=clock)
    reach.answered(401, "the token has expired")
    assert reach.problem() == "it refuses the credentials: the token has expired"
    reach.answered(200)
    reach.answered(500, "a webhook failed")
    reach.answered(200)
    assert messages(stream) == [GONE, BACK], "one request that fails in the server is no outage"
    reach.answered(503, "no leader")
    await clock.advance(OUTAGE_S)
    reach.answered(503, "no leader")
    assert reach.problem(OUTAGE_S) == "it answers 503: no leader" and messages(stream) == [GONE, BACK, GONE]
