"""Batches grow while they succeed and stop at the first failure."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from shoal.controllers.pods.control import namespace_ends, slow_start
from shoal.errors import Conflict, Forbidden


class Server:
    """Counts how many calls come together; fails those from a number on."""

    def __init__(self, fails_from: int = 10**9, error: Exception | None = None) -> None:
        self.calls = 0
        self.waiting = 0
        self.batches: list[int] = []
        self._fails_from = fails_from
        self._error = error or Forbidden("exceeded quota")

    async def call(self) -> int:
        self.calls += 1
        number = self.calls
        self.waiting += 1
        await asyncio.sleep(0)
        if self.waiting:
            self.batches.append(self.waiting)
            self.waiting = 0
        if number >= self._fails_from:
            raise self._error
        return number


async def run(server: Server, count: int) -> tuple[list[int], Exception | None]:
    calls: list[Callable[[], Awaitable[int]]] = [server.call] * count
    return await slow_start(calls)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("count", "batches"), [(0, []), (1, [1]), (2, [1, 1]), (3, [1, 2]), (10, [1, 2, 4, 3]), (15, [1, 2, 4, 8])]
)
async def test_batches_double(count: int, batches: list[int]) -> None:
    server = Server()
    done, failure = await run(server, count)
    assert (len(done), failure, server.batches) == (count, None, batches)


async def test_after_a_failure_no_batch_is_begun() -> None:
    server = Server(fails_from=5)
    done, failure = await run(server, 100)
    assert server.batches == [1, 2, 4]
    assert len(done) == 4
    assert isinstance(failure, Forbidden)


async def test_an_error_that_is_not_of_the_server_is_raised() -> None:
    with pytest.raises(RuntimeError):
        await run(Server(fails_from=1, error=RuntimeError("ours")), 3)


def test_a_terminating_namespace_is_recognized_by_the_cause_of_the_error() -> None:
    assert namespace_ends(Forbidden("no", causes=[{"reason": "NamespaceTerminating"}]))
    assert not namespace_ends(Forbidden("no"))
    assert not namespace_ends(Conflict("no", causes=[{"reason": "Other"}]))
