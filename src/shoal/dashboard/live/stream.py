"""The stream of one browser: its topics, and the messages that wait for it.

A stream pulls: the next messages are collected when the connection has taken the last ones, and between them it rests
for a moment, so that many changes at once become one event.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

import orjson

from shoal.base.asgi_common import Send
from shoal.base.clock import Clock
from shoal.dashboard.live.feed import Feed, Subscription
from shoal.errors import ApiError, BadRequest, NotFound, TooManyRequests
from shoal.rest.streams import SEND_S, RestStreams, StreamAnswer

MOST_TOPICS = 64
BEAT_S = 5.0
REST_S = 0.05
_CHECK_S = 2.5  # between two looks whether the session still works

Subscribe = Callable[[int, dict[str, Any], Callable[[], None]], tuple[Feed, Subscription]]
"""Opens a topic under an id for the owner of a stream; raises what is wrong with the request."""


@dataclass(frozen=True, slots=True)
class StreamDeps:
    clock: Clock
    streams: RestStreams
    leave: Callable[[Feed, Subscription], None]


class PageStream:
    """``owner`` is the text of the session, or token, that it belongs to."""

    media = "text/event-stream; charset=utf-8"

    def __init__(
        self, id_: str, owner: str, subscribe: Subscribe, opened: Iterable[dict[str, Any]], deps: StreamDeps
    ) -> None:
        self.id = id_
        self.owner = owner
        self._subscribe = subscribe
        self._opened = opened  # with the stream itself
        self._deps = deps
        self._topics: dict[int, tuple[Feed, Subscription]] = {}
        self._failed: list[bytes] = []  # messages about topics that could not be opened
        self._woken = asyncio.Event()

    def change(self, opened: Iterable[dict[str, Any]], closed: Iterable[int]) -> None:
        """Close topics, then open some. What is wrong with one topic is told on the stream, as what fails later is."""
        for id_ in closed:
            self._close(id_)
        for asked in opened:
            id_, parameters = asked["id"], {name: value for name, value in asked.items() if name != "id"}
            self._close(id_)
            if len(self._topics) >= MOST_TOPICS:
                raise TooManyRequests(f"limit reached: {MOST_TOPICS} topics are open; close one", retry_after_s=1)
            try:
                self._topics[id_] = self._subscribe(id_, parameters, self._woken.set)
            except ApiError as error:
                told = {"code": error.reason, "message": error.message, "fix": ""}
                self._failed.append(orjson.dumps({"id": id_, "error": told}))
                self._woken.set()

    async def parts(self) -> AsyncGenerator[bytes, None]:
        clock = self._deps.clock
        try:
            self.change(self._opened, ())
            yield _event([orjson.dumps({"stream": self.id, "now": _ms(clock)})])
            beat_s = checked_s = clock.monotonic()
            while True:
                await self._wait(beat_s + BEAT_S - clock.monotonic())
                now_s = clock.monotonic()
                if now_s >= checked_s + _CHECK_S:
                    checked_s = now_s
                    if not await self._deps.streams.is_allowed(self.owner):
                        told = {"code": "Unauthorized", "message": "the session has ended: log in again"}
                        yield _event([orjson.dumps({"end": told})])
                        return
                messages = self._collect()
                if now_s >= beat_s + BEAT_S:
                    beat_s = now_s
                    messages.append(orjson.dumps({"beat": _ms(clock)}))
                if messages:
                    yield _event(messages)
                    await clock.sleep(REST_S)
        finally:
            for id_ in list(self._topics):
                self._close(id_)

    def _collect(self) -> list[bytes]:
        found, self._failed = self._failed, []
        for _, subscription in self._topics.values():
            if message := subscription.take():
                found.append(message)
        return found

    async def _wait(self, seconds: float) -> None:
        timer = self._deps.clock.call_later(max(0.0, seconds), self._woken.set)
        try:
            await self._woken.wait()
        finally:
            timer.cancel()
            self._woken.clear()

    def _close(self, id_: int) -> None:
        found = self._topics.pop(id_, None)
        if found is not None:
            self._deps.leave(*found)


class PageStreams:
    """The open streams of this process. A stream is found by its id only by its owner."""

    def __init__(self, deps: StreamDeps, new_id: Callable[[], str]) -> None:
        self._deps = deps
        self._new_id = new_id
        self._open: dict[str, PageStream] = {}

    def begin(self, owner: str, subscribe: Subscribe, opened: Iterable[dict[str, Any]]) -> PageStream:
        return PageStream(self._new_id(), owner, subscribe, opened, self._deps)

    def find(self, id_: str, owner: str) -> PageStream:
        found = self._open.get(id_)
        if found is None or found.owner != owner:
            raise NotFound("the stream is not open here: open a new one, with all topics in `open`")
        return found

    def answer(self, stream: PageStream, gauge: Any) -> StreamAnswer:
        return _StreamAnswer(self._deps.streams, stream.owner, self._parts(stream), gauge)

    async def _parts(self, stream: PageStream) -> AsyncGenerator[bytes, None]:
        self._open[stream.id] = stream
        try:
            async with aclosing(stream.parts()) as parts:
                async for part in parts:
                    yield part
        finally:
            del self._open[stream.id]


class _StreamAnswer(StreamAnswer):
    media = PageStream.media

    async def _pump(self, parts: AsyncGenerator[bytes, None], send: Send) -> None:
        await self._begin(send)
        async for part in parts:
            async with asyncio.timeout(SEND_S):
                await send({"type": "http.response.body", "body": part, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


def read_opened(value: Any) -> list[dict[str, Any]]:
    """The topics to open of a request; ``BadRequest`` says what is wrong."""
    if not isinstance(value, list) or len(value) > MOST_TOPICS:
        raise BadRequest(f"open must be a list of at most {MOST_TOPICS} topics")
    for each in value:
        if not isinstance(each, dict) or not _is_id(each.get("id")) or not isinstance(each.get("topic"), str):
            raise BadRequest("each topic to open must be an object with an id (a whole number) and a topic")
    return value


def read_closed(value: Any) -> list[int]:
    if not isinstance(value, list) or not all(map(_is_id, value)):
        raise BadRequest("close must be a list of ids")
    return value


def _is_id(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**31


def _event(messages: list[bytes]) -> bytes:
    body = messages[0] if len(messages) == 1 else b"[" + b",".join(messages) + b"]"
    return b"data: " + body + b"\n\n"


def _ms(clock: Clock) -> int:
    return round(clock.wall_s() * 1000)
