"""Heartbeats on a stream that is open anyway, where the control plane takes them: a call of its own costs it several
times as much. A stream that does not answer in time (its reading may be held up by a full inbox) is left alone until it
does, and whoever beats makes a call instead.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import suppress
from typing import Any, cast

from protobuf import Oneof

from shoal.base.clock import Clock
from shoal.base.deadline import within
from shoal.wire.fleet.v1 import cluster_pb as pb


class Line:
    """One stream: what is said on it, with heartbeats in between."""

    def __init__(self, requests: AsyncIterator[pb.WatchRequest]) -> None:
        self._requests = requests
        self._beats: deque[pb.WatchRequest] = deque()
        self._waiting: deque[asyncio.Future[pb.HeartbeatResponse | None]] = deque()  # the oldest is answered first
        self._changed = asyncio.Event()
        self.takes = False

    async def requests(self) -> AsyncGenerator[pb.WatchRequest, None]:
        coming: asyncio.Task[pb.WatchRequest | None] | None = None
        try:
            while True:
                self._changed.clear()
                if self._beats:
                    yield self._beats.popleft()
                    continue
                if coming is None:
                    coming = asyncio.create_task(self._next(), name="krane-stream/say")
                    coming.add_done_callback(lambda _: self._changed.set())
                await self._changed.wait()
                if coming.done():
                    said, coming = coming.result(), None
                    if said is None:
                        return
                    yield said
        finally:
            if coming is not None:
                coming.cancel()
                with suppress(asyncio.CancelledError):
                    await coming

    async def _next(self) -> pb.WatchRequest | None:
        return await anext(self._requests, None)

    def took(self, event: pb.WatchEvent) -> bool:
        """Whether the event is an answer to a heartbeat and needs no other handling."""
        said = event.event
        if said is not None and said.field == "welcome":
            self.takes = said.value.heartbeats
        if said is None or said.field != "heartbeat":
            return False
        self.takes = True
        if self._waiting:
            _settle(self._waiting.popleft(), said.value)
        return True

    def beat(self, request: pb.HeartbeatRequest) -> asyncio.Future[pb.HeartbeatResponse | None]:
        """The answer; None when the stream ends before it."""
        answer: asyncio.Future[pb.HeartbeatResponse | None] = asyncio.get_running_loop().create_future()
        self._waiting.append(answer)
        self._beats.append(pb.WatchRequest(request=cast(Any, Oneof("heartbeat", request))))
        self._changed.set()
        return answer

    def end(self) -> None:
        self.takes = False
        while self._waiting:
            _settle(self._waiting.popleft(), None)


class Beats:
    """The streams of a connection."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lines: list[Line] = []

    def open(self, requests: AsyncIterator[pb.WatchRequest]) -> Line:
        line = Line(requests)
        self._lines.append(line)
        return line

    def close(self, line: Line) -> None:
        self._lines.remove(line)
        line.end()

    async def beat(self, request: pb.HeartbeatRequest, limit_s: float) -> pb.HeartbeatResponse | None:
        """None when no stream takes heartbeats, or it has not answered in time."""
        line = next((one for one in self._lines if one.takes), None)
        if line is None:
            return None
        try:
            async with within(self._clock, limit_s):
                return await line.beat(request)
        except TimeoutError:
            line.takes = False
            return None


def _settle(answer: asyncio.Future[pb.HeartbeatResponse | None], value: pb.HeartbeatResponse | None) -> None:
    if not answer.done():  # the waiting task may have given up
        answer.set_result(value)
