"""Looking for optional kinds: a quiet cluster is asked nothing, and a new definition is seen at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import orjson
import pytest

from shoal.base.clock import FakeClock
from shoal.base.tasks import cancel_all
from shoal.client import Client
from shoal.client.transport import Reply, Transport
from shoal.navigator.edge.discovery import LOOKS, KindDiscovery
from shoal.navigator.model import KINDS

GATEWAYS = KINDS["gateways"]
EVERY_S = 5.0
MINUTE_S = 60


class Stream:
    """An answer whose body is what the test puts into it."""

    status, headers = 200, {}

    def __init__(self) -> None:
        self.pieces: asyncio.Queue[bytes | None] = asyncio.Queue()

    async def chunks(self) -> AsyncIterator[bytes]:
        while (piece := await self.pieces.get()) is not None:
            yield piece

    async def close(self) -> None:
        self.pieces.put_nowait(None)


class Server:
    """Serves the groups it is given, and a watch of definitions; ``refused``: not the watch."""

    def __init__(self, *, refused: bool = False) -> None:
        self.groups: dict[str, Any] = {}
        self.refused = refused
        self.asked: list[str] = []
        self.watches: list[Stream] = []

    async def request(self, method: str, target: str, **_: Any) -> Reply:
        self.asked.append(target)
        await asyncio.sleep(0)
        if "customresourcedefinitions" in target:
            if self.refused:
                return reply(403, {"kind": "Status", "reason": "Forbidden", "message": "no", "code": 403})
            return reply(200, {"kind": "List", "metadata": {"resourceVersion": "1"}, "items": []})
        found = self.groups.get(target)
        return reply(200, found) if found is not None else reply(404, {"kind": "Status", "reason": "NotFound"})

    async def stream(self, method: str, target: str, **_: Any) -> Stream:
        self.asked.append(target)
        await asyncio.sleep(0)
        self.watches.append(Stream())
        return self.watches[-1]

    def serve_gateways(self) -> None:
        group = GATEWAYS.group
        self.groups[f"/apis/{group}"] = {"versions": [{"version": "v1"}]}
        self.groups[f"/apis/{group}/v1"] = {"resources": [{"name": GATEWAYS.name}]}

    def tell(self, name: str) -> None:
        about = {"name": name, "resourceVersion": "2"}
        event = {"type": "ADDED", "object": {"kind": "PartialObjectMetadata", "metadata": about}}
        self.watches[-1].pieces.put_nowait(orjson.dumps(event) + b"\n")

    def looks(self) -> int:
        return sum(target == f"/apis/{GATEWAYS.group}" for target in self.asked)


def reply(status: int, body: Any) -> Reply:
    return Reply(status, {}, orjson.dumps(body))


@asynccontextmanager
async def looking(server: Server, clock: FakeClock) -> AsyncIterator[tuple[KindDiscovery, list[frozenset[str]]]]:
    results: list[frozenset[str]] = []
    discovery = KindDiscovery(
        Client(cast(Transport, server), clock=clock), [GATEWAYS], clock=clock, every_s=EVERY_S,
        on_result=lambda missing, _: results.append(missing), random=lambda: 0.5,
    )  # fmt: skip
    task = asyncio.create_task(discovery.run(), name="discovery")
    try:
        await passed(clock, LOOKS * EVERY_S)
        yield discovery, results
    finally:
        await cancel_all(task)


async def passed(clock: FakeClock, seconds: float) -> None:
    for _ in range(round(seconds)):
        await clock.advance(1)


async def test_a_cluster_without_a_kind_is_asked_nothing_until_a_definition_appears(clock: FakeClock) -> None:
    server = Server()
    async with looking(server, clock) as (discovery, results):
        assert results == [frozenset({"gateways"})] * LOOKS and server.looks() == LOOKS
        before = len(server.asked)
        await passed(clock, 4 * MINUTE_S)
        assert server.asked[before:] == []
        server.tell("things.example.org")
        await passed(clock, EVERY_S)
        assert server.asked[before:] == [], "a definition of another group"
        server.serve_gateways()
        server.tell(f"gateways.{GATEWAYS.group}")
        await passed(clock, EVERY_S)
        assert discovery.found == {"gateways": "v1"}
        await passed(clock, LOOKS * EVERY_S)
        before = len(server.asked)
        await passed(clock, 2 * MINUTE_S)
        assert server.asked[before:] == []


async def test_a_kind_that_is_no_longer_served_is_looked_for_until_the_looks_agree(clock: FakeClock) -> None:
    server = Server()
    server.serve_gateways()
    async with looking(server, clock) as (discovery, results):
        assert await discovery.version_of(GATEWAYS) == "v1"
        server.groups.clear()
        discovery.recheck("gateways")
        await passed(clock, (LOOKS + 1) * EVERY_S)
        assert results[-LOOKS:] == [frozenset({"gateways"})] * LOOKS


@pytest.mark.parametrize("refused", [False, True])
async def test_what_no_definition_tells_is_found_by_a_slow_look(clock: FakeClock, refused: bool) -> None:
    server = Server(refused=refused)
    async with looking(server, clock) as (discovery, _):
        server.serve_gateways()
        before = server.looks()
        await passed(clock, (2 if refused else 12) * MINUTE_S)
        assert discovery.found == {"gateways": "v1"} and server.looks() - before <= 2


async def test_an_edge_that_may_not_watch_definitions_asks_once_a_minute(clock: FakeClock) -> None:
    server = Server(refused=True)
    async with looking(server, clock):
        before = len(server.asked)
        await passed(clock, 5 * MINUTE_S)
        assert 3 <= len(server.asked) - before <= 5
