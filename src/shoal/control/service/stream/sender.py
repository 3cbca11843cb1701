"""Sends the messages of all streams of a process, for all of them in one iteration of the event loop.

Most of the time a stream waits for the next change of its place. Waking its task for each change, loading the object,
sleeping, waking again and passing it through the layers of the library costs several times as much as the change
itself. So the drivers of all streams that have work run here, and small messages bypass the library. Large messages,
and messages to a slow reader, are left to the stream's task: it writes and waits, and the driver continues when
everything is written.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from typing import cast

from connectrpc.code import Code
from connectrpc.errors import ConnectError

from shoal.base.clock import Clock
from shoal.base.logs import get_logger
from shoal.control.service.stream.alarm import Alarm
from shoal.control.service.stream.driver import ItemCounts, LoadKeys, SessionDriver
from shoal.control.service.stream.events import PreparedEvent
from shoal.control.service.stream.opened import OpenStream
from shoal.control.service.stream.outgoing import Outgoing, outgoing
from shoal.control.service.stream.protocol import WatchSession
from shoal.wire.fleet.v1 import cluster_pb as pb

_AT_ONCE = 100  # streams in one iteration of the loop
_FEW = 8  # messages that are pushed; more are left to the task

_log = get_logger("control.service.sender")


class BatchSender:
    """The streams of a process that have something to do, in the order in which they got it."""

    def __init__(self) -> None:
        self._due: deque[StreamSender] = deque()

    def add(self, sender: StreamSender) -> None:
        if not self._due:
            asyncio.get_running_loop().call_soon(self._run_due)
        self._due.append(sender)

    def _run_due(self) -> None:
        for _ in range(min(len(self._due), _AT_ONCE)):
            sender = self._due[0]
            driver = sender.due()
            if driver is not None:
                try:
                    driver.run()
                except Exception as error:
                    sender.failed(error)
            self._due.popleft()  # only now: a stream added meanwhile needs no iteration of its own
        if self._due:
            asyncio.get_running_loop().call_soon(self._run_due)


class StreamSender:
    """The way of one stream's messages. ``events`` is what the stream's task writes."""

    __slots__ = (
        "_alarm", "_asleep", "_batch", "_clock", "_counts", "_driver", "_failed", "_load", "_opened", "_out", "_queued",
        "_waiting",
    )  # fmt: skip

    def __init__(
        self, batch: BatchSender, opened: OpenStream, load: LoadKeys, counts: ItemCounts, clock: Clock
    ) -> None:
        self._batch = batch
        self._opened = opened
        self._load = load
        self._counts = counts
        self._clock = clock
        self._alarm = Alarm(clock, self.wake)
        self._driver: SessionDriver | None = None
        self._out: Outgoing | None = None
        self._asleep = False  # the task waits, so messages may be pushed
        self._queued = False
        self._waiting: list[bytes] = []  # for the task
        self._failed: tuple[str, ...] | None = None  # keys of a one-time sync that is over

    def wake(self) -> None:
        """There may be something to do."""
        if not self._queued and self._driver is not None:
            self._queued = True
            self._batch.add(self)

    def due(self) -> SessionDriver | None:
        """The driver to run now; None when the stream has ended meanwhile."""
        self._queued = False
        return self._driver if self._opened.error is None else None

    def failed(self, error: Exception) -> None:
        _log.error("a stream failed", place=str(self._opened.place), error=error)
        self._opened.end("failed", ConnectError(Code.INTERNAL, "the stream failed: connect again"))

    async def events(self, session: WatchSession) -> AsyncIterator[pb.WatchEvent]:
        """What the task of the stream writes, until the stream is ended or a one-time sync is over."""
        opened, out = self._opened, outgoing()
        self._out = out
        self._driver = driver = SessionDriver(
            session, load=self._load, send=self._send, alarm=self._alarm, wake=self.wake, done=self._done,
            counts=self._counts, clock=self._clock,
        )  # fmt: skip
        self.wake()
        try:
            while opened.error is None:
                opened.wake.clear()
                while self._waiting:
                    messages, self._waiting = self._waiting, []
                    for left, data in enumerate(messages, 1 - len(messages)):
                        out.more = left < 0
                        yield cast(pb.WatchEvent, PreparedEvent(data))
                if self._failed is not None:
                    if self._failed:
                        message = f"{len(self._failed)} objects cannot be loaded now: try again"
                        raise ConnectError(Code.UNAVAILABLE, message)
                    return
                if opened.error is None:
                    await self._sleep(driver, out)
            raise opened.error
        finally:
            out.more = False
            self._driver = None
            self._alarm.cancel()
            out.close()

    async def _sleep(self, driver: SessionDriver, out: Outgoing) -> None:
        """Until there is something for the task."""
        if driver.blocked:
            driver.resume()
            self.wake()
        self._asleep = out.direct
        try:
            await self._opened.wake.wait()
        finally:
            self._asleep = False
        await out.finish()

    def _send(self, messages: list[bytes]) -> bool:
        if self._asleep and len(messages) <= _FEW:
            assert self._out is not None
            if self._out.push(messages):
                return True
        else:
            self._waiting += messages
        self._asleep = False  # until the task has written it, or has waited for a slow reader
        self._opened.wake.set()
        return False

    def _done(self, failed: tuple[str, ...]) -> None:
        self._failed = failed
        self._opened.wake.set()
