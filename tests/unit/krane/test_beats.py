"""Heartbeats go along on a stream where the other side takes them, and never get lost between the two ways."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, cast

from protobuf import Oneof

from shoal.base.clock import FakeClock, RealClock
from shoal.krane.beats import Beats, Line
from shoal.wire.fleet.v1 import cluster_pb as pb

BEAT = pb.HeartbeatRequest(software="s")


def event(field: str, value: Any) -> pb.WatchEvent:
    return pb.WatchEvent(event=cast(Any, Oneof(field, value)))


WELCOME = event("welcome", pb.Welcome(heartbeats=True))


def answer(text: str) -> pb.WatchEvent:
    return event("heartbeat", pb.HeartbeatResponse(confirmed_deletes=text))


async def say(*cursors: str) -> AsyncIterator[pb.WatchRequest]:
    for cursor in cursors:
        yield pb.WatchRequest(request=cast(Any, Oneof("received", pb.Received(cursor=cursor))))
    await asyncio.Event().wait()


async def heard(line: Line, count: int) -> list[str]:
    requests, found = line.requests(), list[str]()
    while len(found) < count:
        said = (await anext(requests)).request
        assert said is not None
        found.append(said.field)
    await requests.aclose()
    return found


async def test_a_stream_that_does_not_offer_it_is_never_used() -> None:
    beats = Beats(RealClock())
    assert await beats.beat(BEAT, 1.0) is None
    line = beats.open(say())
    assert not line.took(event("welcome", pb.Welcome(resumed=True)))
    assert await beats.beat(BEAT, 1.0) is None
    beats.close(line)


async def test_beats_go_between_what_is_said_and_answers_come_in_order() -> None:
    beats = Beats(RealClock())
    line = beats.open(say("a", "b"))
    assert not line.took(WELCOME)
    waiting = [asyncio.create_task(beats.beat(BEAT, 60.0)) for _ in range(2)]
    await asyncio.sleep(0)
    assert sorted(await asyncio.wait_for(heard(line, 4), 10)) == ["heartbeat"] * 2 + ["received"] * 2
    assert line.took(answer("first")) and line.took(answer("second"))
    found = [await one for one in waiting]
    assert [one.confirmed_deletes for one in found if one is not None] == ["first", "second"]
    assert line.took(answer("to nobody")) and not line.took(event("progress", pb.Progress(cursor="c")))
    beats.close(line)


async def test_a_stream_that_ends_or_does_not_answer_leaves_it_to_a_call_until_it_answers() -> None:
    clock = FakeClock()
    beats = Beats(clock)
    line = beats.open(say())
    line.took(WELCOME)
    waiting = asyncio.create_task(beats.beat(BEAT, 5.0))
    await clock.advance(5.0)
    assert await waiting is None and not line.takes
    assert await beats.beat(BEAT, 5.0) is None, "it is left alone"
    assert line.took(answer("late")) and line.takes
    waiting = asyncio.create_task(beats.beat(BEAT, 5.0))
    await clock.settle()
    beats.close(line)
    assert await waiting is None
