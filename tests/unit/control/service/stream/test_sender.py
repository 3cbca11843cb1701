"""What changes while a stream's task sleeps is sent without waking it; what is large or slow is written by the task."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import Callable
from typing import Any

import pytest

from shoal.base.clock import FakeClock
from shoal.base.metrics import Distribution, Value
from shoal.control.database.position import Position
from shoal.control.service.desired.index import DesiredEntry, DesiredIndex
from shoal.control.service.desired.model import Failure, Loaded
from shoal.control.service.stream.counts import StreamCounts
from shoal.control.service.stream.driver import Found
from shoal.control.service.stream.opened import OpenStream
from shoal.control.service.stream.outgoing import Outgoing
from shoal.control.service.stream.protocol import FullSync, Resume, SessionConfig, WatchSession
from shoal.control.service.stream.sender import BatchSender, StreamSender
from shoal.sync.keys import Place
from shoal.wire.fleet.v1 import cluster_pb as pb

PLACE = Place("clu_1", "default")
HEADERS = [(b"content-type", b"application/connect+proto"), (b"connect-content-encoding", b"gzip")]


class Database:
    """Answers when told to."""

    def __init__(self) -> None:
        self.asked: list[tuple[tuple[str, ...], Callable[[Found], None]]] = []
        self.fails = False

    def request(self, place: Place, keys: tuple[str, ...], done: Callable[[Found], None], *, urgent: bool) -> None:
        if self.fails:
            raise RuntimeError("broken")
        self.asked.append((keys, done))

    def answer(self, *, number: int, failure: Failure | None = None) -> None:
        keys, done = self.asked.pop(0)
        done({key: failure or Loaded(number, key.encode()) for key in keys})


class World:
    """A stream whose task writes what the library would, and sleeps when there is nothing."""

    def __init__(self, headers: list[tuple[bytes, bytes]] = HEADERS, *, once: bool = False) -> None:
        self.clock, self.database, self.headers = FakeClock(), Database(), headers
        self.opened = OpenStream(PLACE, "deployments", 1, "tok_1")
        self.changes, self.syncs = Value(), Value()
        counts = StreamCounts(
            changes=self.changes, syncs=self.syncs, sent=Distribution((1.0,)), sync_s=Distribution((1.0,))
        )
        self.sender = StreamSender(BatchSender(), self.opened, self.database.request, counts, self.clock)
        self.index = DesiredIndex({"main": b"key"})
        self.index.restart("main", Position(1, 0, 0))
        config = SessionConfig(once=once)
        place = self.index.of(PLACE, "deployments")
        self.session = WatchSession(self.index, place, config, wake=self.sender.wake, random=lambda: 0.5)
        self.out = Outgoing(self.send)
        self.pieces: list[bytes] = []
        self.written: list[bytes] = []  # by the task
        self.free = asyncio.Event()
        self.free.set()

    async def send(self, message: Any) -> None:
        await self.free.wait() if not self.free.is_set() else None
        if message["type"] == "http.response.body":
            self.pieces.append(message["body"])

    async def started(self, how: Resume | FullSync | None = None) -> asyncio.Task[None]:
        """The task, after it has written how the stream began."""
        self.session.begin(how or Resume(self.index.now()), 0.0)
        task = asyncio.create_task(self._write())
        await self.settle()
        self.written.clear()
        return task

    async def _write(self) -> None:
        begun = False
        async for event in self.sender.events(self.session):
            if not begun:
                begun = True
                await self.out.send({"type": "http.response.start", "headers": self.headers})
            await self.free.wait()
            self.written.append(event.data)  # type: ignore[attr-defined]

    def change(self, *keys: str, number: int = 1) -> None:
        self.index.moved("main", Position(1, number, 0))
        for key in keys:
            self.index.put(PLACE, "deployments", key, DesiredEntry("main", number, "apply", False))

    async def settle(self) -> None:
        for _ in range(8):
            await asyncio.sleep(0)

    def pushed(self) -> list[bytes]:
        """The messages so far, as they were before they were packed."""
        body, found = b"".join(self.pieces), list[bytes]()
        while body:
            size = int.from_bytes(body[1:5], "big")
            found.append(gzip.decompress(body[5 : 5 + size]) if body[0] else body[5 : 5 + size])
            body = body[5 + size :]
        return found


async def ended(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.wait([task])


@pytest.mark.parametrize("encoding", [b"gzip", b"identity"])
async def test_a_change_is_sent_without_the_task_and_the_next_one_too(encoding: bytes) -> None:
    world = World([HEADERS[0], (b"connect-content-encoding", encoding)])
    task = await world.started()
    for number, key in enumerate(("deployment/a", "deployment/b"), 1):
        world.change(key, number=number)
        await world.settle()
        world.database.answer(number=number)
        await world.settle()
    assert world.pushed() == [b"deployment/a", b"deployment/b"] and not world.written
    assert world.changes.value == 2 and world.syncs.value == 0
    world.change("deployment/a", number=3)
    await world.settle()
    world.change("deployment/a", number=4)  # while it is loaded: what comes may be too old
    world.change("deployment/c", number=5)
    await world.settle()
    assert len(world.database.asked) == 1, "one load at a time"
    world.database.answer(number=3)
    await world.settle()
    world.database.answer(number=5)
    await world.settle()
    assert sorted(world.pushed()[2:]) == [b"deployment/a", b"deployment/a", b"deployment/c"]
    assert not world.database.asked
    await ended(task)


async def test_where_we_are_goes_along_with_a_change_when_it_is_due_soon() -> None:
    world = World()
    task = await world.started()
    for number, passed_s in ((1, 0.0), (2, 0.5), (3, 0.4)):
        await world.clock.advance(passed_s)
        world.change("deployment/a", number=number)
        await world.settle()
        world.database.answer(number=number)
        await world.settle()
    first, second, third, progress = world.pushed()
    said = pb.WatchEvent.from_binary(progress).event
    assert first == second == third == b"deployment/a" and said is not None and said.field == "progress"
    assert said.value.cursor == world.index.encode(world.index.now())
    await world.clock.advance(5.0)
    await world.settle()
    assert len(world.pushed()) == 4, "it is not said twice"
    await ended(task)


async def test_nothing_overtakes_what_a_slow_reader_is_waited_for() -> None:
    world = World()
    task = await world.started()
    world.free.clear()
    world.change("deployment/a", number=1)
    await world.settle()
    world.database.answer(number=1)
    await world.settle()
    world.change("deployment/b", number=2)
    await world.settle()
    assert not world.pieces and not world.database.asked, "nothing more is loaded for it"
    world.free.set()
    await world.settle()
    world.database.answer(number=2)
    await world.settle()
    assert world.pushed() == [b"deployment/a", b"deployment/b"]
    await ended(task)


async def test_a_large_batch_is_written_by_the_task_and_nothing_is_loaded_until_it_has() -> None:
    world = World()
    task = await world.started()
    keys = [f"deployment/{n:02}" for n in range(20)]
    world.change(*keys)
    await world.settle()
    world.free.clear()
    world.database.answer(number=1)
    world.change("deployment/later", number=2)
    await world.settle()
    assert not world.written and not world.database.asked
    world.free.set()
    await world.settle()
    assert world.written[:20] == [key.encode() for key in keys] and not world.pieces
    world.database.answer(number=2)
    await world.settle()
    assert world.pushed() == [b"deployment/later"], "the task sleeps again"
    await ended(task)


async def test_a_stream_that_only_the_library_can_write_is_written_by_its_task() -> None:
    world = World([(b"content-type", b"application/connect+json")])
    task = await world.started()
    world.change("deployment/a")
    await world.settle()
    world.database.answer(number=1)
    await world.settle()
    assert world.written == [b"deployment/a"] and not world.pieces
    await ended(task)


async def test_a_one_time_sync_ends_the_stream_with_everything_and_counts_its_objects() -> None:
    world = World(once=True)
    world.change("deployment/a")
    task = await world.started(FullSync("asked for"))
    world.database.answer(number=1)
    await asyncio.wait_for(task, 10)
    *_, item, _keys, end = [*world.written, *world.pushed()]
    said = pb.WatchEvent.from_binary(end).event
    assert item == b"deployment/a" and said is not None and said.field == "sync_end" and world.syncs.value == 1


async def test_a_one_time_sync_that_cannot_load_an_object_says_so() -> None:
    world = World(once=True)
    world.change("deployment/a")
    task = await world.started(FullSync("asked for"))
    world.database.answer(number=1, failure=Failure.LATER)
    with pytest.raises(Exception, match="1 objects cannot be loaded now"):
        await asyncio.wait_for(task, 10)


async def test_a_failure_ends_the_stream_and_no_other() -> None:
    world = World()
    task = await world.started()
    world.database.fails = True
    world.change("deployment/a")
    with pytest.raises(Exception, match="connect again"):
        await asyncio.wait_for(task, 10)
    assert world.opened.error is not None and world.opened.reason == "failed"
