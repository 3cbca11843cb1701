"""The pool that answers requests, and the effect of each setting."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from protobuf import Oneof

from shoal.base.clock import FakeClock
from shoal.base.metrics import Metrics
from shoal.client import Unreachable
from shoal.errors import NotFound
from shoal.navigator.edge.config import RequestConfig
from shoal.navigator.edge.metrics import EdgeMetrics
from shoal.navigator.edge.requests.pool import RequestPool
from shoal.wire.navigator.v1 import navigator_pb as pb


class Asked:
    """Answers that come when the test lets them."""

    def __init__(self) -> None:
        self.running = 0
        self.most = 0
        self.free = asyncio.Event()
        self.fail: Exception | None = None

    async def __call__(self, request: pb.Request) -> AsyncIterator[bytes]:
        if request.id.startswith("quick"):
            if self.fail is not None:
                raise self.fail
            yield b"at once"
            return
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            yield b"first"
            await self.free.wait()
            yield b"second"
        finally:
            self.running -= 1


class Bench:
    def __init__(self, **config: Any) -> None:
        self.clock = FakeClock()
        self.asked = Asked()
        self.replies: dict[str, list[pb.Reply]] = {}
        self.pool = RequestPool(self.asked, RequestConfig(**config), EdgeMetrics(Metrics()), clock=self.clock)

    def start(self, id_: str, *, deadline_s: float = 0.0, follow: bool = False) -> None:
        what = Oneof("logs", pb.PodLogs(follow=follow))
        self.pool.start(pb.Request(id=id_, deadline_seconds=deadline_s, what=what), self.reply)

    async def reply(self, reply: pb.Reply) -> None:
        self.replies.setdefault(reply.id, []).append(reply)

    def reason(self, id_: str) -> str:
        return self.replies[id_][-1].reason

    def done(self, id_: str) -> bool:
        return id_ in self.replies and self.replies[id_][-1].last


async def test_a_slow_request_does_not_delay_others() -> None:
    bench = Bench(workers=2)
    bench.start("slow")
    bench.start("quick")
    await bench.clock.settle()
    assert bench.done("quick") and not bench.done("slow")
    bench.asked.free.set()
    await bench.clock.settle()
    assert b"".join(part.part for part in bench.replies["slow"]) == b"firstsecond"


async def test_every_request_ends_at_its_deadline() -> None:
    bench = Bench(longest_s=60.0)
    bench.start("asked", deadline_s=5.0)
    bench.start("too-long", deadline_s=600.0)
    bench.start("unnamed")
    await bench.clock.advance(4.9)
    assert not bench.done("asked")
    await bench.clock.advance(0.2)
    assert bench.reason("asked") == "Timeout" and not bench.done("unnamed")
    await bench.clock.advance(55)
    assert bench.reason("too-long") == bench.reason("unnamed") == "Timeout"
    assert bench.asked.running == 0


async def test_not_more_than_the_workers_are_busy_and_not_more_than_the_rest_waits() -> None:
    bench = Bench(workers=2, waiting=3)
    for number in range(6):
        bench.start(f"r{number}")
    await bench.clock.settle()
    assert bench.asked.most == 2
    assert bench.reason("r5") == "TooManyRequests"
    bench.asked.free.set()
    await bench.clock.settle()
    assert all(bench.done(f"r{number}") for number in range(5)) and bench.asked.most == 2


async def test_waiting_for_a_place_counts_towards_the_deadline() -> None:
    bench = Bench(workers=1)
    bench.start("first", deadline_s=30)
    bench.start("second", deadline_s=5)
    await bench.clock.advance(6)
    assert bench.reason("second") == "Timeout" and not bench.done("first")
    await bench.pool.stop()


async def test_followers_have_places_of_their_own() -> None:
    bench = Bench(workers=1, followers=2)
    for number in range(3):
        bench.start(f"f{number}", follow=True)
    bench.start("quick")
    await bench.clock.settle()
    assert bench.done("quick") and bench.reason("f2") == "TooManyRequests"
    await bench.clock.advance(300)
    assert not bench.done("f0"), "a follower has no deadline of a request"
    await bench.pool.stop()
    assert bench.asked.running == 0


async def test_a_cancelled_request_ends_and_says_nothing_more() -> None:
    bench = Bench()
    bench.start("slow")
    await bench.clock.settle()
    bench.pool.cancel("slow")
    bench.pool.cancel("nobody")
    await bench.clock.settle()
    assert bench.asked.running == 0 and not bench.done("slow")
    bench.start("slow")
    await bench.clock.settle()
    assert bench.asked.running == 1
    await bench.pool.stop()


async def test_errors_are_answers_with_their_reason() -> None:
    bench = Bench()
    cases = ((NotFound("no such pod"), "NotFound"), (Unreachable("gone"), "ServiceUnavailable"),
             (ValueError("a mistake"), "ServiceUnavailable"))  # fmt: skip
    for number, (error, reason) in enumerate(cases):
        bench.asked.fail = error
        bench.start(f"quick{number}")
        await bench.clock.settle()
        reply = bench.replies[f"quick{number}"][-1]
        assert reply.reason == reason and str(error) in reply.error
    bench.pool.start(pb.Request(id="empty"), bench.reply)
    await bench.clock.settle()
    assert bench.reason("empty") == "BadRequest"
