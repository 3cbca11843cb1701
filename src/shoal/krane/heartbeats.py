"""Heartbeats on an open stream, where the control plane accepts them: a call of its own costs it several times as much.

A stream that does not answer in time (a full inbox may delay its reading) is not used again until it answers, and the
heartbeat is sent as a call instead.
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
from shoal.base.tasks import OwnedTasks
from shoal.wire.fleet.v1 import cluster_pb as pb


class HeartbeatStream:
    """One stream: what is said on it, with heartbeats in between."""

    def __init__(self, requests: AsyncIterator[pb.WatchRequest]) -> None:
        self._requests = requests
        self._heartbeats: deque[pb.WatchRequest] = deque()
        self._waiting: deque[asyncio.Future[pb.HeartbeatResponse | None]] = deque()  # the oldest is answered first
        self._changed = asyncio.Event()
        self.accepts = False

    async def requests(self) -> AsyncGenerator[pb.WatchRequest, None]:
        coming: asyncio.Task[pb.WatchRequest | None] | None = None
        try:
            while True:
                self._changed.clear()
                if self._heartbeats:
                    yield self._heartbeats.popleft()
                    continue
                if coming is None:
                    coming = OwnedTasks().start(self._next(), name="krane-stream/say", awaited=True)
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

    def handle(self, event: pb.WatchEvent) -> bool:
        """Whether the event is an answer to a heartbeat and needs no other handling."""
        said = event.event
        if said is not None and said.field == "welcome":
            self.accepts = said.value.heartbeats
        if said is None or said.field != "heartbeat":
            return False
        self.accepts = True
        if self._waiting:
            _settle(self._waiting.popleft(), said.value)
        return True

    def send(self, request: pb.HeartbeatRequest) -> asyncio.Future[pb.HeartbeatResponse | None]:
        """The answer; None when the stream ends before it."""
        answer: asyncio.Future[pb.HeartbeatResponse | None] = asyncio.get_running_loop().create_future()
        self._waiting.append(answer)
        self._heartbeats.append(pb.WatchRequest(request=cast(Any, Oneof("heartbeat", request))))
        self._changed.set()
        return answer

    def end(self) -> None:
        self.accepts = False
        while self._waiting:
            _settle(self._waiting.popleft(), None)


class Heartbeats:
    """The streams of a connection."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._streams: list[HeartbeatStream] = []

    def open(self, requests: AsyncIterator[pb.WatchRequest]) -> HeartbeatStream:
        stream = HeartbeatStream(requests)
        self._streams.append(stream)
        return stream

    def close(self, stream: HeartbeatStream) -> None:
        self._streams.remove(stream)
        stream.end()

    async def send(self, request: pb.HeartbeatRequest, limit_s: float) -> pb.HeartbeatResponse | None:
        """None when no stream takes heartbeats, or it has not answered in time."""
        stream = next((one for one in self._streams if one.accepts), None)
        if stream is None:
            return None
        try:
            async with within(self._clock, limit_s):
                return await stream.send(request)
        except TimeoutError:
            stream.accepts = False
            return None


def _settle(answer: asyncio.Future[pb.HeartbeatResponse | None], value: pb.HeartbeatResponse | None) -> None:
    if not answer.done():  # the waiting task may have given up
        answer.set_result(value)
