"""What changes while a stream's task sleeps is sent without waking it; everything out of the ordinary wakes it."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import Callable
from typing import Any, cast

import pytest

from shoal.base.clock import FakeClock
from shoal.base.metrics import Distribution, Value
from shoal.control.database.position import Position
from shoal.control.service.desired.index import Entry, Index
from shoal.control.service.desired.loader import Loader, Result
from shoal.control.service.desired.model import Loaded
from shoal.control.service.stream.opened import OpenStream
from shoal.control.service.stream.outgoing import Outgoing
from shoal.control.service.stream.protocol import Arrived, Resume, Send, Session, SessionConfig, Wait
from shoal.control.service.stream.sender import Counts, Courier, Sleeper
from shoal.sync.keys import Place
from shoal.wire.fleet.v1 import cluster_pb as pb

PLACE = Place("clu_1", "default")
HEADERS = [(b"content-type", b"application/connect+proto"), (b"connect-content-encoding", b"gzip")]


class Database:
    """Answers when told to."""

    def __init__(self) -> None:
        self.asked: list[tuple[tuple[str, ...], Callable[[dict[str, Result]], None]]] = []
        self.fails = False

    def request(self, place: Place, keys: tuple[str, ...], done: Any, *, urgent: bool) -> None:
        if self.fails:
            raise RuntimeError("broken")
        self.asked.append((keys, done))

    def answer(self, *, number: int) -> None:
        keys, done = self.asked.pop(0)
        done({key: Loaded(number, key.encode()) for key in keys})


class World:
    """A stream with nothing to send, whose task sleeps."""

    def __init__(self, headers: list[tuple[bytes, bytes]]) -> None:
        self.clock, self.database, self.headers = FakeClock(), Database(), headers
        self.opened = OpenStream(PLACE, "deployments", 1, "tok_1")
        self.counts = Counts(Value(), Distribution((1.0,)))
        courier = Courier()
        self.sleeper = Sleeper(courier, cast(Loader, self.database), self.opened, self.counts, self.clock)
        self.index = Index({"main": b"key"})
        self.index.restart("main", Position(1, 0, 0))
        shelf = self.index.shelf(PLACE, "deployments")
        self.session = Session(self.index, shelf, SessionConfig(), wake=self.sleeper.wake, random=lambda: 0.5)
        self.out = Outgoing(self.send)
        self.pieces: list[bytes] = []
        self.free = asyncio.Event()
        self.free.set()

    async def send(self, message: Any) -> None:
        await self.free.wait() if not self.free.is_set() else None
        if message["type"] == "http.response.body":
            self.pieces.append(message["body"])

    async def asleep(self) -> asyncio.Task[Any]:
        await self.out.send({"type": "http.response.start", "headers": self.headers})
        self.session.begin(Resume(self.index.now()), 0.0)
        while isinstance(step := self.session.next(0.0), Send):
            pass
        assert isinstance(step, Wait)
        return await self.again(step.until)

    async def again(self, until: float = 60.0) -> asyncio.Task[Any]:
        """The task goes back to sleep."""
        self.opened.wake.clear()
        task = asyncio.create_task(self.sleeper.sleep(self.session, self.out, until, 0.0))
        await self.turns()
        return task

    def change(self, *keys: str, number: int = 1) -> None:
        self.index.moved("main", Position(1, number, 0))
        for key in keys:
            self.index.put(PLACE, "deployments", key, Entry("main", number, "apply", False))

    async def turns(self) -> None:
        for _ in range(5):
            await asyncio.sleep(0)

    def sent(self) -> list[bytes]:
        """The messages so far, as they were before they were packed."""
        body, found = b"".join(self.pieces), list[bytes]()
        while body:
            size = int.from_bytes(body[1:5], "big")
            found.append(gzip.decompress(body[5 : 5 + size]) if body[0] else body[5 : 5 + size])
            body = body[5 + size :]
        return found


@pytest.mark.parametrize("encoding", [b"gzip", b"identity"])
def test_a_change_is_sent_without_the_task_and_the_next_one_too(encoding: bytes) -> None:
    async def main() -> None:
        world = World([HEADERS[0], (b"connect-content-encoding", encoding)])
        task = await world.asleep()
        for number, key in enumerate(("deployment/a", "deployment/b"), 1):
            world.change(key, number=number)
            await world.turns()
            world.database.answer(number=number)
            await world.turns()
        assert world.sent() == [b"deployment/a", b"deployment/b"] and not task.done()
        assert world.counts.changes.value == 2
        world.change("deployment/a", number=3)
        await world.turns()
        world.change("deployment/a", number=4)  # while it is loaded: what comes may be too old
        world.database.answer(number=3)
        await world.turns()
        world.database.answer(number=4)
        await world.turns()
        assert world.sent()[2:] == [b"deployment/a"] * 2 and not world.database.asked
        task.cancel()
        await asyncio.wait([task])

    asyncio.run(main())


def test_where_we_are_goes_along_with_a_change_when_it_is_due_soon() -> None:
    async def main() -> None:
        world = World(HEADERS)
        task = await world.asleep()
        for number, passed_s in ((1, 0.0), (2, 0.5), (3, 0.4)):
            await world.clock.advance(passed_s)
            world.change("deployment/a", number=number)
            await world.turns()
            world.database.answer(number=number)
            await world.turns()
        first, second, third, progress = world.sent()
        said = pb.WatchEvent.from_binary(progress).event
        assert first == second == third == b"deployment/a" and said is not None and said.field == "progress"
        assert said.value.cursor == world.index.encode(world.index.now())
        await world.clock.advance(5.0)
        await world.turns()
        assert len(world.sent()) == 4, "it is not said twice"
        task.cancel()
        await asyncio.wait([task])

    asyncio.run(main())


def test_a_slow_reader_wakes_the_task_and_nothing_overtakes_what_it_waits_for() -> None:
    async def main() -> None:
        world = World(HEADERS)
        task = await world.asleep()
        world.free.clear()
        world.change("deployment/a", number=1)
        await world.turns()
        world.database.answer(number=1)
        await world.turns()
        world.change("deployment/b", number=2)
        await world.turns()
        assert not world.pieces and not task.done() and not world.database.asked
        world.free.set()
        assert await asyncio.wait_for(task, 10) is None
        assert world.sent() == [b"deployment/a"]
        step = world.session.next(0.0)
        assert getattr(step, "keys", ()) == ("deployment/b",), "the task goes on with what came meanwhile"

    asyncio.run(main())


def test_a_large_batch_is_left_to_the_task_with_what_was_loaded() -> None:
    async def main() -> None:
        world = World(HEADERS)
        task = await world.asleep()
        world.change(*(f"deployment/{n}" for n in range(20)))
        await world.turns()
        world.database.answer(number=1)
        step = await asyncio.wait_for(task, 10)
        assert isinstance(step, Arrived) and len(step.found) == 20 and not step.syncing and not world.pieces

    asyncio.run(main())


def test_a_sync_is_left_to_the_task() -> None:
    async def main() -> None:
        world = World(HEADERS)
        task = await world.asleep()
        world.session.ask([1])
        step = await asyncio.wait_for(task, 10)
        assert isinstance(step, Send) and not world.pieces

    asyncio.run(main())


def test_a_stream_that_only_the_library_can_write_wakes_its_task() -> None:
    async def main() -> None:
        world = World([(b"content-type", b"application/connect+json")])
        task = await world.asleep()
        world.change("deployment/a")
        assert await asyncio.wait_for(task, 10) is None and not world.pieces and not world.database.asked

    asyncio.run(main())


def test_a_failure_ends_the_stream_and_no_other() -> None:
    async def main() -> None:
        world = World(HEADERS)
        task = await world.asleep()
        world.database.fails = True
        world.change("deployment/a")
        await asyncio.wait_for(task, 10)
        assert world.opened.error is not None and world.opened.reason == "failed"

    asyncio.run(main())
