"""An agent's stream of desired state, for tests of the control plane: read its events in order, and send reports.

async with control_plane() as control, control.agent("c1", "eu") as agent, watching(agent) as watch:
    begin, items, keys, end = await full_sync(watch)
    item = await watch.until("item")
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

from connectrpc.code import Code
from connectrpc.errors import ConnectError
from protobuf import Oneof

from shoal.testing.fleet import AgentClient
from shoal.wire.fleet.v1 import cluster_pb as pb

WAIT_S = 15.0


class EventWatch:
    """An open stream. ``cursor`` is the last cursor that the server sent."""

    def __init__(self) -> None:
        self.events: asyncio.Queue[pb.WatchEvent | ConnectError] = asyncio.Queue()
        self.said: asyncio.Queue[pb.WatchRequest | None] = asyncio.Queue()
        self.cursor = ""

    def ask(self, *buckets: int) -> None:
        self.said.put_nowait(request("buckets", pb.BucketRequest(buckets=list(buckets))))

    async def next(self) -> tuple[str, Any]:
        event = await asyncio.wait_for(self.events.get(), WAIT_S)
        if isinstance(event, ConnectError):
            raise event
        assert event.event is not None
        if cursor := getattr(event.event.value, "cursor", ""):
            self.cursor = cursor
        return event.event.field, event.event.value

    async def until(self, *fields: str) -> Any:
        while True:
            field, value = await self.next()
            if field in fields:
                return value

    async def error(self) -> ConnectError:
        try:
            await self.until("never")
        except ConnectError as error:
            return error
        raise AssertionError


def request(field: str, value: Any) -> pb.WatchRequest:
    return pb.WatchRequest(request=cast(Any, Oneof(field, value)))


@asynccontextmanager
async def watching(
    agent: AgentClient, cursor: str = "", *, sentinels: bool = False, **headers: str
) -> AsyncIterator[EventWatch]:
    watch = EventWatch()
    watch.said.put_nowait(request("hello", pb.Hello(identity=agent.identity, cursor=cursor)))

    async def say() -> AsyncIterator[pb.WatchRequest]:
        while (said := await watch.said.get()) is not None:
            yield said

    async def listen() -> None:
        call = agent.client.watch_sentinels if sentinels else agent.client.watch_deployments
        try:
            async for event in call(say(), headers=agent.headers | headers):
                watch.events.put_nowait(event)
            watch.events.put_nowait(ConnectError(Code.UNKNOWN, "ended without an error"))
        except ConnectError as error:
            watch.events.put_nowait(error)

    task = asyncio.create_task(listen(), name="watch")
    try:
        yield watch
    finally:
        task.cancel()
        await asyncio.wait([task])


async def full_sync(watch: EventWatch) -> tuple[pb.SyncBegin, dict[str, pb.Item], set[str], pb.SyncEnd]:
    begin = await watch.until("sync_begin")
    items: dict[str, pb.Item] = {}
    keys: set[str] = set()
    while True:
        field, value = await watch.next()
        if field == "item":
            items[value.key] = value
        elif field == "sync_keys":
            keys |= set(value.keys)
        elif field == "sync_end":
            return begin, items, keys, value
