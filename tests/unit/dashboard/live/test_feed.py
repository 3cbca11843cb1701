"""Feeds: one computation for all pages, whole rows first, then differences that never pile up."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import orjson
import pytest

from shoal.base.clock import FakeClock
from shoal.base.metrics import Metrics
from shoal.dashboard.live.feed import Feed, Look, Subscription
from shoal.dashboard.live.hub import LINGER_S, Feeds
from shoal.dashboard.live.plan import Patch as Difference
from shoal.dashboard.live.plan import Row
from shoal.dashboard.metrics import PageMetrics
from shoal.errors import NotFound
from shoal.testing.pages import applied

Rows = dict[str, Row]


class Played:
    """A source that a test leads; counts how often it was started."""

    def __init__(self) -> None:
        self.started = 0
        self._told: asyncio.Queue[Look | Exception] = asyncio.Queue()

    async def looks(self) -> AsyncGenerator[Look, None]:
        self.started += 1
        while True:
            told = await self._told.get()
            if isinstance(told, Exception):
                raise told
            yield told

    async def tell(self, clock: FakeClock, told: Rows | Exception, at_ms: int = 1) -> None:
        self._told.put_nowait(told if isinstance(told, Exception) else Look(told, at_ms))
        await clock.settle()


class Browser:
    """What a page makes of the messages of one topic."""

    def __init__(self) -> None:
        self.rows: Rows = {}
        self.error: Any = None
        self.resets = 0
        self.woken = 0

    def wake(self) -> None:
        self.woken += 1

    def read(self, subscription: Subscription) -> bytes:
        message = subscription.take()
        if message:
            told = orjson.loads(message)
            if "error" in told:
                self.error = told["error"]
            elif told.get("reset"):
                self.rows, self.error, self.resets = told["rows"], None, self.resets + 1
            else:
                self.rows = applied(self.rows, Difference(told.get("set", {}), frozenset(told.get("drop", ()))))
        return message


@asynccontextmanager
async def running(source: Played, clock: FakeClock) -> Any:
    feed = Feed("test", source.looks, clock)
    task = asyncio.create_task(feed.run())
    await clock.settle()
    try:
        yield feed
    finally:
        task.cancel()
        await asyncio.wait([task])


def subscribed(feed: Feed, browser: Browser, id_: int = 1) -> Subscription:
    made = Subscription(feed, id_, browser.wake)
    feed.subscriptions.add(made)
    return made


async def test_a_page_gets_all_rows_first_and_then_what_changed() -> None:
    clock, source, browser = FakeClock(), Played(), Browser()
    async with running(source, clock) as feed:
        subscription = subscribed(feed, browser)
        assert subscription.take() == b"", "nothing is known yet"
        await source.tell(clock, {"a": {"n": 1, "m": 1}, "b": {"n": 1}}, at_ms=5)
        assert browser.woken
        assert orjson.loads(subscription.take()) == {
            "id": 1, "reset": True, "rows": {"a": {"n": 1, "m": 1}, "b": {"n": 1}}, "at": 5,
        }  # fmt: skip
        assert subscription.take() == b""
        await source.tell(clock, {"a": {"n": 2, "m": 1}}, at_ms=6)
        assert orjson.loads(subscription.take()) == {"id": 1, "drop": ["b"], "set": {"a": {"n": 2}}, "at": 6}


async def test_what_changes_before_the_first_message_is_in_it_and_not_told_again() -> None:
    clock, source, browser = FakeClock(), Played(), Browser()
    async with running(source, clock) as feed:
        subscription = subscribed(feed, browser)
        for n in range(3):
            await source.tell(clock, {"a": {"n": n}})
        browser.read(subscription)
        assert (browser.rows, browser.resets, subscription.take()) == ({"a": {"n": 2}}, 1, b"")


async def test_looks_that_show_nothing_new_wake_no_page() -> None:
    clock, source, browser = FakeClock(), Played(), Browser()
    async with running(source, clock) as feed:
        subscription = subscribed(feed, browser)
        await source.tell(clock, {"a": {"n": 1}})
        browser.read(subscription)
        woken = browser.woken
        await source.tell(clock, {"a": {"n": 1}}, at_ms=9)
        assert browser.woken == woken and subscription.take() == b""


async def test_what_a_slow_page_missed_is_one_message_per_row() -> None:
    clock, source, browser = FakeClock(), Played(), Browser()
    async with running(source, clock) as feed:
        subscription = subscribed(feed, browser)
        await source.tell(clock, {str(n): {"n": 0} for n in range(100)})
        browser.read(subscription)
        for change in range(1, 50):
            await source.tell(clock, {str(n): {"n": change if n < 3 else 0} for n in range(100)}, at_ms=change)
        message = browser.read(subscription)
        assert orjson.loads(message)["set"] == {str(n): {"n": 49} for n in range(3)}
        assert subscription.take() == b"", "nothing else was kept"


async def test_a_page_that_missed_more_than_there_is_gets_everything_again() -> None:
    clock, source, browser = FakeClock(), Played(), Browser()
    async with running(source, clock) as feed:
        subscription = subscribed(feed, browser)
        await source.tell(clock, {"x": {"n": 0}})
        browser.read(subscription)
        for change in range(200):  # each time another key: what was dropped would pile up
            await source.tell(clock, {f"k{change}": {"n": 1}})
        assert len(subscription.take()) < 100
        fresh = Browser()
        again = subscribed(feed, fresh, 2)
        fresh.read(again)
        assert fresh.rows == {"k199": {"n": 1}}


async def test_pages_with_different_patience_end_with_the_same_rows() -> None:
    clock, source = FakeClock(), Played()
    quick, slow, late = Browser(), Browser(), Browser()
    async with running(source, clock) as feed:
        ones = [(quick, subscribed(feed, quick, 1)), (slow, subscribed(feed, slow, 2))]
        rows: Rows = {}
        for n in range(60):
            rows = {f"r{k}": {"n": n // (k + 1), **({"odd": True} if n % 2 else {})} for k in range(n % 7)}
            await source.tell(clock, rows, at_ms=n + 1)
            quick.read(ones[0][1])
            if n % 9 == 0:
                slow.read(ones[1][1])
            if n == 30:
                ones.append((late, subscribed(feed, late, 3)))
        for browser, subscription in ones:
            browser.read(subscription)
            assert browser.rows == rows


async def test_an_error_is_told_once_and_all_rows_follow_when_it_is_over() -> None:
    clock, source, browser = FakeClock(), Played(), Browser()
    async with running(source, clock) as feed:
        subscription = subscribed(feed, browser)
        await source.tell(clock, {"a": {"n": 1}})
        browser.read(subscription)
        for _ in range(3):
            await source.tell(clock, NotFound("app shop/prod/web not found"))
            browser.read(subscription)
            await clock.advance(11)
        assert browser.error == {"code": "NotFound", "message": "app shop/prod/web not found", "fix": ""}
        assert source.started == 4
        await source.tell(clock, {"a": {"n": 2}})
        browser.read(subscription)
        assert (browser.rows, browser.error, browser.resets) == ({"a": {"n": 2}}, None, 2)


async def test_what_is_wrong_inside_is_not_told(caplog: pytest.LogCaptureFixture) -> None:
    clock, source, browser = FakeClock(), Played(), Browser()
    async with running(source, clock) as feed:
        subscription = subscribed(feed, browser)
        await source.tell(clock, ValueError("password=secret"))
        assert b"secret" not in browser.read(subscription)
        assert browser.error["code"] == "InternalError"


async def test_pages_with_the_same_key_share_one_source_and_others_do_not() -> None:
    clock, source, other = FakeClock(), Played(), Played()
    feeds = Feeds(clock, PageMetrics(Metrics()))
    try:
        first, second, third = Browser(), Browser(), Browser()
        one = feeds.subscribe(("apps", "w1"), "apps", source.looks, 1, first.wake)
        two = feeds.subscribe(("apps", "w1"), "apps", source.looks, 1, second.wake)
        feeds.subscribe(("apps", "w2"), "apps", other.looks, 1, third.wake)
        await clock.settle()
        assert (source.started, other.started) == (1, 1)
        await source.tell(clock, {"a": {"of": "w1"}})
        for browser, (_, subscription) in ((first, one), (second, two)):
            browser.read(subscription)
            assert browser.rows == {"a": {"of": "w1"}}
        assert third.woken == 1, "only by being opened"
    finally:
        await feeds.close()


async def test_a_source_ends_some_time_after_its_last_page() -> None:
    clock, source, browser = FakeClock(), Played(), Browser()
    feeds = Feeds(clock, PageMetrics(Metrics()))
    sweeping = asyncio.create_task(feeds.run())
    try:
        feed, subscription = feeds.subscribe("k", "apps", source.looks, 1, browser.wake)
        await clock.settle()
        feeds.leave(feed, subscription)
        await clock.advance(LINGER_S / 2)
        again = feeds.subscribe("k", "apps", source.looks, 1, browser.wake)
        assert again[0] is feed and source.started == 1, "people come back"
        await clock.advance(3 * LINGER_S)
        feeds.leave(*again)
        await clock.advance(3 * LINGER_S)
        feeds.subscribe("k", "apps", source.looks, 1, browser.wake)
        await clock.settle()
        assert source.started == 2
    finally:
        sweeping.cancel()
        await asyncio.wait([sweeping])
        await feeds.close()
