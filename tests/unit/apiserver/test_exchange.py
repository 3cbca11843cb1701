"""Handlers of requests are coroutines that the connection drives: one that is closed must not keep what others wait for."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import orjson
import pytest

from shoal.apiserver.messages import Answer, Request, Response
from shoal.testing.servers import ADMIN_TOKEN, PATCHES, LocalServer, local_server
from shoal.testing.waiting import eventually

CONFIGMAPS = "/api/v1/namespaces/default/configmaps"
QUOTAS = "/api/v1/namespaces/default/resourcequotas"


class Driven:
    """Handlers that are driven as connections drive them. The first that another one's progress wakes is closed, as when
    its client hangs up just then."""

    def __init__(self) -> None:
        self.running: dict[int, Coroutine[Any, Any, Answer]] = {}
        self.waits: dict[int, asyncio.Future[Any]] = {}
        self.statuses: dict[int, int] = {}
        self.closed = -1

    def start(self, number: int, handler: Coroutine[Any, Any, Answer]) -> None:
        self.running[number] = handler
        self._step(number)

    def step_all(self) -> None:
        """Let every handler go on whose future is done."""
        for number in list(self.running):
            if number in self.running and self.waits[number].done():
                self._step(number)

    def _step(self, number: int) -> None:
        waiting = {each for each in self.running if each != number and not self.waits[each].done()}
        try:
            future = self.running[number].send(None)
            self.waits[number] = future
        except StopIteration as stop:
            assert isinstance(stop.value, Response)
            del self.running[number]
            self.statuses[number] = stop.value.status
        woken = sorted(each for each in waiting if self.waits[each].done())
        if woken and self.closed < 0:
            self.closed = woken[0]
            self.running.pop(self.closed).close()

    def close(self) -> None:
        for handler in self.running.values():
            handler.close()


def create(number: int) -> Request:
    return a_request("POST", CONFIGMAPS, {"metadata": {"name": f"c{number}"}}, "application/json")


def patch(number: int) -> Request:
    return a_request("PATCH", f"{CONFIGMAPS}/shared", {"data": {f"k{number}": "x"}}, PATCHES["merge"])


def a_request(method: str, path: str, body: Any, media: str) -> Request:
    headers = {b"authorization": f"Bearer {ADMIN_TOKEN}".encode(), b"content-type": media.encode()}
    return Request(method, path.encode(), headers, orjson.dumps(body))


@asynccontextmanager
async def prepared() -> AsyncIterator[LocalServer]:
    """A namespace with a quota, and an object in it."""
    async with local_server() as server:
        await server.post(QUOTAS, {"metadata": {"name": "q"}, "spec": {"hard": {"count/configmaps": "50"}}})
        await server.post(CONFIGMAPS, {"metadata": {"name": "shared"}})
        yield server


@pytest.mark.parametrize("made", [create, patch], ids=["creates under a quota", "patches of one object"])
async def test_a_client_that_hangs_up_when_its_turn_has_come_holds_nobody_up(made: Callable[[int], Request]) -> None:
    async with prepared() as server:
        driven = Driven()
        for number in range(6):
            driven.start(number, server.server.handler.handle(made(number)))

        def all_ended() -> bool:
            driven.step_all()
            return not driven.running

        try:
            await eventually(all_ended, timeout_s=20, what=f"the end of every other request: {driven.statuses}")
        finally:
            driven.close()
        assert driven.closed >= 0, "one of them was closed in its turn"
        assert set(driven.statuses) == set(range(6)) - {driven.closed}
        assert set(driven.statuses.values()) <= {200, 201}
