"""Heartbeats go along on a stream where the other side takes them, and never get lost between the two ways."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, cast

from protobuf import Oneof

from shoal.base.clock import FakeClock, RealClock
from shoal.krane.heartbeats import Heartbeats, HeartbeatStream
from shoal.wire.fleet.v1 import cluster_pb as pb

HEARTBEAT = pb.HeartbeatRequest(software="s")


def event(field: str, value: Any) -> pb.WatchEvent:
    return pb.WatchEvent(event=cast(Any, Oneof(field, value)))


WELCOME = event("welcome", pb.Welcome(heartbeats=True))


def answer(text: str) -> pb.WatchEvent:
    return event("heartbeat", pb.HeartbeatResponse(confirmed_deletes=text))


async def say(*cursors: str) -> AsyncIterator[pb.WatchRequest]:
    for cursor in cursors:
        yield pb.WatchRequest(request=cast(Any, Oneof("received", pb.Received(cursor=cursor))))
    await asyncio.Event().wait()


async def heard(stream: HeartbeatStream, count: int) -> list[str]:
    requests, found = stream.requests(), list[str]()
    while len(found) < count:
        said = (await anext(requests)).request
        assert said is not None
        found.append(said.field)
    await requests.aclose()
    return found


async def test_a_stream_that_does_not_offer_it_is_never_used() -> None:
    heartbeats = Heartbeats(RealClock())
    assert await heartbeats.send(HEARTBEAT, 1.0) is None
    stream = heartbeats.open(say())
    assert not stream.handle(event("welcome", pb.Welcome(resumed=True)))
    assert await heartbeats.send(HEARTBEAT, 1.0) is None
    heartbeats.close(stream)


async def test_beats_go_between_what_is_said_and_answers_come_in_order() -> None:
    heartbeats = Heartbeats(RealClock())
    stream = heartbeats.open(say("a", "b"))
    assert not stream.handle(WELCOME)
    waiting = [asyncio.create_task(heartbeats.send(HEARTBEAT, 60.0)) for _ in range(2)]
    await asyncio.sleep(0)
    assert sorted(await asyncio.wait_for(heard(stream, 4), 10)) == ["heartbeat"] * 2 + ["received"] * 2
    assert stream.handle(answer("first")) and stream.handle(answer("second"))
    found = [await one for one in waiting]
    assert [one.confirmed_deletes for one in found if one is not None] == ["first", "second"]
    assert stream.handle(answer("to nobody")) and not stream.handle(event("progress", pb.Progress(cursor="c")))
    heartbeats.close(stream)


async def test_a_stream_that_ends_or_does_not_answer_leaves_it_to_a_call_until_it_answers() -> None:
    clock = FakeClock()
    heartbeats = Heartbeats(clock)
    stream = heartbeats.open(say())
    stream.handle(WELCOME)
    waiting = asyncio.create_task(heartbeats.send(HEARTBEAT, 5.0))
    await clock.advance(5.0)
    assert await waiting is None and not stream.accepts
    assert await heartbeats.send(HEARTBEAT, 5.0) is None, "it is left alone"
    assert stream.handle(answer("late")) and stream.accepts
    waiting = asyncio.create_task(heartbeats.send(HEARTBEAT, 5.0))
    await clock.settle()
    heartbeats.close(stream)
    assert await waiting is None
