"""The load of the demo application: its rate, and what came of the requests."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from shoal.app.demo.answers import About
from shoal.app.demo.load import NO_ANSWER, LoadTarget, main, send, text_of
from shoal.app.demo.server import DemoServer
from shoal.base.clock import RealClock

LIMIT_S = 30.0


async def sent(*targets: LoadTarget, rate: float = 200.0, for_s: float = 0.5) -> Counter[str]:
    tally: Counter[str] = Counter()
    async with asyncio.timeout(LIMIT_S):
        await send(targets, rate=rate, clock=RealClock(), until=asyncio.Event(), for_s=for_s, tally=tally)
    return tally


async def test_answers_are_counted_by_status_and_no_faster_than_the_rate() -> None:
    servers = [DemoServer(About()), DemoServer(About(fail_percent=100.0))]
    try:
        ports = [await server.start("127.0.0.1", 0) for server in servers]
        clock = RealClock()
        tally = await sent(*(LoadTarget(f"http://127.0.0.1:{port}/", "shop.localhost", clock) for port in ports))
    finally:
        for server in servers:
            await server.close(drain_s=0, end_s=1)
    assert set(tally) == {"200", "500"}
    assert abs(tally["200"] - tally["500"]) <= 1, "in turn"
    assert 2 <= tally.total() <= 101


async def test_a_request_without_an_answer_is_counted_and_ends_nothing() -> None:
    server = DemoServer(About())
    port = await server.start("127.0.0.1", 0)
    await server.close(drain_s=0, end_s=1)
    tally = await sent(LoadTarget(f"127.0.0.1:{port}", "", RealClock()), rate=50.0, for_s=0.2)
    assert set(tally) == {NO_ANSWER}


def test_the_counts_are_one_line() -> None:
    assert text_of(Counter()) == "0 requests"
    assert text_of(Counter({"500": 2, "200": 40})) == "42 requests (200: 40, 500: 2)"


@pytest.mark.parametrize("words", [("https://a/",), ("ftp://a",), ("http://",), ("http://a/", "--rate", "0"), ()])
def test_what_cannot_be_sent_is_refused(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2
    assert "usage: shoal-load" in capsys.readouterr().err
