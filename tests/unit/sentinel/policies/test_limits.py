"""Strict limits, counted by a real Redis: never more than allowed in any window, and what clients are told."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from redis.asyncio import Redis

from shoal.base.clock import FakeClock
from shoal.sentinel.policies.limits import (
    TAKE,
    LimitCheck,
    LimitDecision,
    judgements,
    limit_headers,
    read_descriptor,
    script_arguments,
    tightest,
)
from shoal.sentinel.policies.limits_service import LimitsUnavailable, StrictLimits
from shoal.sentinel.policies.server import strict_redis
from shoal.sentinel.policies.wire import BadRule
from shoal.testing.databases import redis_server, shared_redis

STEP_S = 3600 / 20
PATIENT_S = 120.0  # for machines that are busy with other things


@asynccontextmanager
async def empty_redis() -> AsyncIterator[Redis]:
    redis = strict_redis(shared_redis().url)
    try:
        await redis.flushall()
        async with asyncio.timeout(PATIENT_S):
            yield redis
    finally:
        await redis.aclose()


def descriptor(*who: tuple[str, str], policy: str = "p", limit: str = "3", window: str = "3600") -> LimitCheck:
    return read_descriptor((("policy", policy), ("limit", limit), ("window", window), *who))


async def take(redis: Redis, *questions: LimitCheck, cost: int = 1) -> list[LimitDecision]:
    script = redis.register_script(TAKE)
    answer = await script(
        keys=[one.key for one in questions], args=script_arguments(questions, [cost] * len(questions))
    )
    return judgements(questions, answer)


async def age(redis: Redis, question: LimitCheck, steps: int) -> None:
    """As if what was counted had been counted that many steps of its window earlier."""
    counts: Any = await redis.hgetall(question.key)
    await redis.delete(question.key)
    for index, count in counts.items():
        await redis.hset(question.key, str(int(index) - steps), count)


async def test_as_many_requests_pass_as_the_limit_and_each_answer_has_the_rest() -> None:
    async with empty_redis() as redis:
        who = descriptor(("by", "a"))
        found = [(await take(redis, who))[0] for _ in range(5)]
        assert [one.allowed for one in found] == [True] * 3 + [False] * 2
        assert [one.remaining for one in found] == [2, 1, 0, 0, 0]
        assert all(3600 <= one.reset_s <= 3600 + STEP_S for one in found)
        assert all(3600 - STEP_S <= one.retry_s <= 3600 + STEP_S for one in found[3:])
        assert (await take(redis, descriptor(("by", "b"))))[0].allowed


async def test_what_was_taken_counts_for_a_whole_window_and_then_no_more() -> None:
    async with empty_redis() as redis:
        who = descriptor(("by", "a"))
        await take(redis, who, cost=3)
        await age(redis, who, 19)
        assert not (await take(redis, who))[0].allowed
        await age(redis, who, 2)
        assert (await take(redis, who))[0].remaining == 2
        assert len(await redis.hgetall(who.key)) == 1  # what left the window is forgotten


async def test_a_burst_at_the_edge_of_a_window_does_not_double_the_limit() -> None:
    async with empty_redis() as redis:
        who = descriptor(("by", "a"), limit="10")
        passed = 0
        for _ in range(20):  # one step after the other, as much as can be had in each
            while (await take(redis, who))[0].allowed:
                passed += 1
            await age(redis, who, 1)
        assert passed == 10


async def test_a_request_that_one_limit_refuses_costs_nothing_in_the_others() -> None:
    async with empty_redis() as redis:
        wide, narrow = descriptor(("by", "a"), policy="wide", limit="9"), descriptor(("by", "a"), limit="1")
        found = [await take(redis, wide, narrow) for _ in range(4)]
        assert [[one.allowed for one in both] for both in found] == [[True, True]] + [[True, False]] * 3
        assert (await take(redis, wide))[0].remaining == 7


async def test_a_cost_above_the_limit_can_never_pass() -> None:
    async with empty_redis() as redis:
        who = descriptor(("by", "a"))
        assert (await take(redis, who, cost=4))[0].retry_s == -1
        assert (await take(redis, who, cost=3))[0].allowed
        assert not (await take(redis, descriptor(("by", "z"), limit="0")))[0].allowed


async def test_counters_expire_by_themselves() -> None:
    async with empty_redis() as redis:
        who = descriptor(("by", "a"))
        await take(redis, who)
        assert 3600_000 <= await redis.pttl(who.key) <= 3600_000 * 1.05 + 1000


async def test_many_at_once_get_no_more_than_the_limit() -> None:
    async with empty_redis() as redis:
        who = descriptor(("by", "a"), limit="50")
        found = await asyncio.gather(*(take(redis, who) for _ in range(120)))
        assert sum(one.allowed for (one,) in found) == 50


def test_identifiers_are_kept_apart_and_never_kept() -> None:
    questions = [
        descriptor(("by", "secret")), descriptor(("by", "secre"), ("x", "t")), descriptor(("remote_address", "secret")),
        descriptor(("by", "secret"), policy="q"), descriptor(("by", "secret"), window="60"),
    ]  # fmt: skip
    assert len({one.key for one in questions}) == len(questions)
    assert not any("secret" in one.key for one in questions)


@pytest.mark.parametrize("who", [(), (("by", ""),), (("fits", "yes"),)])
async def test_a_descriptor_without_an_identifier_is_refused_and_not_counted(who: tuple[tuple[str, str], ...]) -> None:
    assert descriptor(*who).key == ""
    judged = await StrictLimits(None, clock=FakeClock()).judge([descriptor(*who)], [1])
    assert [one.allowed for one in judged] == [False]


@pytest.mark.parametrize(
    "entries",
    [(), (("by", "a"),), (("policy", "p"), ("limit", "x"), ("window", "1")), (("policy", "p"), ("limit", "1")),
     (("policy", "p"), ("limit", "1"), ("window", "0")), (("policy", ""), ("limit", "1"), ("window", "1"))],
)  # fmt: skip
def test_a_descriptor_that_names_no_limit_is_refused(entries: tuple[tuple[str, str], ...]) -> None:
    with pytest.raises(BadRule):
        read_descriptor(entries)


def test_the_answer_shows_the_tightest_limit() -> None:
    wide = LimitDecision(100, 60, True, remaining=50)
    narrow = LimitDecision(10, 60, True, remaining=4)
    soon, late = LimitDecision(1, 60, False, retry_s=1.2), LimitDecision(1, 60, False, retry_s=59)
    assert tightest([wide, narrow]) is narrow
    assert tightest([wide, soon, late]) is late
    assert limit_headers(narrow) == {"x-ratelimit-limit": "10", "x-ratelimit-remaining": "4", "x-ratelimit-reset": "0"}
    assert limit_headers(soon)["retry-after"] == "2"
    assert limit_headers(LimitDecision(1, 60, False, retry_s=-1.0))["retry-after"] == "60"
    assert limit_headers(LimitDecision(1, 60, False, retry_s=0.01))["retry-after"] == "1"


async def test_a_redis_that_is_gone_is_left_alone_for_a_moment_and_then_asked_again() -> None:
    clock = FakeClock()
    with redis_server() as server:
        redis = strict_redis(server.url)
        limits = StrictLimits(redis, clock=clock, timeout_s=PATIENT_S)
        who = [descriptor(("by", "a"))]
        assert (await limits.judge(who, [1]))[0].allowed
        await asyncio.to_thread(server.kill)
        with pytest.raises(LimitsUnavailable):
            await limits.judge(who, [1])
        await asyncio.to_thread(server.start)
        with pytest.raises(LimitsUnavailable, match="moments ago"):
            await limits.judge(who, [1])
        await clock.advance(1.0)
        assert (await limits.judge(who, [1]))[0].allowed
        await redis.aclose()


async def test_a_redis_that_hangs_costs_no_more_than_the_time_it_has() -> None:
    clock = FakeClock()
    with redis_server() as server:
        redis = strict_redis(server.url)
        limits = StrictLimits(redis, clock=clock, timeout_s=0.015)
        server.pause()
        try:
            async with asyncio.timeout(PATIENT_S):  # a hanging Redis would never answer
                with pytest.raises(LimitsUnavailable):
                    await limits.judge([descriptor(("by", "a"))], [1])
        finally:
            server.resume()
        await clock.advance(1.0)
        patient = StrictLimits(redis, clock=clock, timeout_s=PATIENT_S)
        other = descriptor(("by", "b"), limit="7")  # not the answer that came too late for another
        assert [one.remaining for one in await patient.judge([other], [1])] == [6]
        await redis.aclose()
